//! How many instances are started: at once on one cell, and in a second by one manager.
//!
//! So the loss of a zone does not become a storm: what stood there is started elsewhere at a bounded rate, by a budget apart,
//! so that what people ask for meanwhile does not queue behind it. Time is an argument, and may jump.

use std::collections::{BTreeMap, HashMap};
use towpath_types::{CellId, InstanceId};

/// An instance counts as being started for so long at most, milliseconds: one that hangs must not keep others waiting.
pub const START_MS: u64 = 10_000;
/// Most seconds' worth of starts that may be saved up.
const SAVED: f64 = 4.0;

/// Figures of starting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StartLimits {
    /// Instances that one manager starts in a second, over time; four seconds' worth may be saved up.
    pub per_second: f64,
    /// Those of them that take the place of instances on lost cells.
    pub replaced_per_second: f64,
    /// Instances that a cell may be starting at the same time.
    pub per_cell: u32,
}

/// What may be started now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartBudget {
    /// Altogether.
    pub all: u32,
    /// In the place of lost ones.
    pub replaced: u32,
}

/// A bucket of tokens.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    rate: f64,
}

impl Bucket {
    fn full(rate: f64) -> Self {
        Self { tokens: Self::most(rate), rate }
    }

    fn most(rate: f64) -> f64 {
        (rate * SAVED).max(1.0)
    }

    fn fill(&mut self, passed_ms: u64) {
        #[expect(clippy::cast_precision_loss, reason = "a difference of milliseconds")]
        let more = passed_ms as f64 * self.rate / 1_000.0;
        self.tokens = (self.tokens + more).min(Self::most(self.rate));
    }

    fn whole(self) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and saturates"
        )]
        let whole = self.tokens.max(0.0) as u32;
        whole
    }
}

/// What one manager has started lately.
#[derive(Debug)]
pub struct StartLedger {
    all: Bucket,
    replaced: Bucket,
    filled_ms: u64,
    /// Per cell: what is being started, and since when.
    starting: HashMap<CellId, BTreeMap<InstanceId, u64>>,
}

impl StartLedger {
    /// Nothing started yet.
    pub fn new(limits: &StartLimits, now_ms: u64) -> Self {
        Self {
            all: Bucket::full(limits.per_second),
            replaced: Bucket::full(limits.replaced_per_second),
            filled_ms: now_ms,
            starting: HashMap::new(),
        }
    }

    /// What may be started now.
    pub fn budget(&mut self, now_ms: u64) -> StartBudget {
        let passed = now_ms.saturating_sub(self.filled_ms);
        self.filled_ms = now_ms;
        self.all.fill(passed);
        self.replaced.fill(passed);
        StartBudget { all: self.all.whole(), replaced: self.replaced.whole().min(self.all.whole()) }
    }

    /// An instance is started; `replaces` = in the place of a lost one.
    pub fn begin(&mut self, cell: CellId, instance: InstanceId, replaces: bool, now_ms: u64) {
        self.all.tokens -= 1.0;
        if replaces {
            self.replaced.tokens -= 1.0;
        }
        self.starting.entry(cell).or_default().insert(instance, now_ms);
    }

    /// It runs, has ended, or is not to be. Says whether it counted.
    pub fn end(&mut self, cell: CellId, instance: InstanceId) -> bool {
        let Some(here) = self.starting.get_mut(&cell) else { return false };
        let counted = here.remove(&instance).is_some();
        if here.is_empty() {
            self.starting.remove(&cell);
        }
        counted
    }

    /// Instances that are being started on a cell.
    pub fn starting(&mut self, cell: CellId, now_ms: u64) -> u32 {
        let Some(here) = self.starting.get_mut(&cell) else { return 0 };
        here.retain(|_, since| now_ms.abs_diff(*since) < START_MS);
        let count = u32::try_from(here.len()).unwrap_or(u32::MAX);
        if here.is_empty() {
            self.starting.remove(&cell);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: StartLimits = StartLimits { per_second: 100.0, replaced_per_second: 10.0, per_cell: 4 };

    fn cell(n: u8) -> CellId {
        CellId::mint(1, [n; 10])
    }

    fn instance(n: u8) -> InstanceId {
        InstanceId::mint(1, [n; 10])
    }

    #[test]
    fn budgets_are_spent_apart_and_fill_up_to_four_seconds_worth() {
        let mut ledger = StartLedger::new(&LIMITS, 0);
        assert_eq!(ledger.budget(0), StartBudget { all: 400, replaced: 40 });
        for n in 0..40 {
            ledger.begin(cell(1), instance(n), true, 0);
        }
        assert_eq!(ledger.budget(0), StartBudget { all: 360, replaced: 0 }, "others go on");
        assert_eq!(ledger.budget(500).replaced, 5);
        assert_eq!(ledger.budget(3_600_000), StartBudget { all: 400, replaced: 40 });
        assert_eq!(
            ledger.budget(0),
            StartBudget { all: 400, replaced: 40 },
            "a clock that goes back adds nothing"
        );
    }

    #[test]
    fn a_start_counts_until_it_ends_or_its_time_is_over() {
        let mut ledger = StartLedger::new(&LIMITS, 0);
        for n in 0..3 {
            ledger.begin(cell(1), instance(n), false, 0);
        }
        assert_eq!((ledger.starting(cell(1), 0), ledger.starting(cell(2), 0)), (3, 0));
        ledger.end(cell(1), instance(0));
        ledger.end(cell(1), instance(0));
        assert_eq!(ledger.starting(cell(1), START_MS - 1), 2);
        assert_eq!(ledger.starting(cell(1), START_MS), 0);
        assert!(ledger.starting.is_empty(), "nothing is kept");
    }
}
