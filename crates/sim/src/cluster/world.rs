//! What all parts of a run share: its chance, its weather and its record. And each part's gate.

use super::sabotage::Sabotage;
use super::trace::Trace;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use towpath_bus::BusState;

/// How bad it is at the moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weather {
    /// Messages that are lost, 0 to 1.
    pub(super) lost: f64,
    /// Messages that come twice.
    pub(super) doubled: f64,
    /// Longest delay of a message, milliseconds. Delays differ, so messages overtake each other.
    pub(super) delay_ms: u64,
    /// Calls of the store that fail before they do anything.
    pub(super) failed: f64,
    /// Commits that are done and whose answer is lost.
    pub(super) uncertain: f64,
    /// Longest time that the store takes, milliseconds.
    pub(super) store_ms: u64,
}

/// Messages take a little, and all arrive.
pub(super) const CALM: Weather =
    Weather { lost: 0.0, doubled: 0.0, delay_ms: 2, failed: 0.0, uncertain: 0.0, store_ms: 2 };

/// Shared by all.
pub(super) struct World {
    rng: Mutex<fastrand::Rng>,
    trace: Mutex<Trace>,
    weather: Mutex<Weather>,
    broken: watch::Sender<Option<String>>,
    sabotage: Option<Sabotage>,
    /// When instances were started, in order.
    starts: Mutex<Vec<Instant>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub(super) fn new(seed: u64, sabotage: Option<Sabotage>) -> Arc<Self> {
        Arc::new(Self {
            rng: Mutex::new(fastrand::Rng::with_seed(seed)),
            trace: Mutex::new(Trace::new()),
            weather: Mutex::new(CALM),
            broken: watch::Sender::new(None),
            sabotage,
            starts: Mutex::default(),
        })
    }

    /// The rule that is broken on purpose.
    pub(super) fn sabotage(&self) -> Option<Sabotage> {
        self.sabotage
    }

    /// A number from 0 to `most`.
    pub(super) fn up_to(&self, most: u64) -> u64 {
        lock(&self.rng).u64(0..=most)
    }

    /// A number in a range.
    pub(super) fn between(&self, least: u64, most: u64) -> u64 {
        lock(&self.rng).u64(least..=most)
    }

    /// Whether something of this probability happens.
    pub(super) fn happens(&self, probability: f64) -> bool {
        probability > 0.0 && lock(&self.rng).f64() < probability
    }

    pub(super) fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        lock(&self.rng).fill(&mut bytes);
        bytes
    }

    pub(super) fn weather(&self) -> Weather {
        *lock(&self.weather)
    }

    pub(super) fn set_weather(&self, weather: Weather) {
        *lock(&self.weather) = weather;
    }

    /// Waits up to so many milliseconds.
    pub(super) async fn wait_up_to(&self, most_ms: u64) {
        let pause = self.up_to(most_ms);
        if pause > 0 {
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    pub(super) fn note(&self, what: fmt::Arguments<'_>) {
        lock(&self.trace).note(what);
    }

    /// An instance is started.
    pub(super) fn note_start(&self) {
        lock(&self.starts).push(Instant::now());
    }

    /// The starts since this was asked last.
    pub(super) fn take_starts(&self) -> Vec<Instant> {
        std::mem::take(&mut lock(&self.starts))
    }

    pub(super) fn digest(&self) -> String {
        lock(&self.trace).digest()
    }

    pub(super) fn tail(&self) -> Vec<String> {
        lock(&self.trace).tail()
    }

    /// An invariant does not hold. The first one counts.
    pub(super) fn breaks(&self, what: String) {
        self.note(format_args!("BROKEN {what}"));
        self.broken.send_if_modified(|broken| {
            let first = broken.is_none();
            broken.get_or_insert(what);
            first
        });
    }

    pub(super) fn broken(&self) -> watch::Receiver<Option<String>> {
        self.broken.subscribe()
    }
}

/// What stands between one process and everything else.
pub(super) struct Gate {
    pub(super) name: String,
    running: watch::Sender<bool>,
    dead: watch::Sender<bool>,
    bus: watch::Sender<BusState>,
    store_gone: AtomicBool,
    /// How far its view of the store's clock is off, milliseconds, plus [`Gate::ZERO_MS`].
    skew_ms: AtomicU64,
}

impl Gate {
    /// A skew of nothing.
    const ZERO_MS: u64 = 1 << 40;

    pub(super) fn new(name: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            running: watch::Sender::new(true),
            dead: watch::Sender::new(false),
            bus: watch::Sender::new(BusState::Up),
            store_gone: AtomicBool::new(false),
            skew_ms: AtomicU64::new(Self::ZERO_MS),
        })
    }

    /// Goes on when the process runs: at once, after a pause, or never, if it was killed. A process that is paused so
    /// stands right before its next effect, which is the worst place.
    pub(super) async fn pass(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
        if !*self.running.borrow() {
            drop(self.running.subscribe().wait_for(|running| *running).await);
            if self.is_dead() {
                std::future::pending::<()>().await;
            }
        }
    }

    pub(super) fn set_running(&self, running: bool) {
        self.running.send_replace(running);
    }

    /// Nothing of it has any effect any more.
    pub(super) fn kill(&self) {
        self.dead.send_replace(true);
        self.bus.send_replace(BusState::Down);
    }

    pub(super) fn is_dead(&self) -> bool {
        *self.dead.borrow()
    }

    /// Tells when it is killed.
    pub(super) fn death(&self) -> watch::Receiver<bool> {
        self.dead.subscribe()
    }

    pub(super) fn set_isolated(&self, isolated: bool) {
        self.bus.send_replace(if isolated { BusState::Down } else { BusState::Up });
    }

    pub(super) fn is_isolated(&self) -> bool {
        *self.bus.borrow() == BusState::Down
    }

    pub(super) fn bus(&self) -> watch::Receiver<BusState> {
        self.bus.subscribe()
    }

    pub(super) fn set_store_gone(&self, gone: bool) {
        self.store_gone.store(gone, Ordering::SeqCst);
    }

    pub(super) fn is_store_gone(&self) -> bool {
        self.store_gone.load(Ordering::SeqCst)
    }

    /// Puts its view of the store's clock off by so many milliseconds.
    pub(super) fn set_skew(&self, skew_ms: i64) {
        self.skew_ms.store(Self::ZERO_MS.saturating_add_signed(skew_ms), Ordering::SeqCst);
    }

    pub(super) fn skewed(&self, now_ms: u64) -> u64 {
        (now_ms + self.skew_ms.load(Ordering::SeqCst)).saturating_sub(Self::ZERO_MS)
    }
}
