//! `http-logger`: what is known of requests goes to a server, many at a time.

use super::Settings;
use super::logs::{Batch, Told};
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::logs::Metadata;

/// Configuration.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
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
    /// How entries stand together.
    #[serde(default)]
    pub concat_method: Concat,
    /// Verify the server's certificate.
    #[serde(default)]
    pub ssl_verify: bool,
    /// What is told.
    #[serde(flatten)]
    pub told: Told,
    /// How it is sent.
    #[serde(flatten)]
    pub batch: Batch,
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

fn three() -> u64 {
    3
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("uri", &self.uri).finish_non_exhaustive()
    }
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        self.told.check(faults);
    }
}
