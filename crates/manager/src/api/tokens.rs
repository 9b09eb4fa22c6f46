//! Service tokens: the platform's, for operators and cells, and those of orgs.

use super::ApiState;
use super::auth::{self, Caller};
use super::body::{Checked, Doc};
use super::callers::place_of;
use super::lately::Minted;
use super::problem::{FieldError, Outcome, Problem, ProblemBody};
use super::query::{Params, Segments, first_org};
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
use towpath_types::{ErrorCode, Kind, Millis, OrgName, Record, Revision, SpaceName, SpaceRef};

/// A token, without itself.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Token)]
pub(crate) struct TokenView {
    name: String,
    role: Role,
    /// Where it may do that; absent for operators', cells' and gateways'.
    #[serde(skip_serializing_if = "Option::is_none")]
    org: Option<OrgName>,
    /// In this space alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<SpaceName>,
    /// End, milliseconds since 1970, by the store's clock; absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
    created_ms: u64,
    revision: Revision,
}

/// A new token: the only time that it is shown.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct NewToken {
    name: String,
    role: Role,
    /// Where it may do that; absent for operators', cells' and gateways'.
    #[serde(skip_serializing_if = "Option::is_none")]
    org: Option<OrgName>,
    /// In this space alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<SpaceName>,
    /// End, milliseconds since 1970, by the store's clock; absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
    token: String,
}

/// Which tokens.
#[derive(Debug, Clone, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenQuery {
    /// Of this org; absent = `default`, for operators every org's and the platform's.
    #[param(value_type = Option<String>)]
    #[serde(default)]
    org: Option<OrgName>,
    /// Taken, and of no meaning: clients name their space everywhere.
    #[param(ignore)]
    #[serde(default, rename = "space")]
    _space: Option<SpaceName>,
}

impl TokenQuery {
    fn org(&self) -> OrgName {
        self.org.clone().unwrap_or_else(first_org)
    }
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
    /// In this space of the org alone; absent = in all of them.
    #[schema(value_type = Option<String>)]
    space: Option<SpaceName>,
    /// How long it is valid; absent = until it is deleted.
    ttl: Option<Millis>,
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
            errors.push(FieldError::new(
                "role",
                "is needed: operator, owner, developer, viewer, cell or gateway",
            ));
        }
        if self.space.is_some() && !matches!(self.role, Some(Role::Developer | Role::Viewer)) {
            errors.push(FieldError::new("space", "is for developers and viewers alone"));
        }
        if self.ttl.is_some_and(|ttl| ttl < Millis::secs(1)) {
            errors.push(FieldError::new("ttl", "has to be at least 1s"));
        }
    }
}

/// Tokens of an org; for operators also those of the platform.
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens", params(TokenQuery),
    responses((status = 200, body = List<TokenView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_tokens(
    State(state): State<ApiState>,
    caller: Caller,
    Params(query): Params<TokenQuery>,
) -> Outcome<Response> {
    let page = state.read_list(Query { kind: Some(Kind::Token), ..Query::default() }).await?;
    let all = query.org.is_none() && caller.is_operator();
    let org = query.org();
    let items = page
        .records
        .iter()
        .filter_map(|record| {
            let spec: TokenSpec = record.spec().ok()?;
            let place = place_of(record, &spec);
            (all || place.as_ref() == Some(&org)).then(|| TokenView {
                name: record.key.name.clone(),
                role: spec.role,
                org: place,
                space: spec.space,
                expires_ms: spec.expires_ms,
                created_ms: record.created_ms,
                revision: record.revision,
            })
        })
        .collect();
    Ok(read_answer(page.stale, &List { items, next: None, revision: page.revision }))
}

impl ApiState {
    /// The token behind what is stored: the one of this request, or what the first one with its key made a moment ago.
    fn token_of(&self, stored: &TokenSpec, minted: String, conditions: &Conditions) -> Option<String> {
        let key = conditions.idempotency.as_ref().map(|named| named.key.as_str());
        let now = tokio::time::Instant::now();
        if stored.hash != auth::hash(&minted) {
            return self.lately.find(key?, &stored.hash, now);
        }
        if let Some(key) = key {
            self.lately.note(key, &minted, now);
        }
        Some(minted)
    }
}

/// Makes a token. It is in this answer and nowhere else.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", params(TokenQuery),
    request_body(content = TokenBody, example = json!({"name": "ci", "role": "developer", "space": "prod", "ttl": "720h"})),
    responses((status = 201, body = NewToken), (status = "default", body = ProblemBody)))]
