//! The simulation itself: repeatable, and right where the answer is known.

use towpath_sim::balance::run;
use towpath_sim::scenario::Scenario;
use towpath_types::upstream::Balancer;

fn small(balancer: Balancer) -> Scenario {
    Scenario { warm_up: 3.0, measured: 6.0, ..Scenario::standard(11, balancer) }
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    assert_eq!(run(&small(Balancer::Load)), run(&small(Balancer::Load)));
}

#[test]
fn a_lone_worker_waits_as_queueing_theory_says() {
    // M/M/1 at half load: the mean time in the system is work / (1 − 0.5)
    let scenario = Scenario {
        instances: 1,
        slow: 0,
        per_host: 1,
        workers: 1,
        gateways: 1,
        utilisation: 0.5,
        warm_up: 50.0,
        measured: 2000.0,
        ..Scenario::standard(3, Balancer::Load)
    };
    let speed = towpath_sim::scenario::instances(&scenario).first().map_or(1.0, |instance| instance.speed);
    let want = scenario.work / speed / 0.5;
    let got = run(&scenario).mean;
    assert!((got / want - 1.0).abs() < 0.05, "{got} s instead of {want} s");
}

#[test]
fn load_keeps_off_the_slow_instances_and_random_does_not() {
    let (load, random) = (run(&small(Balancer::Load)), run(&small(Balancer::Random)));
    assert!(load.slow_share < 0.05 && (0.08..0.12).contains(&random.slow_share));
    assert!(load.p99 < random.p99 / 5.0);
}
