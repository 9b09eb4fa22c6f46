//! `client-control`: how large a request may be.

use super::Settings;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Largest body in bytes; 0 = no limit.
    pub max_body_size: Option<u64>,
}

impl Settings for Config {}
