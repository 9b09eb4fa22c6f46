//! `proxy-buffering`: whether responses are held back.

use super::Settings;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Responses are never held back here, so that either value does the same.
    pub disable_proxy_buffering: bool,
}

impl Settings for Config {}
