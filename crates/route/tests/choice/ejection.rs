use crate::support::{Request, S, World, endpoint, id, near, upstream};
use std::sync::Arc;
use towpath_route::{Endpoint, Finished, Outcome};
use towpath_types::upstream::{Balancer, Ejection, UpstreamSpec};

fn world(count: u64, ejection: Ejection) -> World {
    let upstream = UpstreamSpec { ejection, ..upstream(Balancer::Random) };
    World::new(upstream, (0..count).map(endpoint).collect())
}

const SUCCESS: Outcome = Outcome::Success { latency_ns: 1_000_000 };

#[test]
fn five_failures_in_a_row_eject_and_time_brings_it_back() {
    let mut world = world(3, Ejection { rate: 0.0, ..Ejection::default() });
    for _ in 0..4 {
        assert!(!world.fail(0));
    }
    let _ = world.outcome(0, SUCCESS);
    assert_eq!((0..5).map(|_| world.fail(0)).collect::<Vec<_>>(), [false, false, false, false, true]);
    assert!(world.endpoint(0).state.ejected(world.now));
    assert_eq!(world.shares(500).get(&id(0)), None);
    world.now += 5 * S;
    near(world.shares(4000)[&id(0)], 0.1 / 2.1, 0.02);
    world.now += 10 * S;
    near(world.shares(4000)[&id(0)], 1.0 / 3.0, 0.03);
}

#[test]
fn half_of_the_requests_failing_ejects_but_not_in_a_small_sample() {
    let world = world(2, Ejection { consecutive: 0, ..Ejection::default() });
    let mut ejected_at = None;
    for n in 1..=40 {
        let _ = world.outcome(0, SUCCESS);
        if world.fail(0) && ejected_at.is_none() {
            ejected_at = Some(2 * n);
        }
    }
    assert_eq!(ejected_at, Some(20));
}

#[test]
fn at_most_half_of_a_tier_is_ejected() {
    let mut world = world(5, Ejection::default());
    for n in 0..5 {
        (0..5).for_each(|_| _ = world.fail(n));
    }
    let ejected = (0..5).filter(|n| world.endpoint(*n).state.ejected(world.now)).count();
    assert_eq!(ejected, 2);
    assert_eq!(world.shares(500).len(), 3);
    let lone = self::world(1, Ejection::default());
    assert!(!(0..50).any(|_| lone.fail(0)));
}

#[test]
fn ejections_in_a_row_last_longer_and_quiet_times_are_forgiven() {
    let mut world =
        world(3, Ejection { rate: 0.0, max: towpath_types::Millis::secs(12), ..Ejection::default() });
    let mut lengths = Vec::new();
    for _ in 0..4 {
        assert!((0..5).any(|_| world.fail(0)));
        let until = world.endpoint(0).state.ejected_until();
        lengths.push((until - world.now) / S);
        world.now = until;
    }
    assert_eq!(lengths, [5, 10, 12, 12]);
    world.now += 17 * S;
    assert!((0..5).any(|_| world.fail(0)));
    assert_eq!(
        world.endpoint(0).state.ejections(),
        2,
        "three of four are forgiven after 17 s, and this is one more"
    );
}

#[test]
fn a_client_that_goes_away_is_no_failure() {
    let world = world(2, Ejection::default());
    for _ in 0..100 {
        assert_eq!(world.outcome(0, Outcome::ClientGone), Finished::default());
        drop(Endpoint::begin(&world.endpoint(0)));
    }
    let state = &world.endpoint(0).state;
    assert_eq!((state.totals(), state.consecutive_failures(), state.in_flight()), ((0, 0), 0, 0));
    assert_eq!(state.latency_seconds(world.now), None);
}

#[test]
fn an_outcome_counts_once_while_the_stream_goes_on() {
    let world = world(2, Ejection::default());
    let mut flight = Endpoint::begin(&world.endpoint(0));
    let _ = flight.observe(world.now, SUCCESS);
    let state = Arc::clone(&world.endpoint(0).state);
    assert_eq!((state.totals(), state.in_flight()), ((1, 0), 1));
    let _ = flight.finish(world.now + S, SUCCESS);
    assert_eq!((state.totals(), state.in_flight()), ((1, 0), 0));
}

#[test]
fn workers_that_eject_at_once_do_not_eject_too_many() {
    let world = world(8, Ejection::default());
    let table = &world.table;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..8 {
                    table.eject(&world.endpoint(n), world.now);
                }
            });
        }
    });
    let ejected = (0..8).filter(|n| world.endpoint(*n).state.ejected(world.now)).count();
    assert!((1..=4).contains(&ejected), "{ejected}");
}

#[test]
fn in_flight_is_right_whatever_workers_do_at_once() {
    let mut world = world(4, Ejection::default());
    let endpoints: Vec<_> = (0..4).map(|n| world.endpoint(n)).collect();
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let endpoints = &endpoints;
            scope.spawn(move || {
                for n in 0..20_000_u64 {
                    let flight = Endpoint::begin(&endpoints[((n + worker) % 4) as usize]);
                    let outcome = if n % 3 == 0 { Outcome::ClientGone } else { SUCCESS };
                    let _ = flight.finish(n, outcome);
                }
            });
        }
    });
    for n in 0..4 {
        assert_eq!(world.endpoint(n).state.in_flight(), 0);
    }
    assert_eq!(world.pick(&Request::default()).state.totals().1, 0);
}
