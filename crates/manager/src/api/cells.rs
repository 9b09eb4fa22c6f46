//! Cells: what they say of themselves, what is wanted of them, and how far a drain is.

use super::ApiState;
use super::apps::{Patch, merged};
use super::auth::Caller;
use super::body::{Checked, Doc};
use super::problem::{FieldError, Outcome, Problem, ProblemBody};
use super::query::{NoQuery, Segments};
use super::reading::{List, read_answer, tagged};
use super::writing::{Conditions, first, written};
use crate::core::Core;
use crate::core::cache::CellInstance;
use crate::core::keys;
use crate::core::soft::HeardCell;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use towpath_plan::placement::limit_bytes;
use towpath_types::cell::{CellSpec, Scheduling};
use towpath_types::spec::RolloutPhase;
use towpath_types::{AppName, CellId, LaneName, OrgName, Place, Revision, SpaceName, SpaceRef};
use towpath_wire::cell::InstanceState;

/// A cell.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Cell)]
pub(crate) struct CellView {
    id: CellId,
    place: Place,
    /// `ready`, `cordoned`, `draining`, `drained` (nothing is left on it) or `lost` (not heard for too long, or leaving).
    #[schema(example = "ready")]
    state: &'static str,
    /// What is wanted of it.
    scheduling: Scheduling,
    /// Why, by whom, and since when.
    note: String,
    by: String,
    since_ms: u64,
    /// How far a drain is; absent when none was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    drain: Option<DrainView>,
    /// Where its instances are reached.
    address: String,
    version: String,
    driver: String,
    /// Memory that may be given to instances.
    memory_bytes: u64,
    /// Memory that its instances use.
    memory_used_bytes: u64,
    /// Memory that is promised to instances by their limits.
    memory_promised_bytes: u64,
    /// Memory that may be promised: what it has, times the overcommit factor.
    memory_limit_bytes: u64,
    /// Its own overcommit factor; absent = the platform's.
    #[serde(skip_serializing_if = "Option::is_none")]
    overcommit: Option<f64>,
    cores: u32,
    /// Busy share of the machine's cores.
    cpu: f32,
    /// Used share of its memory.
    mem: f32,
    /// Share of time in which something waited for I/O.
    io: f32,
    /// Takes no new instances.
    cordoned: bool,
    builders: Vec<String>,
    /// What is wrong with the cell itself; usually nothing.
    troubles: Vec<String>,
    instances: usize,
    ready: usize,
    /// Instances that are decided on for it, whether it has said something of them or not.
    assigned: usize,
    /// Time since it was heard; absent when it never was.
    #[serde(skip_serializing_if = "Option::is_none")]
    heard_ms: Option<u64>,
    /// Not heard for too long.
    pub(super) lost: bool,
}

/// How far a drain is.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = Drain)]
pub(crate) struct DrainView {
    /// Instances that are still there.
    left: usize,
    /// Groups that cannot go on, and what they lack.
    waits: Vec<DrainWait>,
}

/// A group that cannot leave a cell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
pub(crate) struct DrainWait {
    org: OrgName,
    space: SpaceName,
    app: AppName,
    lane: LaneName,
    /// What is missing.
    message: String,
}

impl CellView {
    fn make(core: &Core, id: CellId, heard: Option<&HeardCell>, spec: &CellSpec) -> Self {
        let announce = heard.map(|heard| &*heard.announce);
        let instances = announce.map(|announce| announce.instances.as_slice()).unwrap_or_default();
        let memory_bytes = announce.map_or(0, |announce| announce.memory_bytes);
        let (_, assigned) = core.cache.cell_instances(id, None, usize::MAX);
        let drain = (spec.scheduling == Scheduling::Draining).then(|| find_drain(core, id));
        let lost = heard.is_none_or(|heard| heard.lost);
        let host = announce.map(|announce| announce.host).unwrap_or_default();
        let text = |part: fn(&towpath_wire::cell::CellAnnounce) -> &String| {
            announce.map(|announce| part(announce).clone()).unwrap_or_default()
        };
        Self {
            id,
            place: announce.map(|announce| announce.place.clone()).unwrap_or_default(),
            state: find_state(lost, spec.scheduling, drain.as_ref()),
            scheduling: spec.scheduling,
            note: spec.note.clone(),
            by: spec.by.clone(),
            since_ms: spec.since_ms,
            drain,
            address: text(|announce| &announce.address),
            version: text(|announce| &announce.version),
            driver: text(|announce| &announce.driver),
            memory_bytes,
            memory_used_bytes: instances.iter().map(|instance| instance.memory_bytes).sum(),
            memory_promised_bytes: core.cache.promised_memory_of(id),
            memory_limit_bytes: limit_bytes(
                memory_bytes,
                spec.overcommit.unwrap_or(core.settings.rollout.overcommit),
            ),
            overcommit: spec.overcommit,
            cores: announce.map_or(0, |announce| announce.cores),
            cpu: host.cpu,
            mem: host.mem,
            io: host.io,
            cordoned: spec.scheduling != Scheduling::Open,
            builders: announce.map(|announce| announce.builders.clone()).unwrap_or_default(),
            troubles: announce.map(|announce| announce.troubles.clone()).unwrap_or_default(),
            instances: instances.len(),
            ready: instances.iter().filter(|instance| instance.state == InstanceState::Ready).count(),
            assigned: assigned.len(),
            heard_ms: heard.map(|heard| heard.silent_ms),
            lost,
        }
    }

