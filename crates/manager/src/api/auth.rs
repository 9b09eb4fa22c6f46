//! Who is asking: bearer tokens.
//!
//! A token is `twp_` and 32 random bytes in base64url. Only its SHA-256 is stored: with 256 random bits there is nothing
//! to guess, so a slow hash would gain nothing. The lookup goes by the hash of what was presented; what its timing
//! tells about stored *hashes* is useless, since nobody can choose inputs whose hash has a wanted beginning. The found
//! hash is compared once more in constant time.

use super::ApiState;
use super::access::{self, Access};
use super::problem::{Outcome, Problem};
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::time::Instant;
use towpath_types::spec::{Role, TokenSpec};
use towpath_types::{Digest, ErrorCode, Kind};

/// How every token begins, so that leaked ones are found by scanners.
pub(crate) const PREFIX: &str = "twp_";

/// The one who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Name of the token.
    pub(crate) name: String,
    /// What it may do.
    pub(crate) role: Role,
}

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut http::request::Parts, _state: &S) -> Outcome<Self> {
        parts.extensions.get::<Caller>().cloned().ok_or_else(unauthorized)
    }
}

/// A new token, from the operating system's randomness.
pub(crate) fn mint() -> std::io::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// What is stored of a token.
pub(crate) fn hash(token: &str) -> Digest {
    Digest::from_bytes(Sha256::digest(token.as_bytes()).into())
}

/// Whether a text looks like one of our tokens.
pub(crate) fn is_well_formed(token: &str) -> bool {
    token
        .strip_prefix(PREFIX)
        .and_then(|rest| URL_SAFE_NO_PAD.decode(rest).ok())
        .is_some_and(|bytes| bytes.len() == 32)
}

fn unauthorized() -> Problem {
    Problem::new(
        ErrorCode::Unauthorized,
        "send `Authorization: Bearer twp_…`; the first token is in the file that the manager named at its first start",
    )
}

