//! Going on with an operation that was claimed: one that an earlier start of this manager, or a manager that is gone, left.

use super::input::Asked;
use super::supervise::Stored;
use super::{Failure, Job, Operations};
use crate::core::keys::GroupRef;
use crate::core::shares::Share;
use std::sync::Arc;
use towpath_types::ErrorCode;
use towpath_types::spec::OperationPhase;

/// How often an operation is taken up again: one that brings down whoever runs it does not do so for ever.
const MOST_TIMES: u32 = 3;

impl Operations {
    /// Goes on with an operation that was claimed, in its org's place among those that run.
    pub(super) async fn resume_one(self: &Arc<Self>, operation: Stored, slot: Share) {
        let Stored { record, mut spec, status, asked } = operation;
        let Some(fence) = self.core.fence() else { return };
        let rolling = status.phase == OperationPhase::Rolling;
        let cancelled = status.cancel.clone().filter(|_| !rolling);
        // What an earlier run told had smaller numbers: it told less than an event in a microsecond.
        let live = self.add_live(spec.operation, status, self.core.now_ms().saturating_mul(1000));
        if let Some(asked) = &asked {
            spec.input = serde_json::to_value(asked.blanked()).unwrap_or_default();
        }
        let group = GroupRef::new(spec.app.clone(), spec.lane.clone());
        let job = Job {
            resumed: rolling,
            expected: asked.as_ref().and_then(|asked| asked.expected).filter(|_| !rolling),
            ..Job::new(spec, self.order.of(&group), group, live, fence, &record)
        };
        if let Some(by) = cancelled {
            return self.end_unrun(&job, Failure::cancelled(&by)).await;
        }
        if !rolling && job.spec.taken_up > MOST_TIMES {
            let message = format!(
                "it was begun {} times, and each time the manager that ran it was gone before its change was made",
                job.spec.taken_up
            );
            return self.end_unrun(&job, Failure::new(ErrorCode::Internal, message)).await;
        }
        // Earlier versions stored the values of variables by a commit of their own, which may not have come.
        if let Some(Asked { input, .. }) = asked.filter(|asked| rolling || !asked.blank) {
            tracing::info!(operation = %job.id, verb = input.verb(), rolling, "operation is taken up again");
            return self.spawn_run(job, input, slot);
        }
        let message =
            "the manager that ran it is gone, and what was asked for was not stored in full; send it again";
        self.end_unrun(&job, Failure::new(ErrorCode::Internal, message)).await;
    }

    /// Ends an operation that cannot be gone on with.
    async fn end_unrun(&self, job: &Job, failure: Failure) {
        let mut status = job.status();
        (status.phase, status.code, status.message) =
            (OperationPhase::Failed, Some(failure.code), failure.message);
        self.store_end(job, &status).await;
        job.set(|present| *present = status);
        self.end_live(job.id);
    }
}
