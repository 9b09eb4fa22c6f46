//! `brotli`: responses are compressed.

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
    /// 0 is fast, 11 is small.
    #[schemars(range(max = 11))]
    pub comp_level: u32,
    /// What the content is: 0 anything, 1 text, 2 fonts.
    #[schemars(range(max = 2))]
    pub mode: u32,
    /// Binary logarithm of the window; 0 = the compressor's choice.
    #[schemars(extend("enum" = [0, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24]))]
    pub lgwin: u32,
    /// Binary logarithm of a block; 0 = the compressor's choice.
    #[schemars(extend("enum" = [0, 16, 17, 18, 19, 20, 21, 22, 23, 24]))]
    pub lgblock: u32,
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
            comp_level: 6,
            mode: 0,
            lgwin: 19,
            lgblock: 0,
            http_version: 1.1,
            vary: false,
        }
    }
}

impl Settings for Config {}
