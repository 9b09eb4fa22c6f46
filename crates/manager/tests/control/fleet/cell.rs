//! A cell that runs nothing but says it does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use towpath_bus::{Bus, Message};
use towpath_secrets::Recipient;
use towpath_types::load::{HostLoad, InstanceLoad};
use towpath_types::spec::Wanted;
use towpath_types::{CellId, Digest, Incarnation, InstanceId, Place, Revision};
use towpath_wire::cell::{
    CellAnnounce, CellCommand, CellPoke, CellReply, InstanceReport, InstanceSpec, InstanceState,
    PlainSecrets, Stamps, SyncPage, SyncRequest,
};
use towpath_wire::{decode, encode, subject};

/// What instances of a release do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Script {
    /// Are ready soon.
    Ready,
    /// Starting for ever.
    Never,
    /// Crash at once, again and again.
    Crash,
}

#[derive(Debug, Default)]
struct State {
    seq: u64,
    desired: Revision,
    epoch: u64,
    specs: BTreeMap<InstanceId, InstanceSpec>,
    stamps: Stamps,
    /// SHA-256 of the cells' token, if it has one.
    token: Option<Digest>,
    secrets: PlainSecrets,
    withheld: BTreeMap<InstanceId, String>,
    states: BTreeMap<InstanceId, (InstanceState, Instant2, u32)>,
    scripts: BTreeMap<Digest, Script>,
    muted: bool,
    cordoned: bool,
    /// Pokes and commands that still get lost.
    lost: (u32, u32),
    /// Announcements are repeated, and the one before comes after.
    repeats: bool,
    before: Option<CellAnnounce>,
    memory: u64,
    /// Instances stopped because they were no more in the set.
    stopped: Vec<InstanceId>,
    /// Instances take long to stop.
    lingers: bool,
    /// Those that were told to stop, and have not.
    ending: BTreeMap<InstanceId, InstanceSpec>,
}

type Instant2 = Option<Instant>;

