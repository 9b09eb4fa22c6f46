//! Makes a plan true: commits the status, then tells the cells that are concerned.

use crate::core::Core;
use crate::core::cache::CachedGroup;
use crate::core::keys::GroupRef;
use crate::error::CommitError;
use std::collections::{BTreeSet, HashMap};
use towpath_plan::rollout::{GroupPlan, PlanAction};
use towpath_store::{Expect, Fence, Write};
use towpath_types::spec::{Assignment, GroupStatus, Wanted};
use towpath_types::{CellId, InstanceId, Revision};
use towpath_wire::cell::CellPoke;
use towpath_wire::{encode, subject};

/// Commits a plan that was made from `group` under `fence`.
pub(super) async fn apply(
    core: &Core,
    fence: Fence,
    name: &GroupRef,
    group: &CachedGroup,
    plan: GroupPlan,
) -> Result<(), CommitError> {
    if core.fence() != Some(fence) {
        return Err(CommitError::NotMember);
    }
    let status = serde_json::to_value(&plan.status).unwrap_or_default();
    let write = Write::Put {
        key: name.key(),
        id: group.record.id.clone(),
        expect: Expect::At(group.record.revision),
        spec: None,
        status: Some(status),
    };
    let commit = core.commit(vec![write]).await?;
    tell(name, group, &plan);
    for cell in find_concerned(&group.status, &plan.status) {
        poke(core, cell, commit.revision).await;
    }
    Ok(())
}

/// Tells a cell that what it should run has changed. A loss is healed by its next announcement, which says how far it is.
pub(crate) async fn poke(core: &Core, cell: CellId, revision: Revision) {
    if !core.may_act() {
        return;
    }
    core.pokes.note(cell, revision);
    let poke = CellPoke { epoch: core.epoch(), revision };
    if let Err(error) = core.bus.publish(&subject::cell_poke(cell), encode(&poke).into()).await {
        tracing::debug!(%cell, %error, "a cell could not be told of a change");
    }
}

/// Cells whose part of the group differs.
fn find_concerned(before: &GroupStatus, after: &GroupStatus) -> BTreeSet<CellId> {
    let known = |of: &GroupStatus| -> HashMap<InstanceId, Wanted> {
        of.assignments.iter().map(|a| (a.instance, a.wanted)).collect()
    };
    let only_in = |a: &HashMap<InstanceId, Wanted>, b: &GroupStatus| -> BTreeSet<CellId> {
        let missing = |x: &&Assignment| a.get(&x.instance).is_none_or(|wanted| *wanted != x.wanted);
        b.assignments.iter().filter(missing).map(|assignment| assignment.cell).collect()
    };
    let mut concerned = only_in(&known(before), after);
    concerned.extend(only_in(&known(after), before));
    concerned
}

/// Logs what was decided and why.
fn tell(name: &GroupRef, group: &CachedGroup, plan: &GroupPlan) {
    for action in &plan.actions {
        match action {
            PlanAction::Assign { instance, cell, why, .. } => {
                tracing::info!(group = %name, %instance, %cell, why, "starting an instance");
            }
            PlanAction::Drain { instance, why } => {
                tracing::info!(group = %name, %instance, why, "draining an instance");
            }
            PlanAction::Remove { instance, why } => {
                tracing::info!(group = %name, %instance, why, "removing an instance");
            }
        }
    }
    let (before, after) = (group.status.phase, plan.status.phase);
    if before != after {
        tracing::info!(group = %name, ?before, ?after, message = plan.status.message, "rollout");
    }
}
