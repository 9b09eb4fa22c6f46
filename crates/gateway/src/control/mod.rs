//! The control thread: bus, table, reports, snapshot file. Everything that is not the request path.

mod admin;
mod alone;
mod explain;
mod feed;
mod fetch;
mod identity;
mod incoming;
mod keys;
mod resources;
mod sharing;
mod signs;
mod snapshot_file;
mod state;
mod subscriptions;
#[cfg(test)]
mod tests;
mod told;

pub(crate) use identity::Identity;

use crate::clock;
use crate::hand_over::{Duty, Giver, Word};
use crate::listeners::Listeners;
use crate::metrics::{Registry, Sources};
use crate::resources::Resources;
use crate::settings::GatewaySettings;
use crate::sticky::StickyKey;
use crate::table::{SharedTable, View};
use crate::tls::Certificates;
use crate::vital::Vital;
use feed::Feed;
use keys::{Asked, Keys};
use state::{AnnounceOutcome, State};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use subscriptions::{Subscriptions, batch};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use towpath_bus::{Bus, BusState, Message, Subscription};
use towpath_telemetry::SeldomHere;
use towpath_types::InstanceId;
use towpath_wire::decode;

/// How often a report is sent without a change.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);
/// How often silence and draining are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Least time between two writes of the snapshot file.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(2);
/// Pause before subscriptions that were ended are made again.
const SUBSCRIBE_AGAIN: Duration = Duration::from_millis(200);
/// Pause before listeners that could not be opened are tried again.
pub(super) const LISTEN_AGAIN: Duration = Duration::from_secs(2);

/// What the control thread is made of.
pub(crate) struct ControlParts {
    pub(crate) settings: Arc<GatewaySettings>,
    pub(crate) identity: Identity,
    pub(crate) listeners: Listeners,
    pub(crate) shared: Arc<SharedTable>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) sticky: StickyKey,
    pub(crate) vital: Vital,
    pub(crate) state: State,
    /// Certificates of resources.
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) admin: Option<std::net::TcpListener>,
    pub(crate) bus: Option<Arc<dyn Bus>>,
    pub(crate) word: Word,
    /// Comes once another process may take over.
    pub(crate) giver: oneshot::Receiver<Offer>,
    /// Told once the first table is there.
    pub(crate) ready: Option<oneshot::Sender<()>>,
}

/// What waits for a process that takes over, and where.
pub(crate) type Offer = (Giver, std::os::unix::net::UnixListener);

/// The state that a data directory's snapshot gives; empty without one.
pub(crate) fn load_state(settings: &GatewaySettings) -> State {
    let mut state = State::new(settings.place.clone());
    // One that runs alone has all it knows from its source.
    let stored = if settings.resources.is_none() { snapshot_file::load(&settings.data_dir) } else { None };
    if let Some(stored) = stored {
        state.apply_snapshot(stored.revision, stored.items);
        for cell in stored.cells {
            state.apply_announce(cell, clock::now_ms());
        }
        state.commit(clock::now_ns());
    }
    state
}

/// A view of the state for the workers.
pub(crate) fn view_of(state: &State) -> View {
    View {
        table: state.table().clone(),
        inside: state.inside(),
        revision: state.revision(),
        plugins: None,
        loaded: state.is_loaded(),
    }
}

/// Serves metrics and health.
fn serve_admin(parts: &ControlParts, admin: std::net::TcpListener) {
    match tokio::net::TcpListener::from_std(admin) {
        Ok(admin) => {
            let answers = admin::Answers {
                registry: parts.registry.clone(),
                table: parts.shared.clone(),
                vital: parts.vital.clone(),
                certificates: parts.certificates.clone(),
                id: parts.identity.gateway,
                begun_s: clock::unix_ms() / 1000,
                rendering: Arc::default(),
            };
            let vital = parts.vital.clone();
            let mut duty = parts.word.duty.subscribe();
            tokio::task::spawn_local(async move {
                tokio::select! {
                    () = vital.watch("the admin listener", admin::run(admin, answers, admin::BOUNDS)) => {}
                    // Scrapes are the other process's affair.
                    _ = duty.wait_for(|duty| *duty == Duty::HandedOver) => {}
                }
            });
        }
        Err(error) => {
            tracing::error!(%error, "the admin listener cannot be used");
            parts.vital.fails("the admin listener");
        }
    }
}

