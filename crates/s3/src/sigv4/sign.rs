//! Signing a request for a server behind.

use super::parse::Scope;
use super::{ALGORITHM, Instant, Message, SigningKey};
use crate::encode::hex;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

/// Who signs.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The access key.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
    /// The region that the server thinks it is in.
    pub region: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({} in {})", self.access_key, self.region)
    }
}

/// A request line and host that are signed, and what is stated about the body.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The method.
    pub method: &'a str,
    /// The path as it goes out.
    pub path: &'a str,
    /// The query as it goes out.
    pub query: Option<&'a str>,
    /// The host as it goes out.
    pub host: &'a [u8],
    /// `x-amz-content-sha256`.
    pub payload: &'a str,
}

/// Signs a request at this moment, with its `x-amz-` headers as they are.
pub fn sign(outgoing: &Outgoing<'_>, headers: &mut HeaderMap, credentials: &Credentials, now: Instant) {
    let Outgoing { method, path, query, host, payload } = *outgoing;
    let date = now.to_string();
    for name in ["x-amz-date", "x-amz-content-sha256", "x-amz-security-token"] {
        headers.remove(name);
    }
    headers.remove(AUTHORIZATION);
    if let Ok(value) = HeaderValue::from_str(&date) {
        headers.insert("x-amz-date", value);
    }
    if let Ok(value) = HeaderValue::from_str(payload) {
        headers.insert("x-amz-content-sha256", value);
    }
    let scope = Scope { day: now.day(), region: credentials.region.clone(), service: "s3".to_owned() };
    let amz = headers.keys().map(http::HeaderName::as_str).filter(|name| name.starts_with("x-amz-"));
    let content = headers.contains_key(CONTENT_TYPE).then_some("content-type");
    let mut names: Vec<String> = amz.chain(content).chain(["host"]).map(str::to_owned).collect();
    names.sort_unstable();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let message = Message { method, path, query, host, headers };
    let hash = message.canonical_hash(&names, payload.as_bytes());
    let text = format!("{ALGORITHM}\n{date}\n{scope}\n{hash}");
    let signature = hex(&SigningKey::derive(&credentials.secret_key, &scope).sign(text.as_bytes()));
    let authorization = format!(
        "{ALGORITHM} Credential={}/{scope}, SignedHeaders={}, Signature={signature}",
        credentials.access_key,
        names.join(";")
    );
    if let Ok(mut value) = HeaderValue::from_str(&authorization) {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
}
