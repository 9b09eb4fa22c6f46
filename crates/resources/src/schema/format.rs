//! Forms of texts that a pattern says badly.

use crate::Fault;
use crate::fault::join;
use crate::model::{Address, Host};
use serde_json::Value;
use towpath_route::vars::Expr;

/// What is wrong with `text`, which has to be of `format`. Formats that are not known here are not judged.
pub(super) fn fault_of(format: &str, text: &str) -> Option<String> {
    match format {
        "ip-or-cidr" => Address::parse(text).is_none().then(|| {
            format!("{text:?} is no address: give an IPv4 or IPv6 address, with /length for a network")
        }),
        "host" => Host::parse(text)
            .is_none()
            .then(|| format!("{text:?} is no host: give a name, an address, or a name that begins with *.")),
        "regex" => towpath_route::vars::pattern(text, false).err(),
        "id" => crate::Id::plain(text)
            .is_none()
            .then(|| format!("{text:?} is no id: give 1 to 64 of a-z A-Z 0-9 - _ .")),
        "label" => text.chars().any(char::is_whitespace).then(|| format!("{text:?} must not have spaces")),
        _ => None,
    }
}

/// All that is wrong with a list of `format`.
pub(super) fn faults_of_list(format: &str, path: &str, items: &[Value], faults: &mut Vec<Fault>) {
    if format == "condition"
        && let Err(found) = Expr::parse(&Value::Array(items.to_vec()))
    {
        faults.extend(found.into_iter().map(|fault| Fault::new(join(path, &fault.path), fault.message)));
    }
}
