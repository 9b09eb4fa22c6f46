//! Going on with operations that an earlier start of this manager, or a manager that is gone, left behind.

use super::input::Asked;
use super::order::Change;
use super::{Failure, Job, Operations};
use crate::core::keys::GroupRef;
use crate::error::CommitError;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use towpath_store::Query;
use towpath_types::spec::{OperationPhase, OperationSpec, OperationStatus};
use towpath_types::{ErrorCode, Kind, ManagerId};

/// An operation as stored.
struct Stored {
    spec: OperationSpec,
    status: OperationStatus,
    asked: Option<Asked>,
}

impl Operations {
    /// Takes over what is not ended and has no living owner. Called once the cache is loaded.
    pub(crate) async fn resume(self: &Arc<Self>) -> Result<usize, CommitError> {
        let query = Query { kind: Some(Kind::Operation), ..Query::default() };
        let page = self.core.store.list(&query).await?;
        let living: BTreeSet<ManagerId> = self
            .core
            .store
            .managers()
            .await?
            .into_iter()
            .filter(|row| !row.evicted && row.silent_ms < self.core.settings.evict_after_ms)
            .map(|row| row.manager)
            .filter(|manager| *manager != self.core.manager)
            .collect();
        let mut stored: Vec<Stored> = page
            .records
            .iter()
            .filter_map(|record| {
                let spec: OperationSpec = record.spec().ok()?;
                let status = record.status().unwrap_or_default();
                let asked = serde_json::from_value(spec.input.clone()).ok();
                Some(Stored { spec, status, asked })
            })
            .collect();
        stored.sort_by_key(|operation| operation.spec.operation);
        // What was changed before decides which of the left ones are out of date.
        for operation in stored.iter().filter(|operation| made_its_change(operation)) {
            let group = GroupRef::new(operation.spec.app.clone(), operation.spec.lane.clone());
            self.order.of(&group).made(operation.spec.operation, change_of(&operation.spec.verb));
        }
        let mut resumed = 0;
        for operation in stored {
            let id = operation.spec.operation;
            let ended = matches!(operation.status.phase, OperationPhase::Succeeded | OperationPhase::Failed);
            if ended || living.contains(&operation.spec.owner) || self.find_live(id).is_some() {
                continue;
            }
            self.resume_one(operation).await;
            resumed += 1;
        }
        Ok(resumed)
    }

    async fn resume_one(self: &Arc<Self>, operation: Stored) {
        let Stored { mut spec, status, asked } = operation;
        let rolling = status.phase == OperationPhase::Rolling;
        // What an earlier run told had smaller numbers: it told less than an event in a microsecond.
        let live = self.add_live(spec.operation, status, self.core.now_ms().saturating_mul(1000));
        if let Some(asked) = &asked {
            spec.input = serde_json::to_value(asked.blanked()).unwrap_or_default();
        }
        let group = GroupRef::new(spec.app.clone(), spec.lane.clone());
        let job = Job {
            id: spec.operation,
            turn: self.order.of(&group),
            group,
            by: spec.by.clone(),
            live,
            spec,
            resumed: rolling,
            expected: asked.as_ref().and_then(|asked| asked.expected).filter(|_| !rolling),
            steps: AtomicU32::new(0),
        };
        let slot = self.slots.clone().try_acquire_owned().ok();
        let whole = asked.filter(|asked| rolling || !asked.blank);
        match (whole, slot) {
            (Some(Asked { input, .. }), Some(slot)) => {
                tracing::info!(operation = %job.id, verb = input.verb(), rolling, "operation is taken up again");
                self.spawn_run(job, input, slot);
            }
            (_, slot) => {
                let why = if slot.is_some() {
                    "what was asked for was not stored in full; send it again"
                } else {
                    "too many were left behind"
                };
                let failure =
                    Failure::new(ErrorCode::Internal, format!("the manager was restarted, and {why}"));
                let mut status = job.status();
                (status.phase, status.code, status.message) =
                    (OperationPhase::Failed, Some(failure.code), failure.message);
                self.store_end(&job, &status).await;
                job.set(|present| *present = status);
                self.end_live(job.id);
            }
        }
    }
}

/// What a verb that decides a group's release makes of it.
fn change_of(verb: &str) -> Change {
    match verb {
        "delete" => Change::AppDeleted,
        "delete-group" => Change::GroupDeleted,
        _ => Change::Release,
    }
}

/// Whether its change of the group's release is known to have been committed.
fn made_its_change(operation: &Stored) -> bool {
    let sets = operation.asked.as_ref().is_some_and(|asked| asked.input.sets_release());
    let after = match operation.status.phase {
        OperationPhase::Rolling | OperationPhase::Succeeded => true,
        OperationPhase::Failed => operation.status.code == Some(ErrorCode::StartFailed),
        OperationPhase::Pending | OperationPhase::Staging => false,
    };
    sets && after
}
