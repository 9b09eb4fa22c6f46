//! Watching over all operations: taking up those that nobody runs any more, and hearing of what others changed.
//!
//! An operation is run by the manager that took it, until its end. When that one is no member any more, the owner of the
//! operation's app takes it up: it writes itself into the operation, on condition that nobody else has written it since.
//! Every write by whoever runs an operation has the same condition, so of two that both believe they run it one takes effect.

use super::input::Asked;
use super::order::Change;
use super::{Job, Operations};
use crate::core::keys::{self, GroupRef};
use crate::error::CommitError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use towpath_store::{Expect, StoreError, Write};
use towpath_types::resource::Key;
use towpath_types::spec::{OperationPhase, OperationSpec, OperationStatus};
use towpath_types::{ErrorCode, Kind, OperationId, Record};

/// A look at all operations even when nothing was told.
const EVERY: Duration = Duration::from_secs(10);

/// An operation as stored.
pub(super) struct Stored {
    pub(super) record: Record,
    pub(super) spec: OperationSpec,
    pub(super) status: OperationStatus,
    pub(super) asked: Option<Asked>,
}

impl Stored {
    /// `None` = it cannot be read.
    pub(super) fn read(record: &Record) -> Option<Self> {
        let spec: OperationSpec = record.spec().ok()?;
        let status = record.status().ok()?;
        let asked = serde_json::from_value(spec.input.clone()).ok();
        Some(Self { record: record.clone(), spec, status, asked })
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self.status.phase, OperationPhase::Succeeded | OperationPhase::Failed)
    }

    /// Whether its change of the group's release is known to have been committed.
    fn made_its_change(&self) -> bool {
        let sets = self.asked.as_ref().is_some_and(|asked| asked.input.sets_release());
        let after = match self.status.phase {
            OperationPhase::Rolling | OperationPhase::Succeeded => true,
            OperationPhase::Failed => self.status.code == Some(ErrorCode::StartFailed),
            OperationPhase::Pending | OperationPhase::Staging => false,
        };
        sets && after
    }
}

/// What came of a look at an operation.
enum Look {
    /// It was taken up.
    Taken,
    /// There was nothing to do, or somebody else does it.
    Left,
    /// The store did not take the write.
    Refused,
}

/// Starts watching. What was left behind is taken up by [`Operations::resume`] first.
pub(crate) fn spawn(operations: Arc<Operations>) -> JoinHandle<()> {
    let core = operations.core.clone();
    crate::vitals::spawn(&core.clone(), async move {
        tokio::select! {
            () = run(&operations) => {}
            () = core.stopped() => {}
        }
    })
}

async fn run(operations: &Arc<Operations>) {
    let core = &operations.core;
    let (mut steps, mut ring, mut member) = (core.steps(), core.ownership.watch(), core.membership());
    let is_operation = |key: &&Key| key.kind == Kind::Operation;
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let keys = tokio::select! {
            step = steps.recv() => match step {
                Ok(step) => Some(step.keys.iter().filter(is_operation).cloned().collect::<Vec<Key>>()),
                Err(RecvError::Lagged(_)) => None,
                Err(RecvError::Closed) => return,
            },
            Ok(()) = ring.changed() => None,
            Ok(()) = member.changed() => None,
            _ = every.tick() => None,
        };
        match keys {
            Some(keys) => {
                for key in keys {
                    if let Some(record) = core.cache.get(&key) {
                        operations.look_at(&record).await;
                    }
                }
            }
            None => {
                if let Err(error) = operations.resume().await {
                    tracing::debug!(%error, "operations could not be looked at now");
                }
            }
        }
    }
}

impl Operations {
    /// Takes up what is not ended and has nobody who runs it; says how many.
    pub(crate) async fn resume(self: &Arc<Self>) -> Result<usize, CommitError> {
        let mut records = self.core.cache.list(Kind::Operation, None, None);
        // What was changed before decides which of the left ones are out of date.
        for record in &records {
            self.note_change(record);
        }
        records.retain(|record| !record.status::<OperationStatus>().is_ok_and(|status| is_over(&status)));
        let mut taken = 0;
        for record in records {
            match self.look_at(&record).await {
                Look::Taken => taken += 1,
                Look::Left => {}
                // One that could not be written says enough about all others; they are looked at again soon.
                Look::Refused => break,
            }
        }
        Ok(taken)
    }

    /// Notes that an operation has made its change, so that earlier ones on the same group give up.
    fn note_change(&self, record: &Record) {
        if let Some(stored) = Stored::read(record).filter(Stored::made_its_change) {
            let (app, id) = (&stored.spec.app, stored.spec.operation);
            if stored.spec.verb == "delete" {
                self.order.app_deleted(app, id);
            }
            let group = GroupRef::new(app.clone(), stored.spec.lane.clone());
            self.order.of(&group).made(id, change_of(&stored.spec.verb));
        }
    }

