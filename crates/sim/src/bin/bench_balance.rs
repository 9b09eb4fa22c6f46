//! `make bench-balance`: latency of the balancers in a discrete-event simulation with several seeds. With `CHECK=1` it
//! exits 1 unless, in every seed, `load` has the lowest p99 and `weighted` has a lower one than `random`.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::collections::BTreeMap;
use towpath_sim::balance::run;
use towpath_sim::scenario::Scenario;
use towpath_types::upstream::Balancer;

const SEEDS: u64 = 5;

fn balancers() -> [(&'static str, Balancer); 6] {
    [
        ("load", Balancer::Load),
        ("least_conn", Balancer::LeastConn),
        ("ewma", Balancer::Ewma),
        ("weighted", Balancer::Weighted),
        ("roundrobin", Balancer::Roundrobin),
        ("random", Balancer::Random),
    ]
}

fn median(list: &mut [f64]) -> f64 {
    list.sort_by(f64::total_cmp);
    list.get(list.len() / 2).copied().unwrap_or_default()
}

fn main() {
    let mut p99s: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut p50s: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut missed = Vec::new();
    for seed in 1..=SEEDS {
        let mut of_seed = BTreeMap::new();
        for (name, balancer) in balancers() {
            // two to four gateways: the more, the less each knows of what the others send
            let gateways = 2 + seed as usize % 3;
            let figures = run(&Scenario { gateways, ..Scenario::standard(seed, balancer) });
            println!(
                "seed {seed}, {gateways} gateways: {name:<10} p50 {:>9.2} ms  p99 {:>9.2} ms  mean {:>9.2} ms  to slow {:>5.2} %  ({} requests)",
                figures.p50 * 1e3,
                figures.p99 * 1e3,
                figures.mean * 1e3,
                figures.slow_share * 100.0,
                figures.requests,
            );
            p99s.entry(name).or_default().push(figures.p99 * 1e3);
            p50s.entry(name).or_default().push(figures.p50 * 1e3);
            of_seed.insert(name, figures.p99);
        }
        let of = |name: &str| of_seed.get(name).copied().unwrap_or(f64::INFINITY);
        for (name, p99) in of_seed.iter().filter(|(name, p99)| **name != "load" && **p99 <= of("load")) {
            missed.push(format!(
                "seed {seed}: {name} has a p99 of {:.2} ms, load {:.2} ms",
                p99 * 1e3,
                of("load") * 1e3
            ));
        }
        if of("weighted") >= of("random") {
            missed.push(format!("seed {seed}: weighted is not better than random"));
        }
    }
    for (name, _) in balancers() {
        println!("{name}_p50_ms={:.2}", p50s.get_mut(name).map_or(0.0, |list| median(list)));
    }
    for (name, _) in balancers() {
        println!("{name}_p99_ms={:.2}", p99s.get_mut(name).map_or(0.0, |list| median(list)));
    }
    for line in &missed {
        println!("missed: {line}");
    }
    if !missed.is_empty() && std::env::var_os("CHECK").is_some_and(|check| check == "1") {
        std::process::exit(1);
    }
}
