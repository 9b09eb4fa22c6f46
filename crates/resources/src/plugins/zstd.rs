//! `zstd`: responses are compressed. Ours: APISIX has no such plugin.

use super::Settings;
use super::gzip::Types;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Content types; `*` = all.
    pub types: Types,
    /// Responses that say a smaller length are left as they are.
    #[schemars(range(min = 1))]
    pub min_length: u64,
    /// 1 is fast, 19 is small.
    #[schemars(range(min = 1, max = 19))]
    pub comp_level: i32,
    /// Least version of the request.
    #[schemars(range(min = 1.0, max = 1.1))]
    pub http_version: f64,
    /// Whether `Vary: Accept-Encoding` is added.
    pub vary: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            types: Types::List(vec!["text/html".to_owned()]),
            min_length: 20,
            comp_level: 3,
            http_version: 1.1,
            vary: false,
        }
    }
}

impl Settings for Config {}
