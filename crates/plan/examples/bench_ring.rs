//! `make bench-ring`: 100 managers share 1,000,000 resources. Time of a lookup by name, how even the shares are, how much
//! moves when one joins or leaves, and the CPU time that this costs a manager: building the new ring, and finding those of
//! all resources that it has gained. With `CHECK=1` it exits 1 when a target is missed.
#![allow(clippy::print_stdout, missing_docs, reason = "a bench")]

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use towpath_plan::ring::{Member, Ring, hash};
use towpath_types::ManagerId;

const MANAGERS: u16 = 100;
const RESOURCES: usize = 1_000_000;
const ROUNDS: usize = 7;

fn main() {
    let names: Vec<String> =
        (0..RESOURCES).map(|n| format!("org-{}/space/app-{n}:base:", n % 1000)).collect();
    let mut hashes: Vec<u64> = names.iter().map(|name| hash(name.as_bytes())).collect();
    hashes.sort_unstable();
    let (ring, more, less) = (ring(0..MANAGERS), ring(0..MANAGERS + 1), ring(1..MANAGERS));

    let lookup = best(|| {
        for name in &names {
            black_box(ring.owner(name));
        }
    });
    let lookup_ns = lookup.as_nanos() as f64 / RESOURCES as f64;

    let mean = RESOURCES as f64 / f64::from(MANAGERS);
    let counted = ring.members().iter().map(|one| owned(&ring, &hashes, *one).len());
    let imbalance = counted.max().unwrap_or_default() as f64 / mean - 1.0;
    let joined = moved(&ring, &more, &names) / (1.0 / f64::from(MANAGERS + 1) + 0.02);
    let left = moved(&ring, &less, &names) / (1.0 / f64::from(MANAGERS) + 0.02);

    let handled = best(|| {
        let fresh = Ring::new(&members(1..MANAGERS));
        for arc in fresh.gained(&ring, manager(50)) {
            black_box(within(&hashes, &arc));
        }
    });
    let handled_ms = handled.as_secs_f64() * 1000.0;

    println!("managers={MANAGERS} resources={RESOURCES}");
    println!("lookup_ns={lookup_ns:.0} (at most 200)");
    println!("imbalance={:.1}% (at most 10%)", imbalance * 100.0);
    println!("moved_on_join={joined:.2} of what is permitted, moved_on_leave={left:.2}");
    println!("change_handled_ms={handled_ms:.1} (at most 100)");
    let good = lookup_ns <= 200.0 && imbalance <= 0.10 && joined <= 1.0 && left <= 1.0 && handled_ms <= 100.0;
    if !good && std::env::var_os("CHECK").is_some() {
        println!("a target is missed");
        std::process::exit(1);
    }
}

fn manager(n: u16) -> ManagerId {
    let [high, low] = n.to_be_bytes();
    ManagerId::mint(1_700_000_000_000 + u64::from(n), [high, low, 7, 7, 7, 7, 7, 7, 7, 7])
}

fn members(ids: impl Iterator<Item = u16>) -> Vec<Member> {
    ids.map(|n| Member { manager: manager(n), weight: 1.0 }).collect()
}

fn ring(ids: impl Iterator<Item = u16>) -> Ring {
    Ring::new(&members(ids))
}

/// The sorted hashes in an arc.
fn within<'a>(hashes: &'a [u64], arc: &RangeInclusive<u64>) -> &'a [u64] {
    let from = hashes.partition_point(|hash| hash < arc.start());
    let to = hashes.partition_point(|hash| hash <= arc.end());
    hashes.get(from..to).unwrap_or_default()
}

fn owned(ring: &Ring, hashes: &[u64], one: ManagerId) -> Vec<u64> {
    hashes.iter().copied().filter(|hash| ring.owner_of_hash(*hash) == Some(one)).collect()
}

/// Share of the resources whose owner is another one.
fn moved(before: &Ring, after: &Ring, names: &[String]) -> f64 {
    let moved = names.iter().filter(|name| before.owner(name) != after.owner(name)).count();
    moved as f64 / names.len() as f64
}

fn best(mut work: impl FnMut()) -> Duration {
    let one = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..ROUNDS).map(one).min().unwrap_or_default()
}
