//! `csrf`: requests that change something have to show a token that only a page of the same site can know.

use super::Settings;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Secret of the tokens.
    #[schemars(length(min = 1), extend("x-secret" = true))]
    pub key: String,
    /// Seconds for which a token is good; 0 = for ever.
    #[serde(default = "two_hours")]
    #[schemars(range(min = 0))]
    pub expires: i64,
    /// Name of the cookie and of the header.
    #[serde(default = "name")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9!#$%&'*+.^_`|~\-]+$"))]
    pub name: String,
}

fn two_hours() -> i64 {
    7200
}

fn name() -> String {
    "apisix-csrf-token".to_owned()
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Config({})", self.name)
    }
}

impl Settings for Config {}
