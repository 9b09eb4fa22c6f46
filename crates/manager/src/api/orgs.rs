//! Orgs, and what they may use.

use super::ApiState;
use super::access::Target;
use super::auth::{Caller, role_text};
use super::body::{Checked, Doc};
use super::problem::{Outcome, Problem, ProblemBody};
use super::query::{NoQuery, Segments, name};
use super::quota::{Usage, has_ended};
use super::reading::{List, read_answer, tagged};
use super::view::{Meta, unreadable};
use super::writing::{Conditions, first, written};
use crate::core::keys;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;
use towpath_store::{Expect, Write};
use towpath_types::identity::{OrgSpec, Quota};
use towpath_types::resource::Key;
use towpath_types::spec::{LaneKind, LaneSpec, OperationSpec, SpaceSpec};
use towpath_types::{Kind, LaneName, OrgName, Record, SpaceName, SpaceRef};

/// Longest wait for memory to know what was read.
const CACHE: Duration = Duration::from_secs(5);

/// An org.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Org)]
pub(crate) struct OrgView {
    name: String,
    /// Yours: viewer, developer, owner or operator.
    role: &'static str,
    /// What it may use; what is absent is unlimited.
    quota: Quota,
    /// What it uses: what is wanted, and what accepted operations ask for.
    usage: Usage,
    /// Its spaces.
    spaces: Vec<String>,
    #[serde(flatten)]
    meta: Meta,
}

/// An org to make.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OrgBody {
    /// What it may use; as it is when absent.
    quota: Option<Quota>,
}

impl Checked for OrgBody {}
impl Checked for Quota {}

impl ApiState {
    fn org_view(&self, record: &Record, caller: &Caller) -> Outcome<OrgView> {
        let org: OrgName = name("org", &record.key.name)?;
        let spec: OrgSpec = record.spec().map_err(|_| unreadable(record))?;
        let role = caller.reach.role_at(&Target::Org(org.clone())).map_or("none", role_text);
        let spaces = self.core.cache.list(Kind::Space, Some(&org), None);
        let seen = |space: &str| {
            space.parse().is_ok_and(|space| caller.reach.sees(&SpaceRef { org: org.clone(), space }))
        };
        Ok(OrgView {
            role,
            quota: spec.quota,
            usage: self.usage_of(&org),
            spaces: spaces.iter().map(|space| space.key.name.clone()).filter(|space| seen(space)).collect(),
            name: record.key.name.clone(),
            meta: Meta::from(record),
        })
    }

    /// Changes a record's revision, so that who is about to delete it, having seen what was in it before, is too late.
    pub(crate) fn touch(&self, key: Key) -> Write {
        Write::Put {
            key,
            id: self.core.mint_record_id(),
            expect: Expect::Present,
            spec: None,
            status: Some(json!({"joined": self.core.mint_record_id()})),
        }
    }

    /// Something comes into a space.
    pub(crate) fn join_space(&self, space: &SpaceRef) -> Write {
        self.touch(keys::space_key(space))
    }

    /// The writes that make a space with its base lane.
    pub(crate) fn new_space(&self, space: &SpaceRef) -> Vec<Write> {
        let base = keys::lane_key(space, &LaneName::base());
        vec![
            self.put(keys::space_key(space), Expect::Absent, &SpaceSpec::default()),
            self.put(base, Expect::Any, &LaneSpec { kind: LaneKind::Base }),
        ]
    }

    /// The writes that delete a space; refused while there is an app in it, or one on its way.
    pub(crate) async fn delete_space_writes(&self, record: &Record) -> Outcome<Vec<Write>> {
        let core = &self.core;
        core.wait_cache(record.revision, CACHE).await;
        let (Some(org), Ok(space)) = (record.key.org.clone(), record.key.name.parse::<SpaceName>()) else {
            return Err(unreadable(record));
        };
        let here = SpaceRef { org: org.clone(), space: space.clone() };
        let apps = core.cache.list(Kind::App, Some(&org), Some(&space));
        if let Some(app) = apps.first() {
            let detail = format!(
                "space {here} has apps ({} and {} more); delete them first",
                app.key.name,
                apps.len() - 1
            );
            return Err(Problem::conflict(detail));
        }
        let works = core.cache.list(Kind::Operation, None, None).into_iter().any(|record| {
            let of_here = |spec: OperationSpec| spec.app.space_ref() == here;
            !has_ended(&record) && record.spec().is_ok_and(of_here)
        });
        if works {
            return Err(Problem::conflict(format!("an operation still works in space {here}")));
        }
        let mut writes = vec![Write::Delete { key: record.key.clone(), expect: Expect::At(record.revision) }];
        let lanes = core.cache.list(Kind::Lane, Some(&org), Some(&space));
        writes.extend(lanes.iter().map(|lane| Write::Delete { key: lane.key.clone(), expect: Expect::Any }));
        Ok(writes)
    }

