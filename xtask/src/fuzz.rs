//! Runs every fuzz target for a bounded time, on the stable compiler (coverage by LLVM's own pass, no sanitizer).

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Compiler flags that libFuzzer's coverage needs.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";

/// Builds `fuzz/` and runs each target for `seconds`. A finding is left in `fuzz/artifacts/<target>/`.
pub(crate) fn run(root: &Path, seconds: u32) -> Result<()> {
    let folder = root.join("fuzz");
    let target = root.join("target/fuzz");
    let triple = "x86_64-unknown-linux-gnu";
    // `--target` keeps the flags away from build scripts and procedural macros.
    let status = Command::new("cargo")
        .args(["build", "--release", "--locked", "--target", triple])
        .current_dir(&folder)
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", &target)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("the fuzz targets do not build");
    }
    let mut names: Vec<String> = fs::read_dir(folder.join("fuzz_targets"))?
        .filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(String::from))
        .collect();
    names.sort();
    for name in &names {
        run_one(&folder, &target.join(triple).join("release").join(name), name, seconds)?;
    }
    println!("fuzz: {} targets, {seconds} s each, nothing found", names.len());
    Ok(())
}

fn run_one(folder: &Path, binary: &Path, name: &str, seconds: u32) -> Result<()> {
    let (corpus, artifacts) = (folder.join("corpus").join(name), folder.join("artifacts").join(name));
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&artifacts)?;
    let mut command = Command::new(binary);
    command
        .arg(&corpus)
        .args([format!("-max_total_time={seconds}"), format!("-artifact_prefix={}/", artifacts.display())])
        .args([
            "-timeout=10",
            "-rss_limit_mb=2048",
            "-max_len=16384",
            "-print_final_stats=0",
            "-verbosity=0",
        ]);
    let seeds = folder.join("seeds").join(name);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    let status = command.status().with_context(|| format!("cannot run fuzz target {name}"))?;
    if !status.success() {
        bail!("fuzz target {name} found something: see fuzz/artifacts/{name}");
    }
    println!("fuzz: {name} held for {seconds} s");
    Ok(())
}
