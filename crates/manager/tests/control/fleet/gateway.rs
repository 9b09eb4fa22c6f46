//! A gateway that serves nothing but hears everything, and reports so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use towpath_bus::Bus;
use towpath_types::{CellId, GatewayId, Incarnation, InstanceId, Place, Revision};
use towpath_wire::cell::{CellAnnounce, InstanceState};
use towpath_wire::gateway::{
    GatewayDelta, GatewayReport, Heard, Item, ItemKey, SnapshotPage, SnapshotRequest,
};
use towpath_wire::{decode, encode, subject};

#[derive(Debug, Default)]
struct State {
    revision: Revision,
    items: BTreeMap<ItemKey, Item>,
    heard: BTreeMap<CellId, Heard>,
    endpoints: BTreeMap<InstanceId, CellId>,
    draining: BTreeSet<InstanceId>,
    /// Requests that draining instances still have.
    in_flight: u64,
    deaf: bool,
    /// What it cannot use, and why.
    refused: BTreeMap<String, String>,
    snapshots: u32,
    deltas: Vec<GatewayDelta>,
}

/// The gateway; ends when dropped.
pub(crate) struct FakeGateway {
    pub(crate) id: GatewayId,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Drop for FakeGateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeGateway {
    pub(crate) async fn start(bus: Arc<dyn Bus>) -> Self {
        let mut random = [0; 10];
        fastrand::fill(&mut random);
        let id = GatewayId::mint(1, random);
        let state = Arc::new(Mutex::new(State::default()));
        let task = tokio::spawn(run(bus, id, state.clone()));
        Self { id, state, task }
    }

    /// Where it would send requests.
    pub(crate) fn endpoints(&self) -> Vec<InstanceId> {
        self.state.lock().unwrap().endpoints.keys().copied().collect()
    }

    /// Its routing table.
    pub(crate) fn items(&self) -> BTreeMap<ItemKey, Item> {
        self.state.lock().unwrap().items.clone()
    }

    /// Its table's revision.
    pub(crate) fn revision(&self) -> Revision {
        self.state.lock().unwrap().revision
    }

    /// Does not hear cells any more, but reports on; or hears again.
    pub(crate) fn deafen(&self, deaf: bool) {
        self.state.lock().unwrap().deaf = deaf;
    }

    /// Has something against an item from now on.
    pub(crate) fn refuse(&self, item: &str, why: &str) {
        self.state.lock().unwrap().refused.insert(item.into(), why.into());
    }

    /// How many requests each draining instance still has.
    pub(crate) fn set_in_flight(&self, requests: u64) {
        self.state.lock().unwrap().in_flight = requests;
    }

    /// Snapshots asked for so far.
    pub(crate) fn snapshots(&self) -> u32 {
        self.state.lock().unwrap().snapshots
    }

    /// All deltas received.
    pub(crate) fn deltas(&self) -> Vec<GatewayDelta> {
        self.state.lock().unwrap().deltas.clone()
    }
}

async fn run(bus: Arc<dyn Bus>, id: GatewayId, state: Arc<Mutex<State>>) {
    let mut cells = bus.subscribe(subject::CELL_ANNOUNCE_ALL).await.unwrap();
    let mut deltas = bus.subscribe(subject::GATEWAY_DELTA).await.unwrap();
    let mut reported = None::<Instant>;
    loop {
        let mut news = false;
        tokio::select! {
            message = cells.next() => {
                let announce: CellAnnounce = decode(&message.unwrap().payload).unwrap();
                news = hear(&mut state.lock().unwrap(), announce);
            }
            message = deltas.next() => {
                let delta: GatewayDelta = decode(&message.unwrap().payload).unwrap();
                news = true;
                if !take(&mut state.lock().unwrap(), delta) {
                    snapshot(&*bus, id, &state).await;
                }
            }
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
        if news || reported.is_none_or(|at| at.elapsed() > Duration::from_secs(1)) {
            reported = Some(Instant::now());
            let report = report(id, &state.lock().unwrap());
            drop(bus.publish(&subject::gateway_report(id), encode(&report).into()).await);
        }
    }
}

fn hear(state: &mut State, announce: CellAnnounce) -> bool {
    if state.deaf {
        return false;
    }
    state.endpoints.retain(|_, cell| *cell != announce.cell);
    for report in &announce.instances {
        if report.state.serves() {
            state.endpoints.insert(report.instance, announce.cell);
        }
        if report.state == InstanceState::Draining {
            state.draining.insert(report.instance);
        }
    }
    let heard = Heard { incarnation: announce.incarnation, seq: announce.seq };
    state.heard.insert(announce.cell, heard);
    true
}

/// Applies a delta; `false` = something was missed.
fn take(state: &mut State, delta: GatewayDelta) -> bool {
    state.deltas.push(delta.clone());
    if delta.from > state.revision {
        return false;
    }
    for item in delta.put {
        state.items.insert(key_of(&item), item);
    }
    for key in &delta.delete {
        state.items.remove(key);
    }
    state.revision = state.revision.max(delta.to);
    true
}

fn key_of(item: &Item) -> ItemKey {
    match item {
        Item::Route(route) => ItemKey::Route(format!("{}{}", route.host, route.path)),
        Item::App { app, .. } => ItemKey::App(app.clone()),
        Item::Space { space, .. } => ItemKey::Space(space.clone()),
        Item::Resource { resource, id, .. } => ItemKey::Resource { kind: resource.clone(), id: id.clone() },
    }
}

async fn snapshot(bus: &dyn Bus, gateway: GatewayId, state: &Mutex<State>) {
    let mut items = BTreeMap::new();
    let (mut cursor, mut epoch, mut at) = (None, 0, Revision(u64::MAX));
    loop {
        let request = SnapshotRequest { gateway, cursor, epoch, at_least: Revision(0) };
        let answer =
            bus.request(subject::GATEWAY_SNAPSHOT, encode(&request).into(), Duration::from_secs(2)).await;
        let Ok(answer) = answer else { return };
        let page: SnapshotPage = decode(&answer).unwrap();
        (epoch, at) = (page.epoch, at.min(page.revision));
        items.extend(page.items.into_iter().map(|item| (key_of(&item), item)));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let mut state = state.lock().unwrap();
    state.snapshots += 1;
    state.items = items;
    state.revision = at;
}

fn report(gateway: GatewayId, state: &State) -> GatewayReport {
    let busy = |id: &InstanceId| (*id, state.in_flight);
    GatewayReport {
        gateway,
        incarnation: Incarnation(1),
        place: Place::default(),
        version: "test".into(),
        listeners: vec![],
        revision: state.revision,
        heard: state.heard.clone(),
        draining: state.draining.iter().map(busy).filter(|(_, requests)| *requests > 0).collect(),
        refused: state.refused.clone(),
        leaving: false,
    }
}