/// Runs until told to stop.
pub(crate) async fn run(
    mut parts: ControlParts,
    leaving: watch::Receiver<bool>,
    stop: oneshot::Receiver<()>,
) {
    if let Some(admin) = parts.admin.take() {
        serve_admin(&parts, admin);
    }
    let source = parts.settings.resources.clone().map(|source| source.0);
    let (bus, mut compiled) =
        (parts.bus.filter(|_| source.is_none()), Resources::new(parts.certificates, &parts.settings.dns));
    let mut state = parts.state;
    let (answers, key_answers) = mpsc::channel(1);
    let mut keys = Keys::load(&parts.settings, parts.identity, answers);
    resources::apply(&mut state, &mut compiled, &mut keys);
    let (flush, flushes) = mpsc::channel(1);
    tokio::task::spawn_local(offer(parts.giver, bus.is_some().then_some(flush), parts.vital.clone()));
    let Some(bus) = bus else {
        let (shared, registry, listeners) = (parts.shared, parts.registry, parts.listeners);
        let alone =
            alone::Alone { source, shared, state, resources: compiled, registry, listeners, seen: None };
        return alone.run(parts.ready, stop).await;
    };
    let sharing = sharing::Sharing {
        gateway: parts.identity.gateway,
        bus: bus.clone(),
        shares: compiled.shares(),
        leaving: leaving.clone(),
    };
    let watched = parts.vital.clone();
    tokio::task::spawn_local(async move {
        watched.watch("the shared limits", sharing.run()).await;
    });
    let mut control = Control {
        settings: parts.settings,
        identity: parts.identity,
        listeners: parts.listeners,
        shared: parts.shared,
        state,
        resources: compiled,
        keys,
        sticky: parts.sticky,
        vital: parts.vital.clone(),
        registry: parts.registry,
        draining: BTreeMap::new(),
        feed: Feed::default(),
        dirty: false,
        changed: false,
        written: Instant::now(),
        writing: None,
        up_since_ms: None,
        bus_up: (false, clock::now_ms()),
        managers_ms: None,
        leaving: false,
        bus,
        word: parts.word,
        flushes,
        tried: Instant::now(),
    };
    // Those from the snapshot serve before anybody is heard.
    control.publish().await;
    let _ = parts.ready.map(|ready| ready.send(()));
    let stopped = tokio::select! {
        () = control.run(leaving, key_answers) => return,
        stopped = stop => stopped,
    };
    if stopped.is_ok() {
        control.finish().await;
    }
}

/// Waits for a process that takes over, once that may be.
async fn offer(
    giver: oneshot::Receiver<Offer>,
    flush: Option<mpsc::Sender<oneshot::Sender<()>>>,
    vital: Vital,
) {
    let Ok((giver, listener)) = giver.await else { return };
    let giver = Giver { flush, ..giver };
    vital.watch_passing("the hand-over", giver.run(listener)).await;
}

struct Control {
    settings: Arc<GatewaySettings>,
    identity: Identity,
    listeners: Listeners,
    shared: Arc<SharedTable>,
    state: State,
    /// Resources that managers have sent, compiled.
    resources: Resources,
    /// What opens secrets in them.
    keys: Keys,
    sticky: StickyKey,
    vital: Vital,
    registry: Arc<Registry>,
    bus: Arc<dyn Bus>,
    /// In flight to draining instances, as last reported.
    draining: BTreeMap<InstanceId, u64>,
    feed: Feed,
    /// The snapshot file is behind.
    dirty: bool,
    /// Managers have not been told yet.
    changed: bool,
    written: Instant,
    /// The write of the file that is under way: one at most, or an older one could come last.
    writing: Option<JoinHandle<bool>>,
    up_since_ms: Option<u64>,
    /// Whether the bus is up, and since when that is so.
    bus_up: (bool, u64),
    /// When a manager was last heard.
    managers_ms: Option<u64>,
    leaving: bool,
    /// Whether this process speaks for the gateway.
    word: Word,
    /// Those who want the snapshot written.
    flushes: mpsc::Receiver<oneshot::Sender<()>>,
    /// When listeners that could not be opened were tried last.
    tried: Instant,
}

