//! Logging in and out: a password for a session's token.
//!
//! The answer about a user who is not there, is disabled, has no password, or gave a wrong one is the same, and takes as
//! long. Attempts are counted by user and by address, before anything is hashed.

use super::ApiState;
use super::attempts::counted;
use super::auth::{self, Caller};
use super::body::{Checked, Doc};
use super::lately::Minted;
use super::problem::{FieldError, Outcome, Problem, ProblemBody};
use super::query::NoQuery;
use super::trail::{Trail, source_of};
use super::users::check_password;
use super::writing::Conditions;
use crate::core::keys;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use towpath_store::{Expect, Write};
use towpath_types::identity::{Actor, SessionSpec, UserSpec};
use towpath_types::{Digest, ErrorCode, Millis, Record, UserName};

/// How long a session lasts when the client does not say.
const USUAL: Millis = Millis::secs(12 * 3600);
/// Sessions that one login ends at most; further ones are for the next.
const MOST_ENDED: usize = 200;
/// Longest wait for memory to know the user as it was read.
const CACHE: Duration = Duration::from_secs(5);
/// The longest.
const LONGEST: Millis = Millis::secs(30 * 24 * 3600);

/// A login.
#[derive(Default, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LoginBody {
    /// The user.
    #[schema(required = true, value_type = String)]
    user: Option<String>,
    /// The password.
    #[schema(required = true, value_type = String)]
    password: Option<String>,
    /// How long the session lasts; 12h when absent, at most 30 days.
    ttl: Option<Millis>,
}

impl std::fmt::Debug for LoginBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginBody").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Checked for LoginBody {
    fn check(&self, errors: &mut Vec<FieldError>) {
        for (field, value) in [("user", &self.user), ("password", &self.password)] {
            match value {
                None => errors.push(FieldError::new(field, "is needed")),
                Some(value) if value.len() > 1024 => errors.push(FieldError::new(field, "is too long")),
                Some(_) => {}
            }
        }
        if self.ttl.is_some_and(|ttl| ttl > LONGEST || ttl < Millis::secs(1)) {
            errors.push(FieldError::new("ttl", "has to be 1s to 30 days"));
        }
    }
}

/// A session: the only time that its token is shown.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct SessionView {
    user: String,
    token: String,
    /// Milliseconds since 1970, by the store's clock.
    expires_ms: u64,
}

/// A new password.
#[derive(Default, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PasswordBody {
    /// The present one.
    #[schema(required = true, value_type = String)]
    current: Option<String>,
    /// At least 8 characters.
    #[schema(required = true, value_type = String)]
    new: Option<String>,
}

impl Checked for PasswordBody {
    fn check(&self, errors: &mut Vec<FieldError>) {
        for (field, value) in [("current", &self.current), ("new", &self.new)] {
            if value.is_none() {
                errors.push(FieldError::new(field, "is needed"));
            }
        }
        check_password("new", self.new.as_deref(), errors);
    }
}

fn refused() -> Problem {
    Problem::new(ErrorCode::Unauthorized, "user or password is not right")
}

impl ApiState {
    /// The user whose password this is.
    async fn verify(&self, user: &str, password: String, source: &str) -> Outcome<(UserName, Record)> {
        let address = source.parse().map(|address| counted(address).to_string());
        let (hash, from) = (auth::hash(user), auth::hash(address.as_deref().unwrap_or(source)));
        let too_many = |pause: Option<Duration>| match pause {
            None => Ok(()),
            Some(pause) => {
                let detail = "too many attempts to log in as this user, or from this address";
                Err(Problem::new(ErrorCode::Busy, detail).retry_after(pause))
            }
        };
        too_many(self.logins.begin(hash, from).await)?;
        let name = user.parse::<UserName>().ok();
        let record = match &name {
            Some(name) => self.core.store.get(&keys::user_key(name)).await?,
            None => None,
        };
        let spec = record.as_ref().and_then(|record| record.spec::<UserSpec>().ok());
        let stored = spec.filter(|spec| !spec.disabled).and_then(|spec| spec.password);
        let right = self.passwords.verify(&self.core.settings, stored, password).await?;
        match (right, name, record) {
            (true, Some(name), Some(record)) => {
                too_many(self.logins.right(hash, from).await)?;
                Ok((name, record))
            }
            _ => {
                tracing::info!(
                    user = user.chars().take(64).collect::<String>(),
                    source,
                    "a login was refused"
                );
                Err(refused())
            }
        }
    }
}

