//! Changing resources: conditions, idempotency keys, and waiting until the change is served.

use super::ApiState;
use super::auth::Caller;
use super::edge::{REFUSED, REVISION, WAITED};
use super::forward::{FIRST_TRY, Forwarded};
use super::problem::{Outcome, Problem};
use super::query::Wait;
use super::quota::Ask;
use super::reading::{etag, names};
use super::trail::Trail;
use crate::core::changes::Refused;
use crate::error::CommitError;
use axum::Json;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use towpath_store::{Commit, Expect, Idempotency, StoreError, Write};
use towpath_types::resource::Key;
use towpath_types::{ErrorCode, Generation, Kind, Millis, Record, Revision};

/// Marks a mutation that may be sent again.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Longest time to wait for gateways.
const MAX_WAIT: Duration = Duration::from_secs(120);

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        Problem::new(ErrorCode::Busy, refused.to_string()).retry_after(Duration::from_secs(1))
    }
}

impl From<CommitError> for Problem {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Store(error) => error.into(),
            CommitError::NotMember => Problem::new(
                ErrorCode::StoreUnavailable,
                "this manager is joining at the moment; try again, or ask another",
            )
            .retry_after(Duration::from_secs(1)),
            CommitError::Contended => {
                Problem::conflict("it kept being changed by others at the same time; try again")
            }
        }
    }
}

/// What a mutation's headers say: conditions and the idempotency key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions {
    if_match: Option<HeaderValue>,
    create_only: bool,
    /// Key, made unique by caller, method and path, with the digest of the body.
    pub(crate) idempotency: Option<Idempotency>,
    /// What the first request with this key did. Its conditions held then, and do not count any more.
    pub(crate) first: Option<Commit>,
    /// Nothing is begun after this.
    pub(crate) until: Option<Instant>,
    /// What the audit log gets to know of it.
    pub(crate) trail: Option<Trail>,
}

/// The body of a request that may be sent again.
#[derive(Debug, Clone)]
pub(crate) struct SentBody(pub(crate) bytes::Bytes);

impl FromRequestParts<ApiState> for Conditions {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Outcome<Self> {
        let caller = parts.extensions.get::<Caller>().map(Caller::unique).unwrap_or_default();
        let path = parts.uri.path_and_query().map(http::uri::PathAndQuery::as_str).unwrap_or_default();
        let mut conditions = Self::read(&parts.headers, &caller, parts.method.as_str(), path)?;
        conditions.until = parts.extensions.get::<Forwarded>().map(|forwarded| forwarded.until);
        conditions.trail = parts.extensions.get::<Trail>().cloned();
        if let Some(named) = &mut conditions.idempotency {
            let mut earlier = None;
            named.request = match parts.extensions.get::<SentBody>() {
                Some(SentBody(body)) if has_password(parts.uri.path()) => {
                    let salt = named.key.clone();
                    Some(state.passwords.digest(&state.core.settings, body.clone(), salt).await?)
                }
                // With the key in it, so that equal bodies have no equal digests.
                Some(SentBody(body)) => {
                    // Of a request that was kept before it could be made with the key.
                    earlier = Some(digest_of([named.key.as_bytes(), body]));
                    Some(request_digest(&state.core, parts.uri.path(), &named.key, body)?)
                }
                None => None,
            };
            if is_first_try(parts) {
                return Ok(conditions);
            }
            conditions.first = match state.core.store.answered(named).await {
                Err(StoreError::KeyReused) if earlier.is_some() && earlier != named.request => {
                    let named = Idempotency { request: earlier, ..named.clone() };
                    state.core.store.answered(&named).await?
                }
                answered => answered?,
            };
        }
        Ok(conditions)
    }
}

/// Whether nothing can be known under a request's key yet: another manager made the key for it, and sends it for the first time.
/// (Should the bus deliver it twice, the store finds that out when the change is committed.)
fn is_first_try(parts: &Parts) -> bool {
    parts.extensions.get::<Forwarded>().is_some() && parts.headers.contains_key(FIRST_TRY)
}

/// Whether bodies sent there hold passwords: what is stored of them must not be quick to try guesses with.
fn has_password(path: &str) -> bool {
    ["/v1/users/", "/v1/password"].iter().any(|start| path.starts_with(start))
}

/// By which a repeated request is known. Of a body that may hold a secret the digest is made with a key that the store has in
/// sealed form alone: a short secret could be guessed by its plain digest.
fn request_digest(core: &crate::core::Core, path: &str, key: &str, body: &[u8]) -> Outcome<String> {
    if !body.is_empty() && crate::vault::may_hold_secret(path) && core.sealing_trouble().is_none() {
        return Ok(core.keyed_digest(&[b"request", key.as_bytes(), body])?);
    }
    Ok(digest_of([key.as_bytes(), body]))
}

/// Hex digest of parts that cannot run into each other.
fn digest_of<const N: usize>(parts: [&[u8]; N]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    towpath_types::Digest::from_bytes(hash.finalize().into()).hex()
}

