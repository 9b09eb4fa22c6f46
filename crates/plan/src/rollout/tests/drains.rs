//! Cells that are to be emptied, starts that are bounded, promises that are taken back.

use super::cases::{settled, steady};
use super::world::{World, release};
use crate::placement::starts::StartBudget;
use crate::rollout::PlanAction;
use towpath_types::spec::{RolloutPhase, Wanted};
use towpath_types::{CellId, ErrorCode};

fn on(world: &World, cell: CellId) -> usize {
    world.status.assignments.iter().filter(|a| a.cell == cell).count()
}

#[test]
fn a_draining_cell_is_emptied_without_ever_serving_less_and_with_no_more_moves_than_needed() {
    let mut world = settled(6, 3, 2);
    world.busy = true;
    let (cell, tries) = (world.cells[0].id, world.history.len());
    assert_eq!(on(&world, cell), 2);
    world.cells[0].draining = true;
    let version = world.status.serving;
    let done = world.run_until(60_000, |world| {
        assert!(world.serving(None) >= 6, "{:?}", world.status);
        assert_eq!(
            world.status.serving, version,
            "where it stands is no news to those who wait for a version"
        );
        on(world, cell) == 0 && steady(world)
    });
    assert!(done, "{:?}", world.status);
    let assigned = |(_, action): &&(u64, PlanAction)| matches!(action, PlanAction::Assign { .. });
    assert_eq!(world.history[tries..].iter().filter(assigned).count(), 2, "nothing else is moved");
    world.cells[0].draining = false;
    let tries = world.history.len();
    world.run_until(10_000, |_| false);
    assert_eq!(world.history.len(), tries, "nothing is moved back");
}

#[test]
fn a_drain_without_a_place_elsewhere_leaves_things_as_they_are_and_says_what_is_missing() {
    let mut world = settled(2, 1, 1);
    let (before, version) = (world.status.assignments.clone(), world.status.serving);
    world.cells[0].draining = true;
    world.run_until(20_000, |_| false);
    assert_eq!(world.status.assignments, before);
    assert_eq!((world.status.phase, world.status.code), (RolloutPhase::Waiting, Some(ErrorCode::NoRoom)));
    assert!(world.status.message.contains("draining"), "{}", world.status.message);
    assert_eq!(world.status.serving, version, "it serves all the same");
    world.cells[0].draining = false;
    assert!(world.run_until(5_000, steady));
    assert_eq!(world.status.assignments, before);
}

#[test]
fn uncordoning_in_the_middle_of_a_drain_takes_back_what_has_not_come_yet() {
    let mut world = settled(4, 2, 1);
    let cell = world.cells[0].id;
    world.cells[0].draining = true;
    world.plan();
    assert_eq!(world.status.assignments.len(), 5, "one is on its way");
    world.cells[0].draining = false;
    assert!(world.run_until(20_000, |world| steady(world) && world.status.assignments.len() == 4));
    assert_eq!(on(&world, cell), 2, "what runs is left alone");
}

#[test]
fn a_new_release_during_a_drain_goes_elsewhere_at_once() {
    let mut world = settled(4, 2, 1);
    let cell = world.cells[0].id;
    world.cells[0].draining = true;
    world.change(|spec| spec.release = release(2));
    let begun = world.history.len();
    assert!(world.run_until(60_000, |world| {
        assert!(world.serving(None) >= 4);
        steady(world)
    }));
    let wrong = |(_, action): &&(u64, PlanAction)| matches!(action, PlanAction::Assign { cell: at, .. } if *at == cell);
    assert_eq!(world.history[begun..].iter().filter(wrong).count(), 0);
}

#[test]
fn starts_wait_for_their_budget_and_those_for_lost_ones_for_one_of_their_own() {
    let mut world = settled(6, 3, 1);
    let lost = world.cells[0].id;
    world.budget = StartBudget { all: 10, replaced: 0 };
    world.cells[0].reachable = false;
    world.run_until(30_000, |_| false);
    assert_eq!(on(&world, lost), 2, "kept, until others may be started");
    world.change(|spec| spec.count = 8);
    world.run_until(1_000, |_| false);
    assert_eq!(world.status.assignments.len(), 8, "what is asked for comes at once");
    world.budget = StartBudget { all: 10, replaced: 1 };
    world.plan();
    assert_eq!(on(&world, lost), 1, "one in a plan");
    assert_eq!(world.status.assignments.len(), 8, "never counted twice");
    assert!(
        world.run_until(30_000, |world| on(world, lost) == 0 && world.status.phase == RolloutPhase::Steady)
    );
}

#[test]
fn what_was_promised_twice_is_taken_back_before_it_runs_and_placed_elsewhere() {
    let mut world = World::new(3, 2, 1);
    world.change(|spec| spec.count = 2);
    world.plan();
    let taken = world.status.assignments[0].clone();
    world.cells.iter_mut().find(|cell| cell.id == taken.cell).unwrap().memory = 0;
    world.overpromised.insert(taken.instance);
    world.plan();
    assert!(world.status.assignments.iter().all(|a| a.instance != taken.instance && a.cell != taken.cell));
    assert!(world.run_until(30_000, steady));
    // What runs is left alone, however the figures stand.
    let runs = world.status.assignments[0].instance;
    world.overpromised.insert(runs);
    world.run_until(5_000, |_| false);
    assert!(world.status.assignments.iter().any(|a| a.instance == runs && a.wanted == Wanted::Run));
}

#[test]
fn scaling_down_takes_from_the_fullest_zone_first() {
    let mut world = settled(7, 5, 1);
    let zone = |world: &World| {
        let mut zones = [0; 3];
        for assignment in &world.status.assignments {
            zones[world.cells.iter().find(|cell| cell.id == assignment.cell).unwrap().zone as usize] += 1;
        }
        zones
    };
    for count in (1..7).rev() {
        world.change(|spec| spec.count = count);
        assert!(
            world
                .run_until(20_000, |world| steady(world) && world.status.assignments.len() == count as usize)
        );
        let zones = zone(&world);
        assert!(zones.iter().max().unwrap() - zones.iter().min().unwrap() <= 1, "{zones:?}");
    }
}
