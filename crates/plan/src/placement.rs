//! Where a new instance goes.
//!
//! Memory is the hard limit (with an overcommit factor), and so are ports. Among the cells with room: spread over zones, then over cells, and
//! of what is equal so far take the cell near the lane's other groups, then the one with the least promised memory, then the
//! least loaded one. A cell that starts as many instances as it may at once is waited for rather than passed over for one
//! that would spread worse.

pub mod starts;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use towpath_types::{CellId, Place};

/// Silence after which a cell gets no new instances, milliseconds: three announcements.
pub const LIVE_MS: u64 = 6_500;
/// A cell with lane-mates is preferred only while less than this share of its limit is promised.
const NEAR_SHARE: f64 = 0.8;
/// Instances that come while others of the group on the same cell go may use this much more of its limit: for a moment both
/// are there.
const SURGE_SHARE: f64 = 0.25;

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
    /// Whether new instances may go there, memory aside.
    pub fn is_open(&self) -> bool {
        !self.cordoned && !self.draining && !self.leaving && self.silent_ms <= LIVE_MS
    }

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
    /// Memory that may be promised, as a multiple of what a cell has.
    pub overcommit: f64,
    /// Instances that a cell may be starting at the same time.
    pub starts_per_cell: u32,
    /// Instances per cell that the lane's other groups have there.
    pub mates: &'a BTreeMap<CellId, u32>,
}

/// One cell, and what placing has changed there.
#[derive(Debug, Clone)]
struct Site<'a> {
    view: &'a CellView,
    promised: u64,
    /// Instances that have a port here, or will have.
    count: u32,
    starting: u32,
    /// Bytes of the group's instances here that will go.
    going: u64,
    /// Instances of the group here that stay.
    crowd: u32,
}

/// Places the instances of one group, remembering what it has placed already.
#[derive(Debug, Clone)]
pub struct Placer<'a> {
    sites: Vec<Site<'a>>,
    rules: PlacingRules<'a>,
}

/// What spreads, best first: whether it is avoided, the group's instances in its zone, and on it.
type Spread = (bool, u32, u32);

impl<'a> Placer<'a> {
    /// For a group; cells outside the wanted region are left out.
    pub fn new(cells: &'a [CellView], rules: PlacingRules<'a>) -> Self {
        let in_region = |view: &&CellView| rules.region.is_empty() || view.place.region == rules.region;
        let site = |view: &'a CellView| Site {
            view,
            promised: view.promised_bytes,
            count: view.promised_count,
            starting: view.starting,
            going: 0,
            crowd: 0,
        };
        Self { sites: cells.iter().filter(in_region).map(site).collect(), rules }
    }

    fn site(&mut self, cell: CellId) -> Option<&mut Site<'a>> {
        self.sites.iter_mut().find(|site| site.view.cell == cell)
    }

    /// Counts an instance of the group that stands already and stays.
    pub fn note(&mut self, cell: CellId) {
        if let Some(site) = self.site(cell) {
            site.crowd += 1;
        }
    }

    /// Counts an instance of the group that goes when others have come: some of its memory may be promised twice meanwhile.
    pub fn note_going(&mut self, cell: CellId, bytes: u64) {
        if let Some(site) = self.site(cell) {
            site.going = site.going.saturating_add(bytes);
        }
    }

    /// Gives back the memory and the port of an instance that is gone.
    pub fn release(&mut self, cell: CellId, bytes: u64) {
        if let Some(site) = self.site(cell) {
            site.promised = site.promised.saturating_sub(bytes);
            site.count = site.count.saturating_sub(1);
        }
    }

    /// Whether there is an open cell besides this one.
    pub fn has_open_beside(&self, avoid: CellId) -> bool {
        self.sites.iter().any(|site| site.view.cell != avoid && site.view.is_open())
    }

    /// Bytes that may still be promised.
    fn room(&self, site: &Site<'_>) -> u64 {
        let limit = site.view.limit_bytes(self.rules.overcommit);
        let twice = site.going.min(share_of(limit, SURGE_SHARE));
        limit.saturating_add(twice).saturating_sub(site.promised)
    }

    /// Share of its limit that is promised.
    fn share(&self, site: &Site<'_>) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "bytes of a machine are far below 2^53")]
        let share = site.promised as f64 / (site.view.limit_bytes(self.rules.overcommit).max(1)) as f64;
        share
    }

    fn mates(&self, site: &Site<'_>) -> u32 {
        self.rules.mates.get(&site.view.cell).copied().unwrap_or_default()
    }

    /// The cell for one more instance of `bytes`; it is counted. Cells in `avoid` are taken only when no other has room.
    pub fn place(&mut self, bytes: u64, avoid: &[CellId]) -> Result<CellId, NoPlace> {
        if self.sites.is_empty() {
            return Err(NoPlace::NoCell);
        }
        let index = self.find(bytes, avoid)?;
        let Some(site) = self.sites.get_mut(index) else { return Err(NoPlace::NoCell) };
        site.crowd += 1;
        site.starting = site.starting.saturating_add(1);
        site.promised = site.promised.saturating_add(bytes);
        site.count = site.count.saturating_add(1);
        Ok(site.view.cell)
    }

    fn find(&self, bytes: u64, avoid: &[CellId]) -> Result<usize, NoPlace> {
        let mut zones: BTreeMap<(&str, &str), (u32, bool)> = BTreeMap::new();
        for site in &self.sites {
            let zone = zones.entry(zone_of(site.view)).or_default();
            zone.0 += site.crowd;
            zone.1 |= self.mates(site) > 0;
        }
        let zone = |site: &Site<'_>| zones.get(&zone_of(site.view)).copied().unwrap_or_default();
        let spread =
            |site: &Site<'_>| -> Spread { (avoid.contains(&site.view.cell), zone(site).0, site.crowd) };
        let order = |a: &Site<'_>, b: &Site<'_>| -> Ordering {
            let near = |site: &Site<'_>| self.mates(site) > 0 && self.share(site) < NEAR_SHARE;
            let rank = |site: &Site<'_>| (spread(site), !zone(site).1, !near(site));
            let by_share = || self.share(a).total_cmp(&self.share(b));
            let by_load = || a.view.load.total_cmp(&b.view.load);
            rank(a).cmp(&rank(b)).then_with(by_share).then_with(by_load).then(a.view.cell.cmp(&b.view.cell))
        };
        let open = || self.sites.iter().enumerate().filter(|(_, site)| site.view.is_open());
        let with_memory = || open().filter(|(_, site)| self.room(site) >= bytes);
        let roomy = || with_memory().filter(|(_, site)| site.count < site.view.ports);
        let Some(best) = roomy().map(|(_, site)| spread(site)).min() else {
            if with_memory().next().is_some() {
                return Err(NoPlace::NoPort);
            }
            let most = open().map(|(_, site)| self.room(site)).max();
            return Err(most.map_or(NoPlace::AllClosed, |most_bytes| NoPlace::NoMemory { most_bytes }));
        };
        roomy()
            .filter(|(_, site)| spread(site) == best && site.starting < self.rules.starts_per_cell)
            .min_by(|(_, a), (_, b)| order(a, b))
            .map(|(index, _)| index)
            .ok_or(NoPlace::Busy)
    }
}

fn zone_of(view: &CellView) -> (&str, &str) {
    (&view.place.region, &view.place.zone)
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
