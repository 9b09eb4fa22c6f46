//! `gzip`: responses are compressed.

use super::Settings;
use crate::Fault;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Content types; `*` = all.
    pub types: Types,
    /// Responses that say a smaller length are left as they are.
    #[schemars(range(min = 1))]
    pub min_length: u64,
    /// 1 is fast, 9 is small.
    #[schemars(range(min = 1, max = 9))]
    pub comp_level: u32,
    /// Least version of the request.
    #[schemars(range(min = 1.0, max = 1.1))]
    pub http_version: f64,
    /// Only these defaults are taken: memory is managed by itself.
    pub buffers: Buffers,
    /// Whether `Vary: Accept-Encoding` is added.
    pub vary: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            types: Types::List(vec!["text/html".to_owned()]),
            min_length: 20,
            comp_level: 1,
            http_version: 1.1,
            buffers: Buffers::default(),
            vary: false,
        }
    }
}

/// Content types.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Types {
    /// `*`.
    All(String),
    /// These.
    List(Vec<String>),
}

impl JsonSchema for Types {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Types".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
            {"type": "string", "enum": ["*"]},
        ]})
    }
}

/// Buffers.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Buffers {
    /// How many.
    #[schemars(range(min = 1))]
    pub number: u32,
    /// Bytes of each.
    #[schemars(range(min = 1))]
    pub size: u32,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { number: 32, size: 4096 }
    }
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        if self.buffers != Buffers::default() {
            faults.push(Fault::new("buffers", "does nothing: memory is managed by itself; leave it out"));
        }
    }
}
