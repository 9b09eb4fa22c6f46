//! Whole rollouts with random changes and faults; invariants are checked at every step.

use super::world::{Behaviour, EXITS, GOOD, NEVER_READY, World, release};
use crate::rollout::{GroupPlan, PlanAction, stays};
use proptest::prelude::*;
use std::collections::BTreeSet;
use towpath_types::spec::{Assignment, GroupStatus, RolloutPhase, Wanted};
use towpath_types::{CellId, Generation, InstanceId};

/// What must hold after every plan.
fn check(world: &World, before: &GroupStatus, plan: &GroupPlan, serving_before: &BTreeSet<InstanceId>) {
    let status = &plan.status;
    let ordinals: BTreeSet<u32> = status.assignments.iter().map(|a| a.ordinal).collect();
    assert_eq!(ordinals.len(), status.assignments.len(), "two instances share a number");
    let ids: BTreeSet<InstanceId> = status.assignments.iter().map(|a| a.instance).collect();
    assert_eq!(ids.len(), status.assignments.len(), "an instance is there twice");
    for assignment in &status.assignments {
        assert!(status.settings.contains_key(&assignment.version.settings), "settings are lost");
        assert!(status.releases.contains_key(&assignment.version.release), "a release is lost");
        if let Some(old) = before.assignments.iter().find(|a| a.instance == assignment.instance) {
            assert_eq!((old.cell, old.version), (assignment.cell, assignment.version), "an instance changed");
            assert!(old.wanted == Wanted::Run || assignment.wanted == Wanted::Drain, "a drain was undone");
        }
    }
    // What failed before anything was ever good is taken away altogether.
    let hopeless = status.failed == Some(world.target()) && status.good.is_none();
    let count = if world.spec.stopped || hopeless { 0 } else { world.spec.count };
    let running = status.assignments.iter().filter(|a| a.wanted == Wanted::Run).count();
    if plan.actions.iter().any(|action| matches!(action, PlanAction::Assign { .. })) {
        let most = (count + world.policy.surge_of(count)) as usize;
        assert!(running <= most, "{running} run, {most} at most");
    }
    // Plans alone never bring the serving ones below the count (or below what there was).
    let lost = |id: CellId| world.cells.iter().any(|cell| cell.id == id && world.is_lost(cell));
    let still =
        status.assignments.iter().filter(|a| a.wanted == Wanted::Run && serving_before.contains(&a.instance));
    let kept = still.count();
    let on_lost =
        before.assignments.iter().filter(|a| serving_before.contains(&a.instance) && lost(a.cell)).count();
    let least = serving_before.len().min(count as usize).saturating_sub(on_lost);
    assert!(kept >= least, "{kept} of {} serve, {count} wanted: {:?}", serving_before.len(), plan.actions);
    for cell in &world.cells {
        let promised: usize = status.assignments.iter().filter(|a| a.cell == cell.id).count();
        let limit = (cell.memory as f64 * world.policy.overcommit * 1.25) as u64 / (100 << 20);
        assert!(promised as u64 <= limit, "over the memory limit");
        let here = |a: &&Assignment| a.cell == cell.id && stays(status, a);
        let staying = status.assignments.iter().filter(here).count();
        let limit = (cell.memory as f64 * world.policy.overcommit) as u64 / (100 << 20);
        assert!(staying as u64 <= limit, "over the memory limit for good");
        let new = |a: &&PlanAction| matches!(a, PlanAction::Assign { cell: at, .. } if *at == cell.id);
        let closed = cell.draining || cell.cordoned;
        assert!(!closed || plan.actions.iter().find(new).is_none(), "a closed cell got something new");
    }
}

/// Instances that serve as a manager sees it.
fn serving(world: &World) -> BTreeSet<InstanceId> {
    let observed = world.observed();
    let ready =
        |id: &InstanceId| observed.get(id).is_some_and(|o| o.heard && o.life == crate::rollout::Life::Ready);
    world
        .status
        .assignments
        .iter()
        .filter(|a| a.wanted == Wanted::Run && ready(&a.instance))
        .map(|a| a.instance)
        .collect()
}

