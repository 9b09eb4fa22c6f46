//! Forms of values that several plugins take.

use crate::Fault;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::Number;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// A text, or a number that is used as one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// A text, perhaps with variables.
    Text(String),
    /// A number.
    Number(Number),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Text(text) => f.write_str(text),
            Scalar::Number(number) => number.fmt(f),
        }
    }
}

impl JsonSchema for Scalar {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Scalar".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "string"}, {"type": "number"}]})
    }
}

/// One value, or several.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Scalars {
    /// One.
    One(Scalar),
    /// Several, each for itself.
    Many(Vec<Scalar>),
}

impl Scalars {
    /// All of them as texts.
    pub fn texts(&self) -> Vec<String> {
        match self {
            Scalars::One(value) => vec![value.to_string()],
            Scalars::Many(values) => values.iter().map(ToString::to_string).collect(),
        }
    }
}

impl JsonSchema for Scalars {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Scalars".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            {"type": "string"}, {"type": "number"},
            {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}},
        ]})
    }
}

/// A number that may be 0, or text with variables that is a number at run time.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Quantity {
    /// A number.
    Number(u64),
    /// `$http_x_limit`, `${http_x_limit ?? 10}`.
    Text(String),
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "minLength": 1}]})
    }
}

/// Tells of every regular expression that cannot be used.
pub(super) fn check_patterns<'a>(
    path: &str,
    patterns: impl IntoIterator<Item = &'a String>,
    faults: &mut Vec<Fault>,
) {
    for (n, text) in patterns.into_iter().enumerate() {
        if let Err(why) = towpath_route::vars::pattern(text, false) {
            faults.push(Fault::new(format!("{path}[{n}]"), why));
        }
    }
}

/// Headers that say where a message ends or what holds between two neighbours only: the gateway's own business.
const FRAMING: [&str; 8] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Tells of header names and values that cannot be sent.
pub(super) fn check_header(path: &str, name: &str, values: &[String], faults: &mut Vec<Fault>) {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(is_token) {
        faults.push(Fault::new(path, format!("{name:?} is no name of a header")));
    }
    if FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
        let why =
            format!("{name} says how messages are framed, which is the gateway's business; leave it out");
        faults.push(Fault::new(path, why));
    }
    if values.iter().any(|value| value.bytes().any(|b| b < b' ' && b != b'\t' || b == 127)) {
        faults.push(Fault::new(path, "has a character that no header can have"));
    }
}

/// Tells of headers that the gateway writes or drops itself, so that a setting would do nothing.
pub(super) fn check_not_ours(path: &str, name: &str, faults: &mut Vec<Fault>) {
    const OURS: [&str; 10] = [
        "x-request-id",
        "via",
        "forwarded",
        "traceparent",
        "te",
        "connection",
        "upgrade",
        "content-length",
        "proxy-authorization",
        "transfer-encoding",
    ];
    if OURS.iter().any(|ours| ours.eq_ignore_ascii_case(name)) {
        faults
            .push(Fault::new(path, format!("{name:?} is a header that the gateway writes or drops itself")));
    }
}

/// The same for those that cannot be kept from upstreams.
pub(super) fn check_not_removed(path: &str, name: &str, faults: &mut Vec<Fault>) {
    let name = name.to_ascii_lowercase();
    if name.starts_with("x-forwarded-") || matches!(name.as_str(), "x-request-id" | "via") {
        faults.push(Fault::new(path, format!("{name:?} is a header that the gateway writes itself")));
    }
}

/// The same for a map of them.
pub(super) fn check_headers(path: &str, headers: &BTreeMap<String, Scalar>, faults: &mut Vec<Fault>) {
    for (name, value) in headers {
        check_header(&format!("{path}.{name}"), name, &[value.to_string()], faults);
    }
}

/// Tells of every fault in conditions on variables.
pub(super) fn check_vars(path: &str, vars: &[serde_json::Value], faults: &mut Vec<Fault>) {
    if let Err(wrong) = towpath_route::vars::Expr::parse(&serde_json::Value::Array(vars.to_vec())) {
        faults.extend(
            wrong.into_iter().map(|fault| Fault::new(format!("{path}{}", fault.path), fault.message)),
        );
    }
}

/// Tells of what is no domain that a host can end with.
pub(super) fn check_base_domains(path: &str, domains: &[String], faults: &mut Vec<Fault>) {
    for (n, domain) in domains.iter().enumerate() {
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        if !domain.split('.').all(is_label) {
            let message =
                format!("{domain:?} is no domain; write it without port and without a dot in front");
            faults.push(Fault::new(format!("{path}[{n}]"), message));
        }
    }
}
