//! The managers, and which of them owns what.

use super::ApiState;
use super::auth::Caller;
use super::problem::{Outcome, ProblemBody};
use super::query::{NoQuery, Params, Segments, in_space};
use super::reading::{List, read_answer};
use crate::core::Core;
use crate::core::keys::GroupRef;
use crate::core::members::{Member, MemberState, SUSPECT_MS};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;
use towpath_types::resource::Key;
use towpath_types::spec::OperationSpec;
use towpath_types::{AppRef, InstanceId, Kind, ManagerId, OperationId, Revision, SpaceRef};

/// Longest wait for the table.
const PATIENCE: Duration = Duration::from_secs(2);

in_space! {
    /// Whose owner.
    OwnerQuery {}
}

/// A manager, with how much it has to do.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = ManagerDetail)]
pub(crate) struct ManagerDetailView {
    id: ManagerId,
    /// Counts its starts and its rejoins; it rises.
    incarnation: u64,
    address: String,
    version: String,
    /// Its share of the work relative to others; 1 is normal.
    weight: f32,
    /// When it joined, by the store's clock, milliseconds since 1970.
    started_ms: u64,
    /// Time since its last heartbeat, by the store's clock.
    silent_ms: u64,
    /// `live`, `suspect` (a heartbeat is late), `leaving` or `evicted`.
    state: &'static str,
    /// Its share of all resources, 0 to 1.
    share: f64,
    /// Work that waits; absent while it was not heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<u64>,
    /// Operations that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    operations: Option<u64>,
    /// Its memory is complete up to this revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<Revision>,
    /// Revisions that the store has beyond that.
    #[serde(skip_serializing_if = "Option::is_none")]
    lag: Option<u64>,
    /// The newest change of ownership that it knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    /// The one that answers.
    this: bool,
}

/// The owner of a resource.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Owner)]
pub(crate) struct OwnerView {
    /// The name by which the ring knows the resource.
    resource: String,
    /// Whether there is an app, group, operation or instance of this name that the caller may know of. Names of things to come have
    /// owners too.
    exists: bool,
    /// Its owner.
    manager: ManagerId,
    /// Where the owner's API is reached; absent when the answering manager does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// The one that answers owns it.
    this: bool,
    /// The newest change of ownership that the answering manager knows.
    epoch: u64,
}

/// All managers that are in the table, those that were evicted in the last week too.
#[utoipa::path(get, path = "/v1/managers", tag = "platform",
    responses((status = 200, body = List<ManagerDetailView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_managers(State(state): State<ApiState>, _query: NoQuery) -> Outcome<Response> {
    let core = &state.core;
    let fresh = tokio::time::timeout(PATIENCE, core.store.managers()).await;
    let known = core.members.all();
    let (members, stale) = match fresh {
        Ok(Ok(rows)) => {
            let member = |row: towpath_store::ManagerRow| {
                let before = known.get(&row.manager).filter(|known| known.row.incarnation == row.incarnation);
                let leaving = before.is_some_and(|known| known.state == MemberState::Leaving);
                let state = match () {
                    () if row.evicted => MemberState::Evicted,
                    () if leaving => MemberState::Leaving,
                    () if row.silent_ms > SUSPECT_MS => MemberState::Suspect,
                    () => MemberState::Live,
                };
                Member { report: before.and_then(|known| known.report.clone()), state, row }
            };
            (rows.into_iter().map(member).collect(), false)
        }
        _ => (known.values().cloned().collect::<Vec<_>>(), true),
    };
    let shares: HashMap<ManagerId, f64> = core.ownership.ring().shares().into_iter().collect();
    let items = members.into_iter().map(|member| view(core, member, &shares)).collect();
    Ok(read_answer(stale, &List { items, next: None, revision: core.cache.revision() }))
}

fn view(core: &Core, member: Member, shares: &HashMap<ManagerId, f64>) -> ManagerDetailView {
    let report = member.report.map(|(report, _)| report);
    let row = member.row;
    ManagerDetailView {
        this: row.manager == core.manager,
        share: shares.get(&row.manager).copied().unwrap_or_default(),
        id: row.manager,
        incarnation: row.incarnation.0,
        address: row.address,
        version: row.version,
        weight: row.weight,
        started_ms: row.started_ms,
        silent_ms: row.silent_ms,
        state: match member.state {
            MemberState::Live => "live",
            MemberState::Suspect => "suspect",
            MemberState::Leaving => "leaving",
            MemberState::Evicted => "evicted",
        },
        queue: report.as_ref().map(|report| report.queue),
        operations: report.as_ref().map(|report| report.operations),
        revision: report.as_ref().map(|report| report.revision),
        lag: report.as_ref().map(|report| report.lag),
        epoch: report.as_ref().map(|report| report.epoch),
    }
}

/// The owner of an app, a group (`app:lane`), an operation, an instance, or whatever else has a name.
#[utoipa::path(get, path = "/v1/managers/owner/{id}", tag = "platform",
    params(("id" = String, Path, description = "An app, a group as `app:lane`, or the id of an operation or instance."),
        OwnerQuery),
    responses((status = 200, body = OwnerView), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_owner(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(id): Segments<String>,
    Params(query): Params<OwnerQuery>,
) -> Outcome<Response> {
    let core = &state.core;
    let found = find_resource(core, &caller, &id);
    let resource = found
        .clone()
        .unwrap_or_else(|| if id.contains('/') { id } else { format!("{}/{}/{id}", query.org, query.space) });
    let exists = found.is_some() || is_there(core, &caller, &resource);
    let manager = core.ownership.owner(&resource);
    let address = crate::membership::find_address(core, manager).await;
    let this = manager == core.manager;
    Ok(Json(OwnerView { resource, exists, manager, address, this, epoch: core.epoch() }).into_response())
}

/// What an id stands for on the ring; `None` = it is a name, or of something that the caller may not know of.
fn find_resource(core: &Core, caller: &Caller, id: &str) -> Option<String> {
    if let Ok(instance) = id.parse::<InstanceId>()
        && let Some(group) = core.cache.group_of(instance)
    {
        return caller.reach.sees(&group.app.space_ref()).then(|| group.to_string());
    }
    let operation: OperationId = id.parse().ok()?;
    let record = core.cache.get(&crate::core::keys::operation_key(operation))?;
    let app = record.spec::<OperationSpec>().ok()?.app;
    caller.reach.sees(&app.space_ref()).then(|| app.to_string())
}

/// Whether there is an app or group of this name, `org/space/app` or `org/space/app:lane`, that the caller may know of.
fn is_there(core: &Core, caller: &Caller, resource: &str) -> bool {
    let find = || {
        let mut parts = resource.splitn(3, '/');
        let space = SpaceRef { org: parts.next()?.parse().ok()?, space: parts.next()?.parse().ok()? };
        let name = parts.next()?;
        let (app, group) = name.split_once(':').map_or((name, None), |(app, _)| (app, Some(name)));
        let app = AppRef::new(&space, app.parse().ok()?);
        let there = match group {
            None => core.cache.app(&app).is_some(),
            Some(name) => {
                let key = Key {
                    kind: Kind::Group,
                    org: Some(app.org),
                    space: Some(app.space),
                    name: name.to_owned(),
                };
                core.cache.group(&GroupRef::of_key(&key)?).is_some()
            }
        };
        Some(there && caller.reach.sees(&space))
    };
    find().unwrap_or(false)
}
