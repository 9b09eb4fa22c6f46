//! Being a member: the row in the managers' table, its heartbeat, eviction of the silent, handing over, and joining anew.

use crate::core::Core;
use crate::core::members::MemberState;
use crate::identity::Identity;
use crate::reconcile::Mailboxes;
use crate::{bootstrap, feed};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;
use towpath_bus::{BusError, Message, Subscription};
use towpath_store::{Fence, ManagerRow, StoreError};
use towpath_types::ManagerId;
use towpath_wire::manager::{ManagerEvent, ManagerReport, Membership};
use towpath_wire::protocol::name_version;
use towpath_wire::{decode, encode, subject};

/// Interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// A heartbeat that takes longer is given up, and the next one sent.
const HEARTBEAT_PATIENCE: Duration = Duration::from_secs(2);
/// Shortest pause between two looks at the table.
const LOOK: Duration = Duration::from_millis(50);
/// First and longest pause between attempts to reach the store.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Subscribes to what other managers tell, and starts the member task. The receiver resolves when the manager has
/// joined, loaded and bootstrapped for the first time.
pub(crate) async fn spawn(
    core: &Arc<Core>,
    identity: Identity,
    mailboxes: &Arc<Mailboxes>,
    tasks: &mut JoinSet<()>,
) -> Result<oneshot::Receiver<()>, BusError> {
    let (told, joined) = oneshot::channel();
    let events = core.bus.subscribe(subject::MANAGER_EVENT).await?;
    let reports = core.bus.subscribe(subject::MANAGER_REPORT).await?;
    let (mailboxes, spared_until) = (mailboxes.clone(), Instant::now());
    let member = Member {
        core: core.clone(),
        mailboxes,
        identity,
        events,
        reports,
        spared_until,
        store_was_away: false,
    };
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
    reports: Subscription,
    /// Nobody is evicted before this moment: while the store was away nobody could send a heartbeat, so silence said nothing.
    spared_until: Instant,
    /// Whether the store was not reached the last time.
    store_was_away: bool,
}

impl Member {
    /// Joins, stays until membership is lost, joins again.
    async fn run(mut self, told: oneshot::Sender<()>) {
        let mut told = Some(told);
        let mut pause = BACKOFF.0;
        let mut was_member = false;
        loop {
            // Who was silent for so long may have missed that the store is another one.
            if std::mem::take(&mut was_member) {
                self.core.reload().await;
            }
            match join(&self.core, &mut self.identity).await {
                Ok(fence) => {
                    pause = BACKOFF.0;
                    was_member = true;
                    if let Some(told) = told.take() {
                        let _ = told.send(());
                    }
                    self.mailboxes.activate_all(&self.core);
                    let (core, mailboxes) = (self.core.clone(), self.mailboxes.clone());
                    tokio::select! {
                        () = core.lost(fence) => {}
                        () = beat(&core, &mailboxes, fence) => {}
                        () = self.follow(fence) => {}
                    }
                    tracing::warn!("this manager is no member any more; it stops acting and joins anew");
                }
                Err(why) => {
                    self.store_was_away = true;
                    tracing::warn!(error = why, retry_in = ?pause, "joining failed");
                    self.core.set_fence(None);
                    tokio::time::sleep(pause + pause.mul_f64(fastrand::f64() * 0.3)).await;
                    pause = (pause * 2).min(BACKOFF.1);
                }
            }
        }
    }

