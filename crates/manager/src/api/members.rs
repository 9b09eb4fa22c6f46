//! Who belongs to an org, and as what.

use super::ApiState;
use super::body::{Checked, Doc};
use super::problem::{FieldError, Outcome, Problem, ProblemBody};
use super::query::{NoQuery, Segments, name};
use super::reading::{List, read_answer};
use super::writing::{Conditions, first, written};
use crate::core::keys;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use towpath_store::Write;
use towpath_types::identity::MemberSpec;
use towpath_types::spec::Role;
use towpath_types::{Kind, OrgName, Record, Revision, UserName};

/// A member of an org.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Member)]
pub(crate) struct MemberView {
    user: String,
    org: Option<OrgName>,
    role: Role,
    created_ms: u64,
    revision: Revision,
}

impl MemberView {
    fn new(record: &Record) -> Option<Self> {
        let spec: MemberSpec = record.spec().ok()?;
        Some(Self {
            user: record.key.name.clone(),
            org: record.key.org.clone(),
            role: spec.role,
            created_ms: record.created_ms,
            revision: record.revision,
        })
    }
}

/// A member's role.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MemberBody {
    /// `owner`, `developer` or `viewer`.
    #[schema(required = true, value_type = Role)]
    role: Option<Role>,
}

impl Checked for MemberBody {
    fn check(&self, errors: &mut Vec<FieldError>) {
        if !matches!(self.role, Some(Role::Owner | Role::Developer | Role::Viewer)) {
            errors.push(FieldError::new("role", "is needed: owner, developer or viewer"));
        }
    }
}

/// The members of an org.
#[utoipa::path(get, path = "/v1/orgs/{org}/members", tag = "identity", params(("org" = String, Path)),
    responses((status = 200, body = List<MemberView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_members(
    State(state): State<ApiState>,
    Segments(org): Segments<String>,
    _query: NoQuery,
) -> Outcome<Response> {
    let org: OrgName = name("org", &org)?;
    let read = state.read_existing(&keys::org_key(&org), format!("org {org}")).await?;
    let members = state.core.cache.list(Kind::Member, Some(&org), None);
    let items = members.iter().filter_map(|record| MemberView::new(record)).collect();
    Ok(read_answer(read.stale, &List { items, next: None, revision: state.core.cache.revision() }))
}

/// Makes a user a member of an org, or changes the role.
#[utoipa::path(put, path = "/v1/orgs/{org}/members/{user}", tag = "identity",
    params(("org" = String, Path), ("user" = String, Path)),
    request_body(content = MemberBody, example = json!({"role": "developer"})),
    responses((status = 200, body = MemberView), (status = 201, body = MemberView), (status = "default", body = ProblemBody)))]
pub(crate) async fn put_member(
    State(state): State<ApiState>,
    Segments((org, user)): Segments<(String, String)>,
    _query: NoQuery,
    conditions: Conditions,
    Doc(body): Doc<MemberBody>,
) -> Outcome<Response> {
    let (org, user): (OrgName, UserName) = (name("org", &org)?, name("user", &user)?);
    let role = body.role.ok_or_else(|| Problem::field("role", "is needed"))?;
    let id = match &conditions.first {
        Some(_) => String::new(),
        None => {
            state.existing_org(&org).await?;
            let record = state.core.store.get(&keys::user_key(&user)).await?;
            record.ok_or_else(|| Problem::not_found(format!("user {user}")))?.id
        }
    };
    let key = keys::member_key(&org, &user);
    let mut created = false;
    let commit = state
        .change(&key, &conditions, |present, expect| {
            created = present.is_none();
            let spec = MemberSpec { user: id.clone(), role };
            Ok(vec![state.put(key.clone(), expect, &spec), state.touch(keys::org_key(&org))])
        })
        .await?;
    let record = first(&commit)?;
    let view = MemberView::new(record).ok_or_else(|| super::view::unreadable(record))?;
    let response = written(conditions.made(created), record.revision, &view);
    Ok(state.changed(response, commit.revision, None, None).await)
}

/// Ends a membership.
#[utoipa::path(delete, path = "/v1/orgs/{org}/members/{user}", tag = "identity",
    params(("org" = String, Path), ("user" = String, Path)),
    responses((status = 204), (status = "default", body = ProblemBody)))]
pub(crate) async fn delete_member(
    State(state): State<ApiState>,
    Segments((org, user)): Segments<(String, String)>,
    _query: NoQuery,
    conditions: Conditions,
) -> Outcome<Response> {
    let (org, user): (OrgName, UserName) = (name("org", &org)?, name("user", &user)?);
    let key = keys::member_key(&org, &user);
    let commit = state
        .change(&key, &conditions, |present, expect| match present {
            Some(_) => Ok(vec![Write::Delete { key: key.clone(), expect }]),
            None => Err(Problem::not_found(format!("member {user} of org {org}"))),
        })
        .await?;
    let response = StatusCode::NO_CONTENT.into_response();
    Ok(state.changed(response, commit.revision, None, None).await)
}
