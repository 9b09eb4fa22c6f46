//! `openid-connect`: who asks is known to an OpenID provider, by a session of the browser or by a bearer token.

use super::Settings;
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Configuration.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The client's id at the provider.
    pub client_id: String,
    /// Its secret.
    #[schemars(extend("x-secret" = true))]
    pub client_secret: Option<String>,
    /// URL of the provider's discovery document.
    pub discovery: String,
    /// Scopes that are asked for.
    #[serde(default = "openid")]
    pub scope: String,
    /// Scopes that the access token must have.
    pub required_scopes: Option<Vec<String>>,
    /// Realm that a refused client is told.
    #[serde(default = "apisix")]
    pub realm: String,
    /// Only bearer tokens count; there are no sessions.
    #[serde(default)]
    pub bearer_only: bool,
    /// Path that ends the session.
    #[serde(default = "logout")]
    pub logout_path: String,
    /// Where the browser goes after that.
    pub post_logout_redirect_uri: Option<String>,
    /// Where the provider sends the browser back to, a URL or a path; absent = the request's path and `/.apisix/redirect`.
    pub redirect_uri: Option<String>,
    /// Longest wait for the provider, seconds.
    #[serde(default = "three")]
    #[schemars(range(min = 1))]
    pub timeout: u64,
    /// Verify the provider's certificate.
    #[serde(default = "yes")]
    pub ssl_verify: bool,
    /// Where access tokens are introspected; absent = as discovered.
    pub introspection_endpoint: Option<String>,
    /// How the client shows who it is there.
    #[serde(default)]
    pub introspection_endpoint_auth_method: AuthMethod,
    /// How it does at the token endpoint.
    #[serde(default)]
    pub token_endpoint_auth_method: AuthMethod,
    /// Seconds for which an introspected token is good without asking again; 0 = until it ends or is asked anew each time.
    #[serde(default)]
    pub introspection_interval: u64,
    /// Bearer tokens are verified with this key (PEM).
    pub public_key: Option<String>,
    /// Bearer tokens are verified with the provider's keys.
    #[serde(default)]
    pub use_jwks: bool,
    /// Longest age of the provider's keys, seconds. One that is not known is looked for at once.
    #[serde(default = "day")]
    #[schemars(range(min = 1))]
    pub jwk_expires_in: u64,
    /// The only algorithm that tokens may be signed with.
    pub token_signing_alg_values_expected: Option<String>,
    /// Proof Key for Code Exchange (RFC 7636).
    #[serde(default)]
    pub use_pkce: bool,
    /// Accepted: there is always a nonce.
    #[serde(default)]
    pub use_nonce: bool,
    /// The upstream gets the access token in `X-Access-Token`.
    #[serde(default = "yes")]
    pub set_access_token_header: bool,
    /// It gets it in `Authorization` instead.
    #[serde(default)]
    pub access_token_in_authorization_header: bool,
    /// It gets the claims of the ID token in `X-ID-Token` (base64 of JSON).
    #[serde(default = "yes")]
    pub set_id_token_header: bool,
    /// It gets the ID token as it was signed in `X-Raw-ID-Token`.
    #[serde(default)]
    pub set_raw_id_token_header: bool,
    /// It gets what the provider says of the user in `X-Userinfo` (base64 of JSON).
    #[serde(default = "yes")]
    pub set_userinfo_header: bool,
    /// It gets the refresh token in `X-Refresh-Token`.
    #[serde(default)]
    pub set_refresh_token_header: bool,
    /// Renew an access token that is over with the refresh token.
    #[serde(default = "yes")]
    pub renew_access_token_on_expiry: bool,
    /// The session cookie; needed unless `bearer_only`.
    pub session: Option<Session>,
    /// What happens to those who are not known.
    #[serde(default)]
    pub unauth_action: UnauthAction,
    /// Further parameters of the authorization request.
    #[serde(default)]
    pub authorization_params: BTreeMap<String, String>,
    /// What claims of tokens have to say.
    pub claim_validator: Option<ClaimValidator>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("client_id", &self.client_id)
            .field("discovery", &self.discovery)
            .finish_non_exhaustive()
    }
}

