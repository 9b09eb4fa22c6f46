//! A cell without processes: it obeys, announces and lets its instances age as the real one does.

use super::link::Link;
use super::sabotage::Sabotage;
use super::world::{Gate, World};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use towpath_bus::{Bus, MemoryBus};
use towpath_types::load::{HostLoad, InstanceLoad};
use towpath_types::spec::Wanted;
use towpath_types::{CellId, Incarnation, InstanceId, Place, Revision};
use towpath_wire::cell::{
    CellAnnounce, CellPoke, InstanceReport, InstanceSpec, InstanceState, Stamps, SyncPage, SyncRequest,
};
use towpath_wire::{decode, encode, subject};

/// Memory of a cell.
const MEMORY: u64 = 64 << 30;
/// Between two announcements, as the real cell does it.
const ANNOUNCE: Duration = Duration::from_secs(2);
/// Between two looks at what is wanted without being asked to look.
const RESYNC: Duration = Duration::from_secs(10);
/// Longest wait for one page.
const PAGE: Duration = Duration::from_secs(5);

/// Which cell runs which instance, over the whole cluster.
pub(super) type Registry = Arc<Mutex<BTreeMap<InstanceId, CellId>>>;

/// One machine with its cell.
pub(super) struct SimCell {
    pub(super) id: CellId,
    pub(super) gate: Arc<Gate>,
    state: Arc<Mutex<State>>,
}