    /// The writes that delete an org with its spaces, members and tokens.
    async fn delete_org_writes(&self, org: &OrgName, record: &Record) -> Outcome<Vec<Write>> {
        let core = &self.core;
        core.wait_cache(record.revision, CACHE).await;
        let mut writes = vec![Write::Delete { key: record.key.clone(), expect: Expect::At(record.revision) }];
        for space in core.cache.list(Kind::Space, Some(org), None) {
            // As the store has it: memory may be behind what has just come into it.
            if let Some(space) = core.store.get(&space.key).await? {
                writes.extend(self.delete_space_writes(&space).await?);
            }
        }
        for kind in [Kind::Member, Kind::Token] {
            let records = core.cache.list(kind, Some(org), None);
            let gone = |record: &std::sync::Arc<Record>| Write::Delete {
                key: record.key.clone(),
                expect: Expect::Any,
            };
            writes.extend(records.iter().map(gone));
        }
        Ok(writes)
    }

    /// The org has to be there.
    pub(crate) async fn existing_org(&self, org: &OrgName) -> Outcome<Record> {
        let record = self.core.store.get(&keys::org_key(org)).await?;
        record.ok_or_else(|| Problem::not_found(format!("org {org}")))
    }
}

/// The orgs that you may know of.
#[utoipa::path(get, path = "/v1/orgs", tag = "identity",
    responses((status = 200, body = List<OrgView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_orgs(
    State(state): State<ApiState>,
    caller: Caller,
    _query: NoQuery,
) -> Outcome<Response> {
    let orgs = state.core.cache.list(Kind::Org, None, None);
    let seen = |record: &Record| record.key.name.parse().is_ok_and(|org| caller.reach.sees_org(&org));
    let items = orgs
        .iter()
        .filter(|record| seen(record))
        .filter_map(|record| state.org_view(record, &caller).ok())
        .collect();
    let revision = state.core.cache.revision();
    Ok(read_answer(!state.core.store_is_up(), &List { items, next: None, revision }))
}

/// One org, with what it uses.
#[utoipa::path(get, path = "/v1/orgs/{org}", tag = "identity", params(("org" = String, Path)),
    responses((status = 200, body = OrgView), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_org(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(org): Segments<String>,
    _query: NoQuery,
) -> Outcome<Response> {
    let org: OrgName = name("org", &org)?;
    let read = state.read_existing(&keys::org_key(&org), format!("org {org}")).await?;
    Ok(tagged(read.value.revision, read.stale, &state.org_view(&read.value, &caller)?))
}

/// Makes an org with its space `default`, or changes its quota.
#[utoipa::path(put, path = "/v1/orgs/{org}", tag = "identity", params(("org" = String, Path)),
    request_body(content = OrgBody, example = json!({"quota": {"memory": "4G", "instances": 20}})),
    responses((status = 200, body = OrgView), (status = 201, body = OrgView), (status = "default", body = ProblemBody)))]
pub(crate) async fn put_org(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(org): Segments<String>,
    _query: NoQuery,
    conditions: Conditions,
    Doc(body): Doc<OrgBody>,
) -> Outcome<Response> {
    let org: OrgName = name("org", &org)?;
    let key = keys::org_key(&org);
    let mut created = false;
    let commit = state
        .change(&key, &conditions, |present, expect| {
            created = present.is_none();
            let before = present.and_then(|record| record.spec::<OrgSpec>().ok()).unwrap_or_default();
            let spec = OrgSpec { quota: body.quota.clone().unwrap_or(before.quota) };
            let mut writes = vec![state.put(key.clone(), expect, &spec)];
            if created {
                writes.extend(state.new_space(&SpaceRef { org: org.clone(), ..SpaceRef::first() }));
            }
            Ok(writes)
        })
        .await?;
    let record = first(&commit)?;
    let response = written(conditions.made(created), record.revision, &state.org_view(record, &caller)?);
    Ok(state.changed(response, commit.revision, None, None).await)
}

/// Sets what an org may use; what is absent becomes unlimited. What is there stays, even beyond it.
#[utoipa::path(put, path = "/v1/orgs/{org}/quota", tag = "identity", params(("org" = String, Path)),
    request_body(content = Quota, example = json!({"memory": "4G", "instances": 20, "routes": 10, "lanes": 5})),
    responses((status = 200, body = OrgView), (status = "default", body = ProblemBody)))]
pub(crate) async fn put_quota(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(org): Segments<String>,
    _query: NoQuery,
    conditions: Conditions,
    Doc(quota): Doc<Quota>,
) -> Outcome<Response> {
    let org: OrgName = name("org", &org)?;
    let key = keys::org_key(&org);
    let commit = state
        .change(&key, &conditions, |present, expect| {
            present.ok_or_else(|| Problem::not_found(format!("org {org}")))?;
            Ok(vec![state.put(key.clone(), expect, &OrgSpec { quota: quota.clone() })])
        })
        .await?;
    let record = first(&commit)?;
    let response = written(false, record.revision, &state.org_view(record, &caller)?);
    Ok(state.changed(response, commit.revision, None, None).await)
}

