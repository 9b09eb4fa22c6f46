use crate::support::{Request, S, World, endpoint, id, load, near, upstream};
use std::collections::{BTreeMap, BTreeSet};
use towpath_route::{Endpoint, EndpointSpec, Outcome};
use towpath_types::lane::HashBy;
use towpath_types::upstream::Balancer;

fn weighing(weights: &[u32]) -> Vec<EndpointSpec> {
    let all = weights.iter().enumerate();
    all.map(|(n, weight)| EndpointSpec { weight: *weight, ..endpoint(n as u64) }).collect()
}

fn success(ms: u64) -> Outcome {
    Outcome::Success { latency_ns: ms * 1_000_000 }
}

#[test]
fn random_goes_by_weight() {
    let mut world = World::new(upstream(Balancer::Random), weighing(&[100, 300, 0, 600]));
    let shares = world.shares(20_000);
    near(shares[&id(0)], 0.1, 0.01);
    near(shares[&id(1)], 0.3, 0.015);
    near(shares[&id(3)], 0.6, 0.015);
    assert_eq!(shares.len(), 3);
}

#[test]
fn round_robin_is_exact_and_smooth() {
    let mut world = World::new(upstream(Balancer::Roundrobin), weighing(&[100; 5]));
    for _ in 0..20 {
        let round: BTreeSet<_> = (0..5).map(|_| world.pick(&Request::default()).instance()).collect();
        assert_eq!(round.len(), 5, "each once a round");
    }
    let mut world = World::new(upstream(Balancer::Roundrobin), weighing(&[50, 10, 10]));
    let mut counts = BTreeMap::new();
    for turn in 1..=700_i64 {
        *counts.entry(world.pick(&Request::default()).instance()).or_insert(0_i64) += 1;
        for (n, weight) in [(0, 5), (1, 1), (2, 1)] {
            let ahead = (counts.get(&id(n)).unwrap_or(&0) * 7 - turn * weight).abs();
            assert!(ahead <= 7, "turn {turn}: never more than one turn off");
        }
    }
    assert_eq!(counts.values().copied().collect::<Vec<_>>(), [500, 100, 100]);
}

#[test]
fn round_robin_neither_floods_nor_starves_a_newcomer() {
    let mut world = World::new(upstream(Balancer::Roundrobin), weighing(&[100; 4]));
    world.shares(1000);
    world.announce(weighing(&[100; 5]));
    near(world.shares(500)[&id(4)], 0.2, 0.01);
}

#[test]
fn weighted_follows_the_formula_and_starves_nobody() {
    let endpoints: Vec<_> = [0.0, 0.5, 1.0]
        .iter()
        .enumerate()
        .map(|(n, share)| EndpointSpec { load: load(*share), ..endpoint(n as u64) })
        .collect();
    let mut world = World::new(upstream(Balancer::Weighted), endpoints);
    let shares = world.shares(40_000);
    // free capacity 1, 0.5 and the floor of 0.05
    near(shares[&id(0)], 1.0 / 1.55, 0.01);
    near(shares[&id(1)], 0.5 / 1.55, 0.01);
    near(shares[&id(2)], 0.05 / 1.55, 0.005);
}

#[test]
fn an_old_or_missing_report_counts_as_the_mean() {
    let loads = [load(0.2), load(0.6), None];
    let endpoints: Vec<_> = loads
        .iter()
        .enumerate()
        .map(|(n, load)| EndpointSpec { load: *load, ..endpoint(n as u64) })
        .collect();
    let mut world = World::new(upstream(Balancer::Weighted), endpoints.clone());
    near(world.shares(40_000)[&id(2)], 0.6 / (0.8 + 0.4 + 0.6), 0.01);
    // three intervals later only one of them has reported again
    world.now += 7 * S;
    let again = EndpointSpec { load: load(0.2), ..endpoints[0].clone() };
    let silent = endpoints[1..].iter().map(|e| EndpointSpec { load: None, ..e.clone() });
    world.announce([again].into_iter().chain(silent).collect());
    let shares = world.shares(40_000);
    near(shares[&id(1)], 1.0 / 3.0, 0.01);
    near(shares[&id(2)], 1.0 / 3.0, 0.01);
}

