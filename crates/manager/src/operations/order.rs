//! The order of operations that decide the release of one group: the later one (by id) wins.

use crate::core::keys::GroupRef;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedMutexGuard, watch};
use towpath_types::OperationId;

/// Per group: one lock for making the change, and the newest operation whose change was made.
#[derive(Default)]
pub(crate) struct Order {
    groups: Mutex<HashMap<GroupRef, Arc<Turn>>>,
}

/// One group's.
pub(crate) struct Turn {
    lock: Arc<tokio::sync::Mutex<()>>,
    newest: watch::Sender<Option<OperationId>>,
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
}

impl Turn {
    /// Waits for the right to change the group.
    pub(crate) async fn begin(&self) -> OwnedMutexGuard<()> {
        self.lock.clone().lock_owned().await
    }

    /// Whether a later operation has made its change.
    pub(crate) fn is_past(&self, operation: OperationId) -> bool {
        self.newest.borrow().is_some_and(|newest| newest > operation)
    }

    /// Notes that the operation has made its change.
    pub(crate) fn made(&self, operation: OperationId) {
        self.newest
            .send_modify(|newest| *newest = Some(newest.map_or(operation, |newest| newest.max(operation))));
    }

    /// Resolves when a later operation has made its change.
    pub(crate) async fn passed(&self, operation: OperationId) {
        let mut newest = self.newest.subscribe();
        if newest.wait_for(|newest| newest.is_some_and(|newest| newest > operation)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
