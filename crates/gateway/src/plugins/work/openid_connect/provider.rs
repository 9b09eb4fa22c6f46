//! An OpenID provider: what it says of itself, its keys, and questions to it.

use super::super::headers::value;
use super::super::jwt_auth::Token;
use super::super::outbound::{self, Place};
use super::keys::{PublicKey, is_signed};
use crate::clock;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::Value;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use towpath_resources::plugins::openid_connect::{AuthMethod, Config};

/// Longest answer of a provider.
const LONGEST: u64 = 1 << 20;
/// What a provider says of itself is asked for again after this.
const FOUND_MS: u64 = 3_600_000;
/// Keys are asked for again because of an unknown one so often a minute.
const KEYS_AGAIN: u32 = 5;

/// What a provider says of itself (OpenID Connect Discovery).
#[derive(Debug, Deserialize)]
pub(super) struct Found {
    pub(super) issuer: Option<String>,
    pub(super) authorization_endpoint: Option<String>,
    pub(super) token_endpoint: Option<String>,
    pub(super) userinfo_endpoint: Option<String>,
    pub(super) introspection_endpoint: Option<String>,
    pub(super) end_session_endpoint: Option<String>,
    jwks_uri: Option<String>,
}

/// See the module. One for all routes and workers that use it.
#[derive(Default)]
pub(super) struct Provider {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    found: Option<(u64, Arc<Found>)>,
    keys: Option<(u64, Arc<Vec<PublicKey>>)>,
    /// How often keys were asked for because of an unknown one in the minute that began then.
    again: (u64, u32),
}

/// Who asks, and how.
pub(super) struct Asking<'a>(pub(super) &'a Config);

impl Asking<'_> {
    async fn send(&self, method: &str, url: &str, headers: HeaderMap, body: String) -> io::Result<Value> {
        let place = Place::read(url).ok_or_else(|| io::Error::other(format!("{url:?} is no URL")))?;
        let mut request = http::Request::builder()
            .method(method)
            .uri(place.target.as_str())
            .body(Full::new(Bytes::from(body)))
            .map_err(io::Error::other)?;
        *request.headers_mut() = headers;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        value(&place.authority).map(|host| request.headers_mut().insert(HOST, host));
        let asking = async {
            let answer = outbound::send(&place, request, self.0.ssl_verify).await?;
            let status = answer.status();
            let body = outbound::read_up_to(answer.into_body(), LONGEST).await?;
            let body = body.ok_or_else(|| io::Error::other("the answer is too long"))?;
            if !status.is_success() {
                return Err(io::Error::other(format!("it answered {status}")));
            }
            serde_json::from_slice(&body).map_err(io::Error::other)
        };
        match tokio::time::timeout(Duration::from_secs(self.0.timeout), asking).await {
            Ok(answer) => answer,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// A document.
    pub(super) async fn get(&self, url: &str, token: Option<&str>) -> io::Result<Value> {
        let mut headers = HeaderMap::new();
        if let Some(bearer) = token.and_then(|token| value(&format!("Bearer {token}"))) {
            headers.insert(AUTHORIZATION, bearer);
        }
        self.send("GET", url, headers, String::new()).await
    }

    /// The answer to a form, which says who this client is.
    pub(super) async fn post(
        &self,
        url: &str,
        form: &[(&str, &str)],
        method: AuthMethod,
    ) -> io::Result<Value> {
        let mut form: Vec<(&str, &str)> = form.to_vec();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let id = self.0.client_id.as_str();
        match (&self.0.client_secret, method) {
            (Some(secret), AuthMethod::ClientSecretBasic) => {
                let both = format!("{}:{}", super::encoded(id), super::encoded(secret));
                let basic = value(&format!("Basic {}", STANDARD.encode(both)));
                basic.map(|basic| headers.insert(AUTHORIZATION, basic));
            }
            (Some(secret), AuthMethod::ClientSecretPost) => {
                form.extend([("client_id", id), ("client_secret", secret.as_str())]);
            }
            (None, _) => form.push(("client_id", id)),
        }
        self.send("POST", url, headers, super::query(form)).await
    }
}

impl Provider {
    /// What it says of itself.
    pub(super) async fn found(&self, asking: &Asking<'_>) -> io::Result<Arc<Found>> {
        let mut known = self.known.lock().await;
        Self::look(&mut known, asking).await
    }

    async fn look(known: &mut Known, asking: &Asking<'_>) -> io::Result<Arc<Found>> {
        let now = clock::now_ms();
        if let Some((at, found)) = &known.found
            && now < at + FOUND_MS
        {
            return Ok(found.clone());
        }
        let read = asking.get(&asking.0.discovery, None).await;
        let read = read.and_then(|found| serde_json::from_value::<Found>(found).map_err(io::Error::other));
        match (read, &known.found) {
            (Ok(found), _) => {
                let found = Arc::new(found);
                known.found = Some((now, found.clone()));
                Ok(found)
            }
            // What it said before goes on.
            (Err(_), Some((_, found))) => Ok(found.clone()),
            (Err(error), None) => Err(error),
        }
    }

    /// Whether the provider has signed the token. For a key that is not known the keys are asked for again.
    pub(super) async fn has_signed(&self, token: &Token<'_>, asking: &Asking<'_>) -> io::Result<bool> {
        let mut known = self.known.lock().await;
        let (now, oldest) = (clock::now_ms(), asking.0.jwk_expires_in.saturating_mul(1000));
        if let Some((at, keys)) = &known.keys {
            let (signed, fresh) = (is_signed(token, keys), now.saturating_sub(*at) < oldest);
            if signed && fresh {
                return Ok(true);
            }
            if fresh {
                if now >= known.again.0 + 60_000 {
                    known.again = (now, 0);
                }
                if known.again.1 >= KEYS_AGAIN {
                    return Ok(false);
                }
                known.again.1 += 1;
            }
        }
        let found = Self::look(&mut known, asking).await?;
        let url = found.jwks_uri.as_deref().ok_or_else(|| io::Error::other("it has no jwks_uri"))?;
        let keys = Arc::new(PublicKey::set(&asking.get(url, None).await?));
        known.keys = Some((now, keys.clone()));
        Ok(is_signed(token, &keys))
    }
}
