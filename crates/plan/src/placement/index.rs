//! Cells in the order in which placement looks at them, kept from one plan to the next.
//!
//! Whoever hears of a change puts the cell's new view in, at the cost of a search; a plan then looks at the cells that it has
//! instances on and at the first ones of each zone, however many there are.

use super::{CellView, LIVE_MS, ordered, share_of_limit};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use towpath_types::CellId;

/// Region and zone.
pub(super) type ZoneName = (String, String);
/// Cells of a zone on which a plan has nothing: the emptiest first, then the least loaded.
pub(super) type Rank = (i64, i64, CellId);

/// All known cells.
#[derive(Debug, Clone)]
pub struct CellIndex {
    overcommit: f64,
    now_ms: u64,
    cells: HashMap<CellId, CellView>,
    /// Open cells.
    zones: BTreeMap<ZoneName, BTreeSet<Rank>>,
    /// Open cells, the longest silent one first.
    speaking: BTreeSet<(u64, CellId)>,
}

impl CellIndex {
    /// No cells; memory may be promised as a multiple of what cells have.
    pub fn new(overcommit: f64) -> Self {
        Self {
            overcommit,
            now_ms: 0,
            cells: HashMap::new(),
            zones: BTreeMap::new(),
            speaking: BTreeSet::new(),
        }
    }

    /// These cells at this time.
    pub fn of(cells: impl IntoIterator<Item = CellView>, overcommit: f64, now_ms: u64) -> Self {
        let mut index = Self::new(overcommit);
        index.set_time(now_ms);
        for view in cells {
            index.set(view);
        }
        index
    }

    /// Time passes, on the clock of [`CellView::heard_ms`]: those that are silent for too long close.
    pub fn set_time(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        while let Some((heard_ms, cell)) = self.speaking.first().copied()
            && self.now_ms.saturating_sub(heard_ms) > LIVE_MS
        {
            // Before it is closed, which takes it out, too: else the next one would go with it.
            self.speaking.pop_first();
            if let Some(view) = self.cells.remove(&cell) {
                self.close(&view);
                self.cells.insert(cell, view);
            }
        }
    }

    /// Puts a cell in, or in the place of what was known of it.
    pub fn set(&mut self, view: CellView) {
        self.remove(view.cell);
        if self.is_open(&view) {
            let rank = self.rank(&view);
            let zone = (view.place.region.clone(), view.place.zone.clone());
            self.zones.entry(zone).or_default().insert(rank);
            self.speaking.insert((view.heard_ms, view.cell));
        }
        self.cells.insert(view.cell, view);
    }

    /// Forgets a cell.
    pub fn remove(&mut self, cell: CellId) {
        if let Some(view) = self.cells.remove(&cell) {
            self.close(&view);
        }
    }

    /// Takes a cell out of the orders.
    fn close(&mut self, view: &CellView) {
        self.speaking.remove(&(view.heard_ms, view.cell));
        let zone = (view.place.region.clone(), view.place.zone.clone());
        let rank = self.rank(view);
        if let Some(order) = self.zones.get_mut(&zone) {
            order.remove(&rank);
            if order.is_empty() {
                self.zones.remove(&zone);
            }
        }
    }

    fn rank(&self, view: &CellView) -> Rank {
        let share = share_of_limit(view.promised_bytes, view.limit_bytes(self.overcommit));
        (ordered(share), ordered(view.load), view.cell)
    }

    /// A cell.
    pub fn get(&self, cell: CellId) -> Option<&CellView> {
        self.cells.get(&cell)
    }

    /// All cells, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &CellView> {
        self.cells.values()
    }

    /// Silence of a cell, milliseconds.
    pub fn silent_ms(&self, view: &CellView) -> u64 {
        self.now_ms.saturating_sub(view.heard_ms)
    }

    /// Whether it speaks at the moment.
    pub fn is_live(&self, view: &CellView) -> bool {
        self.silent_ms(view) <= LIVE_MS
    }

    /// Whether new instances may go there, memory aside.
    pub fn is_open(&self, view: &CellView) -> bool {
        !view.cordoned && !view.draining && !view.leaving && self.is_live(view)
    }

    /// Memory that may be promised, as a multiple of what a cell has, unless it has a factor of its own.
    pub fn overcommit(&self) -> f64 {
        self.overcommit
    }

    /// The zones with open cells, and these in order.
    pub(super) fn zones(&self) -> impl Iterator<Item = (&ZoneName, &BTreeSet<Rank>)> {
        self.zones.iter()
    }

    /// Whether there is an open cell in the region besides this one.
    pub(super) fn has_open_beside(&self, region: &str, avoid: CellId) -> bool {
        let mut orders = self.zones.iter().filter(|(name, _)| region.is_empty() || name.0 == region);
        orders.any(|(_, order)| order.iter().take(2).any(|(_, _, cell)| *cell != avoid))
    }

    /// Whether there is a cell at all in the region.
    pub(super) fn has_any(&self, region: &str) -> bool {
        let in_region = |view: &CellView| region.is_empty() || view.place.region == region;
        self.zones.keys().any(|name| region.is_empty() || name.0 == region)
            || self.cells.values().any(in_region)
    }
}
