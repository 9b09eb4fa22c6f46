//! `real-ip`: the client's address is what a variable says.

use super::Settings;
use crate::model::Address;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The variable, for example `http_x_forwarded_for` or `arg_realip`.
    #[schemars(length(min = 1))]
    pub source: String,
    /// Only what these peers say is believed; absent = everybody.
    #[schemars(length(min = 1))]
    pub trusted_addresses: Option<Vec<Address>>,
    /// Of a list, the last address that is not trusted, instead of the last one.
    #[serde(default)]
    pub recursive: bool,
}

impl Settings for Config {}