fn random_change(world: &mut World) {
    let behaviour = |world: &mut World| -> Behaviour {
        match world.rng.below(5) {
            0 => EXITS,
            1 => NEVER_READY,
            2 => Behaviour { ready_ms: Some(3_000), exits_ms: None },
            _ => GOOD,
        }
    };
    match world.rng.below(8) {
        0..=2 => {
            let n = 2 + world.rng.below(200) as u8;
            let played = behaviour(world);
            world.behaviours.entry(release(n)).or_insert(played);
            world.change(|spec| spec.release = release(n));
        }
        3 => {
            let count = world.rng.below(7) as u32;
            world.change(|spec| spec.count = count);
        }
        4 => world.change(|spec| spec.restart += 1),
        5 => {
            let value = world.rng.below(3).to_string();
            world.change(|spec| drop(spec.env.insert("A".into(), value.into())));
        }
        6 => world.change(|spec| spec.stopped = !spec.stopped),
        _ => world.change(|spec| spec.release = release(1)),
    }
}

fn random_fault(world: &mut World) {
    let now = world.now_ms;
    let index = world.rng.below(world.cells.len() as u64) as usize;
    match world.rng.below(7) {
        0 => world.cells[index].reachable ^= true,
        1 => {
            // A machine dies with all it runs, or comes back empty.
            let cell = &mut world.cells[index];
            cell.up ^= true;
            cell.instances.clear();
        }
        2 => world.cells[index].cordoned ^= true,
        5 => world.cells[index].draining ^= true,
        3 => {
            if let Some(gateway) = world.gateways.first_mut() {
                gateway.live ^= true;
            }
        }
        _ => {
            for running in world.cells[index].instances.values_mut() {
                running.crash(now);
            }
        }
    }
}

fn heal(world: &mut World) {
    for cell in &mut world.cells {
        (cell.up, cell.reachable, cell.cordoned, cell.draining) = (true, true, false, false);
    }
    for gateway in &mut world.gateways {
        gateway.live = true;
    }
}

fn play(seed: u64, cells: u8, gateways: usize, steps: usize) -> World {
    let mut world = World::new(seed, cells, gateways);
    world.busy = true;
    for _ in 0..steps {
        if world.rng.chance(2) {
            random_change(&mut world);
        }
        if world.rng.chance(1) {
            random_fault(&mut world);
        }
        world.step();
        // Level-triggered: a plan may come at any time, or not.
        if world.rng.chance(70) {
            let (before, serving) = (world.status.clone(), serving(&world));
            let plan = world.plan();
            check(&world, &before, &plan, &serving);
        }
    }
    world
}

/// Sixty worlds, or as many as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 60 };
    ProptestConfig { cases, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_happens_the_invariants_hold_and_in_the_end_all_is_as_wanted(
        seed in any::<u64>(), cells in 1_u8..6, gateways in 0_usize..4,
    ) {
        let mut world = play(seed, cells, gateways, 600);
        heal(&mut world);
        world.change(|spec| { spec.stopped = false; spec.count = spec.count.max(1) });
        // A version that once was good and now does not start any more is out of this test.
        world.behaviours.retain(|release, _| Some(*release) != world.status.good.map(|good| good.release));
        let end = world.now_ms + 400_000;
        let done = loop {
            world.step();
            let (before, serving) = (world.status.clone(), serving(&world));
            let plan = world.plan();
            check(&world, &before, &plan, &serving);
            let resting = matches!(world.status.phase, RolloutPhase::Steady | RolloutPhase::Failed);
            let count = world.spec.count as usize;
            let version = if world.status.phase == RolloutPhase::Failed { world.status.good } else { Some(world.target()) };
            let wanted = if version.is_none() { 0 } else { count };
            if resting && world.status.observed == Generation(world.generation)
                && world.status.assignments.len() == wanted
                && (wanted == 0 || world.serving(version) == wanted) {
                break true;
            }
            if world.now_ms > end {
                break false;
            }
        };
        prop_assert!(done, "{:#?}", world.status);
    }

    #[test]
    fn without_faults_no_instance_is_stopped_while_a_gateway_sends_to_it(
        seed in any::<u64>(), cells in 1_u8..5, gateways in 1_usize..4,
    ) {
        let mut world = World::new(seed, cells, gateways);
        world.busy = true;
        for _ in 0..600 {
            if world.rng.chance(3) {
                random_change(&mut world);
            }
            if world.rng.chance(2) {
                let index = world.rng.below(world.cells.len() as u64) as usize;
                world.cells[index].draining ^= true;
            }
            let harmed = world.step();
            prop_assert!(harmed.is_empty(), "{:?}", harmed);
            let (before, serving) = (world.status.clone(), serving(&world));
            let plan = world.plan();
            check(&world, &before, &plan, &serving);
        }
    }
}
