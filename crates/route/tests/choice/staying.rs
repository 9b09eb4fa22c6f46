use crate::support::{Request, S, World, app, endpoint, id, upstream};
use std::sync::Arc;
use towpath_route::{Change, Endpoint, EndpointSpec, Outcome};
use towpath_types::upstream::Balancer;
use towpath_types::{LaneName, Place};

fn lane(name: &str) -> LaneName {
    LaneName::new(name).unwrap()
}

#[test]
fn a_session_stays_with_its_instance_in_whatever_tier() {
    let far = EndpointSpec { place: Place { region: "far".into(), ..Place::default() }, ..endpoint(1) };
    let world = World::new(upstream(Balancer::Load), vec![endpoint(0), far]);
    let (matched, choice) = world.matched(&Request::default());
    let pick = world.table.find_sticky(&matched, &choice, id(1), world.now).unwrap();
    assert_eq!((pick.endpoint.instance(), pick.tier), (id(1), 4));
    assert!(world.table.find_sticky(&matched, &choice, id(9), world.now).is_none());
}

#[test]
fn a_session_leaves_an_instance_that_drains_is_sick_or_is_ejected() {
    let base = vec![endpoint(0), endpoint(1), endpoint(2)];
    let bound = |world: &World| {
        let (matched, choice) = world.matched(&Request::default());
        world.table.find_sticky(&matched, &choice, id(0), world.now).is_some()
    };
    let mut world = World::new(upstream(Balancer::Load), base.clone());
    assert!(bound(&world));
    for change in [
        |endpoint: &mut EndpointSpec| endpoint.draining = true,
        |endpoint: &mut EndpointSpec| endpoint.healthy = false,
        |endpoint: &mut EndpointSpec| endpoint.weight = 0,
    ] {
        let mut all = base.clone();
        change(&mut all[0]);
        world.announce(all);
        assert!(!bound(&world));
    }
    world.announce(base);
    assert!(bound(&world));
    assert!((0..5).any(|_| world.fail(0)));
    assert!(!bound(&world));
    world.now += 6 * S;
    assert!(bound(&world));
}

#[test]
fn a_session_never_overrules_the_lane() {
    let request = Request { lane: Some("new"), user: None };
    let feature = EndpointSpec { lane: lane("new"), ..endpoint(1) };
    let mut world = World::new(upstream(Balancer::Load), vec![endpoint(0), feature.clone()]);
    let bound = |world: &World, request: &Request, n: u64| {
        let (matched, choice) = world.matched(request);
        world.table.find_sticky(&matched, &choice, id(n), world.now).is_some()
    };
    assert!(bound(&world, &request, 1));
    assert!(!bound(&world, &request, 0), "the lane has an instance of its own");
    assert!(!bound(&world, &Request::default(), 1), "base never sees the lane's");
    world.announce(vec![endpoint(0), EndpointSpec { healthy: false, ..feature }]);
    assert!(bound(&world, &request, 0), "base serves the lane now");
}

#[test]
fn what_was_learned_survives_changes_of_the_table_but_not_a_new_start() {
    let mut world = World::new(upstream(Balancer::Load), vec![endpoint(0), endpoint(1)]);
    let held = Endpoint::begin(&world.endpoint(0));
    let _ = world.outcome(0, Outcome::Success { latency_ns: 5_000_000 });
    let budget = Arc::clone(world.matched(&Request::default()).0.budget());
    world.change(Change::PutApp {
        app: app(),
        upstream: upstream(Balancer::Random),
        stopped: false,
        base_stopped: false,
        lanes: vec![],
    });
    world.announce(vec![EndpointSpec { draining: true, ..endpoint(0) }, endpoint(2)]);
    let state = Arc::clone(&world.endpoint(0).state);
    assert_eq!((state.in_flight(), state.totals()), (1, (1, 0)));
    assert!(Arc::ptr_eq(&budget, world.matched(&Request::default()).0.budget()));
    assert_eq!(world.table.draining(), [(id(0), 1)]);
    drop(held);
    assert_eq!(world.table.draining(), [(id(0), 0)]);
    world.announce(vec![EndpointSpec { start: 1, ..endpoint(0) }]);
    assert_eq!(world.endpoint(0).state.totals(), (0, 0));
}

#[test]
fn loads_alone_change_no_table() {
    let mut world = World::new(upstream(Balancer::Load), vec![endpoint(0), endpoint(1)]);
    let before = world.table.clone();
    let loaded = |share| EndpointSpec { load: crate::support::load(share), ready_ms: 7, ..endpoint(0) };
    world.announce(vec![loaded(0.5), endpoint(1)]);
    assert!(world.table.same(&before));
    assert!((world.endpoint(0).state.load(world.now).unwrap() - 0.3).abs() < 1e-6);
    world.announce(vec![loaded(0.5)]);
    assert!(!world.table.same(&before));
}

#[test]
fn an_explanation_says_that_a_session_decides_and_when_it_does_not() {
    let far = EndpointSpec { place: Place { region: "far".into(), ..Place::default() }, ..endpoint(1) };
    let mut world = World::new(upstream(Balancer::Load), vec![endpoint(0), far.clone()]);
    let explain = |world: &World, named: &[u64]| {
        let named = named.iter().map(|n| id(*n)).collect();
        world.table.explain(b"shop", b"/", &Request::default(), |_, _| named, world.now)
    };
    let plain = explain(&world, &[]);
    assert!(plain.tier != Some(4) && !plain.tier_reason.contains("sticky"), "{plain:?}");
    let bound = explain(&world, &[9, 1]);
    assert_eq!((bound.tier, bound.error.clone()), (Some(4), None));
    assert!(bound.tier_reason.contains("sticky cookie names instance"), "{bound:?}");
    let shares: Vec<_> = bound.endpoints.iter().map(|e| (e.instance, e.share, e.why_not.as_str())).collect();
    assert_eq!(shares, [(id(1), 1.0, ""), (id(0), 0.0, "the session is at another instance")]);
    world.announce(vec![endpoint(0), EndpointSpec { healthy: false, ..far }]);
    let lost = explain(&world, &[1]);
    assert_eq!((lost.tier, lost.endpoints[0].share), (plain.tier, plain.endpoints[0].share));
    assert!(lost.tier_reason.contains("not available"), "{lost:?}");
}
