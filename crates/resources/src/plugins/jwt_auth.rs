//! `jwt-auth`: a signed token tells who the consumer is.

use super::Settings;
use super::values::check_header;
use crate::Fault;
use base64::Engine;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Header with the token, with or without `Bearer`.
    #[schemars(length(min = 1))]
    pub header: String,
    /// Query parameter with the token, where the header is absent.
    pub query: String,
    /// Cookie with the token, where both are absent.
    pub cookie: String,
    /// Whether the upstream does not get the token.
    pub hide_credentials: bool,
    /// The claim that names the consumer's key.
    #[schemars(length(min = 1))]
    pub key_claim_name: String,
    /// Realm that a refused client is told.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[\x20-\x21\x23-\x5B\x5D-\x7E]+$"))]
    pub realm: String,
    /// The consumer of requests without a good token; absent = they are refused.
    #[schemars(length(min = 1))]
    pub anonymous_consumer: Option<String>,
    /// Claims that have to be there.
    pub claims_to_verify: Option<Vec<Claim>>,
    /// Refused when true: no later plugin reads it.
    pub store_in_ctx: bool,
}

/// A claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    /// The token's end.
    Exp,
    /// The token's beginning.
    Nbf,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            header: "authorization".to_owned(),
            query: "jwt".to_owned(),
            cookie: "jwt".to_owned(),
            hide_credentials: false,
            key_claim_name: "key".to_owned(),
            realm: "jwt".to_owned(),
            anonymous_consumer: None,
            claims_to_verify: None,
            store_in_ctx: false,
        }
    }
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        check_header("header", &self.header, &[], faults);
        if self.store_in_ctx {
            faults.push(Fault::new("store_in_ctx", "is not done: no later plugin reads it; leave it out"));
        }
    }
}

/// What it holds of a consumer.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The value of the claim that names this consumer.
    #[schemars(length(min = 1))]
    pub key: String,
    /// Secret of HS* algorithms.
    #[schemars(length(min = 1), extend("x-secret" = true))]
    pub secret: Option<String>,
    /// Public key of the others, PEM.
    #[schemars(length(min = 1))]
    pub public_key: Option<String>,
    /// How its tokens are signed; no other way is taken.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Taken for compatibility: tokens are not made here.
    #[serde(default = "day")]
    #[schemars(range(min = 1))]
    pub exp: u64,
    /// Whether the secret is in base64.
    #[serde(default)]
    pub base64_secret: bool,
    /// Seconds by which clocks may differ.
    #[serde(default)]
    pub lifetime_grace_period: u64,
}

/// How tokens are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "names of RFC 7518 and RFC 8037")]
pub enum Algorithm {
    #[default]
    HS256,
    HS384,
    HS512,
    RS256,
    RS384,
    RS512,
    ES256,
    ES384,
    PS256,
    PS384,
    PS512,
    EdDSA,
}

impl Algorithm {
    /// The name in a token's head.
    pub fn as_str(self) -> &'static str {
        match self {
            Algorithm::HS256 => "HS256",
            Algorithm::HS384 => "HS384",
            Algorithm::HS512 => "HS512",
            Algorithm::RS256 => "RS256",
            Algorithm::RS384 => "RS384",
            Algorithm::RS512 => "RS512",
            Algorithm::ES256 => "ES256",
            Algorithm::ES384 => "ES384",
            Algorithm::PS256 => "PS256",
            Algorithm::PS384 => "PS384",
            Algorithm::PS512 => "PS512",
            Algorithm::EdDSA => "EdDSA",
        }
    }

    /// Whether both sides have one secret.
    pub fn is_symmetric(self) -> bool {
        matches!(self, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512)
    }
}

fn day() -> u64 {
    86_400
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({}, {:?})", self.key, self.algorithm)
    }
}

impl Settings for Credential {
    fn check(&self, faults: &mut Vec<Fault>) {
        if self.algorithm.is_symmetric() {
            match &self.secret {
                None => faults.push(Fault::new("secret", "is missing: the algorithm is one of HS*")),
                Some(secret) if self.base64_secret => {
                    if base64::engine::general_purpose::STANDARD.decode(secret).is_err() {
                        faults.push(Fault::new("secret", "is not in base64, which base64_secret says it is"));
                    }
                }
                Some(_) => {}
            }
        } else {
            match &self.public_key {
                None => faults.push(Fault::new("public_key", "is missing: the algorithm is not one of HS*")),
                Some(pem) if SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes()).is_err() => {
                    let message = "is no public key in PEM: it begins with -----BEGIN PUBLIC KEY-----";
                    faults.push(Fault::new("public_key", message));
                }
                Some(_) => {}
            }
        }
    }
}
