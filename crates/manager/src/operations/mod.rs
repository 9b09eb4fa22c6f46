//! Long work that a client can follow: pushes and every other change that brings up or ends instances.
//!
//! Invariants: an operation is in the store before its client is told its id; the change that it makes and its step to
//! `rolling` are one commit, so that after a crash it is known whether the change was made; of two operations that decide
//! the release of a group the later one (by id) wins, the earlier ends as superseded; every operation ends.
//!
//! Must not: decide rollouts (that is the reconciler's), speak HTTP.

mod apply;
mod delete;
pub(crate) mod elsewhere;
mod events;
mod failure;
mod group_change;
mod input;
mod logs;
mod order;
mod prune;
mod push;
mod release;
mod resume;
mod staging;
mod supervise;
mod urls;

pub use events::{Event, Events};
pub(crate) use failure::Failure;
use input::Asked;
pub use input::{GroupChange, Input, Push};
pub(crate) use logs::read as read_log;
pub(crate) use prune::spawn as spawn_prune;
pub(crate) use release::ReleaseStatus;
pub(crate) use supervise::spawn as spawn_supervise;
use urls::urls_of;
pub(crate) use urls::{RouteIndex, automatic_host, url};

use crate::blobs::Blobs;
use crate::core::Core;
use crate::core::keys::{self, GroupRef};
use crate::error::CommitError;
use futures::FutureExt;
use order::{Order, Turn};
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use towpath_store::{Commit, Expect, Fence, StoreError, Write};
use towpath_types::spec::{OperationPhase, OperationSpec, OperationStatus};
use towpath_types::{AppRef, Digest, ErrorCode, Generation, LaneName, OperationId, Record, Revision};

/// Operations that run at the same time in one manager; further ones are told to come back.
const RUNNING: usize = 256;
/// Ended operations whose events are kept in memory.
const KEPT_EVENTS: usize = 64;
/// How long the end of an operation is tried to be stored before its followers are told.
const STORE_PATIENCE: Duration = Duration::from_secs(30);

/// The operations of one manager.
pub struct Operations {
    core: Arc<Core>,
    blobs: Blobs,
    order: Order,
    slots: Arc<Semaphore>,
    live: Mutex<LiveMap>,
}

#[derive(Default)]
struct LiveMap {
    /// Being stored or claimed.
    starting: HashSet<OperationId>,
    by_id: HashMap<OperationId, Arc<Live>>,
    ended: VecDeque<OperationId>,
}

/// An operation that runs, or ran a moment ago, in this manager.
pub struct Live {
    /// What it told.
    pub events: Events,
    /// Its status; the phase tells whether it ended.
    status: watch::Sender<OperationStatus>,
    /// Who asked for it to be given up.
    cancel: watch::Sender<Option<String>>,
    /// It is no longer this manager's.
    left: watch::Sender<bool>,
}

impl Live {
    fn new(status: OperationStatus, told: u64) -> Self {
        Self {
            events: Events::above(told),
            cancel: watch::Sender::new(None),
            status: watch::Sender::new(status),
            left: watch::Sender::new(false),
        }
    }

    /// Asks for it to be given up.
    fn cancel(&self, by: &str) {
        self.cancel.send_if_modified(|cancel| cancel.replace(by.to_owned()).is_none());
    }

    /// Resolves when it is to be given up, with the failure to end with.
    pub(crate) async fn cancelled(&self) -> Failure {
        let mut cancel = self.cancel.subscribe();
        let by = cancel.wait_for(Option::is_some).await.ok().and_then(|by| by.clone());
        match by {
            Some(by) => Failure::cancelled(&by),
            None => std::future::pending().await,
        }
    }

    /// It is another manager's from now on.
    fn leave(&self) {
        self.left.send_replace(true);
    }

