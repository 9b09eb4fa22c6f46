//! Secrets that were made a moment ago, for clients that did not get the answer and ask again under the same key.
//!
//! In memory alone, of the manager that made them, and for a short time: the store has their hashes, and never more.

use super::auth;
use super::forward::{Forwarded, SEED, Seed};
use super::problem::{Outcome, Problem};
use axum::extract::FromRequestParts;
use http::request::Parts;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use towpath_types::{Digest, ErrorCode};

/// How long one is remembered.
const KEPT: Duration = Duration::from_secs(120);
/// How many are, at most.
const MOST: usize = 1024;

/// A token that nobody has yet: for requests that managers send on the one that came with it, so that the same request makes the
/// same token however often it is sent.
pub(crate) struct Minted(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Minted {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Outcome<Self> {
        let seed = parts.extensions.get::<Forwarded>().and_then(|_| parts.headers.get(SEED));
        let sent = parts.extensions.get::<Seed>().map(|seed| seed.0.as_str());
        let seed =
            sent.or(seed.and_then(|seed| seed.to_str().ok())).filter(|seed| auth::is_well_formed(seed));
        let token = seed.map_or_else(auth::mint, |seed| Ok(seed.to_owned()));
        token.map(Self).map_err(|error| {
            tracing::error!(%error, "no randomness");
            Problem::new(ErrorCode::Internal, "a token could not be made")
        })
    }
}

/// Tokens by the idempotency key of the request that made them.
#[derive(Default)]
pub(crate) struct Lately {
    by_key: Mutex<HashMap<String, (Instant, String)>>,
}

impl Lately {
    /// Remembers one.
    pub(crate) fn note(&self, key: &str, token: &str, now: Instant) {
        let mut map = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        map.retain(|_, (since, _)| now.duration_since(*since) < KEPT);
        if map.len() < MOST {
            map.insert(key.to_owned(), (now, token.to_owned()));
        }
    }

    /// The token of this hash.
    pub(crate) fn find(&self, key: &str, hash: &Digest, now: Instant) -> Option<String> {
        let map = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, token) = map.get(key)?;
        (now.duration_since(*since) < KEPT && auth::hash(token) == *hash).then(|| token.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_remembered_for_a_while_and_in_bounded_number() {
        let (lately, now) = (Lately::default(), Instant::now());
        lately.note("k", "t", now);
        let hash = auth::hash("t");
        assert_eq!(lately.find("k", &hash, now).as_deref(), Some("t"));
        assert_eq!(lately.find("k", &auth::hash("u"), now), None);
        assert_eq!(lately.find("other", &hash, now), None);
        assert_eq!(lately.find("k", &hash, now + KEPT), None);
        for n in 0..3 * MOST {
            lately.note(&n.to_string(), "t", now);
        }
        assert_eq!(lately.by_key.lock().unwrap().len(), MOST);
        lately.note("later", "t", now + KEPT);
        assert_eq!(lately.by_key.lock().unwrap().len(), 1);
    }
}
