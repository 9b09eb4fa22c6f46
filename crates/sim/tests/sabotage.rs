//! The simulator notices what it is there to notice: a rule is broken on purpose, and a run says which one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::process::Command;

/// Seeds that are tried: what a broken rule does to a run is a matter of chance, whether a seed meets it is not.
const SEEDS: std::ops::Range<u32> = 1..9;

/// What runs say when this rule is broken, until one is.
fn broken(rule: &str) -> String {
    for seed in SEEDS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_simulate"));
        let output = command.args([&seed.to_string(), "--sabotage", rule]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = said.lines().last().unwrap_or_default();
        if !output.status.success() {
            assert!(last.contains("BROKEN"), "{said}");
            return last.to_owned();
        }
    }
    panic!("{rule}: nobody noticed");
}

#[track_caller]
fn is_noticed(rule: &str, what: &str) {
    let broken = broken(rule);
    assert!(broken.contains(what), "{rule}: {broken}");
}

#[test]
fn a_store_that_ignores_the_fence() {
    is_noticed("fences", "of evicted manager");
}

#[test]
fn a_store_that_ignores_conditions() {
    is_noticed("conditions", "decided at At(");
}

#[test]
fn a_store_that_forgets_what_it_has_done() {
    is_noticed("repeats", "and again at");
}

#[test]
fn an_acknowledged_write_that_is_lost() {
    is_noticed("losses", "an acknowledged write is lost");
}

#[test]
fn an_instance_that_is_placed_twice() {
    is_noticed("placement", " runs on ");
}

#[test]
fn managers_and_cells_that_skip_epochs() {
    is_noticed("epochs", " obeyed ");
}

#[test]
fn an_instance_that_is_left_running() {
    is_noticed("leftovers", "is nobody's");
}

#[test]
fn cells_make_good_what_managers_that_skip_epochs_would_do() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulate"));
    let output = command.args(["2", "--sabotage", "managers-epochs"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_rule_that_nobody_knows_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulate"));
    let output = command.args(["1", "--sabotage", "gravity"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("fences, conditions"));
}
