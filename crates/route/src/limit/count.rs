//! So many in a window: the window of a key begins with its first request, as APISIX's `limit-count` has it.

use super::{Limits, New, Part, Stake, ms_up};
use crate::MS;
use std::sync::Arc;

/// Bits of a count.
const COUNT_BITS: u32 = 24;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
/// Times are milliseconds modulo this; half of it is the longest window.
const TIME: u64 = 1 << 36;

/// What came of asking for a part of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// It is within the limit, and counted.
    pub allowed: bool,
    /// What is left in this window.
    pub remaining: u64,
    /// Until the window ends.
    pub reset_ms: u64,
}

/// A limiter by fixed windows. Limits up to 16,777,215 and windows up to a year are exact; larger ones count as these.
#[derive(Debug)]
pub struct Count(Part);

impl Count {
    /// The limiter of this name.
    pub fn new(limits: &Arc<Limits>, name: &str) -> Self {
        Self(Part::new(limits, "count", name))
    }

    /// The key of a text; `sort` = which one of several limits under one name. Windows of different lengths are different
    /// limits.
    pub fn key(&self, sort: u64, text: &[u8]) -> u64 {
        self.0.key(sort, text)
    }

    /// Takes `cost` of `limit` in each `window_ms`, or nothing if that would be too much.
    pub fn take(&self, now: u64, key: u64, limit: u64, window_ms: u64, cost: u64) -> Taken {
        let window = Window::new(now, window_ms);
        let limit = limit.min(COUNT_MAX);
        let next = |state: Option<u64>| {
            let (start, count) = window.of(state);
            let reset_ms = window.rest(start);
            match count.checked_add(cost).filter(|sum| *sum <= limit) {
                Some(sum) => {
                    let taken = Taken { allowed: true, remaining: limit - sum, reset_ms };
                    (Some(window.state(now, start, sum, limit)), taken)
                }
                None => (None, Taken { allowed: false, remaining: limit.saturating_sub(count), reset_ms }),
            }
        };
        self.0.limits.counts.change(key, now / MS, next).1
    }

    /// Gives back what was taken of a window that still runs.
    pub fn give_back(&self, now: u64, key: u64, window_ms: u64, cost: u64) {
        let window = Window::new(now, window_ms);
        let next = |state: Option<u64>| {
            let (start, count) = window.of(state);
            (state.map(|_| window.state(now, start, count.saturating_sub(cost), COUNT_MAX)), ())
        };
        self.0.limits.counts.change(key, now / MS, next);
    }
}

struct Window {
    /// Rounded up, for windows that begin now.
    start: u64,
    now: u64,
    length: u64,
}

impl Window {
    fn new(now: u64, window_ms: u64) -> Self {
        let length = window_ms.clamp(1, TIME / 2 - 1);
        // so windows are never shorter than they should be
        Self { start: ms_up(now) % TIME, now: now / MS % TIME, length }
    }

    /// Since a start, which another worker's clock may have put a moment ahead.
    fn since(&self, start: u64) -> u64 {
        let since = self.now.wrapping_sub(start) % TIME;
        if since >= TIME / 2 { 0 } else { since }
    }

    /// Start and count of the window that a state is in now.
    fn of(&self, state: Option<u64>) -> (u64, u64) {
        match state.map(|state| (state >> COUNT_BITS, state & COUNT_MAX)) {
            Some((start, count)) if count > 0 && self.since(start) < self.length => (start, count),
            _ => (self.start, 0),
        }
    }

    fn rest(&self, start: u64) -> u64 {
        self.length - self.since(start).min(self.length)
    }

    /// A state, and what its loss would permit.
    fn state(&self, now: u64, start: u64, count: u64, limit: u64) -> New {
        let stake = Stake::new(now / MS + self.rest(start), count, limit);
        New { state: start << COUNT_BITS | count, stake }
    }
}