    /// Resolves when it is no longer this manager's: what it tells further is told elsewhere.
    pub(crate) async fn left(&self) {
        let mut left = self.left.subscribe();
        if left.wait_for(|left| *left).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Follows its status.
    pub fn status(&self) -> watch::Receiver<OperationStatus> {
        self.status.subscribe()
    }
}

/// What an operation works on and with.
pub(crate) struct Job {
    pub(crate) id: OperationId,
    pub(crate) group: GroupRef,
    /// Its place among the operations on the group.
    pub(crate) turn: Arc<Turn>,
    pub(crate) by: String,
    pub(crate) live: Arc<Live>,
    /// As it is stored from the change, or the end, on.
    pub(crate) spec: OperationSpec,
    /// It had made its change already when another manager, or an earlier start of this one, left it.
    pub(crate) resumed: bool,
    /// Generation that what it changes has to be at, as its client said.
    pub(crate) expected: Option<Generation>,
    /// Changes that it has begun to make: an operation may make several, which are different ones even when all that
    /// they read and write is the same.
    pub(crate) steps: AtomicU32,
    /// The membership under which it is run.
    fence: Fence,
    /// Revision of its own record as it was written here last: nobody else writes it while this manager runs it.
    revision: AtomicU64,
    /// Another manager runs it: nothing is to be written any more.
    lost: AtomicBool,
}

impl Job {
    fn new(
        spec: OperationSpec,
        turn: Arc<Turn>,
        group: GroupRef,
        live: Arc<Live>,
        fence: Fence,
        revision: Revision,
    ) -> Self {
        Self {
            id: spec.operation,
            turn,
            group,
            by: spec.by.clone(),
            live,
            spec,
            resumed: false,
            expected: None,
            steps: AtomicU32::new(0),
            fence,
            revision: AtomicU64::new(revision.0),
            lost: AtomicBool::new(false),
        }
    }

    fn set_revision(&self, revision: Revision) {
        self.revision.store(revision.0, Ordering::Relaxed);
    }

    /// Notes the revision of its own record in a commit.
    pub(crate) fn saw(&self, commit: &Commit) {
        let own = keys::operation_key(self.id);
        if let Some(record) = commit.records.iter().flatten().find(|record| record.key == own) {
            self.set_revision(record.revision);
        }
    }

    fn set_lost(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Whether an error is about its own record: somebody else wrote it.
    pub(crate) fn is_own_conflict(&self, error: &CommitError) -> bool {
        matches!(error, CommitError::Store(StoreError::Conflict { key, .. }) if *key == keys::operation_key(self.id))
    }

    /// The app.
    pub(crate) fn app(&self) -> &AppRef {
        &self.group.app
    }

    /// Whether a later operation on the group makes it pointless.
    pub(crate) fn sets_release(&self) -> bool {
        matches!(self.spec.verb.as_str(), "push" | "rollback")
    }

    /// Refuses a change of what others changed since the client saw it.
    pub(crate) fn check(&self, present: &Record) -> Result<(), Failure> {
        match self.expected {
            Some(expected) if expected != present.generation => Err(Failure::new(
                ErrorCode::StaleRevision,
                "it was changed by another since, and `If-Match` was sent",
            )),
            _ => Ok(()),
        }
    }

    /// Changes the status as followers see it.
    pub(crate) fn set(&self, change: impl FnOnce(&mut OperationStatus)) {
        let mut phase = None;
        self.live.status.send_modify(|status| {
            let before = status.phase;
            change(status);
            phase = (status.phase != before).then_some(status.phase);
        });
        if let Some(phase) = phase {
            self.live.events.push(Event::Phase { phase });
        }
    }

    /// The status now.
    pub(crate) fn status(&self) -> OperationStatus {
        self.live.status.borrow().clone()
    }

    /// The write that brings the operation itself to a status. Its input is not needed any more once it is made, so
    /// the values in it go.
    pub(crate) fn write(&self, status: &OperationStatus) -> Write {
        Write::Put {
            key: keys::operation_key(self.id),
            id: self.id.to_string(),
            expect: Expect::At(Revision(self.revision.load(Ordering::Relaxed))),
            spec: serde_json::to_value(&self.spec).ok(),
            status: serde_json::to_value(status).ok(),
        }
    }
}

/// A new operation.
#[derive(Debug, Clone)]
pub struct NewOperation {
    /// The app.
    pub app: AppRef,
    /// The lane.
    pub lane: LaneName,
    /// Verb and input.
    pub input: Input,
    /// Generation that the changed app or group has to be at; `None` = any.
    pub expected: Option<Generation>,
    /// Who asks.
    pub by: String,
}

/// Why an operation was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// Too much work is waiting.
    #[error("too many operations run at the moment")]
    Busy,
    /// The idempotency key belongs to another request.
    #[error("this idempotency key was used for another request")]
    KeyReused,
    /// The store did not take it.
    #[error("the operation could not be stored")]
    Commit(#[from] CommitError),
    /// The store gave back something else than an operation.
    #[error("the stored operation is not readable")]
    Unreadable,
    /// Our own fault.
    #[error("taking the operation broke off")]
    Broken,
}

impl Operations {
    /// For this core and blob store.
    pub fn new(core: Arc<Core>, blobs: Blobs) -> Arc<Self> {
        Arc::new(Self {
            core,
            blobs,
            order: Order::default(),
            slots: Arc::new(Semaphore::new(RUNNING)),
            live: Mutex::default(),
        })
    }

