//! Retry budget: retries may be a share of the requests of the last 10 s, plus a few.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use towpath_types::upstream::RetryPolicy;

const SLOTS: usize = 10;
const SLOT_NS: u64 = 1_000_000_000;

/// Requests and retries of the last 10 s, a slot a second. One per app, shared by all workers, and kept across changes
/// of the table. A slot is: second (24 bits), retries (20 bits), requests (20 bits).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RetryBudget([AtomicU64; SLOTS]);

const COUNT: u64 = (1 << 20) - 1;
const SECOND: u64 = (1 << 24) - 1;

impl RetryBudget {
    fn slot(&self, now: u64) -> Option<(&AtomicU64, u64)> {
        let second = now / SLOT_NS;
        self.0.get((second % SLOTS as u64) as usize).map(|slot| (slot, second & SECOND))
    }

    fn add(&self, now: u64, retries: u64, requests: u64) {
        let Some((slot, second)) = self.slot(now) else { return };
        let mut word = slot.load(Relaxed);
        loop {
            let kept = if word >> 40 == second { word } else { second << 40 };
            let sum_retries = ((kept >> 20 & COUNT) + retries).min(COUNT);
            let sum_requests = ((kept & COUNT) + requests).min(COUNT);
            let next = second << 40 | sum_retries << 20 | sum_requests;
            match slot.compare_exchange_weak(word, next, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(other) => word = other,
            }
        }
    }

    /// Counts a client's request (not its retries).
    pub fn request(&self, now: u64) {
        self.add(now, 0, 1);
    }

    /// Whether one more retry is within the budget; counts it if so. Workers that ask at the same instant may
    /// overdraw by one each.
    pub fn try_retry(&self, now: u64, policy: &RetryPolicy) -> bool {
        let second = (now / SLOT_NS) & SECOND;
        let (retries, requests) = self.0.iter().map(|slot| slot.load(Relaxed)).fold((0, 0), |sum, word| {
            let age = second.wrapping_sub(word >> 40) & SECOND;
            if age < SLOTS as u64 { (sum.0 + (word >> 20 & COUNT), sum.1 + (word & COUNT)) } else { sum }
        });
        let share = f64::from(policy.budget.clamp(0.0, 1.0)) * requests as f64;
        let within = retries < u64::from(policy.min_per_10s) || ((retries + 1) as f64) <= share;
        if within {
            self.add(now, 1, 0);
        }
        within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = SLOT_NS;

    fn spend(budget: &RetryBudget, now: u64, policy: &RetryPolicy) -> usize {
        (0..100_000).take_while(|_| budget.try_retry(now, policy)).count()
    }

    #[test]
    fn retries_are_a_fifth_of_the_last_ten_seconds() {
        let policy = RetryPolicy { min_per_10s: 0, ..RetryPolicy::default() };
        let budget = RetryBudget::default();
        assert!(!budget.try_retry(S, &policy));
        for at in 0..20 {
            for _ in 0..50 {
                budget.request(at * S);
            }
        }
        assert_eq!(spend(&budget, 19 * S, &policy), 100);
        assert_eq!(spend(&budget, 24 * S, &policy), 0, "the retries are still in the window");
        assert_eq!(spend(&budget, 40 * S, &policy), 0, "the requests are not any more");
    }

    #[test]
    fn a_quiet_app_may_retry_a_little() {
        let policy = RetryPolicy::default();
        let budget = RetryBudget::default();
        assert_eq!(spend(&budget, 5 * S, &policy), 10);
        assert_eq!(spend(&budget, 14 * S, &policy), 0);
        assert_eq!(spend(&budget, 15 * S, &policy), 10);
        assert_eq!(spend(&budget, 15 * S, &RetryPolicy { budget: f32::NAN, ..policy }), 0);
    }
}
