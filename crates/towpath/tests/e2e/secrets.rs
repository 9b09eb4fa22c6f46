//! An app reads its secret, and its value is in no file and no output of the platform.

use crate::apps;
use crate::platform::{Up, open_dir};
use std::path::Path;

/// In no other word of the test.
const VALUE: &str = "hunter2-s3cr3t-e2e-value";

/// Files below `dir` that hold the text: store, write-ahead log, logs of the platform and of the app, ledger, records,
/// artifacts.
pub fn files_with(dir: &Path, text: &str, looked: &mut usize, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            files_with(&path, text, looked, found);
        } else if let Ok(bytes) = std::fs::read(&path) {
            *looked += 1;
            if bytes.windows(text.len()).any(|part| part == text.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
}

#[test]
fn an_app_reads_its_secret_and_nobody_else_does() {
    let (mut up, elsewhere) = (Up::start(), open_dir());
    let file = elsewhere.path().join("value");
    std::fs::write(&file, VALUE).unwrap();
    let file = file.to_str().unwrap();
    up.push(&apps::python(up.dir.path(), "shop", "one"), &[]).ok();
    let mut said = String::new();
    let mut towpath = |up: &Up, args: &[&str]| {
        let output = up.towpath(args).ok();
        said += &format!("{args:?}: {}{}\n", output.stdout, output.stderr);
    };
    towpath(&up, &["secrets", "set", "shop", "LEVEL", "--from", file]);
    let level = |up: &Up| up.get("shop.localhost", "/", &[]).json()["level"].clone();
    assert_eq!(level(&up), VALUE);
    towpath(&up, &["secrets", "rotate"]);
    towpath(&up, &["secrets", "rotate", "-o", "json"]);
    // The ledger and what the cell keeps are enough for adoption, and a restarted instance is given it again.
    up.role.process.kill();
    up.again();
    assert_eq!(level(&up), VALUE, "it ran on");
    towpath(&up, &["restart", "shop"]);
    assert_eq!(level(&up), VALUE);
    for args in [
        &["env", "shop", "--show", "-o", "json"][..],
        &["env", "shop", "--show"],
        &["secrets", "list", "shop", "-o", "json"],
        &["secrets", "status"],
        &["app", "shop", "-o", "json"],
        &["apps", "-o", "json"],
        &["audit", "-o", "json"],
        &["releases", "shop", "-o", "json"],
        &["status", "-o", "json"],
        &["explain", "http://shop.localhost/", "-o", "json"],
        &["logs", "shop"],
    ] {
        towpath(&up, args);
    }
    assert!(!said.contains(VALUE), "{said}");
    assert!(said.contains("\"LEVEL\"") && said.contains("not used"), "{said}");
    let (mut looked, mut found) = (0, Vec::new());
    files_with(up.dir.path(), VALUE, &mut looked, &mut found);
    assert!(looked > 20, "{looked}");
    assert_eq!(found, Vec::<String>::new());
}