#[test]
fn least_conn_takes_the_idlest_by_weight() {
    let mut world = World::new(upstream(Balancer::LeastConn), weighing(&[100, 100, 200]));
    let mut flights = Vec::new();
    let mut counts = BTreeMap::new();
    for _ in 0..40 {
        let endpoint = world.pick(&Request::default());
        *counts.entry(endpoint.instance()).or_insert(0) += 1;
        flights.push(Endpoint::begin(&endpoint));
    }
    assert_eq!(counts, BTreeMap::from([(id(0), 10), (id(1), 10), (id(2), 20)]));
    drop(flights);
    assert!((0..3).all(|n| world.endpoint(n).state.in_flight() == 0));
}

#[test]
fn load_avoids_what_is_slow_busy_or_loaded_and_each_alone_is_enough() {
    let cases: [fn(&World) -> Vec<towpath_route::InFlight>; 2] = [
        |world| {
            (0..3).for_each(|n| _ = world.outcome(n, success(if n == 0 { 100 } else { 10 })));
            Vec::new()
        },
        |world| (0..5).map(|_| Endpoint::begin(&world.endpoint(0))).collect(),
    ];
    for make_bad in cases {
        let mut world = World::new(upstream(Balancer::Load), weighing(&[100; 3]));
        let held = make_bad(&world);
        assert_eq!(world.shares(2000).get(&id(0)), None);
        drop(held);
    }
    let loaded: Vec<_> =
        (0..3).map(|n| EndpointSpec { load: load(if n == 0 { 0.9 } else { 0.1 }), ..endpoint(n) }).collect();
    let mut world = World::new(upstream(Balancer::Load), loaded);
    assert_eq!(world.shares(2000).get(&id(0)), None);
}

#[test]
fn a_slow_past_is_forgotten_in_time() {
    let mut world = World::new(upstream(Balancer::Ewma), weighing(&[100; 2]));
    let _ = world.outcome(0, success(1000));
    let _ = world.outcome(1, success(10));
    assert_eq!(world.shares(100).get(&id(0)), None);
    let before = world.endpoint(0).state.latency_seconds(world.now).unwrap();
    world.now += 60 * S;
    let _ = world.outcome(1, success(10));
    assert!(world.endpoint(0).state.latency_seconds(world.now).unwrap() < before / 100.0);
    near(world.shares(100)[&id(0)], 1.0, 1e-9);
}

#[test]
fn one_that_fails_fast_attracts_nothing() {
    let mut world = World::new(upstream(Balancer::Load), weighing(&[100; 2]));
    for n in 0..2 {
        let _ = world.outcome(n, success(20));
    }
    let _ = world.outcome(0, Outcome::Failure { latency_ns: 10_000 });
    assert_eq!(world.shares(1000).get(&id(0)), None);
}

fn by_user(world: &mut World, users: u32) -> BTreeMap<String, towpath_types::InstanceId> {
    let users = (0..users).map(|n| format!("user-{n}"));
    users
        .map(|user| {
            let request = Request { user: Some(user.clone()), ..Request::default() };
            (user, world.pick(&request).instance())
        })
        .collect()
}

#[test]
fn a_consistent_hash_moves_only_what_it_must() {
    let balancer = || upstream(Balancer::Chash(HashBy::Header("user".into())));
    let mut world = World::new(balancer(), weighing(&[100, 100, 200, 5000]));
    let before = by_user(&mut world, 4000);
    assert_eq!(before, by_user(&mut world, 4000), "the same user, the same instance");
    let share = |n: u64| before.values().filter(|instance| **instance == id(n)).count() as f64 / 4000.0;
    near(share(2), 200.0 / 5400.0, 0.01);
    near(share(3), 5000.0 / 5400.0, 0.015);
    world.announce(weighing(&[100, 100, 0, 5000]));
    for (user, after) in by_user(&mut world, 4000) {
        assert!(after == before[&user] || before[&user] == id(2), "only those of the one that went move");
    }
}

