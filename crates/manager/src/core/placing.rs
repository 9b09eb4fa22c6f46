//! Room that plans have taken but that the cache does not show yet, and the rate at which instances are started.

use super::clock::Clock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use towpath_plan::rollout::{GroupPlan, PlanAction, memory_of};
use towpath_types::{CellId, InstanceId};

/// Instances that may be started at once.
const BURST: f64 = 1_000.0;
/// Instances that may be started in a second over time.
const RATE: f64 = 250.0;

/// Shared by all group workers.
#[derive(Debug)]
pub struct PlacingLedger {
    inner: Mutex<Ledger>,
    clock: Arc<Clock>,
}

#[derive(Debug)]
struct Ledger {
    reserved: HashMap<InstanceId, (CellId, u64)>,
    tokens: f64,
    filled_ms: u64,
}

/// The ledger while a plan is made.
pub struct Placing<'a> {
    ledger: &'a PlacingLedger,
    inner: MutexGuard<'a, Ledger>,
}

/// Room taken by a plan; given back when dropped (by then the cache shows the instances, or they are not to be).
#[derive(Debug)]
pub struct Reservation<'a> {
    ledger: &'a PlacingLedger,
    instances: Vec<InstanceId>,
}

impl PlacingLedger {
    /// Nothing taken.
    pub fn new(clock: Arc<Clock>) -> Self {
        let ledger = Ledger { reserved: HashMap::new(), tokens: BURST, filled_ms: clock.uptime_ms() };
        Self { inner: Mutex::new(ledger), clock }
    }

    /// Locks the ledger for one plan. Keep it short, and across no await.
    pub fn begin(&self) -> Placing<'_> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.uptime_ms();
        #[expect(clippy::cast_precision_loss, reason = "a difference of milliseconds")]
        let passed = now.saturating_sub(inner.filled_ms) as f64;
        inner.tokens = (inner.tokens + passed * RATE / 1000.0).min(BURST);
        inner.filled_ms = now;
        Placing { ledger: self, inner }
    }
}

impl<'a> Placing<'a> {
    /// Instances that may be started now.
    pub fn budget(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and BURST")]
        let budget = self.inner.tokens.max(0.0) as u32;
        budget
    }

    /// Bytes that others have taken on a cell.
    pub fn reserved(&self, cell: CellId) -> u64 {
        self.inner.reserved.values().filter(|(at, _)| *at == cell).map(|(_, bytes)| bytes).sum()
    }

    /// Takes what a plan needs.
    pub fn reserve(&mut self, plan: &GroupPlan) -> Reservation<'a> {
        let mut instances = Vec::new();
        for action in &plan.actions {
            let PlanAction::Assign { instance, cell, .. } = action else { continue };
            let version = plan.status.assignments.iter().find(|a| a.instance == *instance);
            let bytes = version.map_or(0, |assignment| memory_of(&plan.status, &assignment.version));
            self.inner.reserved.insert(*instance, (*cell, bytes));
            self.inner.tokens -= 1.0;
            instances.push(*instance);
        }
        Reservation { ledger: self.ledger, instances }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.instances.is_empty() {
            let mut inner = self.ledger.inner.lock().unwrap_or_else(PoisonError::into_inner);
            for instance in &self.instances {
                inner.reserved.remove(instance);
            }
        }
    }
}