    /// Keeps the copy of the table: by what others tell, and by looking, since what is told may be lost.
    async fn follow(&mut self, fence: Fence) {
        let mut next = Instant::now();
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                event = self.events.next() => match event {
                    Some(event) => self.note(&event),
                    // The bus is closed for good.
                    None => std::future::pending().await,
                },
                report = self.reports.next() => {
                    if let Some(Ok(report)) = report.map(|message| decode::<ManagerReport>(&message.payload)) {
                        self.core.members.hear(report);
                    }
                    continue;
                }
            }
            next = Instant::now() + self.look(fence).await;
        }
    }

    /// Who says that it leaves owns nothing from then on. All else is seen in the table.
    fn note(&self, message: &Message) {
        let Ok(event) = decode::<ManagerEvent>(&message.payload) else { return };
        if event.event == Membership::Leaving && event.manager != self.core.manager {
            self.core.members.note_leaving(event.manager, event.incarnation);
            self.take_ring();
        }
    }

    /// Looks at the table, evicts who is silent for too long, and says when to look again.
    async fn look(&mut self, fence: Fence) -> Duration {
        let (limit, asked) = (self.core.settings.evict_after_ms, Instant::now());
        let rows = self.refresh(fence).await;
        let was_away = std::mem::replace(&mut self.store_was_away, rows.is_none());
        let Some(rows) = rows else { return HEARTBEAT };
        if was_away || asked.elapsed() > HEARTBEAT_PATIENCE {
            // Now the others, too, get the time in which a heartbeat has to come.
            self.spared_until = Instant::now() + Duration::from_millis(limit);
        }
        let silent = |row: &&ManagerRow| !row.evicted && row.silent_ms > limit;
        if rows.iter().any(|row| silent(&row)) {
            let spared = self.spared_until.saturating_duration_since(Instant::now());
            if !spared.is_zero() {
                return spared.min(HEARTBEAT);
            }
            self.evict().await;
            self.refresh(fence).await;
        }
        // Whoever is late is looked at again when it is too late.
        let left =
            rows.iter().filter(|row| !row.evicted).map(|row| limit.saturating_sub(row.silent_ms)).min();
        Duration::from_millis(left.unwrap_or(limit)).saturating_add(LOOK).min(HEARTBEAT)
    }

    /// Marks managers that were silent for too long, by the store's clock.
    async fn evict(&self) {
        match self.core.store.evict_silent(self.core.settings.evict_after_ms).await {
            Ok(evicted) => {
                for manager in evicted {
                    tracing::warn!(%manager, "evicted a silent manager");
                    let incarnation =
                        self.core.members.all().get(&manager).map(|m| m.row.incarnation).unwrap_or_default();
                    tell(&self.core, Fence { manager, incarnation }, Membership::Evicted).await;
                }
            }
            Err(error) => tracing::debug!(%error, "looking for silent managers failed"),
        }
    }

    /// Reads the table; has all groups looked at if their owners changed.
    async fn refresh(&self, fence: Fence) -> Option<Vec<ManagerRow>> {
        match load_members(&self.core).await {
            Ok(rows) => {
                let there = |row: &ManagerRow| {
                    row.manager == fence.manager && row.incarnation == fence.incarnation && !row.evicted
                };
                if !rows.iter().any(there) {
                    self.core.lose_membership(fence);
                }
                self.take_ring();
                Some(rows)
            }
            Err(error) => {
                tracing::debug!(%error, "the managers' table could not be read");
                None
            }
        }
    }

    fn take_ring(&self) {
        if self.core.ownership.set_members(self.core.members.owners()) {
            let managers = self.core.ownership.ring().members().len();
            tracing::info!(managers, epoch = self.core.epoch(), "the ring changed");
            self.mailboxes.activate_all(&self.core);
        }
    }
}

/// Heartbeats and reports until the membership is lost. Nothing else is done here, so that nothing delays them.
async fn beat(core: &Core, mailboxes: &Mailboxes, fence: Fence) {
    let mut beat = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    tell_report(core, mailboxes, fence).await;
    loop {
        beat.tick().await;
        let sent = Instant::now();
        match tokio::time::timeout(HEARTBEAT_PATIENCE, core.store.heartbeat(fence)).await {
            Ok(Ok(())) => {
                core.store_seen(true);
                core.renew(fence, sent);
                core.note_heartbeat(None);
            }
            Ok(Err(StoreError::Fenced(_))) => return core.lose_membership(fence),
            Ok(Err(error)) => {
                core.store_seen(!matches!(error, StoreError::Unavailable { .. }));
                core.note_heartbeat(Some(error.to_string()));
            }
            Err(_) => core.note_heartbeat(Some("a heartbeat took too long".into())),
        }
        tell_report(core, mailboxes, fence).await;
    }
}

/// Registers a new incarnation, waits for the cache, bootstraps.
async fn join(core: &Core, identity: &mut Identity) -> Result<Fence, String> {
    let text = |error: StoreError| error.to_string();
    // Whoever is in the table is given work, and before the cache is whole it proves no absence.
    feed::wait_loaded(core).await;
    let now = core.store.now_ms().await.inspect_err(|_| core.store_seen(false)).map_err(text)?;
    core.store_seen(true);
    core.clock.set_now(now);
    let rows = core.store.managers().await.map_err(text)?;
    let own = rows.iter().filter(|row| row.manager == core.manager).map(|row| row.incarnation).max();
    let incarnation =
        identity.next_incarnation(now, own.unwrap_or_default()).map_err(|error| error.to_string())?;
    let fence = Fence { manager: core.manager, incarnation };
    let sent = Instant::now();
    core.store.register_manager(&row_of(core, fence, now)).await.map_err(text)?;
    load_members(core).await.map_err(text)?;
    core.ownership.set_members(core.members.owners());
    core.joined_epoch.store(core.epoch(), Ordering::Relaxed);
    core.set_fence(Some(fence));
    core.renew(fence, sent);
    bootstrap::apply(core).await.map_err(|error| format!("{error}: {}", source_of(&error)))?;
    tell(core, fence, Membership::Joined).await;
    tracing::info!(manager = %core.manager, incarnation = incarnation.0, "joined");
    Ok(fence)
}

