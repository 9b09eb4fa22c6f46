//! `csrf`: requests that change something have to show a token that only a page of the same site can know.

use super::auth;
use super::headers::value;
use crate::clock;
use crate::plugins::{Answer, Phase, Phases, Plugin, Reply, Request, Step};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use http::header::SET_COOKIE;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use towpath_resources::plugins::csrf::Config;

/// See the module.
pub(in crate::plugins) struct Csrf(Arc<Config>);

impl Csrf {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self(config.clone())
    }

    fn sign(&self, random: &str, expires: i64) -> String {
        let text = format!("{{expires:{expires},random:{random},key:{}}}", self.0.key);
        Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn token(&self, random: u64) -> String {
        // As many digits as a JSON number keeps.
        let random = (random >> 12) as f64 / (1_u64 << 52) as f64;
        let expires = now();
        let sign = self.sign(&random.to_string(), expires);
        STANDARD.encode(json!({"random": random, "expires": expires, "sign": sign}).to_string())
    }

    fn is_good(&self, token: &str) -> bool {
        let Some(token) =
            STANDARD.decode(token).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok())
        else {
            return false;
        };
        let (Some(random), Some(expires)) =
            (token.get("random").and_then(Value::as_f64), token.get("expires").and_then(Value::as_i64))
        else {
            return false;
        };
        let sign = token.get("sign").and_then(Value::as_str).unwrap_or_default();
        let old = self.0.expires > 0 && now().saturating_sub(expires) > self.0.expires;
        !old && auth::same(sign.as_bytes(), self.sign(&random.to_string(), expires).as_bytes())
    }
}

fn now() -> i64 {
    i64::try_from(clock::unix_ms() / 1000).unwrap_or(i64::MAX)
}

impl Plugin for Csrf {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access, Phase::ResponseHead])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        if matches!(request.record.method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return Step::Next;
        }
        let header = request.headers.get(self.0.name.as_str()).and_then(|value| value.to_str().ok());
        let cookie = request.vars().cookie(&self.0.name);
        let why = match (header.filter(|text| !text.is_empty()), cookie) {
            (None, _) => "no csrf token in headers",
            (_, None) => "no csrf cookie",
            (Some(header), Some(cookie)) if header != cookie => "csrf token mismatch",
            (Some(header), Some(_)) if !self.is_good(header) => "Failed to verify the csrf token signature",
            _ => return Step::Next,
        };
        Step::answer(Answer::error_msg(401, why))
    }

    fn response_head(&self, reply: &mut Reply<'_>) {
        let token = self.token(reply.record.conn.worker.random());
        let seconds = u64::try_from(self.0.expires).unwrap_or(0);
        let cookie = format!("{}={token};path=/;SameSite=Lax;Max-Age={seconds}", self.0.name);
        let cookie = if seconds == 0 { cookie.replace(";Max-Age=0", "") } else { cookie };
        value(&cookie).map(|cookie| reply.headers.append(SET_COOKIE, cookie));
    }
}
