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
mod job;
mod logs;
mod order;
mod prune;
mod push;
mod release;
mod resume;
mod rotate;
mod staging;
mod supervise;
mod urls;

pub use events::{Event, Events};
pub(crate) use failure::Failure;
use input::Asked;
pub(crate) use input::ROTATION;
pub use input::{Given, GivenHidden, GivenSecret, GroupChange, Input, Push};
pub(crate) use job::Job;
pub use job::Live;
pub(crate) use logs::read as read_log;
pub(crate) use prune::spawn as spawn_prune;
pub(crate) use release::ReleaseStatus;
pub(crate) use rotate::platform;
pub(crate) use supervise::spawn as spawn_supervise;
use urls::urls_of;
pub(crate) use urls::{RouteIndex, automatic_host, url};

use crate::blobs::Blobs;
use crate::core::Core;
use crate::core::changes::Refused;
use crate::core::keys::{self, GroupRef};
use crate::core::shares::{Share, Shares};
use crate::error::CommitError;
use futures::FutureExt;
use order::Order;
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use towpath_store::{Commit, Expect, Idempotency, Write};
use towpath_types::spec::{OperationPhase, OperationSpec, OperationStatus};
use towpath_types::{AppRef, Digest, ErrorCode, Generation, LaneName, OperationId, Record, Revision};

/// Operations that run at the same time in one manager, half of them of one org at the most; further ones are told to come back.
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
    slots: Shares,
    live: Mutex<LiveMap>,
}

#[derive(Default)]
struct LiveMap {
    /// Being stored or claimed.
    starting: HashSet<OperationId>,
    by_id: HashMap<OperationId, Arc<Live>>,
    ended: VecDeque<OperationId>,
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

/// What is written together with a new operation.
pub type AlsoWritten = Box<dyn FnOnce(OperationId) -> Vec<Write> + Send>;

/// Why an operation was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// Too much work is waiting.
    #[error("too many operations run at the moment")]
    Busy,
    /// Too much waits for a turn.
    #[error("too many changes wait")]
    Refused(#[from] Refused),
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
            slots: Shares::new(RUNNING),
            live: Mutex::default(),
        })
    }

    /// Stores a new operation, with what else is to be written, and starts it. With an idempotency key that is known: the operation of the first request.
    /// Goes on when its caller goes away: what is stored is to be run. Nothing is begun after `until`.
    pub async fn submit(
        self: &Arc<Self>,
        new: NewOperation,
        idempotency: Option<Idempotency>,
        until: Option<Instant>,
        also: AlsoWritten,
    ) -> Result<(Record, Revision), SubmitError> {
        let operations = self.clone();
        let submitting = async move { operations.submit_now(new, idempotency, until, also).await };
        let submitting = tokio::spawn(self.core.acting_on(submitting));
        submitting.await.unwrap_or(Err(SubmitError::Broken))
    }

    async fn submit_now(
        self: &Arc<Self>,
        new: NewOperation,
        idempotency: Option<Idempotency>,
        until: Option<Instant>,
        also: AlsoWritten,
    ) -> Result<(Record, Revision), SubmitError> {
        let _turn = self.core.changes.enter(&keys::app_key(&new.app), until).await?;
        let slot = self.slots.take(new.app.org.as_str()).ok_or(SubmitError::Busy)?;
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
            taken_up: 0,
        };
        let put = |expect, spec: &OperationSpec, status| Write::Put {
            key: keys::operation_key(id),
            id: id.to_string(),
            expect,
            spec: serde_json::to_value(spec).ok(),
            status,
        };
        let (whole, blank) = (spec(&asked), spec(&asked.blanked()));
        // The store keeps the first answer to a key for a day, so values are not in it.
        let remembered = serde_json::to_value(&blank).ok().filter(|_| asked.has_values());
        let idempotency = idempotency.map(|named| Idempotency { spec: remembered, ..named });
        let write = put(Expect::Absent, &whole, serde_json::to_value(OperationStatus::default()).ok());
        let fence = self.core.fence_to_write().ok_or(CommitError::NotMember)?;
        let starting = self.starting(id);
        let writes = std::iter::once(write).chain(also(id)).collect();
        let commit = self.core.commit_once(writes, idempotency).await?;
        let record = commit.records.into_iter().next().flatten().ok_or(SubmitError::Unreadable)?;
        let stored: OperationSpec = record.spec().map_err(|_| SubmitError::Unreadable)?;
        if stored.operation == id {
            let group = GroupRef::new(new.app.clone(), new.lane.clone());
            let live = self.add_live(id, OperationStatus::default(), 0);
            let job = Job {
                expected: asked.expected,
                ..Job::new(blank, self.order.of(&group), group, live, fence, &record)
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

    fn spawn_run(self: &Arc<Self>, job: Job, input: Input, slot: Share) {
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
                    let storing = async move {
                        tokio::select! {
                            _ = commit_at_last(&core, &write) => {}
                            () = core.stopped() => {}
                        }
                    };
                    // When this membership is over, the end is for whoever takes the operation up.
                    tokio::spawn(self.core.acting(job.fence, storing));
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
            Input::RotateSecrets { to } => self.rotate_secrets(job, to).await,
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
