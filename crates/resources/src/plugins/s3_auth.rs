//! `s3-auth`: AWS Signature Version 4 tells who the consumer is. Ours, not APISIX's.

use super::Settings;
use super::values::check_base_domains;
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The region that signatures must be for; absent = any.
    #[schemars(length(min = 1, max = 64))]
    pub region: Option<String>,
    /// Seconds by which a client's clock may differ.
    #[schemars(range(min = 1, max = 86400))]
    pub clock_skew: u64,
    /// Whether headers' signatures may leave the body out (`UNSIGNED-PAYLOAD`). Presigned URLs always may.
    pub allow_unsigned_payload: bool,
    /// The consumer of requests without any signature; absent = they are refused.
    #[schemars(length(min = 1))]
    pub anonymous_consumer: Option<String>,
    /// How requests go on.
    pub forward: Forward,
    /// Who signs what goes on, with `forward: sign`.
    pub backend: Option<Backend>,
    /// Domains under which buckets are host names.
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub base_domains: Vec<String>,
    /// Whether buckets in host names are put into the path, with `forward` other than `as_signed`.
    pub path_style: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            region: None,
            clock_skew: 900,
            allow_unsigned_payload: true,
            anonymous_consumer: None,
            forward: Forward::AsSigned,
            backend: None,
            base_domains: Vec::new(),
            path_style: false,
        }
    }
}

/// How requests go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Forward {
    /// As the client signed them: the upstream knows the same keys.
    #[default]
    AsSigned,
    /// Signed with the keys of `backend`; bodies in chunks go on as they are inside the chunks.
    Sign,
    /// Without a signature; bodies in chunks go on as they are inside the chunks.
    Unsigned,
}

/// Who signs what goes on.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// The access key.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[^\s/,]+$"))]
    pub access_key: String,
    /// The secret key.
    #[schemars(length(min = 1, max = 256), extend("x-secret" = true))]
    pub secret_key: String,
    /// The region.
    #[serde(default = "region")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[^\s/,]+$"))]
    pub region: String,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Backend({} in {})", self.access_key, self.region)
    }
}

fn region() -> String {
    "us-east-1".to_owned()
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        check_base_domains("base_domains", &self.base_domains, faults);
        match (self.forward, &self.backend) {
            (Forward::Sign, None) => {
                faults.push(Fault::new("backend", "is missing: with forward = \"sign\" it says who signs"));
            }
            (Forward::AsSigned | Forward::Unsigned, Some(_)) => {
                faults.push(Fault::new("backend", "is used with forward = \"sign\" only"));
            }
            _ => {}
        }
        if self.path_style && self.forward == Forward::AsSigned {
            let why = "would break the client's signature; it needs forward = \"sign\" or \"unsigned\"";
            faults.push(Fault::new("path_style", why));
        }
        if self.path_style && self.base_domains.is_empty() {
            faults.push(Fault::new("base_domains", "is missing: path_style takes buckets from hosts under them"));
        }
    }
}

/// What it holds of a consumer.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The access key.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[^\s/,]+$"))]
    pub access_key: String,
    /// The secret key.
    #[schemars(length(min = 1, max = 256), extend("x-secret" = true))]
    pub secret_key: String,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({})", self.access_key)
    }
}

impl Settings for Credential {}
