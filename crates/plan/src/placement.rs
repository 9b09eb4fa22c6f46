//! Where a new instance goes.
//!
//! Memory is the hard limit (with an overcommit factor), and so are ports. Among the cells with room: spread over zones, then over cells, and
//! of what is equal so far take the cell near the lane's other groups, then the one with the least promised memory, then the
//! least loaded one. A cell that starts as many instances as it may at once is waited for rather than passed over for one
//! that would spread worse.

mod index;
mod placer;
pub mod starts;

pub use index::CellIndex;
pub use placer::Placer;

use std::collections::BTreeMap;
use towpath_types::{CellId, Place};

/// Silence after which a cell gets no new instances, milliseconds: three announcements.
pub const LIVE_MS: u64 = 6_500;
/// What is known of one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct CellView {
    /// Which.
    pub cell: CellId,
    /// Where.
    pub place: Place,
    /// When it was heard last, milliseconds, on a clock of the caller's.
    pub heard_ms: u64,
    /// Takes no new instances.
    pub cordoned: bool,
    /// Takes none, and those that it has are to run elsewhere.
    pub draining: bool,
    /// Is about to go, or gone.
    pub leaving: bool,
    /// Memory that it has for instances, bytes.
    pub memory_bytes: u64,
    /// Its own overcommit factor; `None` = the platform's.
    pub overcommit: Option<f64>,
    /// Memory promised to instances there, bytes.
    pub promised_bytes: u64,
    /// Instances that it has ports for; `u32::MAX` = it does not say.
    pub ports: u32,
    /// Instances that were placed there and are not gone: each has a port, or will have.
    pub promised_count: u32,
    /// Instances that are being started there.
    pub starting: u32,
    /// Load of the machine, 0..=1.
    pub load: f64,
}

impl CellView {
    /// Bytes that may be promised altogether.
    pub fn limit_bytes(&self, overcommit: f64) -> u64 {
        limit_bytes(self.memory_bytes, self.overcommit.unwrap_or(overcommit))
    }
}

/// Bytes that a cell with so much memory may promise.
pub fn limit_bytes(memory_bytes: u64, overcommit: f64) -> u64 {
    share_of(memory_bytes, overcommit)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes of a machine are far below 2^53"
)]
fn share_of(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor) as u64
}

/// Why no cell was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPlace {
    /// No cell is there at all (in the wanted region).
    NoCell,
    /// All are cordoned, draining, leaving or silent.
    AllClosed,
    /// None has the memory.
    NoMemory {
        /// The most that one has left, bytes.
        most_bytes: u64,
    },
    /// There is memory, but only where every port is taken.
    NoPort,
    /// There is room, but where it should go too many are being started: try again in a moment.
    Busy,
}

/// What placement goes by, besides the cells.
#[derive(Debug, Clone, Copy)]
pub struct PlacingRules<'a> {
    /// The wanted region; empty = any.
    pub region: &'a str,
    /// Instances that a cell may be starting at the same time.
    pub starts_per_cell: u32,
    /// Instances per cell that the lane's other groups have there.
    pub mates: &'a BTreeMap<CellId, u32>,
}

/// A number whose order is that of [`f64::total_cmp`].
fn ordered(number: f64) -> i64 {
    let bits = number.to_bits().cast_signed();
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

/// Share of a limit that is promised.
fn share_of_limit(promised: u64, limit: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "bytes of a machine are far below 2^53")]
    let share = promised as f64 / limit.max(1) as f64;
    share
}

/// Of the instances that are promised a cell's memory, those that are too many for its limit: the newest ones. Whoever owns
/// them takes them back as long as they do not run. Two planners that did not know of each other's promises find the same.
pub fn find_overpromised<K: Ord + Copy>(promised: &BTreeMap<K, u64>, limit_bytes: u64) -> Vec<K> {
    let mut kept = 0_u64;
    let mut over = Vec::new();
    for (instance, bytes) in promised {
        if kept.saturating_add(*bytes) <= limit_bytes {
            kept += bytes;
        } else {
            over.push(*instance);
        }
    }
    over
}

#[cfg(test)]
mod tests;
