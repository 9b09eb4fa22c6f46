//! Where a new instance goes.

use towpath_types::{CellId, Place};

/// What is known of one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct CellView {
    /// Which.
    pub cell: CellId,
    /// Where.
    pub place: Place,
    /// Silence, milliseconds.
    pub silent_ms: u64,
    /// Takes no new instances.
    pub cordoned: bool,
    /// Is about to go.
    pub leaving: bool,
    /// Memory that it has for instances, bytes.
    pub memory_bytes: u64,
    /// Memory promised to instances there, bytes.
    pub promised_bytes: u64,
    /// Load of the machine, 0..=1.
    pub load: f64,
}
