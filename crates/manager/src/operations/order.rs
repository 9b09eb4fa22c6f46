//! The order of operations that decide the release of one group: the later one (by id) wins.

use super::Failure;
use crate::core::keys::GroupRef;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedMutexGuard, watch};
use towpath_types::{AppRef, ErrorCode, OperationId};

/// Per group: one lock for making the change, and the newest operation whose change was made.
///
/// Every operation holds its group's turn from its start, so what ended it is known even if the group was not there.
#[derive(Default)]
pub(crate) struct Order {
    groups: Mutex<HashMap<GroupRef, Arc<Turn>>>,
}

/// One group's.
pub(crate) struct Turn {
    lock: Arc<tokio::sync::Mutex<()>>,
    newest: watch::Sender<Option<(OperationId, Change)>>,
}

/// What an operation made of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// It runs another release.
    Release,
    /// It is gone, alone.
    GroupDeleted,
    /// It is gone with its app.
    AppDeleted,
}

impl Change {
    /// Why an earlier operation gives up.
    pub(crate) fn failure(self) -> Failure {
        match self {
            Change::Release => Failure::superseded(),
            Change::GroupDeleted => {
                Failure::new(ErrorCode::Deleted, "the app was deleted from this lane in the meantime")
            }
            Change::AppDeleted => Failure::new(ErrorCode::Deleted, "the app was deleted in the meantime"),
        }
    }
}

impl Order {
    /// The group's turn. Groups that nobody works on are forgotten once there are many.
    pub(crate) fn of(&self, group: &GroupRef) -> Arc<Turn> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if groups.len() > 10_000 && !groups.contains_key(group) {
            groups.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        groups
            .entry(group.clone())
            .or_insert_with(|| Arc::new(Turn { lock: Arc::default(), newest: watch::Sender::new(None) }))
            .clone()
    }

    /// Notes that the operation has deleted the app: that of all who work on it, whether their group is there yet or not.
    pub(crate) fn app_deleted(&self, app: &AppRef, operation: OperationId) {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, turn) in groups.iter().filter(|(group, _)| group.app == *app) {
            turn.made(operation, Change::AppDeleted);
        }
    }
}

impl Turn {
    /// Waits for the right to change the group.
    pub(crate) async fn begin(&self) -> OwnedMutexGuard<()> {
        self.lock.clone().lock_owned().await
    }

    /// Fails when a later operation has made its change.
    pub(crate) fn check(&self, operation: OperationId) -> Result<(), Failure> {
        match *self.newest.borrow() {
            Some((newest, change)) if newest > operation => Err(change.failure()),
            _ => Ok(()),
        }
    }

    /// Notes that the operation has made its change.
    pub(crate) fn made(&self, operation: OperationId, change: Change) {
        let made = Some((operation, change));
        self.newest.send_modify(|newest| *newest = (*newest).max(made));
    }

    /// Resolves when a later operation has made its change, with why an earlier one gives up.
    pub(crate) async fn passed(&self, operation: OperationId) -> Failure {
        self.wait(|newest, _| newest > operation).await
    }

    /// Resolves when a later operation has begun to delete the group, with why an earlier one gives up.
    pub(crate) async fn deleted(&self, operation: OperationId) -> Failure {
        self.wait(|newest, change| newest > operation && change != Change::Release).await
    }

    async fn wait(&self, ends: impl Fn(OperationId, Change) -> bool) -> Failure {
        let mut newest = self.newest.subscribe();
        let made =
            newest.wait_for(|made| made.is_some_and(|(operation, change)| ends(operation, change))).await;
        let change = made.ok().and_then(|made| *made).map(|(_, change)| change);
        match change {
            Some(change) => change.failure(),
            None => std::future::pending().await,
        }
    }
}
