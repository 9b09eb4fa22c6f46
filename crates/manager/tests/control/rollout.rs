//! Rollouts through a real manager: group in the store → assignments → cells → gateways → steady.

use crate::fleet::{Fleet, SOON, Script, release, until};
use std::collections::BTreeSet;
use towpath_manager::core::outcome::GroupOutcome;
use towpath_types::ErrorCode;
use towpath_types::spec::RolloutPhase;
use towpath_wire::cell::InstanceState;

#[tokio::test(flavor = "multi_thread")]
async fn a_group_in_the_store_becomes_instances_that_serve() {
    let fleet = Fleet::start().await;
    let (cell, gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 2).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
    assert_eq!(gateway.endpoints().len(), 2);
    let specs = cell.specs();
    assert_eq!(specs.len(), 2);
    assert_eq!(specs[0].command, "run-1");
    assert_eq!(specs[0].env["GROUP"], "1");
    assert_eq!(specs[0].env["FROM_RELEASE"], "1");
    let ordinals: BTreeSet<u32> = specs.iter().map(|spec| spec.ordinal).collect();
    assert_eq!(ordinals, BTreeSet::from([0, 1]));
    until("the group is steady", || fleet.group(&group).status.phase == RolloutPhase::Steady).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_release_rolls_and_old_instances_keep_their_own_settings() {
    let fleet = Fleet::start().await;
    let (cell, gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 3).await;
    fleet.settle(&group).await;
    let before: BTreeSet<_> = gateway.endpoints().into_iter().collect();
    fleet.put_release(&group.app, 2).await;
    // What is draining keeps its requests for now, so that old and new can be seen side by side.
    gateway.set_in_flight(1);
    let goal = fleet
        .change(&group, |spec| {
            spec.release = release(2);
            spec.env.insert("GROUP".into(), "2".into());
        })
        .await;
    let mut seen = Vec::new();
    let outcome = fleet.core().wait_group(&goal, SOON, |progress| seen.push(progress.clone())).await;
    assert_eq!(outcome, GroupOutcome::Done);
    assert!(!seen.is_empty());
    assert!(seen.iter().any(|progress| progress.old > 0));
    for spec in cell.specs() {
        let old = before.contains(&spec.instance);
        assert_eq!(spec.env["GROUP"], if old { "1" } else { "2" });
        assert_eq!(spec.release, if old { release(1) } else { release(2) });
    }
    assert!(cell.stopped().is_empty(), "still draining");
    gateway.set_in_flight(0);
    until("the old ones are stopped", || cell.stopped().len() == 3).await;
    assert_eq!(cell.stopped().into_iter().collect::<BTreeSet<_>>(), before);
    let endpoints = gateway.endpoints();
    assert_eq!(endpoints.len(), 3);
    assert!(endpoints.iter().all(|instance| !before.contains(instance)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_crashes_is_taken_back_and_the_old_one_serves_on() {
    let fleet = Fleet::start().await;
    let (cell, gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 2).await;
    fleet.settle(&group).await;
    let before = gateway.endpoints();
    fleet.put_release(&group.app, 2).await;
    cell.script(release(2), Script::Crash);
    let goal = fleet.change(&group, |spec| spec.release = release(2)).await;
    let GroupOutcome::Failed { code, message } = fleet.core().wait_group(&goal, SOON, |_| {}).await else {
        panic!("it has to fail");
    };
    assert_eq!(code, ErrorCode::StartFailed);
    assert!(message.contains("exited with status 1"), "{message}");
    assert_eq!(gateway.endpoints(), before);
    assert_eq!(fleet.group(&group).status.casualties.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_env_change_of_the_app_rolls_and_a_newer_change_supersedes() {
    let fleet = Fleet::start().await;
    let (cell, _gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 1).await;
    fleet.settle(&group).await;
    let spec = serde_json::json!({"env": {"FROM_APP": "x", "GROUP": "hidden"}});
    fleet.put(towpath_manager::core::keys::app_key(&group.app), spec).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
    until("only the new one runs", || cell.specs().len() == 1).await;
    assert_eq!(cell.specs()[0].env["FROM_APP"], "x");
    assert_eq!(cell.specs()[0].env["GROUP"], "1", "the group's own lies on top");

    fleet.put_release(&group.app, 2).await;
    fleet.put_release(&group.app, 3).await;
    cell.script(release(2), Script::Never);
    let second = fleet.change(&group, |spec| spec.release = release(2)).await;
    until("the second is under way", || cell.states().contains(&InstanceState::Starting)).await;
    let third = fleet.change(&group, |spec| spec.release = release(3)).await;
    assert_eq!(fleet.core().wait_group(&second, SOON, |_| {}).await, GroupOutcome::Superseded);
    assert_eq!(fleet.core().wait_group(&third, SOON, |_| {}).await, GroupOutcome::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_drained_while_a_live_gateway_is_deaf() {
    let fleet = Fleet::start().await;
    let (cell, first, second) = (fleet.cell().await, fleet.gateway().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 1).await;
    fleet.settle(&group).await;
    second.deafen(true);
    fleet.put_release(&group.app, 2).await;
    let goal = fleet.change(&group, |spec| spec.release = release(2)).await;
    until("the new one is in one gateway", || first.endpoints().len() == 2).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!cell.states().contains(&InstanceState::Draining));
    second.deafen(false);
    assert_eq!(fleet.core().wait_group(&goal, SOON, |_| {}).await, GroupOutcome::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_stopping_and_deleting() {
    let fleet = Fleet::start().await;
    let (cell, gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 1).await;
    fleet.settle(&group).await;
    fleet.change(&group, |spec| spec.count = 5).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
    until("all five serve", || gateway.endpoints().len() == 5).await;
    fleet.change(&group, |spec| spec.count = 2).await;
    until("three are gone", || cell.stopped().len() == 3 && gateway.endpoints().len() == 2).await;
    fleet.change(&group, |spec| spec.stopped = true).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
    until("all are gone", || cell.specs().is_empty() && gateway.endpoints().is_empty()).await;
    fleet.change(&group, |spec| spec.stopped = false).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
    let delete = towpath_store::Write::Delete { key: group.key(), expect: towpath_store::Expect::Present };
    let goal = fleet.core().find_goal(&group, true).unwrap();
    fleet.core().commit(vec![delete]).await.unwrap();
    assert_eq!(fleet.core().wait_group(&goal, SOON, |_| {}).await, GroupOutcome::Deleted);
    until("the cell has stopped them", || cell.specs().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_with_many_instances_gets_them_in_pages_of_one_revision() {
    let fleet = Fleet::start().await;
    let (cell, gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 0).await;
    fleet
        .change(&group, |spec| {
            spec.count = 300;
            spec.limits.memory = Some(towpath_types::ByteSize::mib(1));
            // Long enough that a page holds only a part.
            spec.env.insert("LONG".into(), "x".repeat(3000).into());
        })
        .await;
    until("all are told", || cell.specs().len() == 300).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
    assert_eq!(gateway.endpoints().len(), 300);
    let ordinals: BTreeSet<u32> = cell.specs().iter().map(|spec| spec.ordinal).collect();
    assert_eq!(ordinals.len(), 300);
}