/// The cell; ends when dropped.
pub(crate) struct FakeCell {
    pub(crate) id: CellId,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Drop for FakeCell {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeCell {
    pub(crate) async fn start(bus: Arc<dyn Bus>) -> Self {
        let mut random = [0; 10];
        fastrand::fill(&mut random);
        let id = CellId::mint(1, random);
        let state = Arc::new(Mutex::new(State { memory: 8 << 30, ..State::default() }));
        let task = tokio::spawn(run(bus, id, state.clone()));
        Self { id, state, task }
    }

    /// How instances of a release behave from now on.
    pub(crate) fn script(&self, release: Digest, script: Script) {
        self.state.lock().unwrap().scripts.insert(release, script);
    }

    /// It knows a cells' token from now on, and asks for secrets with it.
    pub(crate) fn trust(&self, token: Option<Digest>) {
        self.state.lock().unwrap().token = token;
    }

    /// The secrets that it was given, and those that were kept from it.
    pub(crate) fn secrets(&self) -> (PlainSecrets, BTreeMap<InstanceId, String>) {
        let state = self.state.lock().unwrap();
        (state.secrets.clone(), state.withheld.clone())
    }

    /// Says nothing and hears nothing any more, or again.
    pub(crate) fn mute(&self, muted: bool) {
        self.state.lock().unwrap().muted = muted;
    }

    /// So many pokes and commands to it get lost.
    pub(crate) fn lose(&self, pokes: u32, commands: u32) {
        self.state.lock().unwrap().lost = (pokes, commands);
    }

    /// What it says comes twice, and old news after new.
    pub(crate) fn repeat(&self) {
        self.state.lock().unwrap().repeats = true;
    }

    /// Whether it was told to take no new instances.
    pub(crate) fn cordoned(&self) -> bool {
        self.state.lock().unwrap().cordoned
    }

    /// It has obeyed this epoch at this revision before.
    pub(crate) fn has_obeyed(&self, epoch: u64, revision: u64) {
        let mut state = self.state.lock().unwrap();
        (state.epoch, state.desired) = (epoch, Revision(revision));
    }

    /// What it was told to run.
    pub(crate) fn specs(&self) -> Vec<InstanceSpec> {
        self.state.lock().unwrap().specs.values().cloned().collect()
    }

    /// Whether instances that are told to stop take long, until this says otherwise.
    pub(crate) fn linger(&self, lingers: bool) {
        let mut state = self.state.lock().unwrap();
        state.lingers = lingers;
        if !lingers {
            state.ending.clear();
        }
    }

    /// Those that were stopped.
    pub(crate) fn stopped(&self) -> Vec<InstanceId> {
        self.state.lock().unwrap().stopped.clone()
    }

    /// Sets the state of an instance.
    pub(crate) fn set(&self, instance: InstanceId, to: InstanceState) {
        let mut state = self.state.lock().unwrap();
        let restarts = state.states.get(&instance).map_or(0, |(_, _, restarts)| *restarts);
        state.states.insert(instance, (to, Some(Instant::now()), restarts));
    }

    /// The states of its instances.
    pub(crate) fn states(&self) -> Vec<InstanceState> {
        self.state.lock().unwrap().states.values().map(|(state, _, _)| *state).collect()
    }
}

async fn run(bus: Arc<dyn Bus>, id: CellId, state: Arc<Mutex<State>>) {
    let mut pokes = bus.subscribe(&subject::cell_poke(id)).await.unwrap();
    let mut commands = bus.subscribe(&subject::cell_command(id)).await.unwrap();
    let mut at_least = Revision(0);
    let mut announced = Instant::now();
    let mut synced: Option<Instant> = None;
    loop {
        let poked = tokio::select! {
            poke = pokes.next() => poke.filter(|_| !is_lost(&mut state.lock().unwrap().lost.0)),
            Some(message) = commands.next() => {
                if !is_lost(&mut state.lock().unwrap().lost.1) {
                    obey(&*bus, &state, message).await;
                }
                None
            }
            () = tokio::time::sleep(Duration::from_millis(10)) => None,
        };
        if state.lock().unwrap().muted {
            continue;
        }
        if let Some(message) = poked {
            let poke: CellPoke = decode(&message.payload).unwrap();
            at_least = at_least.max(poke.revision);
            synced = None;
        }
        if synced.is_none_or(|at| at.elapsed() > Duration::from_secs(5))
            && sync(&*bus, id, &state, at_least).await
        {
            synced = Some(Instant::now());
        }
        let changed = live(&state);
        if changed || announced.elapsed() > Duration::from_millis(500) || state.lock().unwrap().seq == 0 {
            announced = Instant::now();
            let announce = announce(id, &state);
            drop(bus.publish(&subject::cell_announce(id), encode(&announce).into()).await);
            let before = state.lock().unwrap().before.replace(announce.clone());
            if state.lock().unwrap().repeats {
                for again in before.into_iter().chain([announce]) {
                    drop(bus.publish(&subject::cell_announce(id), encode(&again).into()).await);
                }
            }
        }
    }
}

/// Counts down what gets lost.
fn is_lost(left: &mut u32) -> bool {
    let lost = *left > 0;
    *left = left.saturating_sub(1);
    lost
}

async fn obey(bus: &dyn Bus, state: &Mutex<State>, message: Message) {
    let (Ok(CellCommand::Cordon { on }), Some(reply)) = (decode(&message.payload), message.reply) else {
        return;
    };
    state.lock().unwrap().cordoned = on;
    drop(bus.publish(&reply, encode(&CellReply::Accepted).into()).await);
}

async fn sync(bus: &dyn Bus, cell: CellId, state: &Mutex<State>, at_least: Revision) -> bool {
    let (mut secrets, mut withheld) = (PlainSecrets::new(), BTreeMap::new());
    let (mut specs, mut stamps) = (BTreeMap::new(), Stamps::new());
    let mut cursor = None;
    let (mut revision, mut epoch) = (None, 0);
    loop {
        let (obeyed, known) = {
            let state = state.lock().unwrap();
            (state.epoch, state.stamps.clone())
        };
        let incarnation = Incarnation(1);
        let mut request =
            SyncRequest { cell, incarnation, cursor, at_least, epoch: obeyed, proof: None, known };
        let (who, token) = (request.who(), state.lock().unwrap().token);
        let recipient = token.map(|token| Recipient::new(token).unwrap());
        request.proof = recipient.as_ref().map(|recipient| recipient.proof(&who));
        let answer = bus.request(subject::CELL_SYNC, encode(&request).into(), Duration::from_secs(2)).await;
        let Ok(answer) = answer else { return false };
        let page: SyncPage = decode(&answer).unwrap();
        assert!(page.revision >= at_least);
        if *revision.get_or_insert(page.revision) != page.revision {
            return false;
        }
        epoch = page.epoch.max(epoch);
        if let (Some(recipient), Some(parcel)) = (recipient, &page.parcel) {
            // What a stranger has made is as good as nothing.
            if let Ok(plain) = recipient.open(&who, parcel) {
                secrets.append(&mut serde_json::from_str(plain.expose()).unwrap());
            }
        }
        withheld.extend(page.withheld);
        specs.extend(page.instances.into_iter().map(|spec| (spec.instance, spec)));
        stamps.extend(page.stamps);
        for kept in page.kept {
            let state = state.lock().unwrap();
            specs.insert(kept, state.specs[&kept].clone());
            stamps.insert(kept, state.stamps[&kept]);
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let mut state = state.lock().unwrap();
    let revision = revision.unwrap();
    if (epoch, revision) < (state.epoch, state.desired) {
        return true;
    }
    (state.epoch, state.desired) = (epoch, revision);
    let gone: Vec<InstanceId> = state.states.keys().filter(|id| !specs.contains_key(*id)).copied().collect();
    for id in gone {
        state.states.remove(&id);
        state.stopped.push(id);
        if let Some(spec) = state.specs.get(&id).filter(|_| state.lingers).cloned() {
            state.ending.insert(id, spec);
        }
    }
    (state.specs, state.stamps, state.secrets, state.withheld) = (specs, stamps, secrets, withheld);
    true
}

/// Instances go on with their lives; whether any changed.
fn live(state: &Mutex<State>) -> bool {
    let mut state = state.lock().unwrap();
    let now = Instant::now();
    let mut changed = false;
    let specs: Vec<InstanceSpec> = state.specs.values().cloned().collect();
    for spec in specs {
        let script = state.scripts.get(&spec.release).copied().unwrap_or(Script::Ready);
        let entry = state.states.entry(spec.instance).or_insert((InstanceState::Starting, Some(now), 0));
        let age = entry.1.map_or(Duration::ZERO, |at| at.elapsed());
        let next = match (spec.wanted, entry.0, script) {
            (Wanted::Drain, InstanceState::Draining, _) => None,
            (Wanted::Drain, _, _) => Some(InstanceState::Draining),
            (_, InstanceState::Starting, Script::Ready) if age > Duration::from_millis(20) => {
                Some(InstanceState::Ready)
            }
            (_, InstanceState::Starting, Script::Crash) => {
                entry.2 += 1;
                Some(InstanceState::Backoff)
            }
            (_, InstanceState::Backoff, _) if age > Duration::from_millis(50) => {
                Some(InstanceState::Starting)
            }
            _ => None,
        };
        if let Some(next) = next {
            entry.0 = next;
            entry.1 = Some(now);
            changed = true;
        }
    }
    changed
}

fn announce(cell: CellId, state: &Mutex<State>) -> CellAnnounce {
    let mut state = state.lock().unwrap();
    state.seq += 1;
    let report =
        |spec: &InstanceSpec, (life, at, restarts): &(InstanceState, Instant2, u32)| InstanceReport {
            instance: spec.instance,
            app: spec.app.clone(),
            lane: spec.lane.clone(),
            release: spec.release,
            port: 4000,
            protocol: spec.protocol,
            weight: 100,
            state: *life,
            state_ms: at.map_or(0, |at| at.elapsed().as_millis() as u64),
            restarts: *restarts,
            reason: "exited with status 1".into(),
            load: InstanceLoad::default(),
            memory_bytes: 0,
            pid: 1,
            memory_limit: match life {
                InstanceState::Draining | InstanceState::Stopping => {
                    spec.limits.memory.map_or(0, |limit| limit.0)
                }
                _ => 0,
            },
        };
    let living = state.states.iter().filter_map(|(id, life)| Some(report(state.specs.get(id)?, life)));
    let ending = state.ending.values().map(|spec| report(spec, &(InstanceState::Stopping, None, 0)));
    CellAnnounce {
        cell,
        incarnation: Incarnation(1),
        seq: state.seq,
        place: Place::default(),
        address: "127.0.0.1".into(),
        version: "test".into(),
        driver: "fake".into(),
        memory_bytes: state.memory,
        cores: 1,
        host: HostLoad::default(),
        cordoned: state.cordoned,
        leaving: false,
        desired: state.desired,
        builders: vec![],
        troubles: Vec::new(),
        ports: None,
        priority: 0,
        instances: living.chain(ending).collect(),
    }
}
