//! What the gateway knows: hard state from managers, soft state from cells, and the table compiled of both. No I/O and no
//! clock in here: what happens and when are arguments.

use super::fetch::Stand;
use super::incoming::{Delta, Items, Unreadable};
use super::resources::Arrived;
use super::snapshot_file::Snapshot;
use crate::resources::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use towpath_resources::{Id, Key, Kind};
use towpath_route::{Address, Change, EndpointSpec, ReportedLoad, Source, Table, route_key};
use towpath_types::{CellId, Place, Revision};
use towpath_wire::cell::{ANNOUNCE_INTERVAL_MS, CellAnnounce, InstanceReport, InstanceState};
use towpath_wire::gateway::{GatewayDelta, Heard, Item, ItemKey};

/// A cell that was silent for so long is stale: its endpoints are the last resort.
pub(crate) const STALE_MS: u64 = 3 * ANNOUNCE_INTERVAL_MS;
/// A cell that was silent for so long is forgotten.
pub(crate) const FORGET_MS: u64 = 15 * ANNOUNCE_INTERVAL_MS;

/// A cell as last heard.
#[derive(Debug)]
struct HeardCell {
    announce: Arc<CellAnnounce>,
    heard_ms: u64,
    stale: bool,
}

/// What became of a delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeltaOutcome {
    /// It was applied.
    Applied,
    /// It says nothing new.
    Known,
    /// Something before it was missed: a snapshot is needed.
    Gap,
}

/// What became of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnnounceOutcome {
    /// It is an old one.
    Old,
    /// Only loads and the like are new: nobody waits to hear that it was heard.
    Refreshed,
    /// Instances, or the cell itself, are others than before.
    Changed,
}

/// Everything that the gateway knows.
pub(crate) struct State {
    table: Table,
    items: BTreeMap<ItemKey, Arc<Item>>,
    revision: Revision,
    /// A complete set of items was taken once.
    loaded: bool,
    epoch: u64,
    /// Epoch of a table that looks back of this one: nothing of it fits before its snapshot. 0 = none.
    set_back: u64,
    cells: BTreeMap<CellId, HeardCell>,
    refused: BTreeMap<String, String>,
    /// Names of those of the refused that could not be read.
    unread: BTreeSet<String>,
    pending: Vec<Change>,
    /// Resources that nobody has compiled yet.
    arrived: Arrived,
}

impl State {
    /// Knows nothing yet.
    pub(crate) fn new(place: Place) -> Self {
        Self {
            table: Table::new(place),
            items: BTreeMap::new(),
            revision: Revision(0),
            loaded: false,
            epoch: 0,
            set_back: 0,
            cells: BTreeMap::new(),
            refused: BTreeMap::new(),
            unread: BTreeSet::new(),
            pending: Vec::new(),
            arrived: Arrived::new(),
        }
    }

    /// The table after the last commit.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Revision of the hard state.
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// How far the hard state is.
    pub(crate) fn stand(&self) -> Stand {
        Stand { epoch: self.epoch, revision: self.revision }
    }

    /// Takes over the epoch of a snapshot: what is told of a lower one counts no more.
    pub(crate) fn obey(&mut self, epoch: u64) {
        self.epoch = self.epoch.max(epoch);
        // Managers of an earlier version do not say which epoch a snapshot is of.
        if epoch == 0 || epoch >= self.set_back {
            self.set_back = 0;
        }
    }

    /// Whether a delta begins, in a later epoch, before what is here: the store was restored from a copy, and revisions of
    /// the same number may be others.
    fn looks_back(&self, delta: &GatewayDelta) -> bool {
        delta.epoch > self.epoch && self.epoch > 0 && delta.from < self.revision
    }

    /// A delta did not fit: if the store was set back, nothing of its epoch fits any more until a snapshot has come.
    pub(crate) fn note_gap(&mut self, delta: &GatewayDelta) {
        if self.looks_back(delta) {
            self.set_back = self.set_back.max(delta.epoch);
        }
    }

    /// Whether there is a routing table at all, an empty one included.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// Items that could not be used, and why.
    pub(crate) fn refused(&self) -> &BTreeMap<String, String> {
        &self.refused
    }

    /// How many cells are known, how many of them are stale, and when one was last heard.
    pub(crate) fn cells_heard(&self) -> (usize, usize, Option<u64>) {
        let stale = self.cells.values().filter(|cell| cell.stale).count();
        (self.cells.len(), stale, self.cells.values().map(|cell| cell.heard_ms).max())
    }

