//! So many at a time; a few more wait.

use super::keys::At;
use super::{Limits, New, Part, Stake};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A limiter of what runs at the same time. The state of a key is how many do.
#[derive(Debug)]
pub struct Conn {
    part: Part,
    /// What one is expected to take, nanoseconds: the default, moved halfway to each that was told.
    unit_delay: AtomicU64,
}

/// A place in the limit, given back when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct ConnSlot {
    conn: Arc<Conn>,
    at: At,
    /// How long to wait before going on, nanoseconds.
    pub delay_ns: u64,
}

impl Conn {
    /// The limiter of this name; `unit_delay_ns` is what one request is expected to take.
    pub fn new(limits: &Arc<Limits>, name: &str, unit_delay_ns: u64) -> Self {
        let part = Part::new(limits, "conn", name);
        Self { part, unit_delay: AtomicU64::new(unit_delay_ns) }
    }

    /// The key of a text; `sort` = which one of several limits under one name.
    pub fn key(&self, sort: u64, text: &[u8]) -> u64 {
        self.part.key(sort, text)
    }

    /// Takes a place, if fewer than `most` + `burst` are taken. One beyond `most` has to wait.
    pub fn take(self: &Arc<Self>, key: u64, most: u64, burst: u64) -> Option<ConnSlot> {
        let limit = most.saturating_add(burst);
        let next = |state: Option<u64>| {
            let sum = state.unwrap_or_default() + 1;
            let new = New { state: sum, stake: Stake::NONE };
            if sum <= limit { (Some(new), Some(sum)) } else { (None, None) }
        };
        let (at, taken) = self.part.limits.held.change(key, 0, next);
        let sum = taken?;
        let turns = if sum > most { (sum - 1) / most.max(1) } else { 0 };
        let delay_ns = self.unit_delay.load(Relaxed).saturating_mul(turns);
        Some(ConnSlot { conn: Arc::clone(self), at, delay_ns })
    }

    /// How many of a key are taken.
    pub fn taken(&self, key: u64) -> u64 {
        self.part.limits.held.get(key).unwrap_or_default()
    }
}

impl ConnSlot {
    /// Gives the place back, and tells how long the request took.
    pub fn done(self, latency_ns: u64) {
        let unit = &self.conn.unit_delay;
        unit.store(unit.load(Relaxed).midpoint(latency_ns), Relaxed);
    }
}

impl Drop for ConnSlot {
    fn drop(&mut self) {
        self.conn.part.limits.held.change_at(self.at, |count| count.saturating_sub(1));
    }
}
