//! Texts with a form.

use crate::Id;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use towpath_route::vars::Expr;

/// Labels of a resource.
pub type Labels = BTreeMap<String, Label>;

/// The value of a label: 1 to 256 characters without spaces.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Label(pub String);

impl JsonSchema for Label {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Label".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1, "maxLength": 256, "pattern": r"^\S+$", "format": "label"})
    }
}

/// A regular expression, in the `regex` crate's language: no look-around, no back-references.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct RegexText(pub String);

impl JsonSchema for RegexText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RegexText".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "regex"})
    }
}

/// Conditions on variables, see [`towpath_route::vars`].
#[derive(Debug, Clone, PartialEq)]
pub struct Condition(pub Expr);

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let source = serde_json::Value::deserialize(deserializer)?;
        let first = |faults: Vec<towpath_route::vars::Fault>| {
            faults.first().map(ToString::to_string).unwrap_or_default()
        };
        Expr::parse(&source).map(Self).map_err(|faults| D::Error::custom(first(faults)))
    }
}

impl JsonSchema for Condition {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Condition".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "array", "format": "condition"})
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Number(u64),
        }
        let text = match Form::deserialize(deserializer)? {
            Form::Text(text) => text,
            Form::Number(number) => number.to_string(),
        };
        Id::plain(&text).ok_or_else(|| D::Error::custom("no id"))
    }
}

impl JsonSchema for Id {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Id".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[a-zA-Z0-9-_.]+$", "format": "id"},
            {"type": "integer", "minimum": 1},
        ]})
    }
}

/// A host name, an address, or a wildcard: `*`, `*.example.com`. Lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host(Box<str>);

impl Host {
    /// The host, if `text` has its form.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix('*').unwrap_or(text);
        let good = |byte: u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'[' | b']' | b':')
        };
        (!text.is_empty() && text.len() <= 255 && rest.bytes().all(good))
            .then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// The text, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What follows the `*` of a wildcard: `.example.com`, or nothing for `*` alone.
    pub fn wildcard(&self) -> Option<&str> {
        self.0.strip_prefix('*')
    }
}

impl<'de> Deserialize<'de> for Host {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Host::parse(&String::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("no host"))
    }
}

impl JsonSchema for Host {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Host".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": r"^\*$|^\*?[0-9a-zA-Z-._\[\]:]+$", "format": "host"})
    }
}

/// An address, or a network of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// How many leading bits count: 32 or 128 for one address.
    pub bits: u8,
}

impl Address {
    /// `10.0.0.1`, `10.0.0.0/8`, `fd00::/8`.
    pub fn parse(text: &str) -> Option<Self> {
        let (ip, bits) = match text.split_once('/') {
            Some((ip, bits)) => (ip, Some(bits)),
            None => (text, None),
        };
        let ip: IpAddr = ip.parse().ok()?;
        let all = if ip.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => all,
            Some(bits) if bits.len() <= 3 && bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().ok()?
            }
            Some(_) => return None,
        };
        (bits <= all).then_some(Self { ip, bits })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ip, self.bits)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Address::parse(&String::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("no address"))
    }
}

impl JsonSchema for Address {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Address".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "ip-or-cidr"})
    }
}

/// 1 = on, 0 = off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Switch {
    /// Off.
    Off,
    /// On.
    #[default]
    On,
}

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u8::deserialize(deserializer)? {
            0 => Ok(Switch::Off),
            1 => Ok(Switch::On),
            _ => Err(D::Error::custom("neither 0 nor 1")),
        }
    }
}

impl serde::Serialize for Switch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(u8::from(*self == Switch::On))
    }
}

impl JsonSchema for Switch {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Switch".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "enum": [1, 0]})
    }
}
