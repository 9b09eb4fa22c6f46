//! `udp-logger`: what is known of requests goes to a UDP server.

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
    /// Seconds for a message.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout: u64,
    /// What is told.
    #[serde(flatten)]
    pub told: Told,
    /// How it is sent.
    #[serde(flatten)]
    pub batch: Batch,
}

fn three() -> u64 {
    3
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        self.told.check(faults);
    }
}
