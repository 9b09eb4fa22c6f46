//! `protos` and `secrets`: their shape is known, so that what is wrong with one is told; no gateway serves them yet, and so they are refused.

use super::text::Labels;
use crate::Id;
use schemars::JsonSchema;
use serde::Deserialize;

/// A protobuf definition.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Proto {
    /// The id; the one of the address wins.
    pub id: Option<Id>,
    /// A name for people.
    #[schemars(length(min = 1, max = 256))]
    pub name: Option<String>,
    /// What it is for.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// Labels.
    pub labels: Option<Labels>,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was changed last, in seconds since 1970.
    pub update_time: Option<i64>,
    /// The definition, or the base64 of a compiled one.
    #[schemars(length(min = 1, max = 1_048_576))]
    pub content: String,
}

/// Access to a store of secrets; the id says which: `vault/<id>`, `aws/<id>`, `gcp/<id>`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Secret {
    /// The id; the one of the address wins.
    pub id: Option<String>,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was changed last, in seconds since 1970.
    pub update_time: Option<i64>,
    /// vault: address of the server.
    pub uri: Option<String>,
    /// vault: path of the engine.
    pub prefix: Option<String>,
    /// vault: token.
    #[schemars(extend("x-secret" = true))]
    pub token: Option<String>,
    /// vault: namespace.
    pub namespace: Option<String>,
    /// aws: key id.
    pub access_key_id: Option<String>,
    /// aws: secret key.
    #[schemars(extend("x-secret" = true))]
    pub secret_access_key: Option<String>,
    /// aws: session token.
    #[schemars(extend("x-secret" = true))]
    pub session_token: Option<String>,
    /// aws: region.
    pub region: Option<String>,
    /// aws: address of the service.
    pub endpoint_url: Option<String>,
    /// gcp: credentials in place.
    #[schemars(extend("x-secret" = true))]
    pub auth_config: Option<serde_json::Map<String, serde_json::Value>>,
    /// gcp: file of credentials.
    pub auth_file: Option<String>,
    /// gcp: verify the service's certificate.
    pub ssl_verify: Option<bool>,
}