impl Conditions {
    fn read(headers: &HeaderMap, caller: &str, method: &str, path: &str) -> Outcome<Self> {
        let idempotency = headers.get(IDEMPOTENCY_KEY).map(|value| {
            if !(1..=128).contains(&value.len()) || !value.as_bytes().iter().all(u8::is_ascii_graphic) {
                return Err(Problem::field("Idempotency-Key", "has to be 1 to 128 visible ASCII characters"));
            }
            Ok(digest_of([caller.as_bytes(), method.as_bytes(), path.as_bytes(), value.as_bytes()]).into())
        });
        Ok(Self {
            if_match: headers.get(header::IF_MATCH).cloned(),
            create_only: headers.get(header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == b"*"),
            idempotency: idempotency.transpose()?,
            ..Self::default()
        })
    }

    /// Whether a compare-and-set that fails is told to the client (it gave a condition) rather than tried again.
    pub(crate) fn is_strict(&self) -> bool {
        self.if_match.is_some() || self.create_only
    }

    /// Checks the conditions against what is there; the expectation for the write.
    pub(crate) fn check(&self, present: Option<&Record>) -> Outcome<Expect> {
        if self.first.is_some() {
            return Ok(Expect::Any);
        }
        if self.create_only && present.is_some() {
            return Err(Problem::new(
                ErrorCode::StaleRevision,
                "it is there already, and `If-None-Match: *` was sent",
            ));
        }
        if let Some(wanted) = &self.if_match {
            let Some(present) = present else {
                return Err(Problem::new(
                    ErrorCode::StaleRevision,
                    "it is not there, and `If-Match` was sent",
                ));
            };
            if !names(wanted, present.revision) {
                return Err(Problem::new(
                    ErrorCode::StaleRevision,
                    format!("it is at revision {}, not {}", present.revision, wanted.to_str().unwrap_or("?")),
                ));
            }
        }
        Ok(present.map_or(Expect::Absent, |present| Expect::At(present.revision)))
    }

    /// What a later commit is to find as it is now: the generation, as the status moves by itself. `None` without a
    /// condition.
    pub(crate) fn expected(&self, present: &Record) -> Option<Generation> {
        let named = self.if_match.as_ref().filter(|wanted| wanted.as_bytes() != b"*");
        named.map(|_| present.generation)
    }

    /// Whether this request made what it is about, or the first one with its key did.
    pub(crate) fn made(&self, created: bool) -> bool {
        created || self.has_made()
    }

    fn has_made(&self) -> bool {
        let made = |commit: &Commit, record: &Record| {
            record.generation == Generation(1) && record.revision == commit.revision
        };
        self.first.as_ref().is_some_and(|commit| {
            commit.records.first().and_then(Option::as_ref).is_some_and(|record| made(commit, record))
        })
    }

    /// The problem with a commit that lost a race.
    pub(crate) fn lost(&self, error: CommitError) -> Problem {
        match error {
            CommitError::Store(StoreError::Conflict { .. }) if self.is_strict() => {
                Problem::new(ErrorCode::StaleRevision, "it was changed by another in the meantime")
            }
            error => error.into(),
        }
    }
}

impl ApiState {
    /// Reads a resource, decides the writes, commits them; again when somebody else was faster, unless the client
    /// gave a condition. With an idempotency key only the first request takes effect. Changes of one resource are made one
    /// at a time, in the order in which they came.
    pub(crate) async fn change<F>(
        &self,
        key: &towpath_types::resource::Key,
        conditions: &Conditions,
        decide: F,
    ) -> Outcome<Commit>
    where
        F: FnMut(Option<&Record>, Expect) -> Outcome<Vec<Write>>,
    {
        self.change_within(key, conditions, None, decide).await
    }

    /// Likewise, of what counts towards the quota of an org.
    pub(crate) async fn change_within<F>(
        &self,
        key: &towpath_types::resource::Key,
        conditions: &Conditions,
        ask: Option<&Ask>,
        mut decide: F,
    ) -> Outcome<Commit>
    where
        F: FnMut(Option<&Record>, Expect) -> Outcome<Vec<Write>>,
    {
        if let Some(first) = &conditions.first {
            return Ok(first.clone());
        }
        for attempt in 0..12 {
            // First the org's turn, then the resource's: the order in which operations take them, too.
            let claim = match ask {
                Some(ask) => self.claim(ask).await?,
                None => None,
            };
            let _turn = self.core.changes.enter(key, conditions.until).await?;
            let remembered = self.remembered(key, conditions).filter(|_| attempt == 0);
            let from_memory = remembered.is_some();
            let present = match remembered {
                Some(record) => Some(record),
                None => self.core.store.get(key).await?.map(Arc::new),
            };
            let decided =
                conditions.check(present.as_deref()).and_then(|expect| decide(present.as_deref(), expect));
            // What was refused, or changes nothing, is judged by what the store has.
            if from_memory && decided.as_ref().map_or(true, Vec::is_empty) {
                continue;
            }
            let mut writes = match (decided, &conditions.idempotency) {
                (Ok(writes), _) => writes,
                // What is in the way may be what the first request with this key made, while this one waited for its turn.
                (Err(problem), Some(named)) => {
                    return self.core.store.answered(named).await?.ok_or(problem);
                }
                (Err(problem), None) => return Err(problem),
            };
            let entry =
                conditions.trail.as_ref().and_then(|trail| trail.of_change(present.as_deref(), &writes));
            writes.extend(entry.map(|entry| self.audit_write(&entry)));
            writes.extend(claim.as_ref().map(|claim| claim.write.clone()));
            match self.core.commit_once(writes, conditions.idempotency.clone()).await {
                Err(CommitError::Store(StoreError::Conflict { .. })) if !conditions.is_strict() => {}
                Ok(commit) => return Ok(commit),
                Err(error) => return Err(conditions.lost(error)),
            }
        }
        Err(CommitError::Contended.into())
    }

