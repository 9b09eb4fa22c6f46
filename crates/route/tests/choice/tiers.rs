use crate::support::{Request, World, endpoint, id, near, source, upstream, zone};
use towpath_route::{Change, EndpointSpec, NoPick, TriedSet};
use towpath_types::LaneName;
use towpath_types::upstream::{Balancer, UpstreamSpec};

fn at(n: u64, lane: &str, zone_name: &str, healthy: bool) -> EndpointSpec {
    EndpointSpec { lane: LaneName::new(lane).unwrap(), place: zone(zone_name), healthy, ..endpoint(n) }
}

const TAGGED: Request = Request { lane: Some("new"), user: None };

#[test]
fn a_sick_tier_spills_the_missing_share_times_1_4() {
    // 4 of 10 are sick: 0.4 × 1.4 = 56 % go on
    let endpoints = (0..10).map(|n| at(n, "base", "a", n >= 4)).chain([at(10, "base", "b", true)]);
    let mut world = World::new(upstream(Balancer::Random), endpoints.collect());
    near(world.shares(20_000)[&id(10)], 0.56, 0.015);
    near(world.explained_shares(&Request::default())[&id(10)], 0.56, 1e-9);
}

#[test]
fn a_tier_with_seven_of_ten_keeps_everything() {
    let endpoints = (0..10).map(|n| at(n, "base", "a", n >= 3)).chain([at(10, "base", "b", true)]);
    let mut world = World::new(upstream(Balancer::Random), endpoints.collect());
    assert_eq!(world.shares(2000).get(&id(10)), None);
}

#[test]
fn nothing_spills_into_another_lane() {
    let endpoints = (0..10).map(|n| at(n, "new", "a", n == 0)).chain([at(10, "base", "a", true)]);
    let mut world = World::new(upstream(Balancer::Random), endpoints.collect());
    near(world.shares_of(&TAGGED, 500)[&id(0)], 1.0, 1e-9);
}

#[test]
fn no_spill_without_a_next_tier_that_can_take_it() {
    let endpoints = (0..10).map(|n| at(n, "base", "a", n == 0)).chain([at(10, "base", "b", false)]);
    let mut world = World::new(upstream(Balancer::Random), endpoints.collect());
    near(world.shares(500)[&id(0)], 1.0, 1e-9);
}

#[test]
fn ejected_ones_are_missing_health_too() {
    let endpoints = (0..4).map(|n| at(n, "base", "a", true)).chain([at(4, "base", "b", true)]);
    let mut world = World::new(upstream(Balancer::Random), endpoints.collect());
    for n in 0..2 {
        assert!((0..5).any(|_| world.fail(n)));
    }
    near(world.shares(20_000)[&id(4)], 0.5 * 1.4, 0.015);
}

#[test]
fn a_zone_whose_only_endpoint_is_ejected_is_left_for_the_next() {
    let endpoints = (0..3).map(|n| at(n, "base", ["a", "b", "c"][n as usize], true)).collect();
    let mut world = World::new(upstream(Balancer::Random), endpoints);
    near(world.shares(500)[&id(0)], 1.0, 1e-9);
    assert!((0..5).any(|_| world.fail(0)), "two others can serve");
    let shares = world.shares(500);
    assert_eq!(shares.get(&id(0)), None);
    near(shares[&id(1)] + shares[&id(2)], 1.0, 1e-9);
    // The other two are a tier, of which half may be left alone.
    for n in [1, 2] {
        (0..50).for_each(|_| _ = world.fail(n));
    }
    assert_eq!(world.shares(500).len(), 1);
}

#[test]
fn a_zone_is_not_left_for_one_that_has_nobody() {
    let endpoints = vec![at(0, "base", "a", true), at(1, "base", "b", false)];
    let world = World::new(upstream(Balancer::Random), endpoints);
    assert!(!(0..50).any(|_| world.fail(0)));
}