pub(crate) async fn create_token(
    State(state): State<ApiState>,
    caller: Caller,
    Params(query): Params<TokenQuery>,
    conditions: Conditions,
    Minted(minted): Minted,
    Doc(body): Doc<TokenBody>,
) -> Outcome<Response> {
    let (Some(name), Some(role)) = (body.name, body.role) else {
        return Err(Problem::field("name", "is needed"));
    };
    let org = match role {
        Role::Operator | Role::Cell | Role::Gateway if caller.is_operator() => None,
        Role::Operator | Role::Cell | Role::Gateway => {
            return Err(Problem::new(
                ErrorCode::Forbidden,
                "operators alone make tokens for operators, cells and gateways",
            ));
        }
        Role::Owner | Role::Developer | Role::Viewer => Some(query.org()),
    };
    let expires_ms = body.ttl.map(|ttl| state.core.now_ms().saturating_add(ttl.0));
    let spec = TokenSpec { hash: auth::hash(&minted), role, org: org.clone(), space: body.space, expires_ms };
    let key = org.as_ref().map_or_else(|| keys::token_key(&name), |org| keys::org_token_key(org, &name));
    if let Some(org) = org.as_ref().filter(|_| conditions.first.is_none()) {
        state.existing_org(org).await?;
        if let Some(space) = &spec.space {
            state.space_exists(&SpaceRef { org: org.clone(), space: space.clone() }).await?;
        }
    }
    let commit = state
        .change(&key, &conditions, |present, expect| match present {
            Some(_) => Err(Problem::conflict(format!("there is a token {name:?} already"))),
            None => {
                let touched = org.as_ref().map(|org| state.touch(keys::org_key(org)));
                Ok(std::iter::once(state.put(key.clone(), expect, &spec)).chain(touched).collect())
            }
        })
        .await?;
    let record = first(&commit)?;
    let stored: TokenSpec = record.spec().map_err(|_| super::view::unreadable(record))?;
    let token = state.token_of(&stored, minted, &conditions).ok_or_else(|| {
        Problem::conflict(format!(
            "the token {name:?} was made by an earlier request, and is not shown any more"
        ))
    })?;
    let (space, expires_ms) = (stored.space, stored.expires_ms);
    let made = NewToken { name: name.clone(), role, org, space, expires_ms, token };
    let mut response = (StatusCode::CREATED, Json(made)).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/tokens/{name}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(state.changed(response, commit.revision, None, None).await)
}

/// Removes a token of the org, or (for operators) of the platform; it is of no use from then on. The last operator's
/// token stays.
#[utoipa::path(delete, path = "/v1/tokens/{name}", tag = "tokens", params(("name" = String, Path), TokenQuery),
    responses((status = 204), (status = "default", body = ProblemBody)))]
pub(crate) async fn delete_token(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(name): Segments<String>,
    Params(query): Params<TokenQuery>,
    conditions: Conditions,
) -> Outcome<Response> {
    let org = query.org();
    let all = state.core.store.list(&Query { kind: Some(Kind::Token), ..Query::default() }).await?.records;
    let is_operator =
        |record: &Record| record.spec::<TokenSpec>().is_ok_and(|spec| spec.role == Role::Operator);
    // One of the org's, else one without an org that the caller may remove: of an earlier version, or the platform's.
    let may_remove = |record: &&Record| {
        let place = record.spec::<TokenSpec>().ok().and_then(|spec| place_of(record, &spec));
        record.key.org.is_none() && (caller.is_operator() || place.as_ref() == Some(&org))
    };
    let own = keys::org_token_key(&org, &name);
    let of_nobody = all.iter().filter(|record| record.key.name == name).find(may_remove);
    let key = match of_nobody {
        Some(record) if !all.iter().any(|record| record.key == own) => record.key.clone(),
        _ => own,
    };
    let other =
        all.iter().find(|record| record.key != key && is_operator(record) && is_lasting(record)).cloned();
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

/// Whether a token has no end.
fn is_lasting(record: &Record) -> bool {
    record.spec::<TokenSpec>().is_ok_and(|spec| spec.expires_ms.is_none())
}
