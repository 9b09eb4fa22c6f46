//! `basic-auth`: user name and password tell who the consumer is.

use super::Settings;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Whether the upstream does not get the `Authorization` header.
    pub hide_credentials: bool,
    /// Realm that a refused client is told.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[\x20-\x21\x23-\x5B\x5D-\x7E]+$"))]
    pub realm: String,
    /// The consumer of requests without a good password; absent = they are refused.
    #[schemars(length(min = 1))]
    pub anonymous_consumer: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self { hide_credentials: false, realm: "basic".to_owned(), anonymous_consumer: None }
    }
}

impl Settings for Config {}

/// What it holds of a consumer.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The user name.
    #[schemars(length(min = 1))]
    pub username: String,
    /// The password.
    #[schemars(extend("x-secret" = true))]
    pub password: String,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({})", self.username)
    }
}

impl Settings for Credential {}
