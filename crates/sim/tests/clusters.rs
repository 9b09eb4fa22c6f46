//! Simulated clusters hold what they promise, and a seed replays exactly.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_simulate")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The line of a run without the time that it took here.
fn figures(output: &Output) -> String {
    let text = said(output);
    let line = text.lines().last().unwrap();
    line.rsplit_once(" (").unwrap_or((line, "")).0.to_owned()
}

#[test]
fn a_seed_replays_exactly() {
    let (first, again, other) = (simulate(&["7"]), simulate(&["7"]), simulate(&["8"]));
    assert!(first.status.success(), "{}", said(&first));
    assert_eq!(figures(&first), figures(&again));
    assert_ne!(figures(&first).split_once(':').unwrap().1, figures(&other).split_once(':').unwrap().1);
}

#[test]
fn known_seeds_hold() {
    let output = simulate(&["--seeds", "6", "--from", "1000"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("simulated_clusters=6 broken=0"), "{}", said(&output));
}

#[test]
fn the_loss_of_a_zone_is_no_storm() {
    let output = simulate(&["--zone", "3"]);
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    let figure = |name: &str| {
        let word = said.split_whitespace().find_map(|word| word.strip_prefix(name)).unwrap();
        word.trim_start_matches('=').parse::<f64>().unwrap()
    };
    // A manager has 200 starts saved up, and makes 50 in a second: what is beyond that takes its time.
    assert!(figure("lost") >= 300.0 && figure("spread_s") >= (figure("lost") - 200.0) / 50.0 - 1.0, "{said}");
}

#[test]
fn wrong_arguments_are_told_how_it_is_used() {
    let output = simulate(&["--seeds"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("usage: simulate"));
}