    /// Stores a new operation and starts it. With an idempotency key that is known: the operation of the first request.
    /// Goes on when its caller goes away: what is stored is to be run.
    pub async fn submit(
        self: &Arc<Self>,
        new: NewOperation,
        idempotency: Option<String>,
    ) -> Result<(Record, Revision), SubmitError> {
        let operations = self.clone();
        let submitting = tokio::spawn(async move { operations.submit_now(new, idempotency).await });
        submitting.await.unwrap_or(Err(SubmitError::Broken))
    }

    async fn submit_now(
        self: &Arc<Self>,
        new: NewOperation,
        idempotency: Option<String>,
    ) -> Result<(Record, Revision), SubmitError> {
        let slot = self.slots.clone().try_acquire_owned().map_err(|_| SubmitError::Busy)?;
        let id = self.core.mint_operation();
        let asked = Asked::new(id, new.input, new.expected);
        let spec = |asked: &Asked| OperationSpec {
            operation: id,
            verb: asked.input.verb().into(),
            app: new.app.clone(),
            lane: new.lane.clone(),
            group: None,
            input: serde_json::to_value(asked).unwrap_or_default(),
            owner: self.core.manager,
            by: new.by.clone(),
        };
        let put = |expect, spec: &OperationSpec, status| Write::Put {
            key: keys::operation_key(id),
            id: id.to_string(),
            expect,
            spec: serde_json::to_value(spec).ok(),
            status,
        };
        let (whole, blank) = (spec(&asked), spec(&asked.blanked()));
        // The store keeps the first answer to a key for a day, so values are not in it: they are stored just behind it.
        let in_two = idempotency.is_some() && asked.has_values();
        let first = if in_two { &blank } else { &whole };
        let write = put(Expect::Absent, first, serde_json::to_value(OperationStatus::default()).ok());
        let fence = self.core.fence().ok_or(CommitError::NotMember)?;
        let starting = self.starting(id);
        let commit = self.core.commit_once(vec![write], idempotency).await?;
        let record = commit.records.into_iter().next().flatten().ok_or(SubmitError::Unreadable)?;
        let stored: OperationSpec = record.spec().map_err(|_| SubmitError::Unreadable)?;
        if stored.operation == id {
            let mut revision = record.revision;
            if in_two {
                match self.core.commit(vec![put(Expect::Present, &whole, None)]).await {
                    Ok(commit) => revision = commit.revision,
                    Err(error) => {
                        let what = "an operation's input is not stored; it ends with this manager";
                        tracing::warn!(%error, operation = %id, "{what}");
                    }
                }
            }
            let group = GroupRef::new(new.app.clone(), new.lane.clone());
            let live = self.add_live(id, OperationStatus::default(), 0);
            let job = Job {
                expected: asked.expected,
                ..Job::new(blank, self.order.of(&group), group, live, fence, revision)
            };
            drop(starting);
            self.spawn_run(job, asked.input, slot);
            return Ok((record, commit.revision));
        }
        let before: Asked = serde_json::from_value(stored.input).map_err(|_| SubmitError::Unreadable)?;
        let same = before.is_same(stored.operation, &asked);
        if (&stored.app, &stored.lane) != (&new.app, &new.lane) || !same {
            return Err(SubmitError::KeyReused);
        }
        // The first answer again, but as things stand now.
        let present = self.core.store.get(&record.key).await.map_err(CommitError::from)?;
        Ok((present.unwrap_or(record), commit.revision))
    }

    fn live_map(&self) -> MutexGuard<'_, LiveMap> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation that runs, or ran a moment ago, here.
    pub fn find_live(&self, id: OperationId) -> Option<Arc<Live>> {
        self.live_map().by_id.get(&id).cloned()
    }

    /// `told`: its events have numbers above this.
    fn add_live(&self, id: OperationId, status: OperationStatus, told: u64) -> Arc<Live> {
        let live = Arc::new(Live::new(status, told));
        self.live_map().by_id.insert(id, live.clone());
        live
    }

    fn end_live(&self, id: OperationId) {
        let mut map = self.live_map();
        map.ended.push_back(id);
        while map.ended.len() > KEPT_EVENTS {
            if let Some(old) = map.ended.pop_front() {
                map.by_id.remove(&old);
            }
        }
    }

    /// It is run elsewhere, or will be.
    fn forget_live(&self, id: OperationId) {
        self.live_map().by_id.remove(&id);
    }

