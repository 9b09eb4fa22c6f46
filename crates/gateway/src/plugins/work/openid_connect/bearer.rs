//! Bearer tokens.

use super::super::jwt_auth::Token;
use super::keys::is_signed;
use super::{ACCESS, OpenidConnect, now_s};
use crate::clock;
use crate::plugins::Answer;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Most tokens that are remembered; beyond that all are forgotten.
const MOST: usize = 10_000;
/// Longest token.
const LONGEST: usize = 16 * 1024;

/// Introspected tokens, by their hashes, until when they need not be asked for again.
#[derive(Default)]
pub(super) struct Introspected(Mutex<HashMap<[u8; 32], (u64, Value)>>);

/// The token of a request.
pub(super) fn token(headers: &HeaderMap) -> Option<String> {
    let token = match headers.get(AUTHORIZATION) {
        Some(line) => {
            let (kind, token) = line.to_str().ok()?.split_once(' ')?;
            kind.eq_ignore_ascii_case("bearer").then(|| token.trim())?
        }
        None => headers.get(ACCESS)?.to_str().ok()?,
    };
    (!token.is_empty() && token.len() <= LONGEST).then(|| token.to_owned())
}

impl OpenidConnect {
    /// The claims of a token that is good, or the refusal.
    pub(super) async fn judge(&self, token: &str) -> Result<Value, Answer> {
        let claims = if self.public_key.is_some() || self.config.use_jwks {
            self.verified(token).await?
        } else {
            self.introspected(token).await?
        };
        self.check_claims(&claims, false).await.map_err(|why| self.refuse(401, "invalid_token", why))?;
        if self.lacks_scope(&claims) {
            return Err(self.refuse(403, "insufficient_scope", "required scopes are missing"));
        }
        Ok(claims)
    }

    async fn verified(&self, text: &str) -> Result<Value, Answer> {
        let invalid = |why| self.refuse(401, "invalid_token", why);
        let token = Token::read(text).ok_or_else(|| invalid("it is no JWT"))?;
        self.check_algorithm(&token).map_err(invalid)?;
        let signed = match &self.public_key {
            Some(key) => is_signed(&token, std::slice::from_ref(key)),
            None => {
                let signed = self.provider.has_signed(&token, &self.asking()).await;
                signed.map_err(|error| self.fails("keys", &error))?
            }
        };
        if signed { Ok(token.claims) } else { Err(invalid("its signature is not good")) }
    }

    pub(super) fn check_algorithm(&self, token: &Token<'_>) -> Result<(), &'static str> {
        let expected = self.config.token_signing_alg_values_expected.as_ref();
        let good = expected.is_none_or(|expected| *expected == token.algorithm);
        if good { Ok(()) } else { Err("it is signed with another algorithm") }
    }

    async fn introspected(&self, token: &str) -> Result<Value, Answer> {
        let key: [u8; 32] = Sha256::digest(token).into();
        let now = now_s();
        let lock = || self.introspected.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((until, claims)) = lock().get(&key)
            && now < *until
        {
            return Ok(claims.clone());
        }
        let asking = self.asking();
        let url = match &self.config.introspection_endpoint {
            Some(url) => url.clone(),
            None => {
                let found = self.provider.found(&asking).await;
                let found = found.map_err(|error| self.fails("discovery", &error))?;
                let url = found.introspection_endpoint.clone();
                url.ok_or_else(|| {
                    self.fails("introspection", &std::io::Error::other("it has no introspection_endpoint"))
                })?
            }
        };
        let form = [("token", token), ("token_type_hint", "access_token")];
        let claims = asking.post(&url, &form, self.config.introspection_endpoint_auth_method).await;
        let claims = claims.map_err(|error| self.fails("introspection", &error))?;
        if claims.get("active").and_then(Value::as_bool) != Some(true) {
            return Err(self.refuse(401, "invalid_token", "it is not active"));
        }
        if self.config.introspection_interval > 0 {
            let ends = claims.get("exp").and_then(Value::as_u64).unwrap_or(u64::MAX);
            let until = ends.min(now.saturating_add(self.config.introspection_interval));
            let mut known = lock();
            if known.len() >= MOST {
                known.clear();
            }
            known.insert(key, (until, claims.clone()));
        }
        Ok(claims)
    }

    /// Times, issuer and audience of a token. `id` = it is an ID token, whose claims have to be there.
    pub(super) async fn check_claims(&self, claims: &Value, id: bool) -> Result<(), &'static str> {
        let now = clock::unix_ms() as f64 / 1000.0;
        let number = |name: &str| claims.get(name).and_then(Value::as_f64);
        match (number("exp"), number("nbf")) {
            (Some(exp), _) if now >= exp => return Err("it has expired"),
            (None, _) if claims.get("exp").is_some() || id => return Err("its exp is no time"),
            (_, Some(nbf)) if now < nbf => return Err("it is not valid yet"),
            _ => {}
        }
        let validator = self.config.claim_validator.clone().unwrap_or_default();
        let issuer = claims.get("iss").and_then(Value::as_str);
        let issuers = validator.issuer.and_then(|issuer| issuer.valid_issuers);
        let good = match (&issuers, issuer) {
            (Some(issuers), Some(issuer)) => issuers.iter().any(|good| good == issuer),
            (Some(_), None) => false,
            (None, None) => !id,
            (None, Some(issuer)) => {
                // Where nobody can say who the issuer is, a key that was given says enough.
                let found = self.provider.found(&self.asking()).await;
                match found.map(|found| found.issuer.clone()) {
                    Ok(Some(expected)) => expected == issuer,
                    Ok(None) => !id,
                    Err(_) => !id && self.public_key.is_some(),
                }
            }
        };
        if !good {
            return Err("its issuer is another");
        }
        let names_client = |claim: Option<&Value>| match claim {
            Some(Value::String(one)) => *one == self.config.client_id,
            Some(Value::Array(list)) => {
                list.iter().any(|one| one.as_str() == Some(self.config.client_id.as_str()))
            }
            _ => false,
        };
        let audience = validator.audience.unwrap_or_default();
        let claim = claims.get(&audience.claim);
        let missing = audience.required && claim.is_none();
        let other = audience.match_with_client_id && claim.is_some() && !names_client(claim);
        if missing || other || id && !names_client(claims.get("aud")) {
            return Err("it is for somebody else");
        }
        Ok(())
    }
}
