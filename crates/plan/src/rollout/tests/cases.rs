//! Single situations.

use super::world::{EXITS, NEVER_READY, World, release};
use crate::rollout::{Life, PlanAction};
use towpath_types::spec::{RolloutPhase, Wanted};
use towpath_types::{ByteSize, ErrorCode, Generation};

pub(super) fn steady(world: &World) -> bool {
    world.status.phase == RolloutPhase::Steady && world.status.observed == Generation(world.generation)
}

/// A world with `count` instances of release 1, steady.
pub(super) fn settled(count: u32, cells: u8, gateways: usize) -> World {
    let mut world = World::new(7, cells, gateways);
    world.change(|spec| spec.count = count);
    assert!(world.run_until(30_000, steady), "{:?}", world.status);
    assert_eq!(world.serving(Some(world.target())), count as usize);
    world
}

#[test]
fn a_first_deploy_brings_up_the_count_at_once_and_becomes_good() {
    let mut world = World::new(1, 3, 2);
    world.change(|spec| spec.count = 5);
    let first = world.plan();
    assert_eq!(first.actions.len(), 5);
    assert_eq!(first.status.phase, RolloutPhase::Rolling);
    assert_eq!(first.status.message, "0 of 5 ready");
    assert!(world.run_until(30_000, steady));
    assert_eq!(world.status.good, Some(world.target()));
    assert_eq!(world.status.serving, Some(world.target()));
    assert_eq!(world.status.rollout_ms, None);
}

#[test]
fn planning_again_without_news_changes_nothing() {
    let mut world = settled(3, 2, 1);
    let before = world.status.clone();
    for _ in 0..5 {
        assert_eq!(world.plan().actions, vec![]);
        assert_eq!(world.status, before);
    }
}

#[test]
fn a_new_release_rolls_without_ever_having_too_few_or_too_many() {
    let mut world = settled(4, 3, 2);
    world.busy = true;
    world.change(|spec| spec.release = release(2));
    let mut most = 0;
    let done = world.run_until(120_000, |world| {
        let running = world.status.assignments.iter().filter(|a| a.wanted == Wanted::Run).count();
        most = most.max(running);
        assert!(world.serving(None) >= 4, "{:?}", world.status);
        steady(world)
    });
    assert!(done, "{:?}", world.status);
    assert_eq!(most, 5, "surge of a quarter");
    assert_eq!(world.serving(Some(world.target())), 4);
    assert_eq!(world.status.settings.len(), 1, "settings that nothing uses are forgotten");
    assert_eq!(world.status.releases.len(), 1);
}

#[test]
fn restart_and_env_take_the_same_path_and_old_instances_keep_their_old_settings_meanwhile() {
    let mut world = settled(2, 2, 1);
    let old = world.target();
    for change in [0, 1] {
        world.change(|spec| match change {
            0 => spec.restart += 1,
            _ => drop(spec.env.insert("COLOUR".into(), "blue".into())),
        });
        let plan = world.plan();
        for assignment in &plan.status.assignments {
            assert!(plan.status.settings.contains_key(&assignment.version.settings));
        }
        assert!(world.run_until(60_000, |world| {
            assert!(world.serving(None) >= 2);
            steady(world)
        }));
        assert_ne!(world.target(), old);
        assert_eq!(world.serving(Some(world.target())), 2);
    }
}

#[test]
fn a_version_that_crashes_is_rolled_back_and_the_old_one_never_stops() {
    for (bad, says) in [(EXITS, "ended"), (NEVER_READY, "was not healthy within")] {
        let mut world = settled(3, 2, 2);
        let good = world.target();
        world.behaviours.insert(release(2), bad);
        world.change(|spec| spec.release = release(2));
        let done = world.run_until(120_000, |world| {
            assert!(world.serving(Some(good)) >= 3);
            world.status.phase == RolloutPhase::Failed
        });
        assert!(done, "{:?}", world.status);
        let status = &world.status;
        assert_eq!(status.failed, Some(world.target()));
        assert_eq!(status.good, Some(good));
        assert_eq!(status.serving, Some(good));
        assert_eq!(status.code, Some(ErrorCode::StartFailed));
        assert!(status.message.contains(says), "{}", status.message);
        assert!(!status.casualties.is_empty());
        assert!(status.assignments.iter().all(|a| a.version == good && a.wanted == Wanted::Run));
        // It is not tried again by itself, whatever else changes.
        let tries = world.history.len();
        assert!(!world.run_until(60_000, |world| world.history.len() > tries));
        world.change(|spec| spec.count = 4);
        assert!(world.run_until(30_000, |world| {
            world.status.phase == RolloutPhase::Failed && world.serving(Some(good)) == 4
        }));
        assert!(!world.status.message.is_empty(), "the reason stays to be read");
        // A changed spec is.
        world.change(|spec| spec.release = release(3));
        assert!(world.run_until(60_000, steady));
        assert_eq!(world.status.failed, None);
        assert_eq!(world.status.message, "");
    }
}