/// Decides about every request before its handler sees it.
pub(crate) async fn guard(State(state): State<ApiState>, mut request: Request, next: Next) -> Response {
    let access = request
        .extensions()
        .get::<MatchedPath>()
        // What is not in the table is for operators alone; of an unknown path the router says so once the caller is known.
        .map_or(Access::Any, |path| {
            access::find(request.method(), path.as_str()).unwrap_or(Access::Operator)
        });
    let address = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    let presented = presented(request.headers());
    match decide(&state, access, address, presented).await {
        Ok(Some(caller)) => {
            tracing::Span::current().record("by", caller.name.as_str());
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Ok(None) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// The token's hash, if something like a token was sent.
fn presented(headers: &HeaderMap) -> Option<Digest> {
    headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .filter(|token| is_well_formed(token))
        .map(hash)
}

async fn decide(
    state: &ApiState,
    access: Access,
    address: Option<IpAddr>,
    presented: Option<Digest>,
) -> Outcome<Option<Caller>> {
    if access == Access::Public {
        return Ok(None);
    }
    let caller = match authenticate(state, presented).await {
        Ok(caller) => caller,
        Err(problem) if problem.code == ErrorCode::Unauthorized => {
            return Err(state.failures.failed(address, Instant::now()).map_or(problem, |pause| {
                Problem::new(ErrorCode::Busy, "too many requests without a valid token from this address")
                    .retry_after(pause)
            }));
        }
        Err(problem) => return Err(problem),
    };
    if access::permits(access, caller.role) {
        return Ok(Some(caller));
    }
    let (name, role, least) = (&caller.name, role_text(caller.role), access::least(access));
    Err(Problem::new(
        ErrorCode::Forbidden,
        format!("the token {name:?} is a {role} token; this needs {least}"),
    ))
}

async fn authenticate(state: &ApiState, presented: Option<Digest>) -> Outcome<Caller> {
    let presented = presented.ok_or_else(unauthorized)?;
    // Tokens come from memory, so that reads go on without a store. One that was made a moment ago by another manager
    // may not have arrived here yet: then the store is asked.
    for record in state.core.cache.list(Kind::Token, None, None) {
        if let Some(caller) =
            record.spec().ok().and_then(|spec| matching(&record.key.name, &spec, &presented))
        {
            return Ok(caller);
        }
    }
    let query = towpath_store::Query { kind: Some(Kind::Token), ..Default::default() };
    if state.core.cache.revision() == *state.core.store.watch().borrow() {
        return Err(unauthorized());
    }
    let page = state.core.store.list(&query).await?;
    page.records
        .iter()
        .find_map(|record| record.spec().ok().and_then(|spec| matching(&record.key.name, &spec, &presented)))
        .ok_or_else(unauthorized)
}

fn matching(name: &str, spec: &TokenSpec, presented: &Digest) -> Option<Caller> {
    let same: bool = spec.hash.as_bytes().ct_eq(presented.as_bytes()).into();
    same.then(|| Caller { name: name.to_owned(), role: spec.role })
}

/// The role as text.
pub(crate) fn role_text(role: Role) -> &'static str {
    match role {
        Role::Operator => "operator",
        Role::Developer => "developer",
        Role::Viewer => "viewer",
        Role::Cell => "cell",
    }
}

/// Counts failed attempts per address. Valid tokens are never held back by it, so nobody can lock out a shared address;
/// what it limits is the work and the log that a flood of wrong tokens makes.
#[derive(Debug)]
pub(crate) struct Failures {
    permitted: u32,
    by_address: Mutex<HashMap<IpAddr, (Instant, u32)>>,
}

impl Failures {
    /// The window.
    const WINDOW: Duration = Duration::from_secs(60);
    /// Addresses remembered; beyond it the oldest half is forgotten.
    const ADDRESSES: usize = 4096;

    /// Permits so many attempts per window, which are answered with 401.
    pub(crate) fn new(permitted: u32) -> Self {
        Self { permitted, by_address: Mutex::default() }
    }

    /// Notes a failed attempt; `Some` = too many, come back after that time.
    fn failed(&self, address: Option<IpAddr>, now: Instant) -> Option<Duration> {
        let address = address?;
        let mut map = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if map.len() >= Self::ADDRESSES && !map.contains_key(&address) {
            map.retain(|_, (since, _)| now.duration_since(*since) < Self::WINDOW);
            if map.len() >= Self::ADDRESSES {
                let mut starts: Vec<Instant> = map.values().map(|(since, _)| *since).collect();
                starts.sort_unstable();
                let middle = starts.get(starts.len() / 2).copied().unwrap_or(now);
                map.retain(|_, (since, _)| *since > middle);
            }
        }
        let (since, count) = map.entry(address).or_insert((now, 0));
        if now.duration_since(*since) >= Self::WINDOW {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        (*count > self.permitted).then(|| Self::WINDOW.saturating_sub(now.duration_since(*since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_well_formed_and_differ() {
        let (a, b) = (mint().unwrap(), mint().unwrap());
        assert!(is_well_formed(&a) && a != b && a.len() == 47, "{a}");
        for bad in ["", "twp_", "twp_short", a.trim_start_matches(PREFIX), &format!("{a}A")] {
            assert!(!is_well_formed(bad), "{bad}");
        }
    }

    #[test]
    fn failures_are_limited_per_address_and_the_map_is_bounded() {
        let failures = Failures::new(3);
        let now = Instant::now();
        let address = |n: u32| Some(IpAddr::from(n.to_be_bytes()));
        for _ in 0..3 {
            assert_eq!(failures.failed(address(1), now), None);
        }
        assert!(failures.failed(address(1), now).is_some());
        assert_eq!(failures.failed(address(2), now), None);
        assert_eq!(failures.failed(address(1), now + Failures::WINDOW), None);
        for n in 0..20_000 {
            failures.failed(address(n), now);
        }
        assert!(failures.by_address.lock().unwrap().len() <= Failures::ADDRESSES);
    }
}
