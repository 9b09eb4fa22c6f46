//! A gateway without traffic: it follows cells and managers, keeps their table, and reports how far it has heard.

use super::link::Link;
use super::world::{Gate, World};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use towpath_bus::{Bus, MemoryBus};
use towpath_types::{CellId, GatewayId, Incarnation, InstanceId, Place, Revision};
use towpath_wire::cell::CellAnnounce;
use towpath_wire::gateway::{
    GatewayDelta, GatewayReport, Heard, Item, ItemKey, SnapshotPage, SnapshotRequest,
};
use towpath_wire::{decode, encode, subject};

/// Silence after which a cell's endpoints are dropped.
const EXPIRY: Duration = Duration::from_secs(10);
/// Between two reports.
const REPORT: Duration = Duration::from_secs(2);

/// The table.
pub(super) type Items = BTreeMap<ItemKey, Item>;

/// One gateway.
pub(super) struct SimGateway {
    pub(super) gate: Arc<Gate>,
    state: Arc<Mutex<State>>,
}

struct State {
    id: GatewayId,
    revision: Revision,
    epoch: u64,
    items: Items,
    cells: BTreeMap<CellId, Known>,
    world: Arc<World>,
}

/// What one cell has said last.
struct Known {
    heard: Heard,
    at: Instant,
    serving: Vec<InstanceId>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimGateway {
    pub(super) fn start(world: &Arc<World>, bus: &MemoryBus) -> Self {
        let id = GatewayId::mint(1, world.bytes());
        let gate = Gate::new(format!("gateway {}", id.short()));
        let state = State {
            id,
            revision: Revision(0),
            epoch: 0,
            items: Items::new(),
            cells: BTreeMap::new(),
            world: world.clone(),
        };
        let state = Arc::new(Mutex::new(state));
        let link = Link::new(world.clone(), gate.clone(), bus.clone());
        tokio::spawn(run(link, gate.clone(), state.clone()));
        Self { gate, state }
    }

    /// Where it would send requests.
    pub(super) fn endpoints(&self) -> Vec<InstanceId> {
        let state = lock(&self.state);
        let mut all: Vec<InstanceId> =
            state.cells.values().flat_map(|known| known.serving.iter().copied()).collect();
        all.sort_unstable();
        all
    }

    /// Its table.
    pub(super) fn items(&self) -> Items {
        lock(&self.state).items.clone()
    }

    /// Revision of its table.
    pub(super) fn revision(&self) -> Revision {
        lock(&self.state).revision
    }
}

async fn run(link: Link, gate: Arc<Gate>, state: Arc<Mutex<State>>) {
    let id = lock(&state).id;
    let (Ok(mut cells), Ok(mut deltas)) =
        (link.subscribe(subject::CELL_ANNOUNCE_ALL).await, link.subscribe(subject::GATEWAY_DELTA).await)
    else {
        return;
    };
    let mut reported: Option<Instant> = None;
    loop {
        let news = tokio::select! {
            biased;
            Some(message) = cells.next() => {
                decode(&message.payload).is_ok_and(|announce| lock(&state).hear(announce))
            }
            Some(message) = deltas.next() => match decode(&message.payload) {
                Ok(delta) => {
                    if !lock(&state).take(&delta) {
                        snapshot(&link, id, &state).await;
                    }
                    true
                }
                Err(_) => false,
            },
            () = tokio::time::sleep(Duration::from_millis(500)) => false,
        };
        gate.pass().await;
        let expired = !gate.is_isolated() && lock(&state).expire();
        if news || expired || reported.is_none_or(|at| at.elapsed() >= REPORT) {
            reported = Some(Instant::now());
            let report = lock(&state).report();
            drop(link.publish(&subject::gateway_report(id), encode(&report).into()).await);
        }
    }
}

async fn snapshot(bus: &Link, gateway: GatewayId, state: &Mutex<State>) {
    let (mut cursor, mut epoch, mut at) = (None, lock(state).epoch, Revision(u64::MAX));
    let (mut items, mut first) = (Items::new(), true);
    loop {
        let request = SnapshotRequest { gateway, cursor, epoch, at_least: lock(state).revision };
        let is_first = std::mem::take(&mut first);
        let asked = bus.request(subject::GATEWAY_SNAPSHOT, encode(&request).into(), Duration::from_secs(2));
        let Ok(answer) = asked.await else { return };
        let Ok(page) = decode::<SnapshotPage>(&answer) else { return };
        // Pages of different epochs do not mix.
        if page.epoch < epoch || (!is_first && page.epoch != epoch) {
            return;
        }
        (epoch, at) = (page.epoch, at.min(page.revision));
        items.extend(page.items.into_iter().map(|item| (key_of(&item), item)));
        cursor = page.next;
        if cursor.is_none() {
            return lock(state).replace(epoch, at, items);
        }
    }
}

fn key_of(item: &Item) -> ItemKey {
    match item {
        Item::Route(route) => ItemKey::Route(format!("{}{}", route.host, route.path)),
        Item::App { app, .. } => ItemKey::App(app.clone()),
        Item::Space { space, .. } => ItemKey::Space(space.clone()),
        Item::Resource { resource, id, .. } => ItemKey::Resource { kind: resource.clone(), id: id.clone() },
    }
}

impl State {
    /// Whether anything of it is new: an instance that serves or serves no more.
    fn hear(&mut self, announce: CellAnnounce) -> bool {
        let heard = Heard { incarnation: announce.incarnation, seq: announce.seq };
        let before = self.cells.get(&announce.cell);
        // Announcements overtake each other; an old one says nothing.
        if before
            .is_some_and(|known| (known.heard.incarnation, known.heard.seq) >= (heard.incarnation, heard.seq))
        {
            return false;
        }
        let serving: Vec<InstanceId> =
            announce.instances.iter().filter(|report| report.state.serves()).map(|r| r.instance).collect();
        let news = before.is_none_or(|known| known.serving != serving);
        self.cells.insert(announce.cell, Known { heard, at: Instant::now(), serving });
        news
    }

