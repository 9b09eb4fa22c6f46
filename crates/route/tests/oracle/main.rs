//! The table against a naive oracle, in random worlds that change step by step.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "test code"
)]

mod matching;
mod rules;
mod world;

use proptest::prelude::*;
use std::collections::BTreeMap;
use towpath_route::{Draw, NoPick, Table, TriedSet};
use towpath_types::{InstanceId, Place};
use world::{World, change, request};

const NOW: u64 = 10_000_000_000_000;

fn here() -> Place {
    Place { region: "r0".into(), zone: "z0".into(), node: "n0".into() }
}

/// What the table does with a request: who is picked by many draws, with tiers.
fn outcome(
    table: &Table,
    request: &world::Request,
) -> Result<(String, String, BTreeMap<InstanceId, u8>), NoPick> {
    let matched = table.find(request.host.as_bytes(), request.path.as_bytes()).ok_or(NoPick::NoRoute)?;
    let lane = table.lane(&matched, request)?;
    let mut picked = BTreeMap::new();
    for rnd in 0..40 {
        let draw = Draw { now: NOW, rnd, key: 0 };
        let pick = table.pick(&matched, &lane, draw, &TriedSet::default())?;
        assert_eq!(pick.endpoint.lane(), pick.lane);
        picked.insert(pick.endpoint.instance(), pick.tier);
    }
    Ok((matched.route().key.clone(), lane.lane.to_string(), picked))
}

fn expected(
    world: &World,
    request: &world::Request,
) -> Result<(String, String, BTreeMap<InstanceId, u8>), NoPick> {
    let (route, label) = world.find(request).ok_or(NoPick::NoRoute)?;
    let lane = world.lane(request, route, label)?;
    let serving = world.serving(route, &lane, &here())?;
    Ok((format!("{}{}", route.host, route.path), lane.to_string(), serving))
}

fn check(table: &Table, world: &World, request: &world::Request) {
    match (outcome(table, request), expected(world, request)) {
        (Ok((route, lane, picked)), Ok((want_route, want_lane, serving))) => {
            assert_eq!((route, lane), (want_route, want_lane));
            for (instance, tier) in &picked {
                assert_eq!(serving.get(instance), Some(tier), "{instance} of {serving:?}");
            }
            if serving.len() == 1 {
                assert_eq!(picked, serving);
            }
        }
        (got, want) => assert_eq!(got.map(|_| ()), want.map(|_| ())),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_table_does_what_the_rules_say(seed in any::<u64>()) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut table, mut world) = (Table::new(here()), World::default());
        for _ in 0..60 {
            let changes: Vec<_> = (0..rng.usize(1..4)).map(|_| change(&mut rng)).collect();
            let (next, refused) = table.apply(&changes, NOW);
            prop_assert_eq!(refused, vec![]);
            changes.iter().for_each(|change| world.apply(change));
            table = next;
            for _ in 0..6 {
                let request = request(&mut rng);
                check(&table, &world, &request);
            }
        }
    }

    #[test]
    fn changes_step_by_step_give_the_same_as_all_at_once(seed in any::<u64>()) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut table, mut world) = (Table::new(here()), World::default());
        for _ in 0..80 {
            let change = change(&mut rng);
            table = table.apply(std::slice::from_ref(&change), NOW).0;
            world.apply(&change);
        }
        let (fresh, refused) = Table::new(here()).apply(&world.all(), NOW);
        prop_assert_eq!(refused, vec![]);
        prop_assert_eq!(table.counts(), fresh.counts());
        for _ in 0..60 {
            let request = request(&mut rng);
            let explain = |table: &Table| {
                // long after: by then nothing ramps up any more, which a new table cannot know of
                table.explain(request.host.as_bytes(), request.path.as_bytes(), &request, |_, _| Vec::new(), 2 * NOW)
            };
            prop_assert_eq!(explain(&table), explain(&fresh));
        }
        // taking everything away again leaves nothing behind
        let mut gone: Vec<_> = world.routes.keys().cloned().map(towpath_route::Change::DeleteRoute).collect();
        gone.extend(world.apps.keys().cloned().map(towpath_route::Change::DeleteApp));
        gone.extend(world.spaces.keys().cloned().map(towpath_route::Change::DeleteSpace));
        gone.extend(world.sources.keys().cloned().map(towpath_route::Change::DropSource));
        prop_assert_eq!(table.apply(&gone, NOW).0.counts(), towpath_route::Counts::default());
    }

    /// The explanation and the choice are the same decision: what has a share is picked, and what is picked has a share.
    #[test]
    fn an_explanation_says_what_happens(seed in any::<u64>()) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = World::default();
        (0..80).for_each(|_| world.apply(&change(&mut rng)));
        let (table, _) = Table::new(here()).apply(&world.all(), NOW);
        for _ in 0..40 {
            let request = request(&mut rng);
            let explained = table.explain(request.host.as_bytes(), request.path.as_bytes(), &request, |_, _| Vec::new(), NOW);
            match outcome(&table, &request) {
                Ok((route, _, picked)) => {
                    prop_assert_eq!(explained.route, Some(route));
                    prop_assert_eq!(explained.error, None);
                    let total: f64 = explained.endpoints.iter().map(|endpoint| endpoint.share).sum();
                    prop_assert!((total - 1.0).abs() < 1e-9, "{}", total);
                    for endpoint in &explained.endpoints {
                        let has_share = endpoint.share > 0.0;
                        prop_assert_eq!(has_share, endpoint.why_not.is_empty());
                        prop_assert!(has_share || !picked.contains_key(&endpoint.instance));
                        if let Some(tier) = picked.get(&endpoint.instance) {
                            prop_assert_eq!(endpoint.tier, Some(*tier));
                        }
                    }
                }
                Err(why) => prop_assert_eq!(explained.error.map(|error| error.0), Some(why.code())),
            }
        }
    }
}