impl ApiState {
    /// The deletions that make room for a session: what is void, and the oldest beyond what a user may have.
    fn surplus(&self, session: &SessionSpec) -> impl Iterator<Item = Write> + use<> {
        let now = self.core.now_ms();
        let is_void = |record: &Record| {
            let valid = |old: &SessionSpec| {
                old.id == session.id && old.epoch == session.epoch && old.expires_ms > now
            };
            !record.spec::<SessionSpec>().is_ok_and(|old| valid(&old))
        };
        let (mut gone, mut kept): (Vec<_>, Vec<_>) =
            self.core.cache.sessions_of(&session.user).into_iter().partition(|record| is_void(record));
        kept.sort_by_key(|record| std::cmp::Reverse(record.revision));
        gone.extend(kept.into_iter().skip(self.core.settings.limits.sessions_per_user.saturating_sub(1)));
        let delete =
            |record: std::sync::Arc<Record>| Write::Delete { key: record.key.clone(), expect: Expect::Any };
        gone.into_iter().take(MOST_ENDED).map(delete)
    }
}

/// Logs in. The token is in this answer and nowhere else.
#[utoipa::path(post, path = "/v1/login", tag = "identity",
    request_body(content = LoginBody, example = json!({"user": "ann", "password": "correct horse battery staple"})),
    responses((status = 201, body = SessionView), (status = "default", body = ProblemBody)))]
pub(crate) async fn login(
    State(state): State<ApiState>,
    _query: NoQuery,
    Minted(token): Minted,
    request: Request,
) -> Outcome<Response> {
    let source = source_of(request.extensions(), request.headers()).unwrap_or_default();
    let by = |name: &UserName| Actor::User { name: name.to_string() };
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    let Doc(body) = <Doc<LoginBody> as axum::extract::FromRequest<()>>::from_request(request, &()).await?;
    let (user, password) = (body.user.unwrap_or_default(), body.password.unwrap_or_default());
    let (user, record) = state.verify(&user, password, &source).await?;
    let expires_ms = state.core.now_ms().saturating_add(body.ttl.unwrap_or(USUAL).0);
    let key = keys::session_key(auth::hash(&token));
    let trail = Trail::new(by(&user), "session.login", &Request::from_parts(parts, ()));
    // What memory has of the user's other sessions is to be complete: each of them was written together with the user.
    let mut at = record.revision;
    // Something new, since a write that changes nothing would leave the user at its revision, and logins at the same time
    // would not see each other.
    let joined = Some(serde_json::json!({"joined": state.core.mint_record_id()}));
    let commit = loop {
        let waits = state.core.wait_cache(at, CACHE).await;
        let decide = |present: Option<&Record>| {
            // The password is still this one.
            let spec = unchanged(present, &record).ok_or_else(refused)?;
            at = present.map_or(at, |present| present.revision);
            if waits && at > state.core.cache.revision() {
                return Ok(None);
            }
            let expect = present.map_or(Expect::Absent, |present| Expect::At(present.revision));
            let (id, epoch) = (record.id.clone(), spec.epoch);
            let session = SessionSpec { user: user.clone(), id: id.clone(), epoch, expires_ms };
            let mut writes = vec![
                state.put(key.clone(), Expect::Absent, &session),
                Write::Put { key: record.key.clone(), id, expect, spec: None, status: joined.clone() },
            ];
            let entry = trail.of_change(None, &writes).map(|entry| state.audit_write(&entry));
            writes.extend(entry);
            writes.extend(state.surplus(&session));
            Ok::<_, Problem>(Some(writes))
        };
        if let Some(commit) = state.core.update(&record.key, decide).await? {
            break commit;
        }
    };
    let view = SessionView { user: user.to_string(), token, expires_ms };
    Ok(state.changed((StatusCode::CREATED, Json(view)).into_response(), commit.revision, None, None).await)
}