#[test]
fn a_first_deploy_that_fails_ends_failed_with_nothing_left_running() {
    let mut world = World::new(3, 2, 1);
    world.behaviours.insert(release(1), EXITS);
    assert!(world.run_until(60_000, |world| world.status.phase == RolloutPhase::Failed));
    assert!(world.status.assignments.is_empty());
    assert_eq!(world.status.good, None);
    assert_eq!(world.status.code, Some(ErrorCode::StartFailed));
    // And the same content, pushed again with a raised restart counter, is tried again.
    world.behaviours.clear();
    world.change(|spec| spec.restart += 1);
    assert!(world.run_until(60_000, steady));
}

#[test]
fn a_newer_change_in_the_middle_goes_straight_to_the_newest() {
    let mut world = settled(4, 3, 1);
    world.behaviours.insert(release(2), NEVER_READY);
    world.change(|spec| spec.release = release(2));
    world.run_until(2_000, |_| false);
    let second = world.target();
    world.change(|spec| spec.release = release(3));
    assert!(world.run_until(60_000, |world| {
        assert!(world.serving(None) >= 4);
        steady(world)
    }));
    let of_second = world.history.iter().filter(|(_, action)| matches!(action, PlanAction::Assign { .. }));
    assert_eq!(of_second.count(), 4 + 1 + 4, "one of the second, which never got further");
    assert!(world.status.assignments.iter().all(|a| a.version != second));
}

#[test]
fn going_back_in_the_middle_of_a_rollout_ends_with_the_old_version() {
    let mut world = settled(4, 3, 2);
    let good = world.target();
    world.change(|spec| spec.release = release(2));
    world.run_until(3_000, |world| world.serving(Some(good)) < 4);
    world.change(|spec| spec.release = release(1));
    assert!(world.run_until(60_000, |world| {
        assert!(world.serving(None) >= 4);
        steady(world)
    }));
    assert_eq!(world.serving(Some(good)), 4);
}

#[test]
fn scaling_up_and_down_and_stopping() {
    let mut world = settled(2, 3, 2);
    world.busy = true;
    world.change(|spec| spec.count = 7);
    assert!(world.run_until(30_000, steady));
    assert_eq!(world.serving(None), 7);
    world.change(|spec| spec.count = 3);
    let plan = world.plan();
    assert_eq!(plan.actions.iter().filter(|a| matches!(a, PlanAction::Drain { .. })).count(), 4);
    assert!(plan.actions.iter().all(|a| !matches!(a, PlanAction::Remove { .. })), "drained, not cut off");
    assert!(world.run_until(60_000, |world| {
        assert!(world.serving(None) >= 3);
        steady(world)
    }));
    world.change(|spec| spec.stopped = true);
    assert!(world.run_until(60_000, steady));
    assert!(world.status.assignments.is_empty());
    world.change(|spec| spec.stopped = false);
    assert!(world.run_until(60_000, steady));
    world.change(|spec| spec.count = 0);
    assert!(world.run_until(60_000, steady));
    assert!(world.status.assignments.is_empty());
    assert_eq!(world.status.serving, None);
}

#[test]
fn a_crash_of_a_settled_instance_is_its_cells_business() {
    let mut world = settled(2, 2, 1);
    let (before, tries) = (world.status.clone(), world.history.len());
    let now = world.now_ms;
    let victim = before.assignments[0].instance;
    for cell in &mut world.cells {
        if let Some(running) = cell.instances.get_mut(&victim) {
            running.crash(now);
        }
    }
    world.run_until(10_000, |_| false);
    assert_eq!(world.history.len(), tries);
    assert_eq!(world.status.phase, RolloutPhase::Steady);
    assert_eq!(world.status.serving, before.serving);
    assert_eq!(world.serving(None), 2);
}

#[test]
fn a_lost_cell_is_replaced_elsewhere_after_a_while_and_its_leftovers_stop_when_it_returns() {
    let mut world = settled(4, 2, 1);
    world.cells[0].reachable = false;
    let lost = world.cells[0].id;
    let begun = world.now_ms;
    assert!(world.run_until(60_000, |world| world.status.assignments.iter().all(|a| a.cell != lost)));
    assert!(world.now_ms - begun >= world.policy.lost_ms, "not before the time");
    assert!(world.run_until(60_000, steady));
    assert_eq!(world.status.assignments.len(), 4);
    assert!(!world.cells[0].instances.is_empty(), "the lost cell still runs them");
    for gateway in &mut world.gateways {
        gateway.endpoints.retain(|_, cell| *cell != lost);
    }
    world.cells[0].reachable = true;
    for _ in 0..20 {
        world.step();
        world.plan();
    }
    assert!(world.cells[0].instances.is_empty());
    assert_eq!(world.status.assignments.len(), 4);
}