    /// How far each cell was heard.
    pub(crate) fn heard(&self) -> BTreeMap<CellId, Heard> {
        let heard =
            |cell: &HeardCell| Heard { incarnation: cell.announce.incarnation, seq: cell.announce.seq };
        self.cells.iter().map(|(id, cell)| (*id, heard(cell))).collect()
    }

    /// Addresses of all cells, sorted.
    pub(crate) fn inside(&self) -> Vec<IpAddr> {
        let mut inside: Vec<_> =
            self.cells.values().filter_map(|cell| cell.announce.address.parse().ok()).collect();
        inside.sort_unstable();
        inside.dedup();
        inside
    }

    /// What belongs into the snapshot file.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let cells = self.cells.values().map(|cell| cell.announce.clone());
        Snapshot::of(self.revision, self.items.values().cloned(), cells)
    }

    /// Takes over a complete set of items. Of an item that cannot be read the older version stays.
    pub(crate) fn apply_snapshot(&mut self, revision: Revision, items: impl Into<Items>) {
        let items = items.into();
        let unread = std::mem::take(&mut self.unread);
        self.refused.retain(|name, _| !unread.contains(name));
        let mut before = std::mem::take(&mut self.items);
        for unreadable in items.unreadable {
            if let Some((key, item)) = unreadable.key.as_ref().and_then(|key| before.remove_entry(key)) {
                self.items.insert(key, item);
            }
            self.refuse(unreadable);
        }
        for item in items.good {
            let key = key_of(&item);
            // The refusal of an older version may have been hidden by that of the unreadable one.
            let again = !unread.is_empty() && unread.contains(&text_of(&key));
            if before.remove(&key).as_deref() != Some(&item) || again {
                self.put(key.clone(), &item);
            }
            self.items.insert(key, Arc::new(item));
        }
        for key in before.into_keys() {
            self.delete(key);
        }
        self.revision = revision;
        self.loaded = true;
    }

    /// What applying this delta would come to.
    pub(crate) fn judge(&self, delta: &GatewayDelta) -> DeltaOutcome {
        if delta.epoch < self.epoch {
            return DeltaOutcome::Known;
        }
        let other = self.set_back > self.epoch && delta.epoch >= self.set_back;
        if other || delta.from > self.revision || self.looks_back(delta) {
            return DeltaOutcome::Gap;
        }
        if delta.to <= self.revision { DeltaOutcome::Known } else { DeltaOutcome::Applied }
    }

    /// Applies a delta if it fits.
    pub(crate) fn apply_delta(&mut self, delta: impl Into<Delta>) -> DeltaOutcome {
        let Delta { readable: delta, unreadable } = delta.into();
        let outcome = self.judge(&delta);
        if outcome != DeltaOutcome::Gap {
            self.epoch = self.epoch.max(delta.epoch);
        }
        if outcome != DeltaOutcome::Applied {
            return outcome;
        }
        for key in delta.delete {
            self.items.remove(&key);
            self.delete(key);
        }
        for item in delta.put {
            let key = key_of(&item);
            self.put(key.clone(), &item);
            self.items.insert(key, Arc::new(item));
        }
        unreadable.into_iter().for_each(|unreadable| self.refuse(unreadable));
        self.revision = delta.to;
        DeltaOutcome::Applied
    }

    /// Takes in a cell's announcement.
    pub(crate) fn apply_announce(&mut self, announce: CellAnnounce, now_ms: u64) -> AnnounceOutcome {
        let known = self.cells.get(&announce.cell);
        let order = |a: &CellAnnounce| (a.incarnation, a.seq);
        if known.is_some_and(|known| order(&known.announce) >= order(&announce)) {
            return AnnounceOutcome::Old;
        }
        let source = Source::Cell(announce.cell);
        let stale = known.is_some_and(|known| known.stale);
        let same = !stale && known.is_some_and(|known| serve_the_same(&known.announce, &announce));
        if let Some(known) = self.cells.remove(&announce.cell) {
            self.forgive(&known.announce);
        }
        if announce.leaving {
            self.pending.push(Change::DropSource(source));
            return AnnounceOutcome::Changed;
        }
        if stale {
            self.pending.push(Change::Stale { source: source.clone(), stale: false });
        }
        let endpoints =
            announce.instances.iter().filter_map(|instance| endpoint(&announce, instance)).collect();
        self.pending.push(Change::Endpoints { source, endpoints });
        let (id, announce) = (announce.cell, Arc::new(announce));
        self.cells.insert(id, HeardCell { announce, heard_ms: now_ms, stale: false });
        if same { AnnounceOutcome::Refreshed } else { AnnounceOutcome::Changed }
    }

    /// The table judges the cell's endpoints anew.
    fn forgive(&mut self, announce: &CellAnnounce) {
        if !self.refused.is_empty() {
            for instance in &announce.instances {
                self.refused.remove(&format!("endpoint {}", instance.instance));
            }
        }
    }

    /// Judges silence; `true` = something changed. Nothing is judged while the bus is down, since when all are silent at
    /// once: that is silence of the bus, not death of everybody. Of a single cell that proves nothing, so there it takes
    /// the silence of the managers too.
    pub(crate) fn expire(
        &mut self,
        now_ms: u64,
        bus_up_since_ms: Option<u64>,
        managers_heard_ms: Option<u64>,
    ) -> bool {
        let Some(up_ms) = bus_up_since_ms else { return false };
        let silent = |cell: &HeardCell| now_ms.saturating_sub(cell.heard_ms.max(up_ms));
        let managers_speak = managers_heard_ms.is_some_and(|at| now_ms.saturating_sub(at) < STALE_MS);
        let all_silent = self.cells.values().all(|cell| silent(cell) >= STALE_MS);
        if all_silent && (self.cells.len() > 1 || !managers_speak) {
            return false;
        }
        let (mut gone, mut changed) = (Vec::new(), false);
        for (id, cell) in &mut self.cells {
            let silent = silent(cell);
            if silent >= FORGET_MS {
                gone.push(*id);
            } else if silent >= STALE_MS && !cell.stale {
                cell.stale = true;
                changed = true;
                self.pending.push(Change::Stale { source: Source::Cell(*id), stale: true });
            }
        }
        for id in gone {
            if let Some(cell) = self.cells.remove(&id) {
                self.forgive(&cell.announce);
            }
            changed = true;
            self.pending.push(Change::DropSource(Source::Cell(id)));
        }
        changed
    }

    /// Resources that have come since this was called last.
    pub(super) fn take_arrived(&mut self) -> Arrived {
        std::mem::take(&mut self.arrived)
    }

    /// These are to be compiled again, as they are.
    pub(super) fn arrive_again(&mut self, names: impl IntoIterator<Item = (String, String)>) {
        for (kind, id) in names {
            let key = ItemKey::Resource { kind, id };
            if let Some(Item::Resource { resource, id, value }) = self.items.get(&key).map(AsRef::as_ref) {
                self.refused.remove(&text_of(&key));
                self.arrived.insert((resource.clone(), id.clone()), Some(value.clone()));
            }
        }
    }

    /// A resource cannot be used until a key comes.
    pub(super) fn note_waiting(&mut self, name: &str, why: String) {
        tracing::debug!(resource = %name, %why, "a resource waits");
        self.refused.insert(format!("resource {name}"), why);
    }

    /// A resource cannot be used.
    pub(super) fn refuse_resource(&mut self, name: &str, why: String) {
        tracing::warn!(resource = %name, %why, "a resource cannot serve");
        self.refused.insert(format!("resource {name}"), why);
    }

    /// Takes over changes that others have compiled.
    pub(crate) fn push(&mut self, changes: Vec<Change>) {
        self.pending.extend(changes);
    }

    /// Takes over what came of a change of resources.
    pub(crate) fn take_resources(&mut self, outcome: Outcome) {
        for (name, why) in outcome.refused {
            match why {
                Some(why) => self.refuse_resource(&name, why),
                None => drop(self.refused.remove(&format!("resource {name}"))),
            }
        }
        self.pending.extend(outcome.changes);
    }

    /// Takes over which listeners listen, and why others do not.
    pub(crate) fn take_listeners(&mut self, told: Vec<(Id, Option<String>)>) {
        let refused = told.into_iter().map(|(id, why)| (Key::new(Kind::Listener, id).to_string(), why));
        self.take_resources(Outcome { refused: refused.collect(), ..Outcome::default() });
    }

    /// All that there is is known.
    pub(crate) fn complete(&mut self) {
        self.loaded = true;
    }

    /// Compiles what has come since the last commit into the table; `true` = it is another one now.
    pub(crate) fn commit(&mut self, now_ns: u64) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let (table, refused) = self.table.apply(&std::mem::take(&mut self.pending), now_ns);
        for item in refused {
            let key = match item.key.strip_prefix("rule ") {
                Some(id) => format!("resource routes/{id}"),
                None => item.key,
            };
            self.refused.insert(key, item.why);
        }
        let changed = !table.same(&self.table);
        self.table = table;
        changed
    }

    fn refuse(&mut self, unreadable: Unreadable) {
        let name = unreadable.key.as_ref().map_or(unreadable.name, text_of);
        tracing::warn!(%name, why = %unreadable.why, "an item cannot be read");
        self.refused.insert(name.clone(), unreadable.why);
        self.unread.insert(name);
    }

    fn put(&mut self, key: ItemKey, item: &Item) {
        self.refused.remove(&text_of(&key));
        self.pending.push(match item.clone() {
            Item::Resource { resource, id, value } => {
                self.arrived.insert((resource, id), Some(value));
                return;
            }
            Item::Route(route) => Change::PutRoute(route),
            Item::App { app, upstream, stopped, base_stopped, lanes } => {
                Change::PutApp { app, upstream, stopped, base_stopped, lanes }
            }
            Item::Space { space, lanes, names, local } => {
                Change::PutSpace { space, policy: lanes, names, local }
            }
        });
    }

    fn delete(&mut self, key: ItemKey) {
        self.refused.remove(&text_of(&key));
        self.pending.push(match key {
            ItemKey::Resource { kind, id } => {
                self.arrived.insert((kind, id), None);
                return;
            }
            ItemKey::Route(key) => Change::DeleteRoute(key),
            ItemKey::App(app) => Change::DeleteApp(app),
            ItemKey::Space(space) => Change::DeleteSpace(space),
        });
    }
}