impl Control {
    /// Never ends by itself. A bus may end subscriptions, which it does when it is closed, not when it is away.
    async fn run(&mut self, mut leaving: watch::Receiver<bool>, mut keys: mpsc::Receiver<Asked>) {
        let (loaded, mut load_results) = mpsc::channel(1);
        loop {
            self.follow(&mut leaving, &loaded, &mut load_results, &mut keys).await;
            tracing::error!("the bus ended a subscription of the gateway; subscribing again");
            self.feed.miss(clock::now_ms(), fastrand::u64(..));
            tokio::time::sleep(SUBSCRIBE_AGAIN).await;
        }
    }

    /// Follows managers and cells until a subscription ends.
    async fn follow(
        &mut self,
        leaving: &mut watch::Receiver<bool>,
        loaded: &mpsc::Sender<fetch::Loaded>,
        load_results: &mut mpsc::Receiver<fetch::Loaded>,
        key_answers: &mut mpsc::Receiver<Asked>,
    ) {
        let bus = self.bus.clone();
        let mut subscriptions = Subscriptions::make(bus.as_ref(), self.identity.gateway).await;
        let mut bus_state = bus.state();
        self.note_bus(*bus_state.borrow_and_update());
        if self.feed.is_due(clock::now_ms()) {
            self.start_loading(loaded);
        }
        let mut look = interval(LOOK_INTERVAL);
        let mut report = interval(REPORT_INTERVAL);
        let (mut duty, mut predecessor) = (self.word.duty.subscribe(), self.word.predecessor.subscribe());
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        report.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = subscriptions.deltas.next() => match message {
                    Some(message) => {
                        subscriptions.deltas_signs.heard(clock::now_ms());
                        self.take_deltas(message, &mut subscriptions.deltas).await;
                    }
                    None => return,
                },
                message = subscriptions.announces.next() => match message {
                    Some(message) => {
                        subscriptions.announces_signs.heard(clock::now_ms());
                        self.take_announces(message, &mut subscriptions.announces).await;
                    }
                    None => return,
                },
                message = subscriptions.explains.next() => match message {
                    Some(message) => self.explain(message).await,
                    None => return,
                },
                Some(result) = load_results.recv() => self.take_snapshot(result),
                Some(asked) = key_answers.recv() => self.take_keys(asked),
                event = self.resources.next() => {
                    let changes = self.resources.take(event);
                    self.state.push(changes);
                }
                Ok(()) = bus_state.changed() => self.note_bus(*bus_state.borrow_and_update()),
                Ok(()) = leaving.changed() => { self.leaving = *leaving.borrow_and_update(); self.changed = true; }
                Ok(()) = duty.changed() => self.changed = true,
                Ok(()) = predecessor.changed() => self.changed = true,
                Some(done) = self.flushes.recv() => {
                    self.flush().await;
                    let _ = done.send(());
                }
                _ = look.tick() => {
                    self.look().await;
                    if self.feed.is_due(clock::now_ms()) {
                        self.start_loading(loaded);
                    }
                    subscriptions.renew_silent(bus.as_ref(), self.up_since_ms).await;
                }
                _ = report.tick() => self.changed = true,
            }
            self.publish().await;
        }
    }

    fn note_bus(&mut self, state: BusState) {
        self.up_since_ms = match state {
            BusState::Up => self.up_since_ms.or(Some(clock::now_ms())),
            BusState::Down => None,
        };
        if (state == BusState::Up) != self.bus_up.0 {
            self.bus_up = (state == BusState::Up, clock::now_ms());
        }
        self.note_sources();
    }

    /// Tells scrapes how fresh all this is.
    fn note_sources(&self) {
        let (cells, stale, announce_ms) = self.state.cells_heard();
        self.registry.note_sources(Sources {
            bus_up: self.bus_up.0,
            bus_since_ms: self.bus_up.1,
            managers_ms: self.managers_ms,
            announce_ms,
            cells,
            stale,
            refused: self.state.refused().len(),
        });
    }

    fn start_loading(&mut self, loaded: &mpsc::Sender<fetch::Loaded>) {
        if self.feed.begin_loading() {
            let pace = if self.state.is_loaded() { fetch::CALM } else { fetch::HURRIED };
            let who = (self.identity.gateway, self.keys.first_asker());
            let known = self.state.stand();
            let fetching = fetch::run(self.bus.clone(), who, known, pace, loaded.clone());
            let vital = self.vital.clone();
            tokio::task::spawn_local(async move {
                vital.watch_passing("the loader of the routing table", fetching).await;
            });
        }
    }

    /// What waited for a key is tried again, and managers are told what came of it.
    fn take_keys(&mut self, asked: Asked) {
        let again = self.keys.take(asked, clock::now_ms());
        self.state.arrive_again(again);
        self.changed = true;
    }

    fn take_snapshot(&mut self, (stand, items, keys): fetch::Loaded) {
        if let Some(keys) = keys {
            self.take_keys(Ok(keys));
        }
        self.state.obey(stand.epoch);
        self.state.apply_snapshot(stand.revision, items);
        (self.changed, self.dirty) = (true, true);
        self.feed.loaded(&mut self.state, clock::now_ms(), fastrand::u64(..));
    }

    /// Takes this delta and those that are waiting behind it.
    async fn take_deltas(&mut self, first: Message, more: &mut Subscription) {
        self.managers_ms = Some(clock::now_ms());
        for message in batch(first, more).await {
            match incoming::read_delta(&message.payload) {
                Ok(delta) => {
                    if self.feed.take(delta, &mut self.state, clock::now_ms(), fastrand::u64(..)) {
                        (self.changed, self.dirty) = (true, true);
                    }
                }
                Err(error) => {
                    static TOLD: SeldomHere = SeldomHere::new();
                    if let Some(more) = TOLD.now() {
                        tracing::warn!(%error, "a delta was refused{more}");
                    }
                }
            }
        }
    }

    async fn take_announces(&mut self, first: Message, more: &mut Subscription) {
        for message in batch(first, more).await {
            match decode(&message.payload) {
                Ok(announce) => {
                    let outcome = self.state.apply_announce(announce, clock::now_ms());
                    if outcome == AnnounceOutcome::Changed {
                        (self.changed, self.dirty) = (true, true);
                    }
                }
                Err(error) => {
                    static TOLD: SeldomHere = SeldomHere::new();
                    if let Some(more) = TOLD.now() {
                        tracing::warn!(%error, "an announcement was refused{more}");
                    }
                }
            }
        }
    }

    /// Compiles, swaps, waits until every worker serves it, and only then tells the managers: at once where they may
    /// wait for it, else (loads are new) with the next report.
    async fn publish(&mut self) {
        resources::apply(&mut self.state, &mut self.resources, &mut self.keys);
        let (plugins, before) = (self.resources.plugins(), self.shared.view());
        let same_plugins = before.has_plugins(plugins.as_ref());
        if !self.state.commit(clock::now_ns()) && !self.changed && same_plugins {
            return;
        }
        let view = View { plugins, ..view_of(&self.state) };
        if !view.table.same(&before.table)
            || view.revision != before.revision
            || view.inside != before.inside
            || view.loaded != before.loaded
            || !same_plugins
        {
            self.shared.publish(view);
        }
        // Whoever waits until this is served waits for what a key opens, too, for as long as that may be there in a moment.
        self.keys.ask_when_due(&self.bus, clock::now_ms());
        self.listen();
        if self.keys.is_asking() || !std::mem::take(&mut self.changed) {
            return;
        }
        self.draining = self.in_flight_to_draining();
        self.report().await;
    }

    /// Looks at what changes without a message: silence, requests that end.
    async fn look(&mut self) {
        self.resources.look();
        if self.state.expire(clock::now_ms(), self.up_since_ms, self.managers_ms) {
            (self.changed, self.dirty) = (true, true);
        }
        self.note_sources();
        self.changed |= self.draining != self.in_flight_to_draining();
        let writing = self.writing.as_ref().is_some_and(|writing| !writing.is_finished());
        if self.tried.elapsed() >= LISTEN_AGAIN {
            self.tried = Instant::now();
            let told = self.listeners.try_again();
            self.changed |= !told.is_empty();
            self.state.take_listeners(told);
        }
        if !writing && self.written.elapsed() >= SNAPSHOT_INTERVAL && self.word.is_active() {
            self.note_written().await;
            if self.dirty {
                self.write_snapshot();
            }
        }
    }
}