#[test]
fn what_was_lost_with_the_only_cell_is_as_it_was_when_the_cell_returns() {
    let mut world = settled(3, 1, 1);
    let (before, tries) = (world.status.assignments.clone(), world.history.len());
    world.cells[0].reachable = false;
    assert!(world.run_until(30_000, |world| world.status.phase == RolloutPhase::Waiting));
    world.run_until(60_000, |_| false);
    assert_eq!(world.status.code, Some(ErrorCode::NoRoom));
    assert_eq!(world.status.serving, None);
    assert_eq!(world.status.assignments, before);
    world.cells[0].reachable = true;
    assert!(world.run_until(10_000, steady), "{:?}", world.status);
    assert_eq!(world.status.assignments, before);
    assert_eq!(world.history.len(), tries, "nothing was stopped or started");
}

#[test]
fn of_what_was_lost_only_so_much_goes_as_found_another_place() {
    let mut world = settled(6, 2, 1);
    let lost = world.cells[0].id;
    let there = world.status.assignments.iter().filter(|a| a.cell == lost).count();
    assert_eq!(there, 3);
    // Two instances of 100 MiB per 100 MiB: there is room for four.
    world.cells[1].memory = 200 << 20;
    world.cells[0].reachable = false;
    world.run_until(40_000, |_| false);
    let still = |world: &World| world.status.assignments.iter().filter(|a| a.cell == lost).count();
    assert_eq!((still(&world), world.status.assignments.len()), (2, 6));
    assert_eq!(world.status.phase, RolloutPhase::Waiting);
    world.change(|spec| spec.count = 4);
    assert!(world.run_until(10_000, steady), "{:?}", world.status);
    assert_eq!(still(&world), 0, "what is not wanted any more is not waited for");
}

#[test]
fn a_release_that_could_not_be_fetched_at_first_is_tried_again() {
    let mut world = settled(2, 2, 1);
    world.change(|spec| spec.release = release(2));
    let target = world.target();
    world.run_until(300, |_| false);
    let fail = |world: &mut World, restarts: u32| {
        let now = world.now_ms;
        for cell in &mut world.cells {
            for running in cell.instances.values_mut().filter(|running| running.release == release(2)) {
                (running.life, running.since_ms, running.restarts) = (Life::Failed, now, restarts);
            }
        }
    };
    for restarts in 0..3 {
        fail(&mut world, restarts);
        world.run_until(500, |_| false);
        assert_eq!(world.status.failed, None, "{restarts} attempts after the first");
    }
    fail(&mut world, 3);
    assert!(world.run_until(5_000, |world| world.status.failed == Some(target)), "{:?}", world.status);
    assert!(world.status.message.contains("could not be prepared"), "{}", world.status.message);
}

#[test]
fn silence_before_there_was_an_ear_for_it_proves_nothing() {
    // A manager that just started has heard no cell; what stands must stay.
    use crate::rollout::{GroupInput, RolloutPolicy, find_version, plan_group};
    let world = settled(2, 2, 1);
    let (target, settings) = find_version(&world.spec, &Default::default());
    let input = |listening_ms| GroupInput {
        now_ms: world.now_ms,
        listening_ms,
        spec: &world.spec,
        generation: Generation(world.generation),
        app_generation: Generation(1),
        target,
        settings: Box::leak(Box::new(settings.clone())),
        release: Some(Box::leak(Box::new(super::world::release_spec()))),
        status: &world.status,
        observed: Box::leak(Box::default()),
        cells: Box::leak(Box::new(crate::placement::CellIndex::new(2.0))),
        mates: Box::leak(Box::default()),
        overpromised: Box::leak(Box::default()),
        policy: Box::leak(Box::new(RolloutPolicy::default())),
        budget: crate::placement::starts::StartBudget { all: 100, replaced: 100 },
        entropy: 1,
    };
    let early = plan_group(&input(19_000));
    assert_eq!(early.actions, vec![]);
    assert_eq!(early.status.phase, RolloutPhase::Steady);
    let late = plan_group(&input(20_000));
    assert_eq!(late.actions, vec![], "they are lost, but there is nowhere else to go");
    assert_eq!(late.status.phase, RolloutPhase::Waiting);
    assert_eq!(late.status.code, Some(ErrorCode::NoRoom));
}

#[test]
fn no_room_waits_with_a_message_and_goes_on_when_there_is_some() {
    let mut world = World::new(5, 1, 1);
    world.cells[0].memory = 100 << 20;
    world.change(|spec| spec.count = 4);
    world.run_until(5_000, |_| false);
    assert_eq!(world.status.phase, RolloutPhase::Waiting);
    assert_eq!(world.status.code, Some(ErrorCode::NoRoom));
    assert!(world.status.message.contains("100M"), "{}", world.status.message);
    assert_eq!(world.status.assignments.len(), 2, "what fits runs");
    world.cells[0].memory = 400 << 20;
    assert!(world.run_until(10_000, steady));
    assert_eq!(world.status.code, None);
}

