//! Environment variables in manifests and on the command line.

use crate::document::fields::Fields;
use std::collections::BTreeMap;

/// Why an app may not set a variable of this name; `None` = it may.
pub(crate) fn check_variable(name: &str) -> Option<&'static str> {
    let mut bytes = name.bytes();
    let valid = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !valid {
        Some("a variable's name has letters, digits and '_' only and does not begin with a digit")
    } else if name == "PORT" {
        Some("PORT is set by the platform for each instance")
    } else if name.starts_with("TOWPATH_") {
        Some("names that begin with TOWPATH_ are set by the platform")
    } else {
        None
    }
}

/// The variables of a table whose values are plain: numbers and true/false are taken as text.
pub(crate) fn read(fields: &Fields<'_>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for entry in fields.entries() {
        if let Some(why) = check_variable(&entry.key) {
            fields.wrong(&entry.key, why, "");
        } else if let Some(value) = entry.node.value.scalar_text() {
            if value.contains('\0') {
                fields.wrong(&entry.key, "a value cannot hold a NUL byte", "");
            }
            env.insert(entry.key.clone(), value);
        } else {
            let message = format!("one value is expected, not {}", entry.node.value.kind());
            fields.wrong(&entry.key, message, "put it in quotes, as JSON for example");
        }
    }
    env
}
