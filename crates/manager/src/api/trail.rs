//! What the audit log gets to know of a change: it is written with the change, in one transaction.
//!
//! Values of variables, passwords and hashes never get into it: a field that may hold one is shown as `(secret)`.

use super::ApiState;
use super::forward::{Forwarded, SOURCE};
use super::problem::{Outcome, Problem, REQUEST_ID};
use crate::operations::{Input, NewOperation};
use crate::vault::masked;
use axum::extract::{ConnectInfo, FromRequestParts};
use http::request::Parts;
use serde_json::{Map, Value};
use std::net::SocketAddr;
use towpath_store::{Expect, Write};
use towpath_types::identity::{Actor, AuditField, AuditSpec};
use towpath_types::resource::Key;
use towpath_types::spec::{OperationSpec, RouteSpec};
use towpath_types::{Digest, ErrorCode, Kind, OperationId, OrgName, Record, SpaceName, SpaceRef};

/// Fields of one entry; what is beyond is left out.
const MAX_FIELDS: usize = 64;
/// Longest text of a value.
const MAX_TEXT: usize = 512;
/// What is shown of a secret.
const SECRET: &str = "(secret)";

/// Who changes something by which request.
#[derive(Debug, Clone)]
pub(crate) struct Trail {
    by: Actor,
    action: &'static str,
    request: String,
    source: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Trail {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Outcome<Self> {
        let missing = || Problem::new(ErrorCode::Internal, "this change has no name for the audit log");
        parts.extensions.get::<Trail>().cloned().ok_or_else(missing)
    }
}

/// Where a request came from, over however many managers.
pub(crate) fn source_of(extensions: &http::Extensions, headers: &http::HeaderMap) -> Option<String> {
    if extensions.get::<Forwarded>().is_some() {
        return headers.get(SOURCE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    }
    extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip().to_string())
}

impl Trail {
    /// Of this request.
    pub(crate) fn new<B>(by: Actor, action: &'static str, request: &http::Request<B>) -> Self {
        let id = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
        let source = source_of(request.extensions(), request.headers());
        Self { by, action, request: id.to_owned(), source }
    }

    /// An entry about a resource.
    pub(crate) fn about(&self, key: &Key) -> AuditSpec {
        AuditSpec {
            by: self.by.clone(),
            action: self.action.into(),
            org: match key.kind {
                Kind::Org => key.name.parse().ok(),
                _ => key.org.clone(),
            },
            space: match key.kind {
                Kind::Space => key.name.parse().ok(),
                _ => key.space.clone(),
            },
            kind: key.kind.as_str().into(),
            name: key.name.clone(),
            from: None,
            fields: Vec::new(),
            operation: None,
            request: self.request.clone(),
            source: self.source.clone(),
        }
    }

    /// The entry of a change; `None` when nothing of the resource becomes different.
    pub(crate) fn of_change(&self, present: Option<&Record>, writes: &[Write]) -> Option<AuditSpec> {
        let empty = Value::Object(Map::new());
        let before = present.map_or(&empty, |record| &record.spec);
        let (key, after) = match writes.first()? {
            Write::Put { key, spec: Some(spec), .. } => (key, spec),
            Write::Put { spec: None, .. } => return None,
            Write::Delete { .. } if present.is_none() => return None,
            Write::Delete { key, .. } => (key, &empty),
        };
        if present.is_some() && before == after && matches!(writes.first(), Some(Write::Put { .. })) {
            return None;
        }
        let mut entry = self.about(key);
        if key.kind == Kind::Route {
            let route = |spec: &Value| serde_json::from_value::<RouteSpec>(spec.clone()).ok();
            let app = route(after).or_else(|| route(before)).map(|route| route.app);
            (entry.org, entry.space) = (app.as_ref().map(|app| app.org.clone()), app.map(|app| app.space));
        }
        if key.kind == Kind::Session {
            // Never the hash of its token.
            let user = after.get("user").or_else(|| before.get("user")).and_then(Value::as_str);
            entry.name = user.unwrap_or_default().to_owned();
        } else if let Some((before, after)) = masked_resource(key, before, after) {
            compare(&mut String::new(), &before, &after, &mut entry.fields);
        } else {
            compare(&mut String::new(), before, after, &mut entry.fields);
        }
        entry.from = present.map(|record| record.revision);
        Some(entry)
    }

