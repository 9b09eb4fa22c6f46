//! `node-status`: the admin listener tells how many connections and requests there are.

use super::Settings;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration: nothing to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {}

impl Settings for Config {}
