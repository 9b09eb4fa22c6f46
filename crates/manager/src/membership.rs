//! Being a member: the row in the managers' table, its heartbeat, eviction of the silent, and joining anew.

use crate::core::Core;
use crate::identity::Identity;
use crate::{bootstrap, feed};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use towpath_store::{Fence, ManagerRow, StoreError};
use towpath_types::Incarnation;

/// Interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// First and longest pause between attempts to reach the store.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Starts the member task. The receiver resolves when the manager has joined, loaded and bootstrapped for the first time.
pub(crate) fn spawn(core: &Arc<Core>, identity: Identity, tasks: &mut JoinSet<()>) -> oneshot::Receiver<()> {
    let (told, joined) = oneshot::channel();
    let core = core.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = run(&core, identity, told) => {}
            () = core.stopped() => {}
        }
    });
    joined
}

/// Joins, stays until membership is lost, joins again.
async fn run(core: &Core, mut identity: Identity, told: oneshot::Sender<()>) {
    let mut told = Some(told);
    let mut pause = BACKOFF.0;
    loop {
        match join(core, &mut identity).await {
            Ok(fence) => {
                pause = BACKOFF.0;
                if let Some(told) = told.take() {
                    let _ = told.send(());
                }
                stay(core, fence).await;
            }
            Err(why) => {
                tracing::warn!(error = why, retry_in = ?pause, "joining failed");
                core.set_fence(None);
                tokio::time::sleep(pause + pause.mul_f64(fastrand::f64() * 0.3)).await;
                pause = (pause * 2).min(BACKOFF.1);
            }
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
    let row = ManagerRow {
        manager: core.manager,
        incarnation,
        address: core.settings.advertised(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_ms: now,
        silent_ms: 0,
        evicted: false,
    };
    core.store.register_manager(&row).await.map_err(text)?;
    core.raise_epoch(newest(&rows).max(incarnation).0);
    let fence = Fence { manager: core.manager, incarnation };
    core.set_fence(Some(fence));
    feed::wait_loaded(core).await;
    bootstrap::apply(core).await.map_err(|error| format!("{error}: {}", source_of(&error)))?;
    tracing::info!(manager = %core.manager, incarnation = incarnation.0, "joined");
    Ok(fence)
}

fn source_of(error: &dyn std::error::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}

/// Heartbeats until the membership is lost.
async fn stay(core: &Core, fence: Fence) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(HEARTBEAT) => {}
            () = core.membership_lost() => {
                tracing::warn!("this manager was evicted; it stops acting and joins anew");
                return;
            }
        }
        match core.store.heartbeat(fence).await {
            Ok(()) => {
                core.store_seen(true);
                evict_silent(core).await;
            }
            Err(StoreError::Fenced(_)) => core.lose_membership(fence),
            Err(error) => core.store_seen(!matches!(error, StoreError::Unavailable { .. })),
        }
        if core.fence() != Some(fence) {
            tracing::warn!("this manager was evicted; it stops acting and joins anew");
            return;
        }
    }
}

/// Marks managers that were silent for too long, and learns of newer members.
async fn evict_silent(core: &Core) {
    match core.store.evict_silent(core.settings.evict_after_ms).await {
        Ok(evicted) => {
            for manager in evicted {
                tracing::warn!(%manager, "evicted a silent manager");
            }
        }
        Err(error) => tracing::debug!(%error, "looking for silent managers failed"),
    }
    if let Ok(rows) = core.store.managers().await {
        let newest = rows.iter().map(|row| row.incarnation).max().unwrap_or(Incarnation(0));
        core.raise_epoch(newest.0);
    }
}

/// Removes the row at a clean stop.
pub(crate) async fn leave(core: &Core) {
    if let Some(fence) = core.fence() {
        core.set_fence(None);
        let left = tokio::time::timeout(Duration::from_secs(2), core.store.leave(fence)).await;
        if !matches!(left, Ok(Ok(()))) {
            tracing::warn!("the manager's row could not be removed; it will be evicted");
        }
    }
}
