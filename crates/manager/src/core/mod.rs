//! What every part of a manager shares: store, bus, fence, clock, hard state in memory, soft state.
//!
//! Invariants: no lock is held across an await; the cache is complete at its revision; a manager without a fence writes
//! nothing.

mod barrier;
pub mod cache;
pub mod changes;
pub mod clock;
mod commit;
pub(crate) mod gate;
pub mod keys;
pub mod load;
pub mod members;
pub mod outcome;
pub mod ownership;
pub mod placing;
pub(crate) mod pokes;
pub mod refusals;
mod reload;
mod routing_view;
pub(crate) mod shares;
pub mod soft;

use crate::settings::ManagerSettings;
use cache::Cache;
use clock::Clock;
use members::Members;
use ownership::Ownership;
use placing::PlacingLedger;
use soft::SoftState;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use towpath_bus::Bus;
use towpath_store::{Fence, Store};
use towpath_types::{InstanceId, ManagerId, OperationId};

tokio::task_local! {
    /// The membership for which a task works.
    static ACTING: Fence;
}

/// A membership, and until when nobody can have ended it.
#[derive(Debug, Clone, Copy)]
struct Standing {
    fence: Fence,
    until: Instant,
}

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
    /// Whether all background tasks live.
    pub vitals: crate::vitals::Vitals,
    /// The managers, as this one knows them.
    pub members: Members,
    /// Keys of secrets.
    pub vault: crate::vault::Vault,
    /// Room that plans have taken.
    pub(crate) placing: PlacingLedger,
    /// What cells were told lately.
    pub(crate) pokes: pokes::Pokes,
    standing: watch::Sender<Option<Standing>>,
    api_address: OnceLock<SocketAddr>,
    /// How much there is to do.
    pub load: load::Load,
    /// Changes that wait for their turn.
    pub changes: changes::Changes,
    /// What the last heartbeat failed with; `None` = it arrived.
    heartbeat_trouble: Mutex<Option<String>>,
    epoch: AtomicU64,
    /// The epoch at which this manager joined: what was sent to it before is not for this membership.
    pub(crate) joined_epoch: AtomicU64,
    /// Time in the newest operation's id.
    newest_operation_ms: AtomicU64,
    /// Who may try to write when the store took no write last time.
    pub(crate) gate: gate::Gate,
    store_up: AtomicBool,
    barrier: barrier::Barrier,
    pub(crate) reloads: reload::Reloads,
    steps: broadcast::Sender<Arc<cache::CacheStep>>,
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
        let placing = PlacingLedger::new(&settings.rollout, clock.clone());
        let changes = changes::Changes::new(settings.limits.changes.clone());
        let ownership = Ownership::new(manager, settings.weight);
        let vault = crate::vault::Vault::new(settings.secrets_key_file.clone());
        Arc::new(Self {
            settings,
            store,
            bus,
            manager,
            soft: SoftState::new(clock.clone()),
            ownership,
            vitals: crate::vitals::Vitals::default(),
            members: Members::default(),
            vault,
            placing,
            pokes: pokes::Pokes::default(),
            clock,
            cache: Cache::default(),
            standing: watch::Sender::new(None),
            api_address: OnceLock::new(),
            load: load::Load::default(),
            changes,
            heartbeat_trouble: Mutex::default(),
            epoch: AtomicU64::new(0),
            joined_epoch: AtomicU64::new(0),
            newest_operation_ms: AtomicU64::new(0),
            gate: gate::Gate::default(),
            store_up: AtomicBool::new(true),
            barrier: barrier::Barrier::default(),
            reloads: reload::Reloads::default(),
            steps: broadcast::channel(1024).0,
            cache_loaded: watch::Sender::new(false),
            stopping: watch::Sender::new(false),
        })
    }

    /// The fence under which this manager writes; `None` while it is no member.
    pub fn fence(&self) -> Option<Fence> {
        self.standing.borrow().map(|standing| standing.fence)
    }

    /// Changes when this manager joins or is no member any more.
    pub(crate) fn membership(&self) -> watch::Receiver<impl Sized + use<>> {
        self.standing.subscribe()
    }

    /// Whether this manager may tell cells and gateways anything: it is a member, and its last heartbeat is so fresh that
    /// nobody can have evicted it since. (Writes need no such care: the store refuses those of an evicted one.)
    pub fn may_act(&self) -> bool {
        self.standing.borrow().is_some_and(|standing| Instant::now() < standing.until)
    }

    /// Takes up membership, or gives it up.
    pub(crate) fn set_fence(&self, fence: Option<Fence>) {
        let until = Instant::now() + self.lease();
        self.standing.send_replace(fence.map(|fence| Standing { fence, until }));
    }

    /// A heartbeat that was sent at this moment has arrived.
    pub(crate) fn renew(&self, fence: Fence, sent: Instant) {
        let until = sent + self.lease();
        self.standing.send_if_modified(|present| {
            if let Some(standing) = present.as_mut().filter(|standing| standing.fence == fence) {
                standing.until = until;
            }
            false
        });
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(self.settings.evict_after_ms)
    }

    /// Gives up a membership that the store refused, unless a newer one is there already.
    pub(crate) fn lose_membership(&self, fence: Fence) {
        self.standing.send_if_modified(|present| {
            let lost = present.is_some_and(|standing| standing.fence == fence);
            if lost {
                *present = None;
            }
            lost
        });
    }

    /// Resolves when this membership has ended, at once if it has already.
    pub(crate) async fn lost(&self, fence: Fence) {
        let mut standing = self.standing.subscribe();
        let ended = |present: &Option<Standing>| present.is_none_or(|standing| standing.fence != fence);
        drop(standing.wait_for(ended).await);
    }

    /// Does work for one membership: what it writes after that has ended is refused, even when this manager is a member
    /// anew by then.
    pub(crate) fn acting<F: Future>(
        &self,
        fence: Fence,
        work: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        ACTING.scope(fence, work)
    }

    /// A future that does work for the membership for which the present one does. A task that is spawned knows nothing of
    /// the one that spawned it, so what it writes is to be wrapped in this.
    pub(crate) fn acting_on<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        let fence = ACTING.try_with(|fence| *fence).ok();
        async move {
            match fence {
                Some(fence) => ACTING.scope(fence, work).await,
                None => work.await,
            }
        }
    }

    /// The fence for a write: that of the membership for which the present work is done.
    pub(crate) fn fence_to_write(&self) -> Option<Fence> {
        let present = self.fence()?;
        match ACTING.try_with(|fence| *fence) {
            Ok(fence) if fence != present => None,
            _ => Some(present),
        }
    }

    /// Notes how the last heartbeat went.
    pub(crate) fn note_heartbeat(&self, trouble: Option<String>) {
        *self.heartbeat_trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// What the last heartbeat failed with; `None` = it arrived.
    pub(crate) fn heartbeat_trouble(&self) -> Option<String> {
        self.heartbeat_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

    /// The protocol in which other managers are written to: what the oldest member reads.
    pub(crate) fn protocol(&self) -> u16 {
        self.members.protocol().min(self.settings.protocol)
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
