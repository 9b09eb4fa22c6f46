//! Being a member: the row in the managers' table, its heartbeat, eviction of the silent, and joining anew.

use crate::core::Core;
use crate::identity::Identity;
use crate::reconcile::Mailboxes;
use crate::{bootstrap, feed};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use towpath_bus::{BusError, Subscription};
use towpath_store::{Fence, ManagerRow, StoreError};
use towpath_wire::manager::{ManagerEvent, Membership};
use towpath_wire::{encode, subject};

/// Interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// First and longest pause between attempts to reach the store.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Subscribes to what other managers tell, and starts the member task. The receiver resolves when the manager has joined, loaded and bootstrapped for the first time.
pub(crate) async fn spawn(
    core: &Arc<Core>,
    identity: Identity,
    mailboxes: &Arc<Mailboxes>,
    tasks: &mut JoinSet<()>,
) -> Result<oneshot::Receiver<()>, BusError> {
    let (told, joined) = oneshot::channel();
    let events = core.bus.subscribe(subject::MANAGER_EVENT).await?;
    let member = Member { core: core.clone(), mailboxes: mailboxes.clone(), identity, events };
    let core = core.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = member.run(told) => {}
            () = core.stopped() => {}
        }
    });
    Ok(joined)
}

struct Member {
    core: Arc<Core>,
    mailboxes: Arc<Mailboxes>,
    identity: Identity,
    events: Subscription,
}

impl Member {
    /// Joins, stays until membership is lost, joins again.
    async fn run(mut self, told: oneshot::Sender<()>) {
        let mut told = Some(told);
        let mut pause = BACKOFF.0;
        loop {
            match join(&self.core, &mut self.identity).await {
                Ok(fence) => {
                    pause = BACKOFF.0;
                    if let Some(told) = told.take() {
                        let _ = told.send(());
                    }
                    self.mailboxes.activate_all(&self.core);
                    self.stay(fence).await;
                }
                Err(why) => {
                    tracing::warn!(error = why, retry_in = ?pause, "joining failed");
                    self.core.set_fence(None);
                    tokio::time::sleep(pause + pause.mul_f64(fastrand::f64() * 0.3)).await;
                    pause = (pause * 2).min(BACKOFF.1);
                }
            }
        }
    }

    /// Heartbeats until the membership is lost.
    async fn stay(&mut self, fence: Fence) {
        let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + HEARTBEAT, HEARTBEAT);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while self.core.fence() == Some(fence) {
            tokio::select! {
                _ = beat.tick() => self.beat(fence).await,
                () = self.core.membership_lost() => {}
                event = self.events.next() => match event {
                    Some(_) => refresh_members(&self.core, &self.mailboxes).await,
                    // The bus is closed for good.
                    None => std::future::pending().await,
                },
            }
        }
        tracing::warn!("this manager was evicted; it stops acting and joins anew");
    }

    async fn beat(&self, fence: Fence) {
        match self.core.store.heartbeat(fence).await {
            Ok(()) => {
                self.core.store_seen(true);
                evict_silent(&self.core).await;
                refresh_members(&self.core, &self.mailboxes).await;
            }
            Err(StoreError::Fenced(_)) => self.core.lose_membership(fence),
            Err(error) => self.core.store_seen(!matches!(error, StoreError::Unavailable { .. })),
        }
    }
}

/// Registers a new incarnation, waits for the cache, bootstraps.
async fn join(core: &Core, identity: &mut Identity) -> Result<Fence, String> {
    let text = |error: StoreError| error.to_string();
    let now = core.store.now_ms().await.inspect_err(|_| core.store_seen(false)).map_err(text)?;
    core.store_seen(true);
    core.clock.set_now(now);
    let rows = core.store.managers().await.map_err(text)?;
    let newest = |rows: &[ManagerRow]| rows.iter().map(|row| row.incarnation).max().unwrap_or_default();
    let own: Vec<ManagerRow> = rows.iter().filter(|row| row.manager == core.manager).cloned().collect();
    let incarnation = identity.next_incarnation(now, newest(&own)).map_err(|error| error.to_string())?;
    let fence = Fence { manager: core.manager, incarnation };
    core.store.register_manager(&row_of(core, fence, now)).await.map_err(text)?;
    take_members(core, &rows);
    core.raise_epoch(incarnation.0);
    core.set_fence(Some(fence));
    tell(core, fence, Membership::Joined).await;
    feed::wait_loaded(core).await;
    bootstrap::apply(core).await.map_err(|error| format!("{error}: {}", source_of(&error)))?;
    tracing::info!(manager = %core.manager, incarnation = incarnation.0, "joined");
    Ok(fence)
}

fn row_of(core: &Core, fence: Fence, started_ms: u64) -> ManagerRow {
    ManagerRow {
        manager: fence.manager,
        incarnation: fence.incarnation,
        address: core.advertised(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_ms,
        silent_ms: 0,
        evicted: false,
    }
}

/// Writes the row again, now that the API's address is known.
pub(crate) async fn tell_address(core: &Core) {
    if let Some(fence) = core.fence() {
        let row = row_of(core, fence, core.now_ms());
        if let Err(error) = core.store.register_manager(&row).await {
            tracing::debug!(%error, "the API's address could not be written");
        }
    }
}

fn source_of(error: &dyn std::error::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}

/// Marks managers that were silent for too long.
async fn evict_silent(core: &Core) {
    match core.store.evict_silent(core.settings.evict_after_ms).await {
        Ok(evicted) => {
            for manager in evicted {
                tracing::warn!(%manager, "evicted a silent manager");
            }
        }
        Err(error) => tracing::debug!(%error, "looking for silent managers failed"),
    }
}

/// Takes over the members of the table: into the ring, and their newest incarnation as epoch.
fn take_members(core: &Core, rows: &[ManagerRow]) -> bool {
    let present = rows.iter().filter(|row| !row.evicted);
    core.raise_epoch(rows.iter().map(|row| row.incarnation.0).max().unwrap_or_default());
    core.ownership.set_members(present.map(|row| row.manager))
}

/// Reads the table again; has all groups looked at if their owners changed.
async fn refresh_members(core: &Core, mailboxes: &Mailboxes) {
    match core.store.managers().await {
        Ok(rows) => {
            if take_members(core, &rows) {
                tracing::info!(managers = core.ownership.ring().members().len(), "the ring changed");
                mailboxes.activate_all(core);
            }
        }
        Err(error) => tracing::debug!(%error, "the managers' table could not be read"),
    }
}

/// Tells the other managers.
async fn tell(core: &Core, fence: Fence, event: Membership) {
    let event = ManagerEvent { manager: fence.manager, incarnation: fence.incarnation, event };
    if let Err(error) = core.bus.publish(subject::MANAGER_EVENT, encode(&event).into()).await {
        tracing::debug!(%error, "other managers could not be told; they will see it in the table");
    }
}

/// Removes the row at a clean stop.
pub(crate) async fn leave(core: &Core) {
    if let Some(fence) = core.fence() {
        core.set_fence(None);
        let left = tokio::time::timeout(Duration::from_secs(2), core.store.leave(fence)).await;
        match left {
            Ok(Ok(())) => tell(core, fence, Membership::Left).await,
            _ => tracing::warn!("the manager's row could not be removed; it will be evicted"),
        }
    }
}