    fn spawn_run(self: &Arc<Self>, job: Job, input: Input, slot: tokio::sync::OwnedSemaphorePermit) {
        let operations = self.clone();
        tokio::spawn(async move {
            let _slot = slot;
            let core = operations.core.clone();
            core.load.operations.fetch_add(1, Ordering::Relaxed);
            let live = job.live.clone();
            let ended = tokio::select! {
                biased;
                // Whoever owns it now goes on with it; this manager does nothing more.
                () = core.lost(job.fence) => false,
                () = live.left() => false,
                () = core.acting(job.fence, operations.run_to_end(&job, &input)) => true,
                // It goes on when this manager, or another, starts again.
                () = core.stopped() => true,
            };
            core.load.operations.fetch_sub(1, Ordering::Relaxed);
            if ended && !job.lost.load(Ordering::Relaxed) {
                operations.end_live(job.id);
            } else {
                tracing::info!(operation = %job.id, "operation is left to whoever owns it now");
                operations.forget_live(job.id);
                job.live.leave();
            }
        });
    }

    async fn run_to_end(&self, job: &Job, input: &Input) {
        tracing::info!(operation = %job.id, verb = input.verb(), group = %job.group, by = job.by, "operation begins");
        let work = AssertUnwindSafe(Box::pin(self.run(job, input))).catch_unwind();
        let outcome = work.await.unwrap_or_else(|_| {
            Err(Failure::new(ErrorCode::Internal, "the operation broke off; the manager's log has more"))
        });
        if job.lost.load(Ordering::Relaxed) {
            return;
        }
        let mut status = job.status();
        match outcome {
            Ok(()) => status.phase = OperationPhase::Succeeded,
            Err(failure) => {
                status.phase = OperationPhase::Failed;
                status.code = Some(failure.code);
                status.message = failure.message;
                status.log = failure.log;
                status.urls = Vec::new();
            }
        }
        tracing::info!(
            operation = %job.id, verb = input.verb(), group = %job.group, phase = ?status.phase,
            code = status.code.map(ErrorCode::as_str), why = status.message, "operation ended"
        );
        self.store_end(job, &status).await;
        job.set(|present| *present = status);
    }

    /// Stores the end. A store that is gone for longer learns it when it is back, from a task of its own.
    async fn store_end(&self, job: &Job, status: &OperationStatus) {
        for _ in 0..3 {
            let write = job.write(status);
            match tokio::time::timeout(STORE_PATIENCE, commit_at_last(&self.core, &write)).await {
                // Somebody asked for it to be cancelled, too late, or took it up.
                Ok(Err(error)) if job.is_own_conflict(&error) => {
                    let own = self.look_at_own(job).await;
                    if job.lost.load(Ordering::Relaxed) {
                        return tracing::info!(operation = %job.id, ?own, "another manager has ended this operation");
                    }
                }
                Ok(Err(error)) => {
                    return tracing::error!(%error, "the end of an operation could not be stored");
                }
                Ok(Ok(commit)) => return job.saw(&commit),
                Err(_) => {
                    let core = self.core.clone();
                    tokio::spawn(async move {
                        tokio::select! {
                            _ = commit_at_last(&core, &write) => {}
                            () = core.stopped() => {}
                        }
                    });
                    return;
                }
            }
        }
    }

    async fn run(&self, job: &Job, input: &Input) -> Result<(), Failure> {
        match input {
            Input::Push(push) => self.push(job, push).await,
            Input::Rollback { release } => self.rollback(job, *release).await,
            Input::Scale(change) | Input::Update(change) => self.change_group(job, change).await,
            Input::Env { env } => self.change_app_env(job, env).await,
            Input::Restart => self.restart(job).await,
            Input::DeleteGroup => self.delete_group(job).await,
            Input::Delete => self.delete_app(job).await,
        }
    }

    /// The digest that names a release's artifact, when both are there.
    async fn find_artifact(&self, app: &AppRef, release: Digest) -> Result<Option<Record>, Failure> {
        let record =
            self.core.store.get(&keys::release_key(app, release)).await.map_err(Failure::of_store)?;
        let Some(record) = record else { return Ok(None) };
        let spec: towpath_types::spec::ReleaseSpec =
            record.spec().map_err(|_| Failure::unreadable("release"))?;
        let there = self.blobs.find(crate::blobs::BlobKind::Artifact, &spec.artifact).await.is_some();
        Ok(there.then_some(record))
    }
}

/// Commits one write, again and again while the store is gone.
async fn commit_at_last(core: &Core, write: &Write) -> Result<Commit, CommitError> {
    let mut pause = Duration::from_millis(50);
    loop {
        match core.commit(vec![write.clone()]).await {
            Err(error) if error.is_transient() => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(5));
            }
            outcome => return outcome,
        }
    }
}
