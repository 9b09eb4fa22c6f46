//! What every build relies on; builds themselves are tested with the recipes.

use crate::support::{Stage, eventually, testbed};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use towpath_types::health::Probe;
use towpath_wire::cell::InstanceState;

#[tokio::test]
async fn a_platform_binary_is_offered_to_instances() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let mut spec = stage.spec(&[], "test -x \"$TOWPATH_BIN\" && touch there; exec sleep 1000");
    spec.health.probe = Probe::Process;
    let id = spec.instance;
    stage.want(vec![spec]).await;
    stage.until_state(id, InstanceState::Ready).await;
    eventually("the proof", || stage.instance_dir(id).join("app/there").exists()).await;
    stage.end().await;
}

/// A build shim that runs a shell script, and what it said first.
fn build_shim(script: &str, memory: Option<u64>) -> (Child, BufReader<std::process::ChildStdout>) {
    let launch = serde_json::json!({
        "mode": "Build", "program": {"Unix": b"/bin/sh"}, "args": [{"Unix": b"-c"}, {"Unix": script.as_bytes()}],
        "dir": "/", "env": {"PATH": "/usr/bin:/bin", "MARK": "build"}, "user": null, "files": 100, "processes": 100,
        "memory": memory,
    });
    let mut shim = Command::new(testbed())
        .args(["__shim", "build"])
        .arg0("towpath")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(shim.stdin.as_mut().unwrap(), "{launch}").unwrap();
    let mut says = BufReader::new(shim.stdout.take().unwrap());
    let mut first = String::new();
    says.read_line(&mut first).unwrap();
    assert!(first.starts_with(r#"{"Started""#), "{first}");
    (shim, says)
}

fn rest(mut says: BufReader<std::process::ChildStdout>) -> String {
    let mut text = String::new();
    says.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn output_comes_in_order_and_the_status_is_told() {
    let (mut shim, says) = build_shim("echo one; echo two >&2; echo three; exit 4", None);
    let mut output = String::new();
    shim.stderr.take().unwrap().read_to_string(&mut output).unwrap();
    assert_eq!(output, "one\ntwo\nthree\n");
    let ended = rest(says);
    assert!(ended.contains(r#""how":{"Code":4}"#), "{ended}");
    assert!(shim.wait().unwrap().success());
}

#[test]
fn the_whole_tree_dies_when_the_cell_lets_go() {
    let (mut shim, says) = build_shim("setsid sleep 1000 & (sleep 1000 & sleep 1000); exit 0", None);
    // As when the cell is killed: its end of the pipe is closed.
    drop(shim.stdin.take());
    assert!(rest(says).contains(r#""Signal":9"#));
    // End of file: nobody who could write is left.
    let mut output = String::new();
    shim.stderr.take().unwrap().read_to_string(&mut output).unwrap();
    shim.wait().unwrap();
}

#[test]
fn daemons_that_a_build_leaves_die_with_it() {
    let (mut shim, says) = build_shim("setsid sleep 1000 & echo done", None);
    let mut output = String::new();
    shim.stderr.take().unwrap().read_to_string(&mut output).unwrap();
    assert_eq!(output, "done\n");
    assert!(rest(says).contains(r#""Code":0"#));
    shim.wait().unwrap();
}

#[test]
fn a_build_over_its_memory_limit_is_ended() {
    let (mut shim, says) =
        build_shim("python3 -c 'x = bytearray(200 << 20); import time; time.sleep(1000)'", Some(64 << 20));
    assert!(rest(says).contains("OutOfMemory"));
    shim.wait().unwrap();
}

#[test]
fn what_cannot_be_started_is_refused_with_the_reason() {
    let mut shim = Command::new(testbed())
        .args(["__shim", "build"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    shim.stdin.take().unwrap().write_all(b"nonsense\n").unwrap();
    let mut said = String::new();
    shim.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("Refused") && said.contains("unreadable"), "{said}");
    assert!(!shim.wait().unwrap().success());
}