#[test]
fn a_consistent_hash_passes_over_the_overloaded() {
    let balancer = upstream(Balancer::Chash(HashBy::Header("user".into())));
    let mut world = World::new(balancer, weighing(&[100; 4]));
    let request = Request { user: Some("hot".into()), ..Request::default() };
    let mut flights = Vec::new();
    for _ in 0..400 {
        flights.push(Endpoint::begin(&world.pick(&request)));
    }
    let most = (0..4).map(|n| world.endpoint(n).state.in_flight()).max().unwrap();
    assert!((120..=126).contains(&most), "a quarter more than the fair share of 100: {most}");
}

#[test]
fn a_newcomer_grows_into_its_share() {
    for balancer in [Balancer::Load, Balancer::Weighted, Balancer::Random, Balancer::Roundrobin] {
        let mut world = World::new(upstream(balancer.clone()), weighing(&[100; 4]));
        let mut all = weighing(&[100; 5]);
        all[4].ready_ms = 0;
        world.announce(all);
        let at = |world: &mut World, seconds: u64| {
            world.now += seconds * S;
            world.shares(8000).get(&id(4)).copied().unwrap_or_default()
        };
        let shares = [at(&mut world, 0), at(&mut world, 5), at(&mut world, 5)];
        near(shares[0], 0.1 / 4.1, 0.02);
        near(shares[1], 0.55 / 4.55, 0.03);
        near(shares[2], 0.2, 0.02);
    }
}

#[test]
fn a_newcomer_of_a_consistent_hash_takes_over_its_keys_one_after_another() {
    let balancer = upstream(Balancer::Chash(HashBy::Header("user".into())));
    let mut world = World::new(balancer, weighing(&[100; 4]));
    let mut before = by_user(&mut world, 4000);
    let mut all = weighing(&[100; 5]);
    all[4].ready_ms = 0;
    world.announce(all);
    for (seconds, share) in [(0, 0.1 / 4.1), (5, 0.55 / 4.55), (5, 0.2)] {
        world.now += seconds * S;
        let after = by_user(&mut world, 4000);
        near(after.values().filter(|instance| **instance == id(4)).count() as f64 / 4000.0, share, 0.03);
        assert!(after.iter().all(|(user, at)| *at == before[user] || *at == id(4)), "no other key moves");
        before = after;
    }
}

#[test]
fn a_gateway_that_just_started_does_not_take_old_instances_for_new_ones() {
    let mut world = World::new(upstream(Balancer::Random), Vec::new());
    world.now = S;
    let mut all = weighing(&[100; 2]);
    all[0].ready_ms = 0;
    world.announce(all);
    near(world.shares(8000)[&id(1)], 1.0 / 1.1, 0.02);
}

#[test]
fn an_explanation_gives_the_shares_that_picks_have() {
    for balancer in [Balancer::Weighted, Balancer::Random] {
        let loads = [0.1, 0.3, 0.5, 0.9];
        let mut all: Vec<_> = weighing(&[100, 100, 50, 200]);
        all.iter_mut().zip(loads).for_each(|(endpoint, share)| endpoint.load = load(share));
        let mut world = World::new(upstream(balancer), all);
        (0..4).for_each(|n| _ = world.outcome(n, success(10 + 5 * (n % 2))));
        let _held = Endpoint::begin(&world.endpoint(1));
        let want = world.explained_shares(&Request::default());
        let got = world.shares(20_000);
        want.iter().for_each(|(n, share)| near(got.get(n).copied().unwrap_or_default(), *share, 0.015));
    }
}

