//! Places the instances of one group.
//!
//! Cells on which the group has nothing stand in the index's order, which the placer walks once from the front; those that it
//! knows something of (an instance, a lane-mate, a promise of this plan) are in orders of its own. So an instance costs a few
//! looks for each zone, not one for each cell.

use super::index::{CellIndex, Rank};
use super::{CellView, NoPlace, PlacingRules, ordered, share_of, share_of_limit};
use std::collections::btree_set::Iter;
use std::collections::{BTreeMap, BTreeSet};
use towpath_types::CellId;

/// A cell with lane-mates is preferred only while less than this share of its limit is promised.
const NEAR_SHARE: f64 = 0.8;
/// Instances that come while others of the group on the same cell go may use this much more of its limit: for a moment both
/// are there.
const SURGE_SHARE: f64 = 0.25;

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

impl<'a> Site<'a> {
    fn new(view: &'a CellView) -> Self {
        Self {
            view,
            promised: view.promised_bytes,
            count: view.promised_count,
            starting: view.starting,
            going: 0,
            crowd: 0,
        }
    }

    fn limit(&self, overcommit: f64) -> u64 {
        self.view.limit_bytes(overcommit)
    }

    /// Bytes that may still be promised.
    fn room(&self, overcommit: f64) -> u64 {
        let limit = self.limit(overcommit);
        let twice = self.going.min(share_of(limit, SURGE_SHARE));
        limit.saturating_add(twice).saturating_sub(self.promised)
    }

    fn has_room(&self, overcommit: f64, bytes: u64) -> bool {
        self.room(overcommit) >= bytes && self.count < self.view.ports
    }
}

/// How a cell ranks inside its zone, best first: whether it is avoided, the group's instances on it, whether it is far from the
/// lane's others, its share of promised memory, its load.
type Inside = (bool, u32, bool, i64, i64, CellId);
/// What spreads, best first: whether it is avoided, the group's instances in its zone, and on it.
type Spread = (bool, u32, u32);

/// One zone while instances are placed.
#[derive(Debug, Clone)]
struct Zone<'a> {
    name: (&'a str, &'a str),
    /// Instances of the group here that stay.
    crowd: u32,
    /// Whether the lane's others are here.
    near: bool,
    /// Open cells on which the group has nothing, from where the walk is.
    untouched: Option<Iter<'a, Rank>>,
    /// The first of them with room.
    next: Option<&'a CellView>,
    /// Cells with room that the placer knows something of and that may start one more.
    free: BTreeSet<Inside>,
    /// Those that start as many as they may.
    busy: BTreeSet<Inside>,
}

impl Zone<'_> {
    /// The best spread that there is room for, be it busy.
    fn best(&self) -> Option<Spread> {
        let of = |inside: &Inside| (inside.0, self.crowd, inside.1);
        let untouched = self.next.map(|_| (false, self.crowd, 0));
        [self.free.first().map(of), self.busy.first().map(of), untouched].into_iter().flatten().min()
    }
}

/// Places the instances of one group, remembering what it has placed already.
#[derive(Debug, Clone)]
pub struct Placer<'a> {
    index: &'a CellIndex,
    rules: PlacingRules<'a>,
    /// Cells of which something is known that the index does not.
    sites: BTreeMap<CellId, Site<'a>>,
    zones: Vec<Zone<'a>>,
    /// What the zones are in order for: size, and what is avoided.
    order: Option<(u64, Vec<CellId>)>,
    looks: u64,
}

impl<'a> Placer<'a> {
    /// For a group; cells outside the wanted region are left out.
    pub fn new(index: &'a CellIndex, rules: PlacingRules<'a>) -> Self {
        let mut placer =
            Self { index, rules, sites: BTreeMap::new(), zones: Vec::new(), order: None, looks: 0 };
        for cell in rules.mates.keys() {
            placer.site(*cell);
        }
        placer
    }