    /// Takes a delta; `false` = something was missed.
    fn take(&mut self, delta: &GatewayDelta) -> bool {
        if delta.epoch < self.epoch {
            return true;
        }
        self.epoch = delta.epoch;
        if delta.from > self.revision {
            return false;
        }
        if delta.to <= self.revision {
            return true;
        }
        for key in &delta.delete {
            self.items.remove(key);
        }
        self.items.extend(delta.put.iter().map(|item| (key_of(item), item.clone())));
        self.reach(self.revision.max(delta.to));
        true
    }

    /// Takes over a table.
    fn replace(&mut self, epoch: u64, revision: Revision, items: Items) {
        if epoch < self.epoch || revision < self.revision {
            return self
                .world
                .note(format_args!("a gateway was offered {revision}, it has {}", self.revision));
        }
        (self.epoch, self.items) = (epoch, items);
        self.reach(revision);
    }

    fn reach(&mut self, revision: Revision) {
        if revision < self.revision {
            self.world.note(format_args!("a gateway was offered {revision}, it has {}", self.revision));
        }
        self.revision = self.revision.max(revision);
    }

    fn expire(&mut self) -> bool {
        // Silence of all is not death of all.
        if self.cells.values().all(|known| known.at.elapsed() >= EXPIRY) {
            return false;
        }
        let mut expired = false;
        for known in self.cells.values_mut().filter(|known| known.at.elapsed() >= EXPIRY) {
            expired |= !known.serving.is_empty();
            known.serving.clear();
        }
        expired
    }

    fn report(&self) -> GatewayReport {
        GatewayReport {
            gateway: self.id,
            incarnation: Incarnation(1),
            place: Place::default(),
            version: "simulated".into(),
            listeners: Vec::new(),
            revision: self.revision,
            heard: self.cells.iter().map(|(cell, known)| (*cell, known.heard)).collect(),
            draining: BTreeMap::new(),
            refused: BTreeMap::new(),
            leaving: false,
        }
    }
}