    /// Notes the changes of all operations that are newer than a job: those of other managers too.
    pub(super) async fn note_newer(&self, job: &Job) {
        self.core.catch_up().await;
        for record in self.core.cache.operations_after(job.id) {
            self.note_change(&record);
        }
    }

    /// Looks at one operation, and takes it up if nobody runs it.
    async fn look_at(self: &Arc<Self>, record: &Record) -> Look {
        let Some(stored) = Stored::read(record) else { return Look::Left };
        let id = stored.spec.operation;
        if stored.made_its_change() {
            self.note_change(record);
        }
        if stored.is_ended() || self.is_starting(id) {
            return Look::Left;
        }
        if let Some(live) = self.find_live(id) {
            if stored.spec.owner != self.core.manager {
                // Somebody took it up while this manager was thought to be gone.
                live.leave();
                self.forget_live(id);
            } else if let Some(by) = &stored.status.cancel {
                live.cancel(by);
            }
            return Look::Left;
        }
        if !self.is_left(&stored).await {
            return Look::Left;
        }
        let Some(fence) = self.core.fence() else { return Look::Left };
        // The place first: what was claimed without one could only be ended. Without one it is looked at again soon.
        let Some(slot) = self.slots.take(stored.spec.app.org.as_str()) else { return Look::Left };
        match self.core.acting(fence, self.claim(stored)).await {
            Ok(Some(claimed)) => {
                self.resume_one(claimed, slot).await;
                Look::Taken
            }
            Ok(None) => Look::Left,
            Err(error) => {
                tracing::debug!(operation = %id, %error, "an operation could not be taken up now");
                let away = matches!(error, CommitError::Store(StoreError::Unavailable { .. }));
                if away { Look::Refused } else { Look::Left }
            }
        }
    }

    /// Whether this manager is to take the operation up.
    async fn is_left(&self, stored: &Stored) -> bool {
        let core = &self.core;
        if core.fence().is_none() || !core.may_act() {
            return false;
        }
        let owner = stored.spec.owner;
        owner == core.manager
            || (core.ownership.is_mine(&stored.spec.app.to_string())
                && crate::membership::is_gone(core, owner).await)
    }

    /// Writes this manager into the operation; `None` = somebody was faster.
    async fn claim(&self, stored: Stored) -> Result<Option<Stored>, CommitError> {
        // Following a rollout does no harm; what comes before it may have ended the manager that ran it.
        let again = u32::from(stored.status.phase != OperationPhase::Rolling);
        let taken_up = stored.spec.taken_up.saturating_add(again);
        let spec = OperationSpec { owner: self.core.manager, taken_up, ..stored.spec.clone() };
        let id = spec.operation;
        let starting = self.starting(id);
        let write = Write::Put {
            key: keys::operation_key(id),
            id: id.to_string(),
            expect: Expect::At(stored.record.revision),
            spec: serde_json::to_value(&spec).ok(),
            status: None,
        };
        let commit = match self.core.commit(vec![write]).await {
            Ok(commit) => commit,
            Err(CommitError::Store(StoreError::Conflict { .. })) => return Ok(None),
            Err(error) => return Err(error),
        };
        drop(starting);
        Ok(commit.records.into_iter().flatten().next().as_ref().and_then(Stored::read))
    }

    /// How a job's own record stands after another has written it: the job goes on, was cancelled, or is somebody else's.
    pub(super) async fn look_at_own(&self, job: &Job) -> Result<(), super::Failure> {
        let present =
            self.core.store.get(&keys::operation_key(job.id)).await.map_err(super::Failure::of_store)?;
        let present = present.as_ref().and_then(Stored::read);
        match present.filter(|stored| stored.spec.owner == self.core.manager && !stored.is_ended()) {
            Some(stored) => {
                job.set_revision(stored.record.revision);
                stored.status.cancel.map_or(Ok(()), |by| Err(super::Failure::cancelled(&by)))
            }
            None => {
                job.set_lost();
                Err(super::Failure::superseded())
            }
        }
    }
}

fn is_over(status: &OperationStatus) -> bool {
    matches!(status.phase, OperationPhase::Succeeded | OperationPhase::Failed)
}

/// What a verb that decides a group's release makes of it.
fn change_of(verb: &str) -> Change {
    match verb {
        "delete" => Change::AppDeleted,
        "delete-group" => Change::GroupDeleted,
        _ => Change::Release,
    }
}

/// An operation that is being stored or claimed by this manager: it runs here in a moment, so nobody takes it up.
pub(super) struct Starting<'a> {
    operations: &'a Operations,
    id: OperationId,
}

impl Operations {
    pub(super) fn starting(&self, id: OperationId) -> Starting<'_> {
        self.live_map().starting.insert(id);
        Starting { operations: self, id }
    }

    fn is_starting(&self, id: OperationId) -> bool {
        self.live_map().starting.contains(&id)
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.operations.live_map().starting.remove(&self.id);
    }
}
