//! What an org wants together, counted from memory: groups, lanes, routes, operations under way, and what still runs.

use super::{Ask, Usage};
use crate::core::Core;
use crate::core::cache::CachedGroup;
use crate::core::keys::GroupRef;
use crate::operations::{Input, automatic_host};
use std::collections::{BTreeMap, BTreeSet};
use towpath_plan::rollout::{DEFAULT_MEMORY, RolloutPolicy, memory_of};
use towpath_types::spec::{OperationSpec, Wanted};
use towpath_types::{AppRef, ByteSize, Kind, LaneName, OrgName, Record, SpaceRef};
use towpath_wire::cell::{InstanceReport, InstanceState};

/// What is wanted of one group.
#[derive(Debug, Clone, Default)]
struct Group {
    /// As it is.
    now: State,
    /// What runs beside it: instances, and bytes of memory.
    beside: (u64, u64),
    /// The largest limit of what runs, or runs again when the next version fails.
    held: u64,
    /// What a push that names no limit begins with, if that is more than now.
    fresh: u64,
    /// What operations that have not ended make of it.
    asked: Vec<Change>,
}

/// What a group's spec says.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    count: u64,
    memory: u64,
    runs: bool,
}

/// What an operation sets.
#[derive(Debug, Clone, Copy, Default)]
struct Change {
    count: Option<u64>,
    memory: Option<u64>,
    runs: Option<bool>,
}

impl State {
    fn after(self, change: Change) -> Self {
        Self {
            count: change.count.unwrap_or(self.count),
            memory: change.memory.unwrap_or(self.memory),
            runs: change.runs.unwrap_or(self.runs),
        }
    }

    /// Instances, and bytes of memory.
    fn wants(self) -> (u64, u64) {
        if self.runs { (self.count, self.count.saturating_mul(self.memory)) } else { (0, 0) }
    }
}

impl Group {
    /// A group as it is wanted, and as it runs.
    ///
    /// Until a version has proven itself, the earlier ones may run on, or again: so the largest limit counts, also for what an
    /// operation asks for. Beside what is wanted count the instances that drain, and those that are too many for a surge.
    fn load(group: &CachedGroup, policy: &RolloutPolicy) -> Self {
        let (spec, status) = (&group.spec, &group.status);
        let of_spec = spec.limits.memory.unwrap_or(DEFAULT_MEMORY).0;
        let (run, drain): (Vec<_>, Vec<_>) =
            status.assignments.iter().partition(|assignment| assignment.wanted == Wanted::Run);
        let runs = run.iter().map(|assignment| assignment.version);
        let versions = runs.chain(status.good);
        let held = versions.map(|version| memory_of(status, &version)).max().unwrap_or_default();
        let memory = of_spec.max(held);
        let now = State { count: spec.count.into(), memory, runs: !spec.stopped };
        let (wanted, _) = now.wants();
        let is_seen = status.observed == group.record.generation && wanted > 0;
        let room =
            if is_seen { wanted.saturating_add(u64::from(policy.surge_of(spec.count))) } else { wanted };
        let running = run.len() as u64;
        let over = if running > room { running - wanted } else { 0 };
        let drained = drain.iter().map(|assignment| memory_of(status, &assignment.version));
        let beside = drained.fold((over, over.saturating_mul(memory)), |sum, bytes| plus(sum, (1, bytes)));
        // What failed with limits of its own is begun anew without them.
        let fresh = if status.failed.is_some() && status.good.is_none() { DEFAULT_MEMORY.0 } else { 0 };
        Self { now, beside, held, fresh, asked: Vec::new() }
    }

    /// The most that can come of it, in whatever order the operations make their changes.
    fn most(&self) -> (u64, u64) {
        let now = self.now.wants();
        let after = match self.asked.as_slice() {
            [] => return plus(now, self.beside),
            [change] => {
                let after = self.now.after(*change);
                State { memory: after.memory.max(self.held), ..after }
            }
            changes => changes.iter().fold(self.now, |most, change| State {
                count: most.count.max(change.count.unwrap_or_default()),
                memory: most.memory.max(change.memory.unwrap_or_default()),
                runs: most.runs || change.runs == Some(true),
            }),
        };
        let after = after.wants();
        plus((now.0.max(after.0), now.1.max(after.1)), self.beside)
    }
}

/// What is wanted of an org, at most.
#[derive(Debug, Clone, Default)]
pub(super) struct Wants {
    groups: BTreeMap<GroupRef, Group>,
    apps: BTreeSet<AppRef>,
    lanes: BTreeSet<(SpaceRef, LaneName)>,
    routes: BTreeSet<String>,
    /// Instances that no group speaks of any more but that still run, and their memory.
    ending: (u64, u64),
}

impl Wants {
    /// As memory has it now.
    pub(super) fn load(core: &Core, org: &OrgName) -> Self {
        let mut wants = Self::default();
        for (name, group) in core.cache.groups_in(org) {
            wants.groups.insert(name, Group::load(&group, &core.settings.rollout));
        }
        wants.ending = ending(core, org);
        for record in core.cache.list(Kind::App, Some(org), None) {
            wants.apps.extend(crate::api::view::app_of(&record.key));
        }
        for record in core.cache.list(Kind::Lane, Some(org), None) {
            if let (Some(space), Ok(lane)) = (&record.key.space, record.key.name.parse()) {
                wants.lane(&SpaceRef { org: org.clone(), space: space.clone() }, &lane);
            }
        }
        for record in core.cache.list(Kind::Route, None, None) {
            if is_of(&record.spec, org) {
                wants.routes.insert(record.key.name.clone());
            }
        }
        for record in core.cache.list(Kind::Operation, None, None) {
            if let Some((app, lane, input)) = pending(&record, org) {
                wants.operation(core, &app, &lane, &input);
            }
        }
        wants
    }

