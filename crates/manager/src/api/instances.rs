//! Instances: what was decided on, and what cells say of it.

use super::ApiState;
use super::problem::{Outcome, ProblemBody};
use super::query::{Params, Segments, in_space};
use super::reading::{List, read_answer};
use crate::core::cache::CachedGroup;
use crate::core::keys::{self, GroupRef};
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use towpath_types::spec::Wanted;
use towpath_types::upstream::Protocol;
use towpath_types::{AppName, AppRef, CellId, Digest, InstanceId, LaneName, OrgName, SpaceName, SpaceRef};
use towpath_wire::cell::{CellAnnounce, InstanceReport, InstanceState};

in_space! {
    /// Which instances.
    InstanceQuery {
        /// In this lane alone.
        #[param(value_type = Option<String>)]
        lane: Option<LaneName>,
    }
}

/// One running copy.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Instance)]
pub(crate) struct InstanceView {
    pub(crate) id: InstanceId,
    pub(crate) app: AppName,
    pub(crate) org: OrgName,
    pub(crate) space: SpaceName,
    pub(crate) lane: LaneName,
    /// Number in its group; absent for one that no group has any more.
    pub(crate) ordinal: Option<u32>,
    pub(crate) release: Digest,
    pub(crate) cell: CellId,
    /// The cell's machine.
    pub(crate) node: String,
    /// Where it listens; absent while it does not.
    pub(crate) address: Option<String>,
    /// `assigned` = decided on, but its cell has not said anything of it.
    #[schema(example = "ready")]
    pub(crate) state: &'static str,
    /// How long it has been in it.
    pub(crate) state_ms: u64,
    /// Starts after the first.
    pub(crate) restarts: u32,
    /// Why it is in this state.
    pub(crate) reason: String,
    /// Used share of its CPU.
    pub(crate) cpu: f32,
    /// Used share of its memory limit.
    pub(crate) mem: f32,
    /// Used share of its I/O.
    pub(crate) io: f32,
    pub(crate) memory_bytes: u64,
    pub(crate) pid: u32,
    pub(crate) weight: u32,
    pub(crate) protocol: Protocol,
}

/// The state as text.
pub(crate) fn state_text(state: InstanceState) -> &'static str {
    match state {
        InstanceState::Starting => "starting",
        InstanceState::Ready => "ready",
        InstanceState::Unhealthy => "unhealthy",
        InstanceState::Draining => "draining",
        InstanceState::Stopping => "stopping",
        InstanceState::Backoff => "backoff",
        InstanceState::CrashLoop => "crash_loop",
        InstanceState::Failed => "failed",
    }
}

impl InstanceView {
    fn announced(report: &InstanceReport, announce: &CellAnnounce, ordinal: Option<u32>) -> Self {
        let address = if announce.address.contains(':') {
            format!("[{}]:{}", announce.address, report.port)
        } else {
            format!("{}:{}", announce.address, report.port)
        };
        Self {
            id: report.instance,
            app: report.app.app.clone(),
            org: report.app.org.clone(),
            space: report.app.space.clone(),
            lane: report.lane.clone(),
            ordinal,
            release: report.release,
            cell: announce.cell,
            node: announce.place.node.clone(),
            address: (report.port != 0).then_some(address),
            state: state_text(report.state),
            state_ms: report.state_ms,
            restarts: report.restarts,
            reason: report.reason.clone(),
            cpu: report.load.cpu,
            mem: report.load.mem,
            io: report.load.io,
            memory_bytes: report.memory_bytes,
            pid: report.pid,
            weight: report.weight,
            protocol: report.protocol,
        }
    }
}

