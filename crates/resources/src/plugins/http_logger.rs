//! `http-logger`: what is known of requests goes to a server, many at a time.

use super::Settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Configuration.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where: `http://logs.example.com:8080/in`.
    #[schemars(regex(pattern = r"^https?://[^/?#\s]+[^#\s]*$"))]
    pub uri: String,
    /// Value of the `Authorization` header.
    #[schemars(extend("x-secret" = true))]
    pub auth_header: Option<String>,
    /// Seconds for an answer.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout: u64,
    /// Fields of an entry, each a text with variables; absent = all that is known.
    pub log_format: Option<BTreeMap<String, Value>>,
    /// How entries stand together.
    #[serde(default)]
    pub concat_method: Concat,
    /// Verify the server's certificate.
    #[serde(default)]
    pub ssl_verify: bool,
    /// Most entries of one message.
    #[serde(default = "thousand")]
    #[schemars(range(min = 1, max = 100_000))]
    pub batch_max_size: usize,
    /// Seconds without a new entry after which a message goes out.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 3600))]
    pub inactive_timeout: u64,
    /// Most seconds that an entry waits.
    #[serde(default = "sixty")]
    #[schemars(range(min = 1, max = 86_400))]
    pub buffer_duration: u64,
    /// Further attempts for a message.
    #[serde(default)]
    #[schemars(range(max = 1000))]
    pub max_retry_count: u32,
    /// Seconds between attempts.
    #[serde(default = "one")]
    #[schemars(range(max = 3600))]
    pub retry_delay: u64,
    /// Name of the log, for people.
    #[serde(default = "name")]
    pub name: String,
}

/// How entries stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Concat {
    /// As a JSON list.
    #[default]
    Json,
    /// One a line.
    NewLine,
}

fn one() -> u64 {
    1
}

fn three() -> u64 {
    3
}

fn five() -> u64 {
    5
}

fn sixty() -> u64 {
    60
}

fn thousand() -> usize {
    1000
}

fn name() -> String {
    "http logger".to_owned()
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Config({})", self.name)
    }
}

impl Settings for Config {}

/// Metadata.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Metadata {
    /// Fields of an entry, where the plugin's use does not say.
    pub log_format: Option<BTreeMap<String, Value>>,
}

impl Settings for Metadata {}