fn row_of(core: &Core, fence: Fence, started_ms: u64) -> ManagerRow {
    ManagerRow {
        manager: fence.manager,
        incarnation: fence.incarnation,
        address: core.advertised(),
        version: name_version(env!("CARGO_PKG_VERSION"), core.settings.protocol),
        weight: core.settings.weight,
        started_ms,
        silent_ms: 0,
        evicted: false,
    }
}

/// Writes the row again, now that the API's address is known.
pub(crate) async fn tell_address(core: &Core) {
    if let Some(fence) = core.fence() {
        let row = row_of(core, fence, core.now_ms());
        match core.store.register_manager(&row).await {
            Ok(()) => tell(core, fence, Membership::Joined).await,
            Err(error) => tracing::debug!(%error, "the API's address could not be written"),
        }
    }
}

fn source_of(error: &dyn std::error::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}

/// Reads the table into this manager's copy. The epoch is read first, so that it is never newer than the rows.
async fn load_members(core: &Core) -> Result<Vec<ManagerRow>, StoreError> {
    let epoch = core.store.epoch().await?;
    let rows = core.store.managers().await?;
    // A manager of an earlier version raises no epoch in the store; its incarnation stands for it.
    let newest = rows.iter().map(|row| row.incarnation.0).max().unwrap_or_default();
    core.members.set_rows(rows.clone());
    core.raise_epoch(epoch.max(newest));
    Ok(rows)
}

/// Where a manager's API is reached. One that is not known yet is looked up in the table.
pub(crate) async fn find_address(core: &Core, manager: ManagerId) -> Option<String> {
    let known = |core: &Core| {
        let all = core.members.all();
        all.get(&manager).filter(|m| m.state != MemberState::Evicted).map(|m| m.row.address.clone())
    };
    if let Some(address) = known(core) {
        return Some(address);
    }
    if let Err(error) = load_members(core).await {
        tracing::debug!(%error, "the managers' table could not be read");
    }
    known(core)
}

/// Whether a manager is no member any more. One that is not known is looked up first: it may have joined just now.
pub(crate) async fn is_gone(core: &Core, manager: ManagerId) -> bool {
    match core.members.all().get(&manager) {
        Some(member) => member.state == MemberState::Evicted,
        None => load_members(core).await.is_ok() && !core.members.is_member(manager),
    }
}

/// Tells the other managers.
async fn tell(core: &Core, fence: Fence, event: Membership) {
    let event = ManagerEvent { manager: fence.manager, incarnation: fence.incarnation, event };
    if let Err(error) = core.bus.publish(subject::MANAGER_EVENT, encode(&event).into()).await {
        tracing::debug!(%error, "other managers could not be told; they will see it in the table");
    }
}

/// Says how much this manager has to do.
async fn tell_report(core: &Core, mailboxes: &Mailboxes, fence: Fence) {
    let (known, stored) = (core.cache.revision(), *core.store.watch().borrow());
    let report = ManagerReport {
        manager: fence.manager,
        incarnation: fence.incarnation,
        epoch: core.epoch(),
        revision: known,
        lag: stored.0.saturating_sub(known.0),
        queue: (mailboxes.depth() + core.changes.waiting()) as u64,
        operations: core.load.operations.load(Ordering::Relaxed),
        ring: core.ownership.ring().members().len() as u64,
        address: core.advertised(),
    };
    core.members.hear(report.clone());
    if let Err(error) = core.bus.publish(subject::MANAGER_REPORT, encode(&report).into()).await {
        tracing::debug!(%error, "a report was not sent");
    }
}

/// Hands over: the others own from now on what this manager owned. Its row stays until its work is done, so that this
/// can still be written.
pub(crate) async fn begin_leave(core: &Core) {
    core.ownership.leave();
    if let Some(fence) = core.fence() {
        tell(core, fence, Membership::Leaving).await;
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

#[cfg(test)]
mod tests;