#[test]
fn a_full_cell_still_has_room_to_roll_one_by_one() {
    let mut world = World::new(5, 1, 1);
    world.cells[0].memory = 200 << 20;
    world.change(|spec| spec.count = 4);
    assert!(world.run_until(30_000, steady), "{:?}", world.status);
    world.change(|spec| spec.restart = 1);
    assert!(world.run_until(60_000, steady), "{:?}", world.status);
    world.change(|spec| spec.limits.memory = Some(ByteSize::mib(3000)));
    world.run_until(5_000, |world| {
        assert!(world.serving(None) >= 4);
        false
    });
    assert_eq!(world.status.phase, RolloutPhase::Waiting);
}

#[test]
fn nothing_is_drained_before_every_live_gateway_has_heard_of_the_new_one() {
    let mut world = settled(1, 1, 2);
    world.change(|spec| spec.release = release(2));
    // The second gateway stands still: alive, but hears nothing.
    for _ in 0..100 {
        world.step();
        world.gateways[1] = super::world::World::new(1, 1, 2).gateways[1].clone();
        world.plan();
    }
    assert!(world.status.assignments.iter().all(|a| a.wanted == Wanted::Run), "{:?}", world.status);
    assert_eq!(world.status.phase, RolloutPhase::Rolling);
    world.gateways[1].live = false;
    assert!(world.run_until(20_000, steady), "a dead one is not waited for");
}

#[test]
fn without_gateways_rollouts_go_on() {
    let mut world = settled(2, 2, 0);
    world.change(|spec| spec.release = release(2));
    assert!(world.run_until(60_000, steady));
}

#[test]
fn a_drain_ends_after_its_time_even_if_requests_do_not() {
    let mut world = settled(2, 1, 1);
    world.change(|spec| spec.count = 1);
    world.plan();
    let begun = world.now_ms;
    let done = world.run_until(60_000, |world| world.status.assignments.len() == 1);
    assert!(done);
    assert!(world.now_ms - begun < 5_000, "at once when nothing is in flight");

    let mut world = settled(2, 1, 1);
    world.endless = true;
    world.change(|spec| spec.count = 1);
    world.plan();
    let begun = world.now_ms;
    assert!(world.run_until(60_000, |world| world.status.assignments.len() == 1));
    let took = world.now_ms - begun;
    assert!((30_000..32_000).contains(&took), "{took}");
}

#[test]
fn a_broken_instance_of_a_good_version_is_replaced_on_another_cell_ever_more_slowly() {
    let mut world = settled(2, 3, 1);
    world.behaviours.insert(release(1), EXITS);
    let now = world.now_ms;
    for cell in &mut world.cells {
        for running in cell.instances.values_mut() {
            running.crash(now);
        }
    }
    let begun = world.history.len();
    world.run_until(300_000, |_| false);
    let tries = world.history[begun..].iter().filter(|(_, a)| matches!(a, PlanAction::Assign { .. })).count();
    assert!((2..=7).contains(&tries), "{tries}");
    assert_eq!(world.status.assignments.len(), 2);
    world.behaviours.clear();
    assert!(world.run_until(400_000, steady), "{:?}", world.status);
}

#[test]
fn an_instance_that_stays_unhealthy_is_replaced_and_goes_only_afterwards() {
    let mut world = settled(2, 2, 1);
    let victim = world.status.assignments[0].instance;
    let now = world.now_ms;
    for cell in &mut world.cells {
        if let Some(running) = cell.instances.get_mut(&victim) {
            (running.life, running.since_ms) = (Life::Unhealthy, now);
        }
    }
    let there = |world: &World| world.status.assignments.iter().any(|a| a.instance == victim);
    assert!(!world.run_until(50_000, |world| !there(world)), "time to recover");
    assert!(world.run_until(60_000, |world| !there(world)));
    assert!(world.run_until(60_000, steady));
    assert_eq!(world.serving(None), 2);
}

#[test]
fn a_clock_that_jumps_stops_nothing() {
    for jump in [-86_400_000_i64, 86_400_000] {
        let mut world = settled(3, 2, 1);
        world.change(|spec| spec.release = release(2));
        world.run_until(700, |_| false);
        for assignment in &mut world.status.assignments {
            // As if a manager with another clock had written it.
            assignment.since_ms = assignment.since_ms.saturating_add_signed(jump.abs());
        }
        assert!(world.run_until(60_000, |world| {
            assert!(world.serving(None) >= 3);
            steady(world)
        }));
    }
}