    /// The entry of an upload.
    pub(crate) fn of_upload(&self, space: &SpaceRef, digest: Digest) -> AuditSpec {
        let key = Key {
            kind: Kind::Release,
            org: Some(space.org.clone()),
            space: Some(space.space.clone()),
            name: digest.to_string(),
        };
        AuditSpec { kind: "source".into(), ..self.about(&key) }
    }

    /// The entry of an operation that is given up.
    pub(crate) fn of_cancel(&self, record: &Record) -> AuditSpec {
        let mut entry = self.about(&record.key);
        if let Ok(spec) = record.spec::<OperationSpec>() {
            (entry.org, entry.space) = (Some(spec.app.org), Some(spec.app.space));
            entry.operation = Some(spec.operation);
        }
        entry.from = Some(record.revision);
        entry
    }

    /// The entry of an operation that was asked for.
    pub(crate) fn of_operation(&self, new: &NewOperation, key: &Key, present: Option<&Record>) -> AuditSpec {
        let mut entry = self.about(key);
        entry.from = present.map(|record| record.revision);
        let mut asked = serde_json::to_value(&new.input).unwrap_or_default();
        if let Value::Object(asked) = &mut asked {
            asked.remove("verb");
        }
        if matches!(new.input, Input::Push(_)) {
            entry.fields.push(field("lane", &Value::Null, &Value::String(new.lane.to_string())));
        }
        let none = Value::Null;
        compare_asked(
            &mut String::new(),
            present.map_or(&none, |record| &record.spec),
            &asked,
            &mut entry.fields,
        );
        entry
    }
}

/// Both versions of a resource of the gateway without its secrets, which may stand in lists, too. `None` = it is something else.
fn masked_resource(key: &Key, before: &Value, after: &Value) -> Option<(Value, Value)> {
    let (kind, id) = key.name.split_once('/').filter(|_| key.kind == Kind::Resource)?;
    let kind: towpath_resources::Kind = kind.parse().ok()?;
    let key = towpath_resources::Key::new(kind, towpath_resources::Id::new(kind, id).ok()?);
    Some((masked(&key, before, Some(after)), masked(&key, after, None)))
}

/// Whether what stands at a path may be a secret.
fn is_secret(path: &str) -> bool {
    path.split('.').any(|part| {
        let ends = ["_key", "_secret", "secret", "_token", "_password"];
        ends.iter().any(|end| part.ends_with(end))
            || matches!(
                part,
                "env"
                    | "password"
                    | "hash"
                    | "token"
                    | "current"
                    | "new"
                    | "pepper"
                    | "checks"
                    | "sealed"
                    | "key"
                    | "keys"
            )
    })
}

/// Whether a variable stands at a path: it is told as one, however it is kept.
fn is_variable(path: &str) -> bool {
    path.split('.').rev().nth(1) == Some("env")
}

fn field(path: &str, from: &Value, to: &Value) -> AuditField {
    let shown = |value: &Value| match value {
        Value::Null => Value::Null,
        _ if is_secret(path) => Value::String(SECRET.into()),
        value => {
            let text = value.to_string();
            if text.len() <= MAX_TEXT {
                return value.clone();
            }
            Value::String(text.chars().take(MAX_TEXT).chain("…".chars()).collect())
        }
    };
    AuditField { field: path.to_owned(), from: shown(from), to: shown(to) }
}

fn with_part(path: &mut String, part: &str, work: impl FnOnce(&mut String)) {
    let length = path.len();
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(part);
    work(path);
    path.truncate(length);
}

/// Collects the leaves that differ.
fn compare(path: &mut String, from: &Value, to: &Value, fields: &mut Vec<AuditField>) {
    if from == to || fields.len() >= MAX_FIELDS {
        return;
    }
    if is_variable(path) {
        return fields.push(field(path, from, to));
    }
    let none = Map::new();
    let (left, right) = match (from, to) {
        (Value::Object(left), Value::Object(right)) => (left, right),
        (Value::Null, Value::Object(right)) if !right.is_empty() => (&none, right),
        (Value::Object(left), Value::Null) if !left.is_empty() => (left, &none),
        _ => return fields.push(field(path, from, to)),
    };
    for (name, before) in left {
        let after = right.get(name).unwrap_or(&Value::Null);
        with_part(path, name, |path| compare(path, before, after, fields));
    }
    for (name, after) in right.iter().filter(|(name, _)| !left.contains_key(*name)) {
        with_part(path, name, |path| compare(path, &Value::Null, after, fields));
    }
}

/// Collects the leaves of what was asked for, with what is there now.
fn compare_asked(path: &mut String, present: &Value, asked: &Value, fields: &mut Vec<AuditField>) {
    match asked {
        secret @ Value::Object(_) if is_variable(path) => fields.push(field(path, present, secret)),
        Value::Object(asked) => {
            for (name, value) in asked {
                // The same thing under two names.
                let there =
                    present.get(name).or_else(|| present.get("count").filter(|_| name == "instances"));
                let there = there.unwrap_or(&Value::Null).clone();
                with_part(path, name, |path| compare_asked(path, &there, value, fields));
            }
        }
        Value::Array(items) if items.is_empty() => {}
        // `null` is "as it is", but takes a variable away.
        Value::Null if !is_secret(path) => {}
        Value::String(text) if text.is_empty() => {}
        value if fields.len() < MAX_FIELDS => fields.push(field(path, present, value)),
        _ => {}
    }
}

impl ApiState {
    /// The write of an entry. Its name sorts the newest first.
    pub(crate) fn audit_write(&self, entry: &AuditSpec) -> Write {
        let random = fastrand::u32(..);
        let name = format!("{:016x}-{random:08x}", u64::MAX - self.core.now_ms());
        Write::Put {
            key: audit_key(entry.org.clone(), name),
            id: self.core.mint_record_id(),
            expect: Expect::Absent,
            spec: serde_json::to_value(entry).ok(),
            status: None,
        }
    }