    /// Cells that it has looked at so far: what its work is measured by.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    fn is_wanted(&self, view: &CellView) -> bool {
        self.rules.region.is_empty() || view.place.region == self.rules.region
    }

    /// A cell of which something is to be noted.
    fn site(&mut self, cell: CellId) -> Option<&mut Site<'a>> {
        let view = self.index.get(cell).filter(|view| self.is_wanted(view))?;
        self.order = None;
        Some(self.sites.entry(cell).or_insert_with(|| Site::new(view)))
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
        self.index.has_open_beside(self.rules.region, avoid)
    }

    fn mates(&self, cell: CellId) -> bool {
        self.rules.mates.get(&cell).is_some_and(|mates| *mates > 0)
    }

    fn inside(&self, site: &Site<'_>, avoid: &[CellId]) -> Inside {
        let share = share_of_limit(site.promised, site.limit(self.index.overcommit()));
        let cell = site.view.cell;
        let far = !(self.mates(cell) && share < NEAR_SHARE);
        (avoid.contains(&cell), site.crowd, far, ordered(share), ordered(site.view.load), cell)
    }

    /// The cell for one more instance of `bytes`; it is counted. Cells in `avoid` are taken only when no other has room.
    pub fn place(&mut self, bytes: u64, avoid: &[CellId]) -> Result<CellId, NoPlace> {
        if !self.order.as_ref().is_some_and(|(size, avoided)| *size == bytes && avoided == avoid) {
            self.put_in_order(bytes, avoid);
        }
        let (zone, view) = self.find(bytes)?;
        let untouched = !self.sites.contains_key(&view.cell);
        let site = self.sites.entry(view.cell).or_insert_with(|| Site::new(view));
        let before = site.clone();
        site.crowd += 1;
        site.starting = site.starting.saturating_add(1);
        site.promised = site.promised.saturating_add(bytes);
        site.count = site.count.saturating_add(1);
        let (before, after) = (self.inside(&before, avoid), site_of(&self.sites, view.cell));
        if let Some(found) = self.zones.get_mut(zone) {
            found.free.remove(&before);
            found.crowd += 1;
        }
        if let Some(site) = after {
            self.put(zone, &site, bytes, avoid);
        }
        if untouched {
            self.walk(zone, bytes, avoid);
        }
        Ok(view.cell)
    }

    /// Puts a cell into the orders of its zone, if it is open and has room.
    fn put(&mut self, zone: usize, site: &Site<'a>, bytes: u64, avoid: &[CellId]) {
        self.looks += 1;
        if !self.index.is_open(site.view) || !site.has_room(self.index.overcommit(), bytes) {
            return;
        }
        let inside = self.inside(site, avoid);
        let busy = site.starting >= self.rules.starts_per_cell;
        if let Some(zone) = self.zones.get_mut(zone) {
            if busy {
                zone.busy.insert(inside)
            } else {
                zone.free.insert(inside)
            };
        }
    }

    /// Walks on to the next cell with room on which the group has nothing. Busy ones on the way are noted.
    fn walk(&mut self, zone: usize, bytes: u64, avoid: &[CellId]) {
        let walk = self.zones.get_mut(zone).and_then(|zone| {
            zone.next = None;
            zone.untouched.take()
        });
        let Some(mut walk) = walk else { return };
        let mut next = None;
        while next.is_none()
            && let Some((_, _, cell)) = walk.next()
        {
            self.looks += 1;
            let usable = |view: &&CellView| !self.sites.contains_key(cell) && self.index.is_open(view);
            let Some(view) = self.index.get(*cell).filter(usable) else { continue };
            let site = Site::new(view);
            if !site.has_room(self.index.overcommit(), bytes) {
                continue;
            }
            if site.starting >= self.rules.starts_per_cell {
                self.put(zone, &site, bytes, avoid);
                self.sites.insert(*cell, site);
            } else {
                next = Some(view);
            }
        }
        if let Some(zone) = self.zones.get_mut(zone) {
            (zone.next, zone.untouched) = (next, Some(walk));
        }
    }

    fn put_in_order(&mut self, bytes: u64, avoid: &[CellId]) {
        for cell in avoid {
            self.site(*cell);
        }
        let zone = |name: (&'a str, &'a str), untouched| Zone {
            name,
            crowd: 0,
            near: false,
            untouched,
            next: None,
            free: BTreeSet::new(),
            busy: BTreeSet::new(),
        };
        let wanted = self
            .index
            .zones()
            .filter(|(name, _)| self.rules.region.is_empty() || name.0 == self.rules.region);
        self.zones = wanted.map(|(name, order)| zone((&name.0, &name.1), Some(order.iter()))).collect();
        let sites: Vec<Site<'a>> = self.sites.values().cloned().collect();
        for site in &sites {
            let name = (site.view.place.region.as_str(), site.view.place.zone.as_str());
            let at = self.zones.iter().position(|zone| zone.name == name).unwrap_or_else(|| {
                // All of its cells are closed.
                self.zones.push(zone(name, None));
                self.zones.len() - 1
            });
            let near = self.mates(site.view.cell);
            if let Some(zone) = self.zones.get_mut(at) {
                zone.crowd += site.crowd;
                zone.near |= near;
            }
            self.put(at, site, bytes, avoid);
        }
        for at in 0..self.zones.len() {
            self.walk(at, bytes, avoid);
        }
        self.order = Some((bytes, avoid.to_vec()));
    }

    /// The best cell with room that may start one more, and its zone.
    fn find(&self, bytes: u64) -> Result<(usize, &'a CellView), NoPlace> {
        let Some(best) = self.zones.iter().filter_map(Zone::best).min() else {
            return Err(self.why_none(bytes));
        };
        let ways = self.zones.iter().enumerate().flat_map(|(at, zone)| {
            let untouched = zone.next.map(|view| self.inside(&Site::new(view), &[]));
            let ways = zone.free.first().copied().into_iter().chain(untouched);
            let spread = move |inside: &Inside| (inside.0, zone.crowd, inside.1) == best;
            ways.filter(spread)
                .map(move |(_, _, far, share, load, cell)| ((!zone.near, far, share, load, cell), at))
        });
        let found = ways.min().ok_or(NoPlace::Busy)?;
        let ((.., cell), at) = found;
        self.index.get(cell).map(|view| (at, view)).ok_or(NoPlace::Busy)
    }

    /// Why there is no place. All cells are looked at, since there is no telling otherwise.
    fn why_none(&self, bytes: u64) -> NoPlace {
        if !self.index.has_any(self.rules.region) {
            return NoPlace::NoCell;
        }
        let open = self.index.iter().filter(|view| self.is_wanted(view) && self.index.is_open(view));
        let room = |view: &CellView| {
            let untouched = Site::new(view);
            self.sites.get(&view.cell).unwrap_or(&untouched).room(self.index.overcommit())
        };
        match open.map(room).max() {
            None => NoPlace::AllClosed,
            Some(most_bytes) if most_bytes >= bytes => NoPlace::NoPort,
            Some(most_bytes) => NoPlace::NoMemory { most_bytes },
        }
    }
}

fn site_of<'a>(sites: &BTreeMap<CellId, Site<'a>>, cell: CellId) -> Option<Site<'a>> {
    sites.get(&cell).cloned()
}
