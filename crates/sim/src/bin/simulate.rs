//! Runs simulated clusters, one process for each seed.
//!
//! `simulate --zone SEED` loses a zone of a larger cluster and counts how fast its instances are replaced.
//!
//! `simulate SEED` runs one and says how it went (`--sabotage RULE` breaks a rule, which has to be noticed); `simulate --seeds N [--from SEED]` runs many, two at a time, with fresh
//! seeds unless told where to begin. With `TRACE=1` the last events are shown of good runs, too. Exits 1 when one is broken, and says how to see it again.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool speaks to people")]

use std::process::{Command, ExitCode, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use towpath_sim::cluster::{Broken, Sabotage, Scale, lose_zone, run};

const USAGE: &str =
    "usage: simulate SEED [--sabotage RULE] | simulate --zone SEED | simulate --seeds N [--from SEED]";
/// Runs at the same time.
const AT_ONCE: usize = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    match words.as_slice() {
        [seed] => number(seed).map(|seed| one(seed, None)),
        [seed, "--sabotage", rule] => match rule.parse() {
            Ok(rule) => number(seed).map(|seed| one(seed, Some(rule))),
            Err(why) => {
                eprintln!("{why}");
                None
            }
        },
        ["--zone", seed] => number(seed).map(zone),
        ["--seeds", count] => number(count).map(|count| many(fresh(), count)),
        ["--seeds", count, "--from", from] => {
            number(count).zip(number(from)).map(|(count, from)| many(from, count))
        }
        _ => None,
    }
    .unwrap_or_else(|| {
        eprintln!("{USAGE}");
        ExitCode::from(2)
    })
}

/// A seed that was not tried before, short enough to be typed.
fn fresh() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or_default() % 10_000_000_000
}

fn one(seed: u64, sabotage: Option<Sabotage>) -> ExitCode {
    let directory = match tempfile::tempdir() {
        Ok(directory) => directory,
        Err(error) => {
            eprintln!("no temporary directory: {error}");
            return ExitCode::FAILURE;
        }
    };
    let began = Instant::now();
    match run(seed, &Scale { sabotage, ..Scale::default() }, directory.path()) {
        Ok(report) => {
            if std::env::var_os("TRACE").is_some() {
                report.tail.iter().for_each(|line| println!("{line}"));
            }
            println!(
                "seed {seed}: ok, {} writes, {} faults, settled in {:.1} s, {} ({:.1} s)",
                report.writes,
                report.faults,
                report.settled_s,
                report.digest,
                began.elapsed().as_secs_f64()
            );
            ExitCode::SUCCESS
        }
        Err(broken) => fail(seed, &broken),
    }
}

fn fail(seed: u64, broken: &Broken) -> ExitCode {
    for line in &broken.tail {
        println!("{line}");
    }
    println!("seed {seed}: BROKEN: {}", broken.what);
    ExitCode::FAILURE
}

fn zone(seed: u64) -> ExitCode {
    let lost = match tempfile::tempdir() {
        Ok(directory) => lose_zone(seed, directory.path()),
        Err(error) => {
            eprintln!("no temporary directory: {error}");
            return ExitCode::FAILURE;
        }
    };
    match lost {
        Ok(loss) => {
            println!(
                "seed {seed}: ok, lost={} started={} most_in_a_second={} spread_s={:.1} settled_s={:.1}",
                loss.lost, loss.started, loss.most_in_a_second, loss.spread_s, loss.settled_s
            );
            ExitCode::SUCCESS
        }
        Err(broken) => fail(seed, &broken),
    }
}

fn many(from: u64, count: u64) -> ExitCode {
    let Ok(program) = std::env::current_exe() else { return ExitCode::FAILURE };
    let mut seeds = (0..count).map(|n| from.wrapping_add(n));
    let mut running = Vec::new();
    let mut broken = Vec::new();
    loop {
        while running.len() < AT_ONCE
            && let Some(seed) = seeds.next()
        {
            match Command::new(&program).arg(seed.to_string()).stdout(Stdio::piped()).spawn() {
                Ok(child) => running.push((seed, child)),
                Err(error) => {
                    eprintln!("seed {seed} could not be started: {error}");
                    broken.push(seed);
                }
            }
        }
        if running.is_empty() {
            break;
        }
        let (seed, child) = running.remove(0);
        match child.wait_with_output() {
            Ok(output) => {
                print!("{}", String::from_utf8_lossy(&output.stdout));
                if !output.status.success() {
                    broken.push(seed);
                }
            }
            Err(_) => broken.push(seed),
        }
    }
    if let Some(first) = broken.first() {
        println!("see it again: cargo run --package towpath-sim --bin simulate -- {first}");
    }
    println!("simulated_clusters={count} broken={}", broken.len());
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
