//! `proxy-mirror`: a copy of requests goes to another place, whose answers nobody sees.

use super::Settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where: `http://host:port` or `https://host:port`.
    #[schemars(regex(pattern = r"^https?://([\da-zA-Z.\-]+|\[[\da-fA-F:]+\])(:\d+)?$"))]
    pub host: String,
    /// Path of the copies; absent = the request's own.
    #[schemars(regex(pattern = r"^/[^/?&]+$"))]
    pub path: Option<String>,
    /// What `path` does.
    #[serde(default)]
    pub path_concat_mode: Concat,
    /// Share of requests.
    #[serde(default = "all")]
    #[schemars(range(min = 0.00001, max = 1.0))]
    pub sample_ratio: f64,
}

/// What a path does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Concat {
    /// It is the copy's path.
    #[default]
    Replace,
    /// It stands in front of the request's.
    Prefix,
}

fn all() -> f64 {
    1.0
}

impl Settings for Config {}
