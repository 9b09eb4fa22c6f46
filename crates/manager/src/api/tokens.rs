//! Tokens.

use super::ApiState;
use super::auth;
use super::body::{Checked, Doc};
use super::problem::{FieldError, Outcome, Problem, ProblemBody};
use super::query::{NoQuery, Segments};
use super::reading::{List, read_answer};
use super::writing::{Conditions, first};
use crate::core::keys;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use towpath_store::{Query, Write};
use towpath_types::spec::{Role, TokenSpec};
use towpath_types::{ErrorCode, Kind, Record, Revision};

/// A token, without itself.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Token)]
pub(crate) struct TokenView {
    name: String,
    role: Role,
    created_ms: u64,
    revision: Revision,
}

/// A new token: the only time that it is shown.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct NewToken {
    name: String,
    role: Role,
    token: String,
}

/// A token to make.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TokenBody {
    /// Its name: letters, digits, `-`, `_`, `.`, `@`; at most 64.
    #[schema(required = true, value_type = String)]
    name: Option<String>,
    /// What it may do.
    #[schema(required = true, value_type = Role)]
    role: Option<Role>,
}

impl Checked for TokenBody {
    fn check(&self, errors: &mut Vec<FieldError>) {
        let fits = |name: &String| {
            (1..=64).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.@".contains(&b))
        };
        match &self.name {
            None => errors.push(FieldError::new("name", "is needed")),
            Some(name) if !fits(name) => {
                errors.push(FieldError::new("name", "is 1 to 64 letters, digits, '-', '_', '.' or '@'"));
            }
            Some(_) => {}
        }
        if self.role.is_none() {
            errors.push(FieldError::new("role", "is needed: operator, developer, viewer or cell"));
        }
    }
}

/// All tokens.
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens",
    responses((status = 200, body = List<TokenView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_tokens(State(state): State<ApiState>, _query: NoQuery) -> Outcome<Response> {
    let page = state.read_list(Query { kind: Some(Kind::Token), ..Query::default() }).await?;
    let items = page
        .records
        .iter()
        .filter_map(|record| {
            let spec: TokenSpec = record.spec().ok()?;
            let (created_ms, revision) = (record.created_ms, record.revision);
            Some(TokenView { name: record.key.name.clone(), role: spec.role, created_ms, revision })
        })
        .collect();
    Ok(read_answer(page.stale, &List { items, next: None, revision: page.revision }))
}

/// Makes a token. It is in this answer and nowhere else.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", request_body(content = TokenBody, example = json!({"name": "ci", "role": "developer"})),
    responses((status = 201, body = NewToken), (status = "default", body = ProblemBody)))]
pub(crate) async fn create_token(
    State(state): State<ApiState>,
    _query: NoQuery,
    conditions: Conditions,
    Doc(body): Doc<TokenBody>,
) -> Outcome<Response> {
    let (Some(name), Some(role)) = (body.name, body.role) else {
        return Err(Problem::field("name", "is needed"));
    };
    let token = auth::mint().map_err(|error| {
        tracing::error!(%error, "no randomness");
        Problem::new(ErrorCode::Internal, "a token could not be made")
    })?;
    let spec = TokenSpec { hash: auth::hash(&token), role };
    let key = keys::token_key(&name);
    let commit = state
        .change(&key, &conditions, |present, expect| match present {
            Some(_) => Err(Problem::conflict(format!("there is a token {name:?} already"))),
            None => Ok(vec![state.put(key.clone(), expect, &spec)]),
        })
        .await?;
    // A repeated request gets the first one's record, and the token of that is not known any more.
    if first(&commit)?.spec::<TokenSpec>().ok().as_ref() != Some(&spec) {
        return Err(Problem::conflict(format!(
            "the token {name:?} was made by an earlier request, and is shown only once"
        )));
    }
    let mut response =
        (StatusCode::CREATED, Json(NewToken { name: name.clone(), role, token })).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/tokens/{name}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(state.changed(response, commit.revision, None, None).await)
}

/// Removes a token; it is of no use from then on. The last operator's token stays.
#[utoipa::path(delete, path = "/v1/tokens/{name}", tag = "tokens", params(("name" = String, Path)),
    responses((status = 204), (status = "default", body = ProblemBody)))]
pub(crate) async fn delete_token(
    State(state): State<ApiState>,
    Segments(name): Segments<String>,
    _query: NoQuery,
    conditions: Conditions,
) -> Outcome<Response> {
    let operators =
        state.core.store.list(&Query { kind: Some(Kind::Token), ..Query::default() }).await?.records;
    let is_operator =
        |record: &Record| record.spec::<TokenSpec>().is_ok_and(|spec| spec.role == Role::Operator);
    let mut others = operators.iter().filter(|record| record.key.name != name && is_operator(record));
    let key = keys::token_key(&name);
    let other = others.next().cloned();
    let commit = state
        .change(&key, &conditions, |present, expect| {
            let present = present.ok_or_else(|| Problem::not_found(format!("token {name:?}")))?;
            let mut writes = vec![Write::Delete { key: key.clone(), expect }];
            if is_operator(present) {
                let other = other.clone().ok_or_else(|| {
                    Problem::conflict("it is the last operator's token; make another one first")
                })?;
                // The other one must still be there, else two that delete each other's would leave none.
                let expect = towpath_store::Expect::At(other.revision);
                writes.push(Write::Put { key: other.key, id: other.id, expect, spec: None, status: None });
            }
            Ok(writes)
        })
        .await?;
    let response = StatusCode::NO_CONTENT.into_response();
    Ok(state.changed(response, commit.revision, None, None).await)
}