#[test]
fn an_explanation_makes_no_winner_of_microseconds() {
    let latency_ns = |n: u64| 10_000_000 + n * 3_000;
    for balancer in [Balancer::Load, Balancer::Ewma] {
        for count in [2, 5] {
            let world = World::new(upstream(balancer.clone()), weighing(&vec![100; count as usize]));
            (0..count).for_each(|n| _ = world.outcome(n, Outcome::Success { latency_ns: latency_ns(n) }));
            let shares = world.explained_shares(&Request::default());
            assert_eq!(shares.len(), count as usize);
            shares.values().for_each(|share| near(*share, 1.0 / count as f64, 0.003));
        }
    }
}

#[test]
fn an_explanation_gives_the_better_more_and_all_of_it_away() {
    for balancer in [Balancer::Load, Balancer::Ewma, Balancer::LeastConn] {
        let mut world = World::new(upstream(balancer.clone()), weighing(&[100; 4]));
        let held: Vec<_> = (0..4)
            .flat_map(|n| (0..n).map(move |_| n))
            .map(|n| Endpoint::begin(&world.endpoint(n)))
            .collect();
        (0..4).for_each(|n| _ = world.outcome(n, success(10 << n)));
        let shares: Vec<f64> = world.explained_shares(&Request::default()).into_values().collect();
        assert!(shares.is_sorted_by(|a, b| a > b), "{balancer:?}: {shares:?}");
        near(shares.iter().sum(), 1.0, 1e-9);
        // Of a newcomer the balancers that draw two know that it is drawn more rarely.
        let mut all = weighing(&[100; 5]);
        all[4].ready_ms = 0;
        world.announce(all);
        let shares = world.explained_shares(&Request::default());
        near(shares.values().sum(), 1.0, 1e-9);
        assert!(shares[&id(4)] < 0.1, "{balancer:?}: {shares:?}");
        drop(held);
    }
}

#[test]
fn two_of_which_one_is_twice_as_slow_share_as_an_explanation_says() {
    // A closed loop of eight requests: in flight moves the scores, as it does for real.
    let mut world = World::new(upstream(Balancer::Load), weighing(&[100; 2]));
    (0..2).for_each(|n| _ = world.outcome(n, success(10 << n)));
    let explained = world.explained_shares(&Request::default())[&id(0)];
    let mut flights = std::collections::VecDeque::new();
    let (mut sent, mut first) = (0, 0);
    while sent < 4000 {
        let at = world.now;
        flights.retain_mut(|(ends, flight): &mut (u64, Option<_>)| {
            if *ends > at {
                return true;
            }
            let flight: towpath_route::InFlight = flight.take().unwrap();
            let n = u64::from(flight.endpoint().instance() == id(1));
            let _ = flight.finish(at, success(10 << n));
            false
        });
        while flights.len() < 8 {
            let endpoint = world.pick(&Request::default());
            let n = u64::from(endpoint.instance() == id(1));
            sent += 1;
            first += u64::from(n == 0);
            flights.push_back((world.now + (10_000_000 << n), Some(Endpoint::begin(&endpoint))));
        }
        world.now += 1_000_000;
    }
    near(first as f64 / sent as f64, explained, 0.12);
}

#[test]
fn an_explanation_gives_equal_endpoints_equal_shares() {
    let balancers = [Balancer::Load, Balancer::Ewma, Balancer::Weighted, Balancer::Random];
    for balancer in balancers.into_iter().chain([Balancer::LeastConn, Balancer::Roundrobin]) {
        for count in [2, 3, 7_u32] {
            let world = World::new(upstream(balancer.clone()), weighing(&vec![100; count as usize]));
            let before = world.explained_shares(&Request::default());
            (0..u64::from(count)).for_each(|n| _ = world.outcome(n, success(10)));
            let after = world.explained_shares(&Request::default());
            let shares: Vec<f64> = before.into_values().chain(after.into_values()).collect();
            assert_eq!(shares.len(), 2 * count as usize);
            shares.into_iter().for_each(|share| near(share, 1.0 / f64::from(count), 1e-9));
        }
    }
}
