//! Where a new instance goes.
//!
//! Memory is the hard limit (with an overcommit factor). Among the cells with room: spread over zones, then over cells,
//! then take the one with the least promised memory, then the least loaded one.

use std::cmp::Ordering;
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
    /// Silence, milliseconds.
    pub silent_ms: u64,
    /// Takes no new instances.
    pub cordoned: bool,
    /// Is about to go, or gone.
    pub leaving: bool,
    /// Memory that it has for instances, bytes.
    pub memory_bytes: u64,
    /// Memory promised to instances there, bytes.
    pub promised_bytes: u64,
    /// Load of the machine, 0..=1.
    pub load: f64,
}

impl CellView {
    /// Whether new instances may go there, memory aside.
    pub fn is_open(&self) -> bool {
        !self.cordoned && !self.leaving && self.silent_ms <= LIVE_MS
    }

    /// Bytes that may still be promised.
    fn room(&self, overcommit: f64) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bytes of a machine are far below 2^53"
        )]
        let limit = (self.memory_bytes as f64 * overcommit) as u64;
        limit.saturating_sub(self.promised_bytes)
    }

    /// Share of its memory that is promised.
    fn promised_share(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "bytes of a machine are far below 2^53")]
        let share = self.promised_bytes as f64 / (self.memory_bytes.max(1)) as f64;
        share
    }
}

/// Why no cell was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPlace {
    /// No cell is there at all (in the wanted region).
    NoCell,
    /// All are cordoned, leaving or silent.
    AllClosed,
    /// None has the memory.
    NoMemory {
        /// The most that one has left, bytes.
        most_bytes: u64,
    },
}

/// Places the instances of one group, remembering what it has placed already.
#[derive(Debug, Clone)]
pub struct Placer {
    cells: Vec<CellView>,
    overcommit: f64,
    region: String,
    /// Instances of the group per cell.
    on_cell: BTreeMap<CellId, u32>,
}

impl Placer {
    /// For a group that wants `region` (empty = any).
    pub fn new(cells: &[CellView], region: &str, overcommit: f64) -> Self {
        Self { cells: cells.to_vec(), overcommit, region: region.to_owned(), on_cell: BTreeMap::new() }
    }

    /// Counts an instance of the group that stands already.
    pub fn note(&mut self, cell: CellId) {
        *self.on_cell.entry(cell).or_default() += 1;
    }

    /// Gives back the memory of an instance that goes.
    pub fn release(&mut self, cell: CellId, bytes: u64) {
        if let Some(view) = self.cells.iter_mut().find(|view| view.cell == cell) {
            view.promised_bytes = view.promised_bytes.saturating_sub(bytes);
        }
    }

    /// Instances of the group on a cell.
    pub fn crowd(&self, cell: CellId) -> u32 {
        self.on_cell.get(&cell).copied().unwrap_or_default()
    }

    /// Cells that are open, in the region, and not among `avoid`.
    pub fn has_open_beside(&self, avoid: CellId) -> bool {
        self.in_region().any(|view| view.cell != avoid && view.is_open())
    }

    fn in_region(&self) -> impl Iterator<Item = &CellView> {
        self.cells.iter().filter(|view| self.region.is_empty() || view.place.region == self.region)
    }

    /// The cell for one more instance of `bytes`; it is counted. Cells in `avoid` are taken only when no other has room.
    pub fn place(&mut self, bytes: u64, avoid: &[CellId]) -> Result<CellId, NoPlace> {
        if self.in_region().next().is_none() {
            return Err(NoPlace::NoCell);
        }
        let mut zones: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for view in self.in_region() {
            *zones.entry((&view.place.region, &view.place.zone)).or_default() += self.crowd(view.cell);
        }
        let zone = |view: &CellView| {
            zones.get(&(view.place.region.as_str(), view.place.zone.as_str())).copied().unwrap_or_default()
        };
        let order = |a: &CellView, b: &CellView| -> Ordering {
            let rank = |view: &CellView| (avoid.contains(&view.cell), zone(view), self.crowd(view.cell));
            rank(a)
                .cmp(&rank(b))
                .then(a.promised_share().total_cmp(&b.promised_share()))
                .then(a.load.total_cmp(&b.load))
                .then(a.cell.cmp(&b.cell))
        };
        let open = || self.in_region().filter(|view| view.is_open());
        let found = open()
            .filter(|view| view.room(self.overcommit) >= bytes)
            .min_by(|a, b| order(a, b))
            .map(|view| view.cell);
        let Some(cell) = found else {
            let most = open().map(|view| view.room(self.overcommit)).max();
            return Err(most.map_or(NoPlace::AllClosed, |most_bytes| NoPlace::NoMemory { most_bytes }));
        };
        self.note(cell);
        if let Some(view) = self.cells.iter_mut().find(|view| view.cell == cell) {
            view.promised_bytes = view.promised_bytes.saturating_add(bytes);
        }
        Ok(cell)
    }
}

#[cfg(test)]
mod tests;
