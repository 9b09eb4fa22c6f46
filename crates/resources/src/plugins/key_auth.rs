//! `key-auth`: a key in a header or the query tells who the consumer is.

use super::Settings;
use super::values::check_header;
use crate::Fault;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Header with the key.
    pub header: String,
    /// Query parameter with the key, where the header is absent.
    pub query: String,
    /// Realm that a refused client is told.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[\x20-\x21\x23-\x5B\x5D-\x7E]+$"))]
    pub realm: String,
    /// Whether the upstream gets the key too.
    pub hide_credentials: bool,
    /// The consumer of requests without a good key; absent = they are refused.
    #[schemars(length(min = 1))]
    pub anonymous_consumer: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            header: "apikey".to_owned(),
            query: "apikey".to_owned(),
            realm: "key".to_owned(),
            hide_credentials: false,
            anonymous_consumer: None,
        }
    }
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        check_header("header", &self.header, &[], faults);
    }
}

/// What it holds of a consumer.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The key.
    #[schemars(length(min = 1), extend("x-secret" = true))]
    pub key: String,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential(key)")
    }
}

impl Settings for Credential {}
