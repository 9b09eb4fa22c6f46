//! Arrows between crates go downward only, and the pure crates stay pure.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Crates from the bottom up. A crate may depend on those of lower rows only.
const ROWS: &[&[&str]] = &[
    &["towpath-types"],
    &[
        "towpath-route",
        "towpath-plan",
        "towpath-framing",
        "towpath-archive",
        "towpath-s3",
        "towpath-secrets",
        "towpath-telemetry",
    ],
    &["towpath-resources"],
    &["towpath-wire", "towpath-bus", "towpath-store"],
    &["towpath-gateway", "towpath-manager", "towpath-cell"],
    &["towpath-sim"],
    &["towpath"],
];

/// Crates that decide and do not act.
const PURE: &[&str] =
    &["towpath-types", "towpath-route", "towpath-plan", "towpath-framing", "towpath-s3", "towpath-resources"];

/// What a pure crate must not reach, by whatever way, tests included.
const IMPURE: &[&str] = &[
    "tokio",
    "hyper",
    "async-nats",
    "tokio-postgres",
    "rusqlite",
    "axum",
    "towpath-bus",
    "towpath-store",
    "towpath-testkit",
];

/// May be used by tests of any crate.
const TEST_ONLY: &str = "towpath-testkit";

struct Graph {
    /// Name by package id.
    names: BTreeMap<String, String>,
    /// Resolved dependencies by package id.
    edges: BTreeMap<String, Vec<String>>,
    /// Ours: name → (direct dependencies of our own with their kinds).
    ours: BTreeMap<String, Vec<(String, bool)>>,
}

/// Checks the workspace below `root`.
pub(crate) fn check(root: &Path) -> Result<()> {
    let graph = load(root)?;
    let mut wrong = wrong_arrows(&graph);
    wrong.extend(impurities(&graph));
    for line in &wrong {
        println!("{line}");
    }
    if !wrong.is_empty() {
        bail!("{} arrows are wrong; see ARCHITECTURE.md for the layers", wrong.len());
    }
    println!("layers: {} crates, all arrows go downward", graph.ours.len());
    Ok(())
}

fn row_of(name: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&name))
}

fn wrong_arrows(graph: &Graph) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, dependencies) in &graph.ours {
        if name == "xtask" || name == TEST_ONLY {
            continue;
        }
        let Some(row) = row_of(name) else {
            wrong.push(format!("{name} stands in no layer: add it to xtask/src/layers.rs"));
            continue;
        };
        for (dependency, dev) in dependencies {
            let allowed = match row_of(dependency) {
                Some(lower) => lower < row || *dev && lower <= row,
                None => *dev && dependency == TEST_ONLY,
            };
            if !allowed {
                wrong.push(format!("{name} must not depend on {dependency}"));
            }
        }
    }
    wrong
}

fn impurities(graph: &Graph) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, name) in graph.names.iter().filter(|(_, name)| PURE.contains(&name.as_str())) {
        let mut seen = BTreeSet::new();
        let mut next = vec![id.clone()];
        while let Some(id) = next.pop() {
            if seen.insert(id.clone()) {
                next.extend(graph.edges.get(&id).into_iter().flatten().cloned());
            }
        }
        for reached in seen
            .iter()
            .filter_map(|id| graph.names.get(id))
            .filter(|reached| IMPURE.contains(&reached.as_str()))
        {
            wrong.push(format!("{name} is pure and must not reach {reached}"));
        }
    }
    wrong
}

fn load(root: &Path) -> Result<Graph> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")?;
    let members: BTreeSet<&str> = array(&metadata, "workspace_members").filter_map(Value::as_str).collect();
    let mut graph = Graph { names: BTreeMap::new(), edges: BTreeMap::new(), ours: BTreeMap::new() };
    for package in array(&metadata, "packages") {
        let (id, name) = (text(package, "id"), text(package, "name"));
        graph.names.insert(id.clone(), name.clone());
        if members.contains(id.as_str()) {
            let direct = array(package, "dependencies")
                .filter(|dependency| dependency.get("path").is_some_and(Value::is_string))
                .map(|dependency| {
                    (text(dependency, "name"), dependency.get("kind").and_then(Value::as_str) == Some("dev"))
                });
            graph.ours.insert(name, direct.collect());
        }
    }
    for node in metadata.get("resolve").into_iter().flat_map(|resolve| array(resolve, "nodes")) {
        let edges = array(node, "dependencies").filter_map(Value::as_str).map(String::from).collect();
        graph.edges.insert(text(node, "id"), edges);
    }
    Ok(graph)
}

fn array<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}
