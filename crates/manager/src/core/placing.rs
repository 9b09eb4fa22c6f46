//! Room that plans have taken but that the cache does not show yet, what is being started, and the cells as plans see them.
//!
//! The cells are kept from plan to plan: a plan brings up to date what has changed since the one before, and nothing else.

use super::Core;
use super::clock::Clock;
use super::soft::HeardCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use towpath_plan::placement::starts::{StartBudget, StartLedger};
use towpath_plan::placement::{CellIndex, CellView};
use towpath_plan::rollout::{GroupPlan, PlanAction, RolloutPolicy, memory_of};
use towpath_types::cell::Scheduling;
use towpath_types::spec::InstanceVersion;
use towpath_types::{CellId, InstanceId};

/// Shared by all group workers.
#[derive(Debug)]
pub struct PlacingLedger {
    inner: Mutex<Ledger>,
    clock: Arc<Clock>,
}

#[derive(Debug)]
struct Ledger {
    /// Per instance: its cell and the memory that was promised to it.
    reserved: HashMap<InstanceId, (CellId, u64)>,
    /// Per cell: the sum.
    by_cell: HashMap<CellId, Taken>,
    starts: StartLedger,
    cells: CellIndex,
    /// Cells of which something has changed here since the last plan.
    changed: BTreeSet<CellId>,
    /// Cells that were brought up to date so far: what plans cost beside their own group.
    refreshed: u64,
}

/// What plans have taken on a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Memory, bytes.
    pub bytes: u64,
    /// Instances: a port each.
    pub count: u32,
}

/// The ledger while a plan is made.
pub struct Placing<'a> {
    ledger: &'a PlacingLedger,
    inner: MutexGuard<'a, Ledger>,
    now_ms: u64,
}

/// Room taken by a plan; given back when dropped (by then the cache shows the instances, or they are not to be).
#[derive(Debug)]
pub struct Reservation<'a> {
    ledger: &'a PlacingLedger,
    instances: Vec<InstanceId>,
    kept: bool,
}

impl PlacingLedger {
    /// Nothing taken.
    pub fn new(policy: &RolloutPolicy, clock: Arc<Clock>) -> Self {
        let ledger = Ledger {
            reserved: HashMap::new(),
            by_cell: HashMap::new(),
            starts: StartLedger::new(&policy.start_limits(), clock.uptime_ms()),
            cells: CellIndex::new(policy.overcommit),
            changed: BTreeSet::new(),
            refreshed: 0,
        };
        Self { inner: Mutex::new(ledger), clock }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the ledger for one plan. Keep it short, and across no await.
    pub fn begin(&self) -> Placing<'_> {
        Placing { ledger: self, inner: self.lock(), now_ms: self.clock.uptime_ms() }
    }

    /// An instance is no longer being started: it runs, or has ended.
    pub fn started(&self, cell: CellId, instance: InstanceId) {
        let mut inner = self.lock();
        if inner.starts.end(cell, instance) {
            inner.changed.insert(cell);
        }
    }
}

impl<'a> Placing<'a> {
    /// Instances that may be started now.
    pub fn budget(&mut self) -> StartBudget {
        self.inner.starts.budget(self.now_ms)
    }

    /// Brings up to date what has changed of cells since the last plan: what they said, what is wanted of them, what was
    /// promised there or is being started.
    pub fn refresh(&mut self, core: &Core) {
        let mut changed = std::mem::take(&mut self.inner.changed);
        changed.extend(core.cache.take_changed_cells());
        let news = core.soft.take_changed(changed);
        for (cell, heard) in news.cells {
            self.inner.refreshed += 1;
            match heard {
                Some(heard) => {
                    let view = self.view(core, &heard, news.time_ms);
                    self.inner.cells.set(view);
                }
                None => self.inner.cells.remove(cell),
            }
        }
        self.inner.cells.set_time(news.time_ms);
    }

    fn view(&mut self, core: &Core, heard: &HeardCell, time_ms: u64) -> CellView {
        let announce = &heard.announce;
        let (spec, stored, count) = core.cache.promises_on(announce.cell);
        let taken = self.inner.by_cell.get(&announce.cell).copied().unwrap_or_default();
        CellView {
            cell: announce.cell,
            place: announce.place.clone(),
            heard_ms: time_ms.saturating_sub(heard.silent_ms),
            // What the store says counts; a cell's own word is only an echo of it.
            cordoned: spec.scheduling == Scheduling::Cordoned,
            draining: spec.scheduling == Scheduling::Draining,
            leaving: announce.leaving,
            memory_bytes: announce.memory_bytes,
            overcommit: spec.overcommit,
            starting: self.inner.starts.starting(announce.cell, self.now_ms).max(heard.starting),
            promised_bytes: stored.saturating_add(taken.bytes),
            ports: announce.ports.unwrap_or(u32::MAX),
            promised_count: count.saturating_add(taken.count),
            load: f64::from(announce.host.cpu.max(announce.host.mem)),
        }
    }

    /// Cells that were brought up to date since the start.
    #[cfg(test)]
    pub(crate) fn refreshed(&self) -> u64 {
        self.inner.refreshed
    }

    /// The cells, as of the last [`Placing::refresh`].
    pub fn cells(&self) -> &CellIndex {
        &self.inner.cells
    }

    /// What others have taken on a cell.
    pub fn reserved(&self, cell: CellId) -> Taken {
        self.inner.by_cell.get(&cell).copied().unwrap_or_default()
    }

    /// Instances that this manager is starting on a cell.
    pub fn starting(&mut self, cell: CellId) -> u32 {
        self.inner.starts.starting(cell, self.now_ms)
    }

    /// Takes what a plan needs.
    pub fn reserve(&mut self, plan: &GroupPlan) -> Reservation<'a> {
        let mut instances = Vec::new();
        let assigned = |action: &PlanAction| matches!(action, PlanAction::Assign { .. });
        if !plan.actions.iter().any(assigned) {
            return Reservation { ledger: self.ledger, instances, kept: false };
        }
        let versions: HashMap<InstanceId, InstanceVersion> =
            plan.status.assignments.iter().map(|a| (a.instance, a.version)).collect();
        for action in &plan.actions {
            let PlanAction::Assign { instance, cell, replaces_lost, .. } = action else { continue };
            let bytes = versions.get(instance).map_or(0, |version| memory_of(&plan.status, version));
            self.inner.changed.insert(*cell);
            self.inner.reserved.insert(*instance, (*cell, bytes));
            let taken = self.inner.by_cell.entry(*cell).or_default();
            taken.bytes = taken.bytes.saturating_add(bytes);
            taken.count = taken.count.saturating_add(1);
            let now = self.now_ms;
            self.inner.starts.begin(*cell, *instance, *replaces_lost, now);
            instances.push(*instance);
        }
        Reservation { ledger: self.ledger, instances, kept: false }
    }
}

impl Reservation<'_> {
    /// The plan was committed: its instances are being started. (Without this they are not to be.)
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.instances.is_empty() {
            return;
        }
        let mut inner = self.ledger.lock();
        for instance in &self.instances {
            let Some((cell, bytes)) = inner.reserved.remove(instance) else { continue };
            inner.changed.insert(cell);
            if let Some(taken) = inner.by_cell.get_mut(&cell) {
                taken.bytes = taken.bytes.saturating_sub(bytes);
                taken.count = taken.count.saturating_sub(1);
                if taken.count == 0 {
                    inner.by_cell.remove(&cell);
                }
            }
            if !self.kept {
                inner.starts.end(cell, *instance);
            }
        }
    }
}

#[cfg(test)]
mod tests;
