//! `server-info`: the admin listener tells what gateway this is.

use super::Settings;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration: nothing to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {}

impl Settings for Config {}
