//! Cells through a real manager: cordon, drain, loss; and messages that are lost, repeated or late.

use crate::fleet::{FakeCell, Fleet, until, until_async};
use serde_json::json;
use std::collections::BTreeSet;
use towpath_manager::core::keys::{self, GroupRef};
use towpath_types::cell::Scheduling;
use towpath_types::spec::RolloutPhase;
use towpath_wire::cell::InstanceState;

async fn want(fleet: &Fleet, cell: &FakeCell, scheduling: Scheduling) {
    fleet.put(keys::cell_key(cell.id), json!({"scheduling": scheduling})).await;
}

/// Assignments of a group on a cell.
fn on(fleet: &Fleet, group: &GroupRef, cell: &FakeCell) -> usize {
    fleet.group(group).status.assignments.iter().filter(|a| a.cell == cell.id).count()
}

fn steady(fleet: &Fleet, group: &GroupRef, count: usize) -> bool {
    let status = &fleet.group(group).status;
    status.phase == RolloutPhase::Steady && status.assignments.len() == count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_cell_is_emptied_told_and_stays_empty_over_a_restart() {
    let mut fleet = Fleet::start().await;
    let (a, b, _gateway) = (fleet.cell().await, fleet.cell().await, fleet.gateway().await);
    until("both are heard", || fleet.core().soft.cells().len() == 2).await;
    let group = fleet.make_app("shop", 4).await;
    until("steady", || steady(&fleet, &group, 4)).await;
    assert_eq!((on(&fleet, &group, &a), on(&fleet, &group, &b)), (2, 2));
    want(&fleet, &a, Scheduling::Draining).await;
    until("emptied", || on(&fleet, &group, &a) == 0 && steady(&fleet, &group, 4)).await;
    until("its instances are stopped", || a.stopped().len() == 2).await;
    assert!(b.stopped().is_empty(), "nothing else is moved");
    until("the cell knows", || a.cordoned()).await;

    fleet.restart().await;
    until("heard again", || fleet.core().soft.cells().len() == 2).await;
    fleet.change(&group, |spec| spec.count = 6).await;
    until("more", || steady(&fleet, &group, 6)).await;
    assert_eq!(on(&fleet, &group, &a), 0);
    want(&fleet, &a, Scheduling::Open).await;
    until("the cell knows that, too", || !a.cordoned()).await;
    fleet.change(&group, |spec| spec.count = 8).await;
    until("more", || steady(&fleet, &group, 8)).await;
    assert_eq!(on(&fleet, &group, &a), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_repeated_or_late_on_the_bus_changes_nothing_in_the_end() {
    let fleet = Fleet::start().await;
    let (a, b, gateway) = (fleet.cell().await, fleet.cell().await, fleet.gateway().await);
    // Every poke to one is lost, as are the first commands; the other says everything twice, and old news after new.
    a.lose(1_000, 3);
    b.repeat();
    until("both are heard", || fleet.core().soft.cells().len() == 2).await;
    let group = fleet.make_app("shop", 4).await;
    until("steady", || steady(&fleet, &group, 4)).await;
    fleet.change(&group, |spec| spec.restart = 1).await;
    until("rolled", || steady(&fleet, &group, 4) && gateway.endpoints().len() == 4).await;
    want(&fleet, &a, Scheduling::Draining).await;
    until("emptied", || on(&fleet, &group, &a) == 0 && steady(&fleet, &group, 4)).await;
    until("told by the third try or later", || a.cordoned()).await;
    let assigned: BTreeSet<_> = fleet.group(&group).status.assignments.iter().map(|a| a.instance).collect();
    until_async("what runs is what was decided", || async {
        let runs: BTreeSet<_> = b.specs().iter().map(|spec| spec.instance).collect();
        runs == assigned && a.specs().is_empty() && b.states() == [InstanceState::Ready; 4]
    })
    .await;
}