/// Deletes an org that has no apps, with its spaces, members and tokens.
#[utoipa::path(delete, path = "/v1/orgs/{org}", tag = "identity", params(("org" = String, Path)),
    responses((status = 204), (status = "default", body = ProblemBody)))]
pub(crate) async fn delete_org(
    State(state): State<ApiState>,
    Segments(org): Segments<String>,
    _query: NoQuery,
    conditions: Conditions,
) -> Outcome<Response> {
    let org: OrgName = name("org", &org)?;
    if org == SpaceRef::first().org {
        return Err(Problem::conflict("the org `default` stays"));
    }
    let commit = match &conditions.first {
        Some(first) => first.clone(),
        None => {
            let record = state.existing_org(&org).await?;
            let writes = state.delete_org_writes(&org, &record).await?;
            state.change_as_read(&record, &conditions, writes).await?
        }
    };
    let response = StatusCode::NO_CONTENT.into_response();
    Ok(state.changed(response, commit.revision, None, None).await)
}

/// The spaces of an org that you may know of.
#[utoipa::path(get, path = "/v1/orgs/{org}/spaces", tag = "identity", params(("org" = String, Path)),
    responses((status = 200, body = List<super::view::SpaceView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_spaces(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(org): Segments<String>,
    _query: NoQuery,
) -> Outcome<Response> {
    let org: OrgName = name("org", &org)?;
    let read = state.read_existing(&keys::org_key(&org), format!("org {org}")).await?;
    let spaces = state.core.cache.list(Kind::Space, Some(&org), None);
    let seen = |record: &Record| {
        record.key.name.parse().is_ok_and(|space| caller.reach.sees(&SpaceRef { org: org.clone(), space }))
    };
    let items = spaces
        .iter()
        .filter(|record| seen(record))
        .filter_map(|record| super::view::SpaceView::new(&state.core, record))
        .collect();
    Ok(read_answer(read.stale, &List { items, next: None, revision: state.core.cache.revision() }))
}

/// Makes a space with its base lane.
#[utoipa::path(put, path = "/v1/orgs/{org}/spaces/{space}", tag = "identity",
    params(("org" = String, Path), ("space" = String, Path)),
    responses((status = 200, body = super::view::SpaceView), (status = 201, body = super::view::SpaceView), (status = "default", body = ProblemBody)))]
pub(crate) async fn put_space(
    State(state): State<ApiState>,
    Segments((org, space)): Segments<(String, String)>,
    _query: NoQuery,
    conditions: Conditions,
) -> Outcome<Response> {
    let space = SpaceRef { org: name("org", &org)?, space: name("space", &space)? };
    if conditions.first.is_none() {
        state.existing_org(&space.org).await?;
    }
    let key = keys::space_key(&space);
    let mut created = false;
    let commit = state
        .change(&key, &conditions, |present, expect| {
            created = present.is_none();
            if let Some(present) = present {
                let spec: SpaceSpec = present.spec().map_err(|_| unreadable(present))?;
                return Ok(vec![state.put(key.clone(), expect, &spec)]);
            }
            let mut writes = state.new_space(&space);
            writes.push(state.touch(keys::org_key(&space.org)));
            Ok(writes)
        })
        .await?;
    let record = first(&commit)?;
    let view = super::view::SpaceView::new(&state.core, record).ok_or_else(|| unreadable(record))?;
    let response = written(conditions.made(created), record.revision, &view);
    Ok(state.changed(response, commit.revision, None, None).await)
}

/// Deletes a space that has no apps, with its lanes.
#[utoipa::path(delete, path = "/v1/orgs/{org}/spaces/{space}", tag = "identity",
    params(("org" = String, Path), ("space" = String, Path)),
    responses((status = 204), (status = "default", body = ProblemBody)))]
pub(crate) async fn delete_space(
    State(state): State<ApiState>,
    Segments((org, space)): Segments<(String, String)>,
    _query: NoQuery,
    conditions: Conditions,
) -> Outcome<Response> {
    let space = SpaceRef { org: name("org", &org)?, space: name("space", &space)? };
    if space == SpaceRef::first() {
        return Err(Problem::conflict("the space default/default stays"));
    }
    let commit = match &conditions.first {
        Some(first) => first.clone(),
        None => {
            let record = state.core.store.get(&keys::space_key(&space)).await?;
            let record = record.ok_or_else(|| Problem::not_found(format!("space {space}")))?;
            let writes = state.delete_space_writes(&record).await?;
            state.change_as_read(&record, &conditions, writes).await?
        }
    };
    let response = StatusCode::NO_CONTENT.into_response();
    Ok(state.changed(response, commit.revision, None, None).await)
}
