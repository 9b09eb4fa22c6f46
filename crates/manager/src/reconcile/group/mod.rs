//! The reconciler of groups: load (from the caches) → plan (pure) → apply (commit the status, tell the cells).
//!
//! Level-triggered and idempotent: whatever activates it, it looks at what is, and does the next step. A commit that fails
//! for any reason is simply planned again.

mod apply;
mod load;
#[cfg(test)]
mod tests;

pub(crate) use apply::poke;

use super::Mailboxes;
use crate::core::Core;
use crate::core::cache::CachedGroup;
use crate::core::keys::GroupRef;
use std::time::Duration;
use towpath_bus::BusState;
use towpath_plan::rollout::{GroupPlan, plan_group};
use towpath_types::spec::{GroupStatus, LastFailure, RolloutPhase};

/// Pause after a commit that failed for a while.
const RETRY: Duration = Duration::from_millis(500);

/// Pause between two writes of nothing but progress, milliseconds for each instance.
const PROGRESS_MS: u64 = 5;
/// The longest such pause, milliseconds.
const MOST_PROGRESS_MS: u64 = 10_000;

/// Looks at one group once; says when to look again at the latest.
pub(crate) async fn reconcile(core: &Core, mailboxes: &Mailboxes, name: GroupRef) -> Option<Duration> {
    if !core.ownership.is_mine(&name.to_string()) {
        // Its owner does; a change of the ring has all groups looked at again.
        mailboxes.set_settled(&name, true);
        return None;
    }
    let Some(fence) = core.fence().filter(|_| core.may_act()) else { return Some(later()) };
    if *core.bus.state().borrow() == BusState::Down {
        // Neither can anybody be told, nor does silence say anything: what stands stays.
        return Some(later());
    }
    // Nothing is planned that could not be written; who waits for that is told when to ask again.
    let pass = match core.gate.enter() {
        Ok(pass) => pass,
        Err(wait) => {
            mailboxes.set_settled(&name, false);
            return Some(wait);
        }
    };
    let Some(plan) = plan_next(core, &name) else {
        // Gone: whoever deleted it took its instances with it.
        mailboxes.set_settled(&name, true);
        return None;
    };
    let Planned { mut plan, group, reservation } = plan;
    note_failure(core.now_ms(), &group.status, &mut plan.status);
    let settled =
        matches!(plan.status.phase, RolloutPhase::Steady | RolloutPhase::Failed) && plan.actions.is_empty();
    mailboxes.set_settled(&name, settled);
    let wake = Duration::from_millis(plan.wake_ms);
    if plan.status == group.status {
        return Some(wake);
    }
    if let Some(pause) = find_pause(core.now_ms(), &group, &plan.status) {
        return Some(wake.min(pause));
    }
    let applied = apply::apply(core, fence, &name, &group, plan).await;
    drop(pass);
    match applied {
        Ok(()) => {
            reservation.keep();
            Some(wake)
        }
        Err(error) if error.is_transient() => Some(later()),
        Err(error) => {
            // A conflict: somebody else wrote it, and the feed brings what; look again soon.
            tracing::debug!(group = %name, %error, "the plan was overtaken");
            Some(Duration::from_millis(20))
        }
    }
}

/// How long to wait before a status is written that tells people nothing but how far a rollout is; `None` = it is written now.
/// Each instance that becomes ready changes that text, and each write costs as much as the group is large.
fn find_pause(now_ms: u64, group: &CachedGroup, after: &GroupStatus) -> Option<Duration> {
    let before = &group.status;
    if after.phase != before.phase || after.code != before.code {
        return None;
    }
    let instances = u64::try_from(after.assignments.len()).unwrap_or(u64::MAX);
    let pause = instances.saturating_mul(PROGRESS_MS).min(MOST_PROGRESS_MS);
    let since = now_ms.saturating_sub(group.record.updated_ms);
    let told = GroupStatus { message: before.message.clone(), ..after.clone() };
    (since < pause && told == *before).then(|| Duration::from_millis(pause - since))
}

/// While nothing can be done: looked at again after a while, not all groups in one instant when it can be done again.
fn later() -> Duration {
    RETRY + RETRY.mul_f64(fastrand::f64() * 3.0)
}

/// Keeps what went wrong when it goes wrong: the plan forgets it as soon as all is well.
fn note_failure(now_ms: u64, before: &GroupStatus, after: &mut GroupStatus) {
    let Some(code) = after.code else { return };
    if before.code != after.code || before.failed != after.failed {
        after.last_failure = Some(LastFailure { at_ms: now_ms, code, message: after.message.clone() });
    }
}

/// A plan with what it was made from.
struct Planned<'a> {
    plan: GroupPlan,
    group: CachedGroup,
    /// Memory of new instances that is not in the cache yet; given back when dropped.
    reservation: crate::core::placing::Reservation<'a>,
}

/// Plans the next step; `None` = the group is gone.
fn plan_next<'a>(core: &'a Core, name: &GroupRef) -> Option<Planned<'a>> {
    let loaded = load::load(core, name)?;
    // Under one lock, so that two groups do not both take the last room of a cell.
    let mut placing = core.placing.begin();
    placing.refresh(core);
    let (budget, cells) = (placing.budget(), placing.cells());
    let concerns = load::load_concerns(core, name, &loaded, cells);
    let plan = plan_group(&loaded.input(core, cells, &concerns, budget));
    let reservation = placing.reserve(&plan);
    Some(Planned { plan, group: loaded.group, reservation })
}
