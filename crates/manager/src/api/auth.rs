//! Who is asking: bearer tokens.
//!
//! A token is `twp_` and 32 random bytes in base64url. Only its SHA-256 is stored: with 256 random bits there is nothing
//! to guess, so a slow hash would gain nothing. The lookup goes by the hash of what was presented; what its timing
//! tells about stored *hashes* is useless, since nobody can choose inputs whose hash has a wanted beginning. The found
//! hash is compared once more in constant time (see `callers`).

use super::ApiState;
use super::access::{self, Permission, Reach, Scope, Target, Verdict};
use super::attempts::counted;
use super::problem::{Outcome, Problem};
use super::trail::Trail;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use std::net::{IpAddr, SocketAddr};
use tokio::time::Instant;
use towpath_types::identity::Actor;
use towpath_types::spec::Role;
use towpath_types::{Digest, ErrorCode};

/// How every token begins, so that leaked ones are found by scanners.
pub(crate) const PREFIX: &str = "twp_";

/// The one who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Name of the user or token.
    pub(crate) name: String,
    /// Who that is, told apart from all others.
    pub(crate) actor: Actor,
    /// What it holds.
    pub(crate) reach: Reach,
    /// Its role where the request goes.
    pub(crate) role: Role,
    /// The session, if it is one.
    pub(crate) session: Option<Digest>,
    /// When this ends, store clock, milliseconds since 1970.
    pub(crate) expires_ms: Option<u64>,
}

impl Caller {
    /// Text that no other caller has.
    pub(crate) fn unique(&self) -> String {
        match &self.actor {
            Actor::User { name } => format!("user {name}"),
            Actor::Token { name, org: None } => name.clone(),
            Actor::Token { name, org: Some(org) } => format!("{org}/{name}"),
        }
    }

    /// Whether it may do everything.
    pub(crate) fn is_operator(&self) -> bool {
        self.reach == Reach::Operator
    }
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
        "send `Authorization: Bearer twp_…`; `towpath login` gets one, the first one is in the file that the manager named at its first start",
    )
}

/// Decides about every request before its handler sees it.
pub(crate) async fn guard(State(state): State<ApiState>, mut request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let entry = matched.as_deref().and_then(|path| access::find(request.method(), path));
    let (needs, scope) = match (entry, &matched) {
        (Some(entry), _) => (entry.needs, entry.scope),
        // What is not in the table is for operators alone.
        (None, Some(_)) => (Permission::Operate, Scope::Platform),
        // Of an unknown path the router says so once the caller is known.
        (None, None) => (Permission::SignedIn, Scope::Platform),
    };
    if needs == Permission::Public {
        return next.run(request).await;
    }
    let address = address_of(request.extensions());
    let presented = presented(request.headers(), request.uri().path());
    let mut caller = match known(&state, address, presented).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    let pattern = matched.unwrap_or_default();
    let target = match state.target_of(scope, &pattern, request.uri()).await {
        Ok(target) => target,
        // Names that cannot be are told by the handler, with whatever else is wrong.
        Err(_) if caller.is_operator() => Target::Unknown,
        Err(problem) => return problem.into_response(),
    };
    match access::decide(&caller.reach, needs, &target) {
        Verdict::Allowed(role) => caller.role = role,
        Verdict::Forbidden => return forbidden(&caller, &target, needs).into_response(),
        Verdict::Hidden => return hidden(scope, &target, request.uri().path()).into_response(),
    }
    tracing::Span::current().record("by", caller.name.as_str());
    if let Some(entry) = entry.filter(|entry| !entry.action.is_empty()) {
        let trail = Trail::new(caller.actor.clone(), entry.action, &request);
        request.extensions_mut().insert(trail);
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// The client's address.
fn address_of(extensions: &http::Extensions) -> Option<IpAddr> {
    extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
}

/// The token's hash, if something like a token was sent. Clients of APISIX's Admin API send it as `X-API-KEY`.
fn presented(headers: &HeaderMap, path: &str) -> Option<Digest> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(header::AUTHORIZATION.as_str())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token);
    let key = || text("x-api-key").filter(|_| path.starts_with(super::apisix::ROOT));
    bearer.or_else(key).map(str::trim).filter(|token| is_well_formed(token)).map(hash)
}

/// The caller, or why there is none; counted by address.
async fn known(state: &ApiState, address: Option<IpAddr>, presented: Option<Digest>) -> Outcome<Caller> {
    let found = match presented {
        Some(presented) => state.authenticate(presented).await?,
        None => None,
    };
    // Valid tokens are never held back by it, so nobody can lock out a shared address; what it limits is the work and the
    // log that a flood of wrong tokens makes.
    let failed = || address.and_then(|address| state.failures.note(&counted(address), Instant::now()));
    found.ok_or_else(|| {
        failed().map_or_else(unauthorized, |pause| {
            Problem::new(ErrorCode::Busy, "too many requests without a valid token from this address")
                .retry_after(pause)
        })
    })
}

fn forbidden(caller: &Caller, target: &Target, needs: Permission) -> Problem {
    let role = caller.reach.role_at(target).map_or("nobody's member", role_text);
    let least = access::least(needs);
    Problem::new(ErrorCode::Forbidden, format!("{:?} is {role} here; this needs {least}", caller.name))
}

/// What is said of what one may not see: the same as of what is not there.
fn hidden(scope: Scope, target: &Target, path: &str) -> Problem {
    match (scope, target) {
        (Scope::Operation, _) => {
            let id = path.split('/').nth(3).unwrap_or_default();
            Problem::not_found(format!("operation {id}"))
        }
        (_, Target::Org(org)) => Problem::not_found(format!("org {org}")),
        (_, Target::Space(space)) => Problem::not_found(format!("space {space}")),
        (_, Target::Platform | Target::Unknown) => Problem::not_found("such org"),
    }
}

/// The role as text.
pub(crate) fn role_text(role: Role) -> &'static str {
    match role {
        Role::Operator => "operator",
        Role::Owner => "owner",
        Role::Developer => "developer",
        Role::Viewer => "viewer",
        Role::Cell => "cell",
        Role::Gateway => "gateway",
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
}
