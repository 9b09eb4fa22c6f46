//! `hmac-auth`: a signature over parts of the request tells who the consumer is.

use super::Settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Algorithms that are taken.
    #[schemars(length(min = 1))]
    pub allowed_algorithms: Vec<Algorithm>,
    /// Seconds by which the request's `Date` may differ from now.
    #[schemars(range(min = 1))]
    pub clock_skew: u64,
    /// Headers that have to be signed.
    #[schemars(inner(length(min = 1, max = 50)))]
    pub signed_headers: Vec<String>,
    /// Whether `Digest` is compared with the body.
    pub validate_request_body: bool,
    /// Largest body for that; larger ones get 413.
    #[schemars(range(min = 1))]
    pub max_req_body_size: u64,
    /// Whether the upstream does not get the `Authorization` header.
    pub hide_credentials: bool,
    /// Realm that a refused client is told.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[\x20-\x21\x23-\x5B\x5D-\x7E]+$"))]
    pub realm: String,
    /// The consumer of requests without a good signature; absent = they are refused.
    #[schemars(length(min = 1))]
    pub anonymous_consumer: Option<String>,
}

/// An algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Algorithm {
    #[serde(rename = "hmac-sha1")]
    Sha1,
    #[serde(rename = "hmac-sha256")]
    Sha256,
    #[serde(rename = "hmac-sha512")]
    Sha512,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            allowed_algorithms: vec![Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha512],
            clock_skew: 300,
            signed_headers: vec!["date".to_owned()],
            validate_request_body: false,
            max_req_body_size: 67_108_864,
            hide_credentials: false,
            realm: "hmac".to_owned(),
            anonymous_consumer: None,
        }
    }
}

impl Settings for Config {}

/// What it holds of a consumer.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// Name of the key.
    #[schemars(length(min = 1, max = 256))]
    pub key_id: String,
    /// The key.
    #[schemars(length(min = 1, max = 256), extend("x-secret" = true))]
    pub secret_key: String,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({})", self.key_id)
    }
}

impl Settings for Credential {}
