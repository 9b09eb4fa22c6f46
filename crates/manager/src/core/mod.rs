//! What every part of a manager shares: store, bus, fence, clock, hard state in memory, soft state.
//!
//! Invariants: no lock is held across an await; the cache is complete at its revision; a manager without a fence writes
//! nothing.

pub mod cache;
pub mod clock;
mod commit;
pub mod keys;
pub mod outcome;
pub mod ownership;
pub mod placing;
mod routing_view;
pub mod soft;

use crate::settings::ManagerSettings;
use cache::Cache;
use clock::Clock;
use ownership::Ownership;
use placing::PlacingLedger;
use soft::SoftState;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use tokio::sync::{Notify, broadcast, watch};
use towpath_bus::Bus;
use towpath_store::{Fence, Store};
use towpath_types::{InstanceId, ManagerId, OperationId};

/// Shared by all parts of one manager.
pub struct Core {
    /// Start-up settings.
    pub settings: ManagerSettings,
    /// Hard state.
    pub store: Arc<dyn Store>,
    /// Messages.
    pub bus: Arc<dyn Bus>,
    /// Who this manager is.
    pub manager: ManagerId,
    /// Time.
    pub clock: Arc<Clock>,
    /// What cells and gateways have announced.
    pub soft: SoftState,
    /// Hard state in memory.
    pub cache: Cache,
    /// Which manager owns what.
    pub ownership: Ownership,
    /// Room that plans have taken.
    pub(crate) placing: PlacingLedger,
    fence: RwLock<Option<Fence>>,
    api_address: OnceLock<SocketAddr>,
    epoch: AtomicU64,
    /// Time in the newest operation's id.
    newest_operation_ms: AtomicU64,
    store_up: AtomicBool,
    steps: broadcast::Sender<Arc<cache::CacheStep>>,
    membership_lost: Notify,
    cache_loaded: watch::Sender<bool>,
    stopping: watch::Sender<bool>,
}

impl Core {
    /// Puts the parts together; nothing runs yet.
    pub fn new(
        settings: ManagerSettings,
        store: Arc<dyn Store>,
        bus: Arc<dyn Bus>,
        manager: ManagerId,
    ) -> Arc<Self> {
        let clock = Arc::new(Clock::start());
        Arc::new(Self {
            settings,
            store,
            bus,
            manager,
            soft: SoftState::new(clock.clone()),
            ownership: Ownership::new(manager),
            placing: PlacingLedger::new(clock.clone()),
            clock,
            cache: Cache::default(),
            fence: RwLock::new(None),
            api_address: OnceLock::new(),
            epoch: AtomicU64::new(0),
            newest_operation_ms: AtomicU64::new(0),
            store_up: AtomicBool::new(true),
            steps: broadcast::channel(1024).0,
            membership_lost: Notify::new(),
            cache_loaded: watch::Sender::new(false),
            stopping: watch::Sender::new(false),
        })
    }

    /// The fence under which this manager writes; `None` while it is no member.
    pub fn fence(&self) -> Option<Fence> {
        *self.fence.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up membership.
    pub(crate) fn set_fence(&self, fence: Option<Fence>) {
        *self.fence.write().unwrap_or_else(PoisonError::into_inner) = fence;
    }

    /// Gives up a membership that the store refused, unless a newer one is there already.
    pub(crate) fn lose_membership(&self, fence: Fence) {
        let mut present = self.fence.write().unwrap_or_else(PoisonError::into_inner);
        if *present == Some(fence) {
            *present = None;
            self.membership_lost.notify_one();
        }
    }

    /// Wakes when [`Core::lose_membership`] took effect.
    pub(crate) async fn membership_lost(&self) {
        self.membership_lost.notified().await;
    }

    /// Where others reach this manager's API, for example `http://10.0.0.1:7700`.
    pub fn advertised(&self) -> String {
        let listen = self.api_address.get().copied().unwrap_or(self.settings.listen);
        self.settings.advertise.clone().unwrap_or_else(|| format!("http://{listen}"))
    }

    /// Notes where the API really listens.
    pub(crate) fn set_api_address(&self, address: SocketAddr) {
        // It is bound once in the life of a manager.
        let _ = self.api_address.set(address);
    }

    /// Epoch of this manager's ownership: never falls, rises when membership changes hands.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Raises the epoch.
    pub(crate) fn raise_epoch(&self, epoch: u64) {
        self.epoch.fetch_max(epoch, Ordering::Relaxed);
    }

    /// Whether the store answered last time.
    pub fn store_is_up(&self) -> bool {
        self.store_up.load(Ordering::Relaxed)
    }

    /// Notes whether the store answered.
    pub(crate) fn store_seen(&self, up: bool) {
        if self.store_up.swap(up, Ordering::Relaxed) != up {
            if up {
                tracing::info!("the store answers again");
            } else {
                tracing::warn!("the store does not answer; traffic goes on, changes have to wait");
            }
        }
    }

    /// Becomes `true` when the cache holds a whole state for the first time. Before that it proves no absence.
    pub fn cache_loaded(&self) -> watch::Receiver<bool> {
        self.cache_loaded.subscribe()
    }

    /// Notes that the cache holds a whole state.
    pub(crate) fn set_cache_loaded(&self) {
        self.cache_loaded.send_if_modified(|loaded| !std::mem::replace(loaded, true));
    }

    /// Steps of the change feed as they are applied to the cache. A receiver that lags has to look at everything.
    pub fn steps(&self) -> broadcast::Receiver<Arc<cache::CacheStep>> {
        self.steps.subscribe()
    }

    /// Tells a step to all that follow.
    pub(crate) fn tell_step(&self, step: cache::CacheStep) {
        // No receiver is no error.
        drop(self.steps.send(Arc::new(step)));
    }

    /// Now, milliseconds since 1970: runs evenly, set from the store's clock when this manager joined.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// A new operation id: above all that are known, since the order of operations is that of their ids. A clock that was
    /// set back changes nothing about that.
    pub fn mint_operation(&self) -> OperationId {
        let now = self.now_ms();
        let next = |newest: u64| now.max(newest.saturating_add(1));
        let before = self
            .newest_operation_ms
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |newest| Some(next(newest)));
        OperationId::mint(next(before.unwrap_or_else(|newest| newest)), random())
    }

    /// Notes an operation that is stored.
    pub(crate) fn note_operation(&self, id: OperationId) {
        // The first 48 bits of a UUIDv7 are its time.
        let minted_ms = u64::try_from(id.0.as_u128() >> 80).unwrap_or_default();
        self.newest_operation_ms.fetch_max(minted_ms, Ordering::Relaxed);
    }

    /// A new instance id.
    pub fn mint_instance(&self) -> InstanceId {
        InstanceId::mint(self.now_ms(), random())
    }

    /// A new id for a record (UUIDv7 text).
    pub fn mint_record_id(&self) -> String {
        OperationId::mint(self.now_ms(), random()).to_string()
    }

    /// Becomes `true` when the manager stops: long-running tasks end then.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Resolves when the manager stops.
    pub async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        drop(stopping.wait_for(|stopping| *stopping).await);
    }

    /// Tells all tasks to end.
    pub(crate) fn begin_stop(&self) {
        self.stopping.send_replace(true);
    }
}

/// Ten random bytes, for ids (not for secrets).
fn random() -> [u8; 10] {
    let mut bytes = [0; 10];
    fastrand::fill(&mut bytes);
    bytes
}