struct State {
    id: CellId,
    place: Place,
    incarnation: Incarnation,
    seq: u64,
    epoch: u64,
    desired: Revision,
    specs: BTreeMap<InstanceId, InstanceSpec>,
    stamps: Stamps,
    lives: BTreeMap<InstanceId, (InstanceState, Instant)>,
    registry: Registry,
    world: Arc<World>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimCell {
    /// Starts a cell on an empty machine.
    pub(super) fn start(
        world: &Arc<World>,
        bus: &MemoryBus,
        registry: &Registry,
        id: CellId,
        incarnation: u64,
        place: Place,
    ) -> Self {
        let gate = Gate::new(format!("cell {}", id.short()));
        let state = Arc::new(Mutex::new(State {
            id,
            place,
            incarnation: Incarnation(incarnation),
            seq: 0,
            epoch: 0,
            desired: Revision(0),
            specs: BTreeMap::new(),
            stamps: Stamps::new(),
            lives: BTreeMap::new(),
            registry: registry.clone(),
            world: world.clone(),
        }));
        let link = Link::new(world.clone(), gate.clone(), bus.clone());
        tokio::spawn(run(link, gate.clone(), state.clone()));
        Self { id, gate, state }
    }

    /// Pulls the plug: the instances end with the machine.
    pub(super) fn kill(&self) {
        self.gate.kill();
        let mut state = lock(&self.state);
        let registry = state.registry.clone();
        let mut registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
        for (instance, _) in std::mem::take(&mut state.lives) {
            registry.remove(&instance);
        }
    }

    pub(super) fn place(&self) -> Place {
        lock(&self.state).place.clone()
    }

    /// What runs, and how.
    pub(super) fn lives(&self) -> BTreeMap<InstanceId, InstanceState> {
        lock(&self.state).lives.iter().map(|(id, (life, _))| (*id, *life)).collect()
    }

    /// An instance ends by itself; the cell will start it again.
    pub(super) fn crash_one(&self) {
        let mut state = lock(&self.state);
        let ready: Vec<InstanceId> =
            state.lives.iter().filter(|(_, (life, _))| life.serves()).map(|(id, _)| *id).collect();
        let nth = state.world.up_to(ready.len().saturating_sub(1) as u64);
        if let Some(instance) = ready.get(usize::try_from(nth).unwrap_or_default()) {
            state.lives.insert(*instance, (InstanceState::Backoff, Instant::now()));
        }
    }
}

async fn run(link: Link, gate: Arc<Gate>, state: Arc<Mutex<State>>) {
    let id = lock(&state).id;
    let Ok(mut pokes) = link.subscribe(&subject::cell_poke(id)).await else { return };
    let mut at_least = Revision(0);
    let mut announced: Option<Instant> = None;
    let mut synced: Option<Instant> = None;
    loop {
        let poked = tokio::select! {
            biased;
            poke = pokes.next() => poke,
            () = tokio::time::sleep(Duration::from_millis(50)) => None,
        };
        gate.pass().await;
        if let Some(Ok(poke)) = poked.map(|message| decode::<CellPoke>(&message.payload))
            && poke.epoch >= lock(&state).epoch
        {
            at_least = at_least.max(poke.revision);
            synced = None;
        }
        if synced.is_none_or(|at| at.elapsed() >= RESYNC) {
            match sync(&link, &gate, id, &state, at_least).await {
                true => synced = Some(Instant::now()),
                false => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
        let changed = lock(&state).live();
        if changed || announced.is_none_or(|at| at.elapsed() >= ANNOUNCE) {
            announced = Some(Instant::now());
            let announce = lock(&state).announce();
            drop(link.publish(&subject::cell_announce(id), encode(&announce).into()).await);
        }
    }
}

/// Asks what to run, and obeys unless something newer was obeyed before. `false` = ask again.
async fn sync(bus: &Link, gate: &Gate, cell: CellId, state: &Mutex<State>, at_least: Revision) -> bool {
    let (mut specs, mut stamps) = (BTreeMap::new(), Stamps::new());
    let (mut cursor, mut of) = (None, None);
    let incarnation = lock(state).incarnation;
    loop {
        let (epoch, known) = {
            let state = lock(state);
            (state.epoch, state.stamps.clone())
        };
        let request = SyncRequest { cell, incarnation, cursor, at_least, epoch, proof: None, known };
        let Ok(answer) = bus.request(subject::CELL_SYNC, encode(&request).into(), PAGE).await else {
            return false;
        };
        let Ok(page) = decode::<SyncPage>(&answer) else { return false };
        if *of.get_or_insert((page.epoch, page.revision)) != (page.epoch, page.revision) {
            return false;
        }
        specs.extend(page.instances.into_iter().map(|spec| (spec.instance, spec)));
        stamps.extend(page.stamps);
        for kept in page.kept {
            let state = lock(state);
            let (Some(spec), Some(stamp)) = (state.specs.get(&kept), state.stamps.get(&kept)) else {
                state
                    .world
                    .breaks(format!("cell {} is to keep {kept}, which it does not have", state.id.short()));
                return false;
            };
            specs.insert(kept, spec.clone());
            stamps.insert(kept, *stamp);
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    // A paused cell does not obey.
    gate.pass().await;
    let Some((epoch, revision)) = of else { return false };
    let mut state = lock(state);
    let obeys_all = state.world.sabotage() == Some(Sabotage::Epochs);
    if !obeys_all && (epoch < state.epoch || revision < state.desired) {
        return false;
    }
    state.obey(epoch, revision, specs);
    state.stamps = stamps;
    true
}

impl State {
    fn obey(&mut self, epoch: u64, revision: Revision, specs: BTreeMap<InstanceId, InstanceSpec>) {
        if epoch < self.epoch || revision < self.desired {
            let now = format!("{}/{}", self.epoch, self.desired);
            self.world.breaks(format!("cell {} obeyed {epoch}/{revision} after {now}", self.id.short()));
        }
        (self.epoch, self.desired) = (epoch, revision);
        let leaves = self.world.sabotage() == Some(Sabotage::Leftovers);
        let registry = self.registry.clone();
        let mut registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
        self.lives.retain(|instance, _| {
            let stays = leaves || specs.contains_key(instance);
            if !stays {
                registry.remove(instance);
            }
            stays
        });
        for instance in specs.keys() {
            if self.lives.contains_key(instance) {
                continue;
            }
            self.lives.insert(*instance, (InstanceState::Starting, Instant::now()));
            self.world.note_start();
            if let Some(other) = registry.insert(*instance, self.id)
                && other != self.id
            {
                self.world.breaks(format!("instance {instance} runs on {other} and on {}", self.id));
            }
        }
        self.world.note(format_args!(
            "cell {} obeys {epoch}/{revision}: {} instances",
            self.id.short(),
            specs.len()
        ));
        self.specs = specs;
    }

    /// Instances go on with their lives; whether any changed.
    fn live(&mut self) -> bool {
        let mut changed = false;
        for (instance, (life, since)) in &mut self.lives {
            let Some(spec) = self.specs.get(instance) else { continue };
            let age = since.elapsed();
            let next = match (spec.wanted, *life) {
                (Wanted::Drain, InstanceState::Draining) => continue,
                (Wanted::Drain, _) => InstanceState::Draining,
                (_, InstanceState::Starting) if age >= Duration::from_millis(300) => InstanceState::Ready,
                (_, InstanceState::Backoff) if age >= Duration::from_secs(1) => InstanceState::Starting,
                // Wanted again after it was drained.
                (Wanted::Run, InstanceState::Draining) => InstanceState::Ready,
                _ => continue,
            };
            (*life, *since) = (next, Instant::now());
            changed = true;
        }
        changed
    }

    fn announce(&mut self) -> CellAnnounce {
        self.seq += 1;
        let report = |(id, (life, since)): (&InstanceId, &(InstanceState, Instant))| {
            let spec = self.specs.get(id)?;
            Some(InstanceReport {
                instance: *id,
                app: spec.app.clone(),
                lane: spec.lane.clone(),
                release: spec.release,
                port: 4000,
                protocol: spec.protocol,
                weight: 100,
                state: *life,
                state_ms: u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
                restarts: 0,
                reason: String::new(),
                load: InstanceLoad::default(),
                memory_bytes: 0,
                pid: 1,
                memory_limit: 0,
            })
        };
        CellAnnounce {
            cell: self.id,
            incarnation: self.incarnation,
            seq: self.seq,
            place: self.place.clone(),
            address: "127.0.0.1".into(),
            version: "simulated".into(),
            driver: "simulated".into(),
            memory_bytes: MEMORY,
            cores: 16,
            host: HostLoad::default(),
            cordoned: false,
            leaving: false,
            desired: self.desired,
            builders: Vec::new(),
            troubles: Vec::new(),
            ports: None,
            priority: 0,
            instances: self.lives.iter().filter_map(report).collect(),
        }
    }
}
