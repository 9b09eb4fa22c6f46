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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use towpath_resources::plugins::openid_connect::{AuthMethod, Config};

/// Longest answer of a provider.
const LONGEST: u64 = 1 << 20;
/// What a provider says of itself is asked for again after this.
const FOUND_MS: u64 = 3_600_000;
/// Who could not be asked is left alone for so long.
const FAILED_MS: u64 = 10_000;
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
    /// Held by the one who asks it; what is known is there for others meanwhile.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    found: Option<(u64, Arc<Found>)>,
    keys: Option<(u64, Arc<Vec<PublicKey>>)>,
    /// How often keys were asked for because of an unknown one in the minute that began then.
    again: (u64, u32),
    /// When it could not be asked last, and why.
    failed: Option<(u64, String)>,
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
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it says of itself.
    pub(super) async fn found(&self, asking: &Asking<'_>) -> io::Result<Arc<Found>> {
        if let Some(found) = self.known().found() {
            return found;
        }
        let _turn = self.turn.lock().await;
        self.look(asking).await
    }

    /// The same for who has the turn.
    async fn look(&self, asking: &Asking<'_>) -> io::Result<Arc<Found>> {
        if let Some(found) = self.known().found() {
            return found;
        }
        let read = asking.get(&asking.0.discovery, None).await;
        let read = read.and_then(|found| serde_json::from_value::<Found>(found).map_err(io::Error::other));
        let mut known = self.known();
        match read {
            Ok(found) => {
                let found = Arc::new(found);
                known.found = Some((clock::now_ms(), found.clone()));
                Ok(found)
            }
            Err(error) => {
                known.failed = Some((clock::now_ms(), error.to_string()));
                // What it said before goes on.
                known.found.as_ref().map(|(_, found)| found.clone()).ok_or(error)
            }
        }
    }

    /// Whether the provider has signed the token. For a key that is not known the keys are asked for again.
    pub(super) async fn has_signed(&self, token: &Token<'_>, asking: &Asking<'_>) -> io::Result<bool> {
        let oldest = asking.0.jwk_expires_in.saturating_mul(1000);
        if let Some(signed) = self.known().signed(token, oldest) {
            return signed;
        }
        let _turn = self.turn.lock().await;
        {
            let mut known = self.known();
            if let Some(signed) = known.signed(token, oldest) {
                return signed;
            }
            if !known.may_ask_again(oldest) {
                return Ok(false);
            }
        }
        match self.fetch_keys(asking).await {
            Ok(keys) => {
                let signed = is_signed(token, &keys);
                self.known().keys = Some((clock::now_ms(), Arc::new(keys)));
                Ok(signed)
            }
            Err(error) => {
                let mut known = self.known();
                known.failed = Some((clock::now_ms(), error.to_string()));
                // The keys from before go on.
                let signed = known.keys.as_ref().is_some_and(|(_, keys)| is_signed(token, keys));
                if signed { Ok(true) } else { Err(error) }
            }
        }
    }

    async fn fetch_keys(&self, asking: &Asking<'_>) -> io::Result<Vec<PublicKey>> {
        let found = self.look(asking).await?;
        let url = found.jwks_uri.as_deref().ok_or_else(|| io::Error::other("it has no jwks_uri"))?;
        Ok(PublicKey::set(&asking.get(url, None).await?))
    }
}

impl Known {
    /// Why it could not be asked a moment ago.
    fn failure(&self) -> Option<io::Error> {
        let (at, why) = self.failed.as_ref()?;
        (clock::now_ms() < at + FAILED_MS).then(|| io::Error::other(why.clone()))
    }

    /// What it says of itself, if it is not to be asked.
    fn found(&self) -> Option<io::Result<Arc<Found>>> {
        match (&self.found, self.failure()) {
            (Some((at, found)), failure) if failure.is_some() || clock::now_ms() < at + FOUND_MS => {
                Some(Ok(found.clone()))
            }
            (_, failure) => failure.map(Err),
        }
    }

    /// Whether it has signed the token, if it is not to be asked.
    fn signed(&self, token: &Token<'_>, oldest: u64) -> Option<io::Result<bool>> {
        let failure = self.failure();
        if let Some((at, keys)) = &self.keys
            && (failure.is_some() || clock::now_ms().saturating_sub(*at) < oldest)
            && is_signed(token, keys)
        {
            return Some(Ok(true));
        }
        failure.map(Err)
    }

    /// Whether keys may be asked for now; while those that are known are fresh, not often.
    fn may_ask_again(&mut self, oldest: u64) -> bool {
        let now = clock::now_ms();
        if self.keys.as_ref().is_none_or(|(at, _)| now.saturating_sub(*at) >= oldest) {
            return true;
        }
        if now >= self.again.0 + 60_000 {
            self.again = (now, 0);
        }
        let may = self.again.1 < KEYS_AGAIN;
        self.again.1 += u32::from(may);
        may
    }
}