    /// What memory has of a resource that is to be changed: its owner is nearly always up to date, and if it is not, the commit
    /// says so. Conditions are judged by the store alone.
    fn remembered(&self, key: &Key, conditions: &Conditions) -> Option<Arc<Record>> {
        if conditions.is_strict() || key.kind == Kind::Group || !*self.core.cache_loaded().borrow() {
            return None;
        }
        self.core.cache.get(key)
    }

    /// Changes a resource by what was found out beside it when it was read. Refused when it has changed since.
    pub(crate) async fn change_as_read(
        &self,
        read: &Record,
        conditions: &Conditions,
        writes: Vec<Write>,
    ) -> Outcome<Commit> {
        let moved = || {
            let what = format!("{} {}", read.key.kind.as_str(), read.key.name);
            Problem::conflict(format!("{what} was changed at the same time; try again"))
        };
        self.change(&read.key, conditions, |present, _| match present {
            Some(present) if present.revision == read.revision => Ok(writes.clone()),
            _ => Err(moved()),
        })
        .await
    }

    /// Finishes the answer to a mutation: revision header, and the wait for the gateways when asked for
    /// (`refused` = they are so far, and one of them cannot use it).
    pub(crate) async fn changed(
        &self,
        mut response: Response,
        revision: Revision,
        wait: Option<Wait>,
        wait_timeout: Option<Millis>,
    ) -> Response {
        response.headers_mut().insert(REVISION, HeaderValue::from(revision.0));
        if wait.is_some() {
            let served = self.core.wait_revision_served(revision, wait_time(wait_timeout)).await;
            let refused = if served { self.core.refused_at(revision) } else { None };
            let word = match (served, &refused) {
                (false, _) => "timeout",
                (true, Some(_)) => "refused",
                (true, None) => "served",
            };
            response.headers_mut().insert(WAITED, HeaderValue::from_static(word));
            if let Some(why) =
                refused.and_then(|why| HeaderValue::from_str(&why.escape_debug().to_string()).ok())
            {
                response.headers_mut().insert(REFUSED, why);
            }
        }
        response
    }

    /// Finishes the answer to a mutation whose effect did not come in the time to wait.
    pub(crate) fn unserved(&self, mut response: Response, revision: Revision) -> Response {
        response.headers_mut().insert(REVISION, HeaderValue::from(revision.0));
        response.headers_mut().insert(WAITED, HeaderValue::from_static("timeout"));
        response
    }
}

/// How long a client waits for gateways.
pub(crate) fn wait_time(wait_timeout: Option<Millis>) -> Duration {
    wait_timeout.map_or(Duration::from_secs(10), Millis::duration).min(MAX_WAIT)
}

/// The answer with a resource that was written.
pub(crate) fn written<T: Serialize>(created: bool, revision: Revision, view: &T) -> Response {
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = (status, Json(view)).into_response();
    response.headers_mut().insert(header::ETAG, etag(revision));
    response
}

/// The record of the first write of a commit.
pub(crate) fn first(commit: &Commit) -> Outcome<&Record> {
    commit
        .records
        .first()
        .and_then(Option::as_ref)
        .ok_or_else(|| Problem::new(ErrorCode::Internal, "the store did not return what was written"))
}

/// JSON merge patch (RFC 7396).
pub(crate) fn merge(target: &mut serde_json::Value, patch: &serde_json::Value) {
    use serde_json::Value;
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_patch_follows_its_rfc() {
        for (mut target, patch, merged) in [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b","b":1}), json!({"a":null}), json!({"b":1})),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":{"b":"c","d":1}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d","d":1}})),
            (json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"})),
            (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
            (json!({}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}})),
        ] {
            merge(&mut target, &patch);
            assert_eq!(target, merged);
        }
    }

    #[test]
    fn an_idempotency_key_is_told_apart_by_caller_and_target() {
        let mut headers = HeaderMap::new();
        headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static("k1"));
        let key =
            |caller: &str, path: &str| Conditions::read(&headers, caller, "POST", path).unwrap().idempotency;
        assert_eq!(key("a", "/x"), key("a", "/x"));
        assert_ne!(key("a", "/x"), key("b", "/x"));
        assert_ne!(key("a", "/x"), key("a", "/y"));
        headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static("no spaces"));
        assert!(Conditions::read(&headers, "a", "POST", "/x").is_err());
    }
}
