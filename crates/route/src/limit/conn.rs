//! So many at a time; a few more wait.

use super::Keys;
use super::keys::{At, HELD};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A limiter of what runs at the same time. The state of a key is how many do.
#[derive(Debug)]
pub struct Conn {
    keys: Keys,
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
    /// Room for so many keys at a time; `unit_delay_ns` is what one request is expected to take.
    pub fn new(keys: usize, unit_delay_ns: u64) -> Arc<Self> {
        Arc::new(Self { keys: Keys::new(keys), unit_delay: AtomicU64::new(unit_delay_ns) })
    }

    /// Takes a place, if fewer than `most` + `burst` are taken. One beyond `most` has to wait.
    pub fn take(self: &Arc<Self>, key: u64, most: u64, burst: u64) -> Option<ConnSlot> {
        let limit = most.saturating_add(burst);
        let next = |state: Option<u64>| {
            let sum = state.unwrap_or_default() + 1;
            if sum <= limit { (Some(sum), Some(sum)) } else { (None, None) }
        };
        let worth = |state| if state == 0 { 0 } else { HELD };
        let (at, taken) = self.keys.change(key, worth, next);
        let sum = taken?;
        let turns = if sum > most { (sum - 1) / most.max(1) } else { 0 };
        let delay_ns = self.unit_delay.load(Relaxed).saturating_mul(turns);
        Some(ConnSlot { conn: Arc::clone(self), at, delay_ns })
    }

    /// How many of a key are taken.
    pub fn taken(&self, key: u64) -> u64 {
        self.keys.get(key).unwrap_or_default()
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
        self.conn.keys.change_at(self.at, |count| count.saturating_sub(1));
    }
}
