//! Users: people who log in.

use super::ApiState;
use super::body::{Checked, Doc};
use super::passwords::LENGTH;
use super::problem::{FieldError, Outcome, Problem, ProblemBody};
use super::query::{NoQuery, Segments, name};
use super::reading::{List, read_answer};
use super::writing::{Conditions, first, written};
use crate::core::keys;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towpath_store::Write;
use towpath_types::identity::UserSpec;
use towpath_types::spec::Role;
use towpath_types::{Kind, Record, Revision, UserName};

/// A user.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = User)]
pub(crate) struct UserView {
    name: String,
    /// May do everything.
    operator: bool,
    /// May do nothing for the time being.
    disabled: bool,
    /// Has a password, and so can log in.
    password: bool,
    /// Roles by org.
    orgs: BTreeMap<String, Role>,
    created_ms: u64,
    revision: Revision,
}

/// A user to make or change; what is absent stays.
#[derive(Default, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct UserBody {
    /// At least 8 characters. A new one ends all sessions.
    password: Option<String>,
    /// May do everything on the platform.
    operator: Option<bool>,
    /// May do nothing for the time being; sessions of the user are void at once.
    disabled: Option<bool>,
}

impl std::fmt::Debug for UserBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserBody").field("password", &self.password.is_some()).finish_non_exhaustive()
    }
}

impl Checked for UserBody {
    fn check(&self, errors: &mut Vec<FieldError>) {
        check_password("password", self.password.as_deref(), errors);
    }
}

/// Refuses passwords that are too short or long.
pub(crate) fn check_password(field: &str, password: Option<&str>, errors: &mut Vec<FieldError>) {
    if password.is_some_and(|password| !LENGTH.contains(&password.len())) {
        let message = format!("has to have {} to {} bytes", LENGTH.start(), LENGTH.end());
        errors.push(FieldError::new(field, message));
    }
}

impl ApiState {
    fn user_view(&self, record: &Record) -> Option<UserView> {
        let spec: UserSpec = record.spec().ok()?;
        let user: UserName = record.key.name.parse().ok()?;
        let grants = super::callers::grants_of(&self.core, &user, &record.id);
        Some(UserView {
            name: record.key.name.clone(),
            operator: spec.operator,
            disabled: spec.disabled,
            password: spec.password.is_some(),
            orgs: grants.into_iter().map(|grant| (grant.org.to_string(), grant.role)).collect(),
            created_ms: record.created_ms,
            revision: record.revision,
        })
    }
}

/// All users.
#[utoipa::path(get, path = "/v1/users", tag = "identity",
    responses((status = 200, body = List<UserView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_users(State(state): State<ApiState>, _query: NoQuery) -> Outcome<Response> {
    let users = state.core.cache.list(Kind::User, None, None);
    let items = users.iter().filter_map(|record| state.user_view(record)).collect();
    let revision = state.core.cache.revision();
    Ok(read_answer(!state.core.store_is_up(), &List { items, next: None, revision }))
}

/// Makes a user, or changes one.
#[utoipa::path(put, path = "/v1/users/{user}", tag = "identity", params(("user" = String, Path)),
    request_body(content = UserBody, example = json!({"password": "correct horse battery staple"})),
    responses((status = 200, body = UserView), (status = 201, body = UserView), (status = "default", body = ProblemBody)))]
pub(crate) async fn put_user(
    State(state): State<ApiState>,
    Segments(user): Segments<String>,
    _query: NoQuery,
    conditions: Conditions,
    Doc(body): Doc<UserBody>,
) -> Outcome<Response> {
    let user: UserName = name("user", &user)?;
    let password = match body.password {
        Some(password) => Some(state.passwords.hash(&state.core.settings, password).await?),
        None => None,
    };
    let key = keys::user_key(&user);
    let mut created = false;
    let commit = state
        .change(&key, &conditions, |present, expect| {
            created = present.is_none();
            let mut spec = present.and_then(|record| record.spec::<UserSpec>().ok()).unwrap_or_default();
            spec.operator = body.operator.unwrap_or(spec.operator);
            spec.disabled = body.disabled.unwrap_or(spec.disabled);
            if spec.disabled {
                // Sessions of before are not to come back with the user.
                spec.epoch += 1;
            }
            if let Some(password) = &password {
                spec.password = Some(password.clone());
                spec.epoch += 1;
            }
            Ok(vec![state.put(key.clone(), expect, &spec)])
        })
        .await?;
    let record = first(&commit)?;
    let view = state.user_view(record).ok_or_else(|| super::view::unreadable(record))?;
    let response = written(conditions.made(created), record.revision, &view);
    Ok(state.changed(response, commit.revision, None, None).await)
}

/// Deletes a user with all memberships; sessions are void at once.
#[utoipa::path(delete, path = "/v1/users/{user}", tag = "identity", params(("user" = String, Path)),
    responses((status = 204), (status = "default", body = ProblemBody)))]
pub(crate) async fn delete_user(
    State(state): State<ApiState>,
    Segments(user): Segments<String>,
    _query: NoQuery,
    conditions: Conditions,
) -> Outcome<Response> {
    let user: UserName = name("user", &user)?;
    let key = keys::user_key(&user);
    let commit = state
        .change(&key, &conditions, |present, expect| {
            present.ok_or_else(|| Problem::not_found(format!("user {user}")))?;
            let mut writes = vec![Write::Delete { key: key.clone(), expect }];
            let members = state.core.cache.orgs_of(&user);
            let gone = |record: &std::sync::Arc<Record>| Write::Delete {
                key: record.key.clone(),
                expect: towpath_store::Expect::Any,
            };
            writes.extend(members.iter().map(gone));
            Ok(writes)
        })
        .await?;
    let response = StatusCode::NO_CONTENT.into_response();
    Ok(state.changed(response, commit.revision, None, None).await)
}