/// The session cookie.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// What cookies are encrypted with; gateways of one cluster have the same.
    #[schemars(length(min = 16), extend("x-secret" = true))]
    pub secret: String,
    /// Its name.
    #[serde(default = "session")]
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
    pub cookie_name: String,
    /// Its path.
    #[serde(default = "slash")]
    #[schemars(regex(pattern = r"^/[^;\x00-\x20]*$"))]
    pub cookie_path: String,
    /// Its domain.
    #[schemars(regex(pattern = "^[A-Za-z0-9.-]+$"))]
    pub cookie_domain: Option<String>,
    /// Only over TLS; absent = as the request came.
    pub cookie_secure: Option<bool>,
    /// Not for scripts.
    #[serde(default = "yes")]
    pub cookie_http_only: bool,
    /// Its `SameSite`.
    #[serde(default)]
    pub cookie_same_site: SameSite,
    /// Seconds without a request after which it ends.
    #[serde(default = "quarter")]
    #[schemars(range(min = 1))]
    pub idling_timeout: u64,
    /// Seconds after which it ends.
    #[serde(default = "day")]
    #[schemars(range(min = 1))]
    pub absolute_timeout: u64,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("cookie_name", &self.cookie_name).finish_non_exhaustive()
    }
}

/// `SameSite` of a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub enum SameSite {
    Strict,
    #[default]
    Lax,
    None,
}

/// How a client shows who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    /// In `Authorization`.
    #[default]
    ClientSecretBasic,
    /// In the form.
    ClientSecretPost,
}

/// What happens to requests of those who are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnauthAction {
    /// The browser is sent to the provider.
    #[default]
    Auth,
    /// 401.
    Deny,
    /// They go on.
    Pass,
}

/// What claims have to say.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClaimValidator {
    /// Who may have issued a token; absent = the provider.
    pub issuer: Option<Issuers>,
    /// Whom it has to be for.
    pub audience: Option<Audience>,
}

/// Issuers.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Issuers {
    /// Those that are good.
    pub valid_issuers: Option<Vec<String>>,
}

/// An audience.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Audience {
    /// The claim.
    pub claim: String,
    /// It has to be there.
    pub required: bool,
    /// It has to name the client.
    pub match_with_client_id: bool,
}

impl Default for Audience {
    fn default() -> Self {
        Self { claim: "aud".to_owned(), required: false, match_with_client_id: false }
    }
}

fn openid() -> String {
    "openid".to_owned()
}

fn apisix() -> String {
    "apisix".to_owned()
}

fn logout() -> String {
    "/logout".to_owned()
}

fn session() -> String {
    "session".to_owned()
}

fn slash() -> String {
    "/".to_owned()
}

fn three() -> u64 {
    3
}

fn day() -> u64 {
    86_400
}

fn quarter() -> u64 {
    900
}

fn yes() -> bool {
    true
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        if !self.bearer_only && self.session.is_none() {
            faults.push(Fault::new("session", "is missing: give session.secret, or bearer_only"));
        }
        let verifies = self.bearer_only && (self.public_key.is_some() || self.use_jwks);
        let public = !self.bearer_only && self.use_pkce;
        if self.client_secret.is_none() && !verifies && !public {
            faults.push(Fault::new("client_secret", "is missing"));
        }
        let urls = [
            ("discovery", Some(&self.discovery)),
            ("introspection_endpoint", self.introspection_endpoint.as_ref()),
        ];
        for (field, url) in urls {
            if url.is_some_and(|url| !url.starts_with("http://") && !url.starts_with("https://")) {
                faults.push(Fault::new(field, "is no URL: it begins with https://"));
            }
        }
        if self.realm.bytes().any(|byte| !(b' '..=b'~').contains(&byte) || matches!(byte, b'"' | b'\\')) {
            faults.push(Fault::new("realm", "has a character that no realm can have"));
        }
        if let Some(key) = &self.public_key
            && !key.contains("-----BEGIN PUBLIC KEY-----")
        {
            faults.push(Fault::new("public_key", "is no public key in PEM: it begins with -----BEGIN PUBLIC KEY-----"));
        }
        let algorithms =
            ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];
        if let Some(expected) = &self.token_signing_alg_values_expected
            && !algorithms.contains(&expected.as_str())
        {
            let message = format!("{expected:?} is not supported: give one of {}", algorithms.join(", "));
            faults.push(Fault::new("token_signing_alg_values_expected", message));
        }
    }
}