    /// As the caller may see it.
    fn seen_by(mut self, caller: &Caller) -> Self {
        if let Some(drain) = &mut self.drain {
            drain.waits.retain(|wait| {
                caller.reach.sees(&SpaceRef { org: wait.org.clone(), space: wait.space.clone() })
            });
        }
        self
    }

    /// Instances that it reports, and those of them that are ready.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.instances, self.ready)
    }
}

fn find_state(lost: bool, scheduling: Scheduling, drain: Option<&DrainView>) -> &'static str {
    match scheduling {
        Scheduling::Draining if drain.is_some_and(|drain| drain.left == 0) => "drained",
        _ if lost => "lost",
        Scheduling::Open => "ready",
        Scheduling::Cordoned => "cordoned",
        Scheduling::Draining => "draining",
    }
}

/// What is left on a draining cell, and what keeps it there. An instance counts until its cell has stopped it.
fn find_drain(core: &Core, cell: CellId) -> DrainView {
    let (_, assigned) = core.cache.cell_instances(cell, None, usize::MAX);
    let mut left: BTreeSet<_> = assigned.iter().map(|found| found.instance).collect();
    if let Some(heard) = core.soft.cell(cell).filter(|heard| !heard.lost) {
        left.extend(heard.announce.instances.iter().map(|report| report.instance));
    }
    let stuck = |phase| matches!(phase, RolloutPhase::Waiting);
    let waits: BTreeSet<DrainWait> = assigned
        .iter()
        .filter(|found| stuck(found.group.status.phase) && !found.group.status.message.is_empty())
        .map(|CellInstance { group, name, .. }| DrainWait {
            org: name.app.org.clone(),
            space: name.app.space.clone(),
            app: name.app.app.clone(),
            lane: name.lane.clone(),
            message: group.status.message.clone(),
        })
        .collect();
    DrainView { left: left.len(), waits: waits.into_iter().collect() }
}

/// All cells: those that were heard, and those of which something is wanted or known from the store.
pub(super) fn all(core: &Core) -> Vec<CellView> {
    let heard: BTreeMap<CellId, HeardCell> =
        core.soft.cells().into_iter().map(|heard| (heard.announce.cell, heard)).collect();
    let specs = core.cache.cells();
    let wanted = specs.iter().filter(|(_, spec)| spec.scheduling != Scheduling::Open).map(|(cell, _)| *cell);
    let used = core.cache.promised_memory();
    let used = used.iter().filter(|(_, bytes)| **bytes > 0).map(|(cell, _)| *cell);
    let ids: BTreeSet<CellId> = heard.keys().copied().chain(wanted).chain(used).collect();
    let none = CellSpec::default();
    ids.into_iter()
        .map(|id| CellView::make(core, id, heard.get(&id), specs.get(&id).unwrap_or(&none)))
        .collect()
}

/// All cells, without the names of apps that the caller may not know of.
pub(super) fn seen(core: &Core, caller: &Caller) -> Vec<CellView> {
    all(core).into_iter().map(|cell| cell.seen_by(caller)).collect()
}