    pub(super) fn add(&mut self, core: &Core, ask: &Ask) {
        match ask {
            Ask::Operation(new) => self.operation(core, &new.app, &new.lane, &new.input),
            Ask::Lane(space, lane) => self.lane(space, lane),
            Ask::Route(_, name) => drop(self.routes.insert(name.clone())),
        }
    }

    fn lane(&mut self, space: &SpaceRef, lane: &LaneName) {
        if !lane.is_base() {
            self.lanes.insert((space.clone(), lane.clone()));
        }
    }

    /// The most that an operation can come to, whatever runs before it.
    fn operation(&mut self, core: &Core, app: &AppRef, lane: &LaneName, input: &Input) {
        let name = GroupRef::new(app.clone(), lane.clone());
        match input {
            Input::Push(push) => {
                self.lane(&app.space_ref(), lane);
                if self.apps.insert(app.clone()) {
                    self.routes.insert(format!("{}/", automatic_host(app, &core.settings.domain)));
                }
                self.routes.extend(push.routes.iter().map(|(host, path)| format!("{host}{path}")));
                let fresh = State { count: 1, memory: DEFAULT_MEMORY.0, runs: false };
                let group =
                    self.groups.entry(name).or_insert_with(|| Group { now: fresh, ..Group::default() });
                let memory = push.limits.memory.map_or(group.now.memory.max(group.fresh), |memory| memory.0);
                group.asked.push(change(push.instances, Some(ByteSize(memory)), Some(true)));
            }
            Input::Scale(asked) | Input::Update(asked) => {
                if let Some(group) = self.groups.get_mut(&name) {
                    let runs = asked.stopped.map(|stopped| !stopped);
                    group.asked.push(change(asked.count, asked.limits.memory, runs));
                }
            }
            Input::Rollback { .. } => {
                if let Some(group) = self.groups.get_mut(&name) {
                    group.asked.push(change(None, None, Some(true)));
                }
            }
            Input::Env { .. }
            | Input::Restart
            | Input::DeleteGroup
            | Input::Delete
            | Input::RotateSecrets { .. } => {}
        }
    }

    pub(super) fn usage(&self) -> Usage {
        let add = |sum: (u64, u64), group: &Group| plus(sum, group.most());
        let (instances, memory) = self.groups.values().fold(self.ending, add);
        Usage {
            memory: ByteSize(memory),
            instances,
            routes: self.routes.len() as u64,
            lanes: self.lanes.len() as u64,
        }
    }
}

fn plus(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
}

/// Instances of the org that cells still have although nobody wants them: they were told to stop, and take their time.
fn ending(core: &Core, org: &OrgName) -> (u64, u64) {
    let cells = core.soft.cells();
    let reports = cells.iter().filter(|cell| !cell.lost).flat_map(|cell| &cell.announce.instances);
    let ending = reports.filter(|report| {
        matches!(report.state, InstanceState::Draining | InstanceState::Stopping)
            && report.app.org == *org
            && core.cache.group_of(report.instance).is_none()
    });
    let memory = |report: &InstanceReport| match report.memory_limit {
        // Of an earlier version.
        0 => DEFAULT_MEMORY.0,
        limit => limit,
    };
    ending.fold((0, 0), |sum, report| plus(sum, (1, memory(report))))
}

fn change(count: Option<u32>, memory: Option<ByteSize>, runs: Option<bool>) -> Change {
    Change { count: count.map(u64::from), memory: memory.map(|memory| memory.0), runs }
}

/// Whether a spec names an app of the org.
fn is_of(spec: &serde_json::Value, org: &OrgName) -> bool {
    spec.pointer("/app/org").and_then(serde_json::Value::as_str) == Some(org.as_str())
}

/// Whether an operation has ended.
pub(crate) fn has_ended(record: &Record) -> bool {
    let phase = record.status.pointer("/phase").and_then(serde_json::Value::as_str);
    matches!(phase, Some("succeeded" | "failed"))
}

/// An operation of the org that has not ended.
fn pending(record: &Record, org: &OrgName) -> Option<(AppRef, LaneName, Input)> {
    if has_ended(record) || !is_of(&record.spec, org) {
        return None;
    }
    let spec: OperationSpec = record.spec().ok()?;
    Some((spec.app, spec.lane, serde_json::from_value(spec.input).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_come_of_a_group_is_counted_in_any_order() {
        let now = State { count: 2, memory: 10, runs: true };
        let most = |asked: &[Change]| Group { now, asked: asked.to_vec(), ..Group::default() }.most();
        let (more, less) = (change(Some(5), None, None), change(Some(1), None, None));
        let large = change(None, Some(ByteSize(100)), None);
        assert_eq!(most(&[]), (2, 20));
        assert_eq!(most(&[less]), (2, 20), "until it is so");
        assert_eq!(most(&[change(Some(4), Some(ByteSize(1)), None)]), (4, 20));
        assert_eq!(most(&[change(None, None, Some(false))]), (2, 20));
        let held = Group {
            now,
            held: 10,
            asked: vec![change(Some(4), Some(ByteSize(1)), None)],
            ..Group::default()
        };
        assert_eq!(held.most(), (4, 40), "the larger limit comes back when the smaller fails");
        assert_eq!(most(&[more, less, large]), (5, 500), "`more` may be the last one");
    }
}