#[test]
fn panic_uses_all_of_the_last_resort_but_not_what_drains() {
    let mut endpoints = vec![at(0, "base", "a", false), at(1, "base", "b", false), at(2, "new", "a", false)];
    endpoints.push(EndpointSpec { draining: true, ..at(3, "base", "a", true) });
    endpoints.push(EndpointSpec { weight: 0, ..at(4, "base", "a", true) });
    let mut world = World::new(upstream(Balancer::Random), endpoints);
    let shares = world.shares_of(&TAGGED, 2000);
    near(shares[&id(0)], 0.5, 0.05);
    assert_eq!(shares.len(), 2);
    let pick = world.try_pick(&TAGGED, &TriedSet::default()).unwrap();
    assert!(pick.panic && pick.lane.is_base() && pick.tier > 4);
}

#[test]
fn a_silent_source_is_the_last_resort() {
    let mut world = World::new(upstream(Balancer::Random), vec![at(0, "base", "a", true)]);
    world.change(Change::Stale { source: source(), stale: true });
    assert!(world.try_pick(&Request::default(), &TriedSet::default()).unwrap().panic);
    world.change(Change::Stale { source: source(), stale: false });
    assert!(!world.try_pick(&Request::default(), &TriedSet::default()).unwrap().panic);
    world.change(Change::DropSource(source()));
    assert_eq!(world.try_pick(&Request::default(), &TriedSet::default()).unwrap_err(), NoPick::NoEndpoint);
}

#[test]
fn a_retry_goes_to_another_then_to_the_next_tier_then_gives_up() {
    let endpoints = vec![
        at(0, "new", "a", true),
        at(1, "new", "a", true),
        at(2, "new", "b", true),
        at(3, "base", "a", true),
        at(4, "old", "a", true),
    ];
    let mut world = World::new(upstream(Balancer::Load), endpoints);
    let mut tried = TriedSet::default();
    let mut tiers = Vec::new();
    while let Ok(pick) = world.try_pick(&TAGGED, &tried) {
        tiers.push(pick.tier);
        let instance = pick.endpoint.instance();
        assert!(!tried.contains(instance) && instance != id(4));
        assert!(tried.add(instance));
    }
    assert_eq!(tiers, [2, 2, 3, 6]);
    assert_eq!(world.try_pick(&TAGGED, &tried).unwrap_err(), NoPick::AllTried);
}

#[test]
fn a_developers_machine_serves_only_where_base_has_nothing() {
    let mut world = World::new(upstream(Balancer::Load), vec![at(0, "mine", "a", true)]);
    let pick = world.try_pick(&Request::default(), &TriedSet::default()).unwrap();
    assert_eq!((pick.tier, pick.lane.as_str()), (9, "mine"));
    world.announce(vec![at(0, "mine", "a", true), at(1, "base", "a", false)]);
    let pick = world.try_pick(&Request::default(), &TriedSet::default()).unwrap();
    assert!(pick.lane.is_base() && pick.panic, "a sick base is still base");
}

#[test]
fn priority_comes_before_place() {
    let far = EndpointSpec { priority: 1, ..at(0, "base", "b", true) };
    let mut world = World::new(upstream(Balancer::Load), vec![far, at(1, "base", "a", true)]);
    near(world.shares(100)[&id(0)], 1.0, 1e-9);
}

#[test]
fn a_bad_item_is_refused_by_name_and_its_older_version_serves() {
    let mut world = World::new(upstream(Balancer::Load), vec![endpoint(0)]);
    let bad = UpstreamSpec { spill_below: 7.0, ..upstream(Balancer::Random) };
    let app = crate::support::app();
    let changes = [
        Change::PutApp { app, upstream: bad, stopped: true, base_stopped: false, lanes: Vec::new() },
        Change::PutRoute(towpath_types::spec::RouteSpec {
            host: "Bad Host".into(),
            ..world.matched(&Request::default()).0.route().spec.clone()
        }),
    ];
    let (table, refused) = world.table.apply(&changes, world.now);
    assert_eq!(refused.len(), 2);
    assert!(refused[0].key.contains("shop") && refused[0].why.contains("spill_below"), "{refused:?}");
    assert!(refused[1].key.starts_with("route Bad Host"), "{refused:?}");
    assert!(table.same(&world.table), "nothing of it was taken");
    world.table = table;
    assert_eq!(world.pick(&Request::default()).instance(), id(0));
}