    /// The write of an operation's entry, once its id is known.
    pub(crate) fn operation_entry(
        &self,
        trail: Option<&Trail>,
        new: &NewOperation,
        key: &Key,
    ) -> Option<impl FnOnce(OperationId) -> Write + Send + 'static + use<>> {
        let present = self.core.cache.get(key);
        let mut entry = trail?.of_operation(new, key, present.as_deref());
        let state = self.clone();
        Some(move |operation| {
            entry.operation = Some(operation);
            state.audit_write(&entry)
        })
    }
}

/// Key of an entry: by org, so that the log of one is read without that of the others.
pub(crate) fn audit_key(org: Option<OrgName>, name: String) -> Key {
    Key { kind: Kind::Audit, org, space: None::<SpaceName>, name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn compared(from: Value, to: Value) -> Value {
        let mut fields = Vec::new();
        compare(&mut String::new(), &from, &to, &mut fields);
        serde_json::to_value(fields).unwrap()
    }

    #[test]
    fn only_what_differs_is_told_and_no_secret() {
        assert_eq!(
            compared(
                json!({"count": 1, "same": 2, "env": {"A": "s3cret", "B": "x"}, "old": [1]}),
                json!({"count": 3, "same": 2, "env": {"A": "0ther", "C": "y"}, "password": "$argon2id$"}),
            ),
            json!([
                {"field": "count", "from": 1, "to": 3},
                {"field": "env.A", "from": "(secret)", "to": "(secret)"},
                {"field": "env.B", "from": "(secret)", "to": null},
                {"field": "env.C", "from": null, "to": "(secret)"},
                {"field": "old", "from": [1], "to": null},
                {"field": "password", "from": null, "to": "(secret)"},
            ])
        );
        assert_eq!(compared(json!({}), json!({"env": "s3cret"}))[0]["to"], "(secret)");
    }

    #[test]
    fn what_was_asked_for_is_told_against_what_is_there() {
        let mut fields = Vec::new();
        let asked = json!({"instances": 3, "limits": {"memory": "64M", "disk": null}, "env": {"A": "s3cret", "B": null},
            "note": "", "routes": []});
        let present = json!({"count": 1, "limits": {"memory": null}, "env": {"B": "old"}});
        compare_asked(&mut String::new(), &present, &asked, &mut fields);
        let told: Vec<_> = fields.iter().map(|f| (f.field.as_str(), f.from.clone(), f.to.clone())).collect();
        assert_eq!(
            told,
            [
                ("env.A", json!(null), json!("(secret)")),
                ("env.B", json!("(secret)"), json!(null)),
                ("instances", json!(1), json!(3)),
                ("limits.memory", json!(null), json!("64M")),
            ]
        );
    }

    #[test]
    fn long_values_are_cut() {
        let told = compared(json!({"note": ""}), json!({"note": "x".repeat(5000)}));
        assert!(told[0]["to"].as_str().unwrap().chars().count() <= MAX_TEXT + 1);
    }
}
