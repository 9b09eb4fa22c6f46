//! Room that plans have taken but that the cache does not show yet, and what is being started.

use super::clock::Clock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use towpath_plan::placement::starts::{StartBudget, StartLedger, StartLimits};
use towpath_plan::rollout::{GroupPlan, PlanAction, memory_of};
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
    pub fn new(limits: &StartLimits, clock: Arc<Clock>) -> Self {
        let starts = StartLedger::new(limits, clock.uptime_ms());
        let ledger = Ledger { reserved: HashMap::new(), by_cell: HashMap::new(), starts };
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
        self.lock().starts.end(cell, instance);
    }
}

impl<'a> Placing<'a> {
    /// Instances that may be started now.
    pub fn budget(&mut self) -> StartBudget {
        self.inner.starts.budget(self.now_ms)
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
        for action in &plan.actions {
            let PlanAction::Assign { instance, cell, replaces_lost, .. } = action else { continue };
            let version = plan.status.assignments.iter().find(|a| a.instance == *instance);
            let bytes = version.map_or(0, |assignment| memory_of(&plan.status, &assignment.version));
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
