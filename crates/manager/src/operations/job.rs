//! One operation while it runs: what its followers see, and what its work needs.

use super::order::Turn;
use super::{Event, Events, Failure};
use crate::core::keys::{self, GroupRef};
use crate::error::CommitError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tokio::sync::watch;
use towpath_store::{Commit, Expect, Fence, StoreError, Write};
use towpath_types::spec::{OperationSpec, OperationStatus};
use towpath_types::{AppRef, ErrorCode, Generation, OperationId, Record, Revision};

/// An operation that runs, or ran a moment ago, in this manager.
pub struct Live {
    /// What it told.
    pub events: Events,
    /// Its status; the phase tells whether it ended.
    pub(super) status: watch::Sender<OperationStatus>,
    /// Who asked for it to be given up.
    cancel: watch::Sender<Option<String>>,
    /// It is no longer this manager's.
    left: watch::Sender<bool>,
}

impl Live {
    pub(super) fn new(status: OperationStatus, told: u64) -> Self {
        Self {
            events: Events::above(told),
            cancel: watch::Sender::new(None),
            status: watch::Sender::new(status),
            left: watch::Sender::new(false),
        }
    }

    /// Asks for it to be given up.
    pub(super) fn cancel(&self, by: &str) {
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
    pub(super) fn leave(&self) {
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
    /// When it was asked for, by the store's clock.
    pub(super) created_ms: u64,
    /// It had made its change already when another manager, or an earlier start of this one, left it.
    pub(crate) resumed: bool,
    /// Generation that what it changes has to be at, as its client said.
    pub(crate) expected: Option<Generation>,
    /// Changes that it has begun to make: an operation may make several, which are different ones even when all that
    /// they read and write is the same.
    pub(crate) steps: AtomicU32,
    /// The membership under which it is run.
    pub(super) fence: Fence,
    /// Revision of its own record as it was written here last: nobody else writes it while this manager runs it.
    pub(super) revision: AtomicU64,
    /// Another manager runs it: nothing is to be written any more.
    pub(super) lost: AtomicBool,
}

impl Job {
    pub(super) fn new(
        spec: OperationSpec,
        turn: Arc<Turn>,
        group: GroupRef,
        live: Arc<Live>,
        fence: Fence,
        record: &Record,
    ) -> Self {
        Self {
            id: spec.operation,
            turn,
            group,
            by: spec.by.clone(),
            live,
            spec,
            created_ms: record.created_ms,
            resumed: false,
            expected: None,
            steps: AtomicU32::new(0),
            fence,
            revision: AtomicU64::new(record.revision.0),
            lost: AtomicBool::new(false),
        }
    }

    pub(super) fn set_revision(&self, revision: Revision) {
        self.revision.store(revision.0, Ordering::Relaxed);
    }

    /// Notes the revision of its own record in a commit.
    pub(crate) fn saw(&self, commit: &Commit) {
        let own = keys::operation_key(self.id);
        if let Some(record) = commit.records.iter().flatten().find(|record| record.key == own) {
            self.set_revision(record.revision);
        }
    }

    pub(super) fn set_lost(&self) {
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
