//! `prometheus`: requests are counted under APISIX's names.

use super::Settings;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Whether labels have the names of routes and services in the place of their ids.
    pub prefer_name: bool,
}

impl Settings for Config {}
