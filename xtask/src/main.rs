//! Checks of the workspace: `cargo xtask layers | size | adrs | fuzz [seconds] | history <file>`. Each prints what it found and exits 1 when a
//! rule of the house is broken.

#![expect(clippy::print_stdout, reason = "a program for a terminal")]

mod adrs;
mod fuzz;
mod history;
mod layers;
mod size;

use anyhow::{Result, bail};
use std::path::PathBuf;

const USAGE: &str = "usage: cargo xtask <layers | size | adrs | fuzz [seconds per target] | history <file>>";

/// The root of the workspace.
fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).unwrap_or(here)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["layers"] => layers::check(&root()),
        ["size"] => size::check(&root()),
        ["adrs"] => adrs::check(&root()),
        ["fuzz"] => fuzz::run(&root(), 20),
        ["fuzz", seconds] => fuzz::run(&root(), seconds.parse()?),
        ["history", file] => history::check(file.as_ref()),
        _ => bail!("{USAGE}"),
    }
}
