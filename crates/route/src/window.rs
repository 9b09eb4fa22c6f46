//! Share of failures in the recent past, in two atomic words: the bucket of now and the one before.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Two buckets of half the window each. A word is: epoch (24 bits), failures (20 bits), requests (20 bits).
#[derive(Debug, Default)]
pub(crate) struct Window([AtomicU64; 2]);

const COUNT: u64 = (1 << 20) - 1;
const EPOCH: u64 = (1 << 24) - 1;

fn parts(word: u64) -> (u64, u64, u64) {
    (word >> 40, word >> 20 & COUNT, word & COUNT)
}

impl Window {
    /// Counts one request; gives failures and requests in the window of `length` ns (or at least the last half of it).
    pub(crate) fn add(&self, now: u64, length: u64, failed: bool) -> (u64, u64) {
        let epoch = self.epoch(now, length);
        let slot = if epoch & 1 == 0 { &self.0[0] } else { &self.0[1] };
        let mut word = slot.load(Relaxed);
        loop {
            let (at, failures, requests) = parts(word);
            let (failures, requests) = if at == epoch { (failures, requests) } else { (0, 0) };
            let requests = (requests + 1).min(COUNT);
            let failures = (failures + u64::from(failed)).min(COUNT);
            let next = epoch << 40 | failures << 20 | requests;
            match slot.compare_exchange_weak(word, next, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(other) => word = other,
            }
        }
        self.totals(epoch)
    }

    fn epoch(&self, now: u64, length: u64) -> u64 {
        (now / (length / 2).max(1)) & EPOCH
    }

    fn totals(&self, epoch: u64) -> (u64, u64) {
        self.0.iter().map(|slot| parts(slot.load(Relaxed))).fold((0, 0), |(failures, requests), part| {
            let recent = part.0 == epoch || part.0 == (epoch.wrapping_sub(1) & EPOCH);
            if recent { (failures + part.1, requests + part.2) } else { (failures, requests) }
        })
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        for slot in &self.0 {
            slot.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_requests_leave_the_window() {
        let window = Window::default();
        let length = 10_000;
        for _ in 0..10 {
            window.add(100_000, length, true);
        }
        assert_eq!(window.add(104_999, length, false), (10, 11));
        assert_eq!(window.add(105_000, length, false), (10, 12));
        assert_eq!(window.add(110_000, length, false), (0, 2));
        assert_eq!(window.add(200_000, length, true), (1, 1));
        window.clear();
        assert_eq!(window.add(200_000, length, false), (0, 1));
    }

    #[test]
    fn counters_do_not_run_over() {
        let window = Window(std::array::from_fn(|_| AtomicU64::new(2 << 40 | COUNT << 20 | COUNT)));
        assert_eq!(window.add(10_000, 10_000, true), (2 * COUNT, 2 * COUNT));
    }
}