/// What an item is known by.
pub(super) fn key_of(item: &Item) -> ItemKey {
    match item {
        Item::Route(route) => ItemKey::Route(route_key(&route.host, &route.path)),
        Item::App { app, .. } => ItemKey::App(app.clone()),
        Item::Space { space, .. } => ItemKey::Space(space.clone()),
        Item::Resource { resource, id, .. } => ItemKey::Resource { kind: resource.clone(), id: id.clone() },
    }
}

/// The key as the table names it when it refuses an item.
fn text_of(key: &ItemKey) -> String {
    key.to_string()
}

/// Whether two announcements of a cell say the same but for loads and the like.
fn serve_the_same(one: &CellAnnounce, other: &CellAnnounce) -> bool {
    let place = |cell: &CellAnnounce| {
        (
            cell.incarnation,
            cell.place.clone(),
            cell.address.clone(),
            cell.leaving,
            cell.desired,
            cell.priority,
        )
    };
    let same = |(one, other): (&InstanceReport, &InstanceReport)| {
        one.instance == other.instance
            && one.app == other.app
            && one.lane == other.lane
            && one.release == other.release
            && one.port == other.port
            && one.protocol == other.protocol
            && one.weight == other.weight
            && one.state == other.state
            && one.state_ms == other.state_ms
            && one.restarts == other.restarts
    };
    place(one) == place(other)
        && one.instances.len() == other.instances.len()
        && one.instances.iter().zip(&other.instances).all(same)
}

pub(super) fn endpoint(cell: &CellAnnounce, instance: &InstanceReport) -> Option<EndpointSpec> {
    let draining = instance.state == InstanceState::Draining;
    if instance.port == 0 || !(draining || instance.state.serves()) {
        return None;
    }
    Some(EndpointSpec {
        instance: instance.instance,
        start: instance.restarts,
        app: instance.app.clone(),
        lane: instance.lane.clone(),
        address: Address::parse(&cell.address, instance.port),
        place: cell.place.clone(),
        protocol: instance.protocol,
        weight: instance.weight,
        priority: cell.priority,
        draining,
        healthy: instance.state == InstanceState::Ready || draining,
        ready_ms: if instance.state == InstanceState::Ready { instance.state_ms } else { u64::MAX },
        load: Some(ReportedLoad { host: cell.host, instance: instance.load }),
    })
}
