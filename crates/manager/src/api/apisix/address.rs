//! Which resource an address means.

use super::answer::{Answered, Failed};
use http::StatusCode;
use serde_json::Value;
use towpath_resources::{Id, Key, Kind};

/// What stands behind `/apisix/admin/`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// All of a kind.
    All(Kind),
    /// All credentials of a consumer.
    CredentialsOf(String),
    /// One, and a path inside it, which may be empty.
    One(Key, String),
}

pub(super) fn of(kind: &str, id: Option<&str>, rest: Option<&str>) -> Answered<Address> {
    let kind: Kind = kind
        .parse()
        .map_err(|_| Failed::new(StatusCode::NOT_FOUND, format!("Unsupported resource type: {kind}")))?;
    let Some(id) = id else { return Ok(Address::All(kind)) };
    let rest = rest.unwrap_or_default().trim_matches('/');
    let (first, behind) = rest.split_once('/').unwrap_or((rest, ""));
    match kind {
        Kind::Consumer if first == "credentials" && behind.is_empty() => {
            Ok(Address::CredentialsOf(id.to_owned()))
        }
        Kind::Consumer if first == "credentials" => {
            let (own, path) = behind.split_once('/').unwrap_or((behind, ""));
            one(Kind::Credential, &format!("{id}/credentials/{own}"), path)
        }
        Kind::Credential if first == "credentials" => one(kind, &format!("{id}/credentials/{behind}"), ""),
        Kind::Secret if first.is_empty() => Err(Failed::new(
            StatusCode::BAD_REQUEST,
            "the address of a secret is secrets/vault/<id>, secrets/aws/<id> or secrets/gcp/<id>",
        )),
        Kind::Secret => one(kind, &format!("{id}/{first}"), behind),
        _ => one(kind, id, rest),
    }
}

fn one(kind: Kind, id: &str, path: &str) -> Answered<Address> {
    let id = Id::new(kind, id).map_err(|fault| Failed::new(StatusCode::BAD_REQUEST, fault.message))?;
    Ok(Address::One(Key::new(kind, id), path.to_owned()))
}

/// The resource that a document says it is, where the address does not.
pub(super) fn key_in(kind: Kind, body: &Value) -> Answered<Key> {
    let field = if kind == Kind::Consumer { "username" } else { "id" };
    let text = match body.get(field) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => return Err(Failed::new(StatusCode::BAD_REQUEST, format!("missing {} {field}", kind.noun()))),
    };
    let id = Id::new(kind, &text).map_err(|fault| Failed::new(StatusCode::BAD_REQUEST, fault.message))?;
    Ok(Key::new(kind, id))
}