/// Instances of an app.
#[utoipa::path(get, path = "/v1/apps/{app}/instances", tag = "instances", params(("app" = String, Path), InstanceQuery),
    responses((status = 200, body = List<InstanceView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_app_instances(
    State(state): State<ApiState>,
    Segments(app): Segments<String>,
    Params(query): Params<InstanceQuery>,
) -> Outcome<Response> {
    let app = query.app(&app)?;
    let read = state.read_existing(&keys::app_key(&app), format!("app {}", app.app)).await?;
    let items = state.instances(&query.space(), Some(&app), query.lane.as_ref());
    Ok(read_answer(read.stale, &List { items, next: None, revision: state.core.cache.revision() }))
}

/// Instances of all apps of a space.
#[utoipa::path(get, path = "/v1/instances", tag = "instances", params(InstanceQuery),
    responses((status = 200, body = List<InstanceView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_instances(
    State(state): State<ApiState>,
    Params(query): Params<InstanceQuery>,
) -> Outcome<Response> {
    let items = state.instances(&query.space(), None, query.lane.as_ref());
    Ok(read_answer(false, &List { items, next: None, revision: state.core.cache.revision() }))
}

impl ApiState {
    /// Announced and assigned instances, by app, lane, number, id.
    pub(crate) fn instances(
        &self,
        space: &SpaceRef,
        app: Option<&AppRef>,
        lane: Option<&LaneName>,
    ) -> Vec<InstanceView> {
        let groups: Vec<(GroupRef, CachedGroup)> = match app {
            Some(app) => self.core.cache.groups_of(app),
            None => self.core.cache.groups(),
        };
        let ordinals: BTreeMap<InstanceId, u32> = groups
            .iter()
            .flat_map(|(_, group)| group.status.assignments.iter().map(|a| (a.instance, a.ordinal)))
            .collect();
        let cells: BTreeMap<CellId, Arc<CellAnnounce>> = self
            .core
            .soft
            .cells()
            .into_iter()
            .filter(|cell| !cell.lost)
            .map(|cell| (cell.announce.cell, cell.announce))
            .collect();
        let mut views: Vec<InstanceView> = cells
            .values()
            .flat_map(|announce| announce.instances.iter().map(move |report| (report, announce)))
            .filter(|(report, _)| app.is_none_or(|app| report.app == *app))
            .map(|(report, announce)| {
                InstanceView::announced(report, announce, ordinals.get(&report.instance).copied())
            })
            .collect();
        let announced: BTreeSet<InstanceId> = views.iter().map(|view| view.id).collect();
        views.extend(groups.iter().flat_map(|(name, group)| silent(name, group, &announced, &cells)));
        views.retain(|view| {
            view.org == space.org && view.space == space.space && lane.is_none_or(|lane| view.lane == *lane)
        });
        views.sort_by(|a, b| {
            let key = |view: &InstanceView| {
                (view.app.clone(), view.lane.clone(), view.ordinal.unwrap_or(u32::MAX), view.id)
            };
            key(a).cmp(&key(b))
        });
        views
    }
}

/// Instances of a group that no live cell has said anything of.
fn silent(
    name: &GroupRef,
    group: &CachedGroup,
    announced: &BTreeSet<InstanceId>,
    cells: &BTreeMap<CellId, Arc<CellAnnounce>>,
) -> Vec<InstanceView> {
    group
        .status
        .assignments
        .iter()
        .filter(|assignment| !announced.contains(&assignment.instance))
        .map(|assignment| {
            let cell = cells.get(&assignment.cell);
            let leaving = assignment.wanted == Wanted::Drain;
            InstanceView {
                id: assignment.instance,
                app: name.app.app.clone(),
                org: name.app.org.clone(),
                space: name.app.space.clone(),
                lane: name.lane.clone(),
                ordinal: Some(assignment.ordinal),
                release: assignment.version.release,
                cell: assignment.cell,
                node: cell.map(|announce| announce.place.node.clone()).unwrap_or_default(),
                address: None,
                state: "assigned",
                state_ms: 0,
                restarts: 0,
                reason: match (cell, leaving) {
                    (None, _) => "its cell is not heard".into(),
                    (Some(_), true) => "it is leaving".into(),
                    (Some(_), false) => "its cell has not taken it up yet".into(),
                },
                cpu: 0.0,
                mem: 0.0,
                io: 0.0,
                memory_bytes: 0,
                pid: 0,
                weight: 0,
                protocol: Protocol::default(),
            }
        })
        .collect()
}
