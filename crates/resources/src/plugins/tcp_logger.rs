//! `tcp-logger`: what is known of requests goes to a TCP server, one JSON object a line.

use super::Settings;
use super::logs::{Batch, Told};
use crate::Fault;
use schemars::JsonSchema;
use serde::Deserialize;

pub use super::logs::Metadata;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct Config {
    /// Name or address of the server.
    #[schemars(length(min = 1))]
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Speak TLS.
    #[serde(default)]
    pub tls: bool,
    /// The name that the server's certificate is for, where it is not `host`.
    pub tls_options: Option<String>,
    /// Milliseconds for a message.
    #[serde(default = "thousand")]
    #[schemars(range(min = 1, max = 3_600_000))]
    pub timeout: u64,
    /// What is told.
    #[serde(flatten)]
    pub told: Told,
    /// How it is sent.
    #[serde(flatten)]
    pub batch: Batch,
}

fn thousand() -> u64 {
    1000
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        self.told.check(faults);
    }
}