/// All cells that were heard, or of which something is wanted.
#[utoipa::path(get, path = "/v1/cells", tag = "platform",
    responses((status = 200, body = List<CellView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_cells(
    State(state): State<ApiState>,
    caller: Caller,
    _query: NoQuery,
) -> Outcome<Response> {
    let items = seen(&state.core, &caller);
    Ok(read_answer(false, &List { items, next: None, revision: state.core.cache.revision() }))
}

/// One cell, by its id, the short form of that, or its node's name if only one cell has it.
#[utoipa::path(get, path = "/v1/cells/{cell}", tag = "platform", params(("cell" = String, Path)),
    responses((status = 200, body = CellView), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_cell(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(cell): Segments<String>,
    _query: NoQuery,
) -> Outcome<Response> {
    let cell = find(&state.core, &cell)?;
    let read = state.read(&keys::cell_key(cell)).await?;
    let revision = read.value.as_ref().map_or(Revision(0), |record| record.revision);
    let spec = read.value.and_then(|record| record.spec::<CellSpec>().ok()).unwrap_or_default();
    let view = CellView::make(&state.core, cell, state.core.soft.cell(cell).as_ref(), &spec);
    Ok(tagged(revision, read.stale, &view.seen_by(&caller)))
}

/// What is wanted of a cell.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CellBody {
    /// `open`, `cordoned` (nothing new) or `draining` (nothing new, and what is there is replaced elsewhere first).
    scheduling: Scheduling,
    /// Memory that may be promised, as a multiple of what the cell has; absent = the platform's factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    overcommit: Option<f64>,
    /// For people: why.
    note: String,
}

impl Checked for CellBody {
    fn check(&self, errors: &mut Vec<FieldError>) {
        if self.overcommit.is_some_and(|factor| !(0.1..=100.0).contains(&factor)) {
            errors.push(FieldError::new("overcommit", "has to be between 0.1 and 100"));
        }
        if self.note.chars().count() > 200 || self.note.chars().any(char::is_control) {
            errors.push(FieldError::new("note", "has to be one line of at most 200 characters"));
        }
    }
}

/// Changes what is wanted of a cell: a JSON merge patch. It holds until it is changed again, whatever is restarted.
#[utoipa::path(patch, path = "/v1/cells/{cell}", tag = "platform", params(("cell" = String, Path)),
    request_body(content = Patch, example = json!({"scheduling": "draining", "note": "new kernel"})),
    responses((status = 200, body = CellView), (status = "default", body = ProblemBody)))]
pub(crate) async fn patch_cell(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(cell): Segments<String>,
    _query: NoQuery,
    conditions: Conditions,
    Doc(patch): Doc<Patch>,
) -> Outcome<Response> {
    let cell = find(&state.core, &cell)?;
    let key = keys::cell_key(cell);
    let commit = state
        .change(&key, &conditions, |present, expect| {
            let before = present.and_then(|record| record.spec::<CellSpec>().ok()).unwrap_or_default();
            let body = CellBody {
                scheduling: before.scheduling,
                overcommit: before.overcommit,
                note: before.note.clone(),
            };
            let body: CellBody = merged(&serde_json::to_value(body).unwrap_or_default(), &patch.0)?;
            let same = body.scheduling == before.scheduling && present.is_some();
            let spec = CellSpec {
                scheduling: body.scheduling,
                overcommit: body.overcommit,
                note: body.note,
                by: caller.name.clone(),
                since_ms: if same { before.since_ms } else { state.core.now_ms() },
            };
            Ok(vec![state.put(key.clone(), expect, &spec)])
        })
        .await?;
    let record = first(&commit)?;
    let spec: CellSpec = record.spec().unwrap_or_default();
    tracing::info!(%cell, scheduling = spec.scheduling.as_str(), by = caller.name, "changed what is wanted of a cell");
    let view = CellView::make(&state.core, cell, state.core.soft.cell(cell).as_ref(), &spec);
    let response = written(false, record.revision, &view);
    Ok(state.changed(response, commit.revision, None, None).await)
}

/// The cell that is meant.
fn find(core: &Core, text: &str) -> Outcome<CellId> {
    let cells = all(core);
    let node = |cell: &CellView| {
        let place = &cell.place;
        let whole = format!("{}/{}/{}", place.region, place.zone, place.node);
        !place.node.is_empty() && (place.node == text || whole.trim_start_matches('/') == text)
    };
    let id = |cell: &CellView| cell.id.to_string() == text || cell.id.short() == text;
    let by_id: Vec<&CellView> = cells.iter().filter(|cell| id(cell)).collect();
    let found = if by_id.is_empty() { cells.iter().filter(|cell| node(cell)).collect() } else { by_id };
    match found.as_slice() {
        [one] => Ok(one.id),
        [] => Err(Problem::not_found(format!("cell {text:?}; `towpath cells` lists them"))),
        many => {
            let ids: Vec<String> = many.iter().map(|cell| cell.id.to_string()).collect();
            Err(Problem::conflict(format!("{text:?} could be any of {}; name one by its id", ids.join(", "))))
        }
    }
}