/// Ends the session that asks.
#[utoipa::path(post, path = "/v1/logout", tag = "identity",
    responses((status = 204), (status = "default", body = ProblemBody)))]
pub(crate) async fn logout(
    State(state): State<ApiState>,
    caller: Caller,
    _query: NoQuery,
    conditions: Conditions,
) -> Outcome<Response> {
    let key = keys::session_key(session_of(&caller)?);
    let commit = state
        .change(&key, &conditions, |_, expect| Ok(vec![Write::Delete { key: key.clone(), expect }]))
        .await?;
    Ok(state.changed(StatusCode::NO_CONTENT.into_response(), commit.revision, None, None).await)
}

/// Gives the user who asks another password. All sessions but the one that asks end.
#[utoipa::path(put, path = "/v1/password", tag = "identity",
    request_body(content = PasswordBody, example = json!({"current": "correct horse battery staple", "new": "incorrect horse battery staple"})),
    responses((status = 204), (status = "default", body = ProblemBody)))]
pub(crate) async fn put_password(
    State(state): State<ApiState>,
    caller: Caller,
    _query: NoQuery,
    conditions: Conditions,
    Doc(body): Doc<PasswordBody>,
) -> Outcome<Response> {
    let session = keys::session_key(session_of(&caller)?);
    if let Some(first) = &conditions.first {
        return Ok(state.changed(StatusCode::NO_CONTENT.into_response(), first.revision, None, None).await);
    }
    let (current, new) = (body.current.unwrap_or_default(), body.new.unwrap_or_default());
    let source = format!("session of {}", caller.name);
    let not_yours = || Problem::field("current", "is not your password");
    let (user, verified) =
        state.verify(&caller.name, current, &source).await.map_err(|problem| match problem.code {
            ErrorCode::Unauthorized => not_yours(),
            _ => problem,
        })?;
    let password = state.passwords.hash(&state.core.settings, new).await?;
    let key = keys::user_key(&user);
    let own = state.core.store.get(&session).await?.ok_or_else(refused)?;
    let commit = state
        .change(&key, &conditions, |present, expect| {
            // Another password that came while this one was looked at stays.
            let mut spec = unchanged(present, &verified).ok_or_else(not_yours)?;
            spec.password = Some(password.clone());
            spec.epoch += 1;
            let mut kept: SessionSpec = own.spec().map_err(|_| super::view::unreadable(&own))?;
            kept.epoch = spec.epoch;
            Ok(vec![
                state.put(key.clone(), expect, &spec),
                state.put(session.clone(), Expect::Present, &kept),
            ])
        })
        .await?;
    Ok(state.changed(StatusCode::NO_CONTENT.into_response(), commit.revision, None, None).await)
}

/// The user as it is now, if it is still the one whose password was looked at, with that password.
fn unchanged(present: Option<&Record>, verified: &Record) -> Option<UserSpec> {
    let present = present.filter(|present| present.id == verified.id)?;
    let (now, then): (UserSpec, UserSpec) = (present.spec().ok()?, verified.spec().ok()?);
    (now.password == then.password && now.epoch == then.epoch && !now.disabled).then_some(now)
}

fn session_of(caller: &Caller) -> Outcome<Digest> {
    let detail = "this is a token, not a session: `towpath token revoke` ends it";
    caller.session.ok_or_else(|| Problem::new(ErrorCode::Conflict, detail))
}
