//! `proxy-control`: how requests are passed on.

use super::Settings;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Whether the whole request body is read before an upstream is asked. (Bodies stream where this plugin is not used.)
    pub request_buffering: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { request_buffering: true }
    }
}

impl Settings for Config {}
