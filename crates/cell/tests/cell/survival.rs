//! Instances outlive the cell, and are known again.

use crate::support::{
    Blobs, SERVER, Stage, Sweep, eventually, fetch, open_to_all, processes_of, spec, testbed,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::task::JoinSet;
use towpath_cell::StopMode;
use towpath_types::Revision;
use towpath_wire::cell::{CellAnnounce, InstanceReport, InstanceSpec, InstanceState, SyncPage};

/// A cell in a process of its own; killed with the test.
struct CellProcess(Child);

impl CellProcess {
    fn start(dir: &Path, api: &str) -> Self {
        let _ = std::fs::remove_file(dir.join("announce.json"));
        let child = Command::new(testbed()).arg("cell").arg(dir).arg(api).stdin(Stdio::null()).spawn();
        Self(child.unwrap())
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for CellProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn want(dir: &Path, revision: u64, instances: Vec<InstanceSpec>) {
    let page = SyncPage {
        epoch: 1,
        revision: Revision(revision),
        instances,
        next: None,
        parcel: None,
        withheld: BTreeMap::new(),
        kept: Vec::new(),
        stamps: BTreeMap::new(),
    };
    std::fs::write(dir.join("new"), serde_json::to_vec(&page).unwrap()).unwrap();
    std::fs::rename(dir.join("new"), dir.join("desired.json")).unwrap();
}

fn report(dir: &Path) -> Option<InstanceReport> {
    let announce: CellAnnounce =
        serde_json::from_slice(&std::fs::read(dir.join("announce.json")).ok()?).ok()?;
    announce.instances.into_iter().next()
}

#[tokio::test]
async fn instances_survive_the_death_of_the_cell_and_are_adopted_with_pid_and_port() {
    let mut tasks = JoinSet::new();
    let blobs = Blobs::default();
    let api = format!("http://{}", blobs.serve(&mut tasks).await);
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    open_to_all(dir);
    let _sweep = Sweep(dir.to_owned());
    let app = format!(
        "import threading, time\ndef talk():\n    while True:\n        print('alive', flush=True)\n        time.sleep(0.05)\nthreading.Thread(target=talk, daemon=True).start()\n{SERVER}"
    );
    let wanted = spec(blobs.add(&[("app.py", &app)]), "exec python3 app.py");
    let id = wanted.instance;
    want(dir, 1, vec![wanted]);

    let cell = CellProcess::start(dir, &api);
    let is_ready = || report(dir).is_some_and(|r| r.state == InstanceState::Ready);
    eventually("readiness", is_ready).await;
    let before = report(dir).unwrap();
    cell.kill();
    // It goes on serving and logging with nobody there.
    let log = dir.join("data/run/instances").join(id.to_string()).join("logs/00000000.log");
    let size = std::fs::metadata(&log).unwrap().len();
    eventually("more output", || std::fs::metadata(&log).unwrap().len() > size + 100).await;
    assert!(fetch(before.port).await.unwrap().ends_with("hello"));

    let cell = CellProcess::start(dir, &api);
    eventually("the adoption", is_ready).await;
    let after = report(dir).unwrap();
    assert_eq!((after.pid, after.port, after.restarts), (before.pid, before.port, before.restarts));

    // Killed again, and the app dies while nobody looks: the next cell starts it anew.
    cell.kill();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(before.pid.cast_signed()),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    eventually("its end", || processes_of(id).is_empty()).await;
    let cell = CellProcess::start(dir, &api);
    eventually("the new start", || {
        report(dir).is_some_and(|r| r.state == InstanceState::Ready && r.restarts == 1)
    })
    .await;

    // What is not wanted any more is ended even if it was adopted.
    cell.kill();
    let cell = CellProcess::start(dir, &api);
    eventually("the adoption", is_ready).await;
    want(dir, 2, vec![]);
    eventually("its end", || processes_of(id).is_empty()).await;
    eventually("its files' end", || !log.exists()).await;
    drop(cell);
}

async fn one_ready() -> (Stage, InstanceReport) {
    let mut stage = Stage::new().await;
    stage.start().await;
    let spec = stage.spec(&[("app.py", SERVER)], "exec python3 app.py");
    let id = spec.instance;
    stage.want(vec![spec]).await;
    let ready = stage.until_state(id, InstanceState::Ready).await;
    stage.stop(StopMode::LeaveRunning).await;
    (stage, ready)
}

#[tokio::test]
async fn a_corrupt_ledger_costs_no_instance() {
    let (mut stage, before) = one_ready().await;
    let ledger = stage.settings.data_dir.join("ledger.json");
    let whole = std::fs::read(&ledger).unwrap();
    for broken in [&whole[..whole.len() / 2], b"", b"\0\0\0\0"] {
        std::fs::write(&ledger, broken).unwrap();
        stage.wish.lock().unwrap().silent = true;
        stage.start().await;
        let after = stage.until_state(before.instance, InstanceState::Ready).await;
        assert_eq!((after.pid, after.port), (before.pid, before.port));
        assert!(stage.settings.data_dir.join("ledger.json.bad").exists());
        stage.wish.lock().unwrap().silent = false;
        stage.until("the manager's word", |a| a.desired == Revision(2) && a.instances.len() == 1).await;
        stage.stop(StopMode::LeaveRunning).await;
    }
    stage.start().await;
    stage.end().await;
    assert!(processes_of(before.instance).is_empty());
}

#[tokio::test]
async fn a_lost_ledger_costs_no_instance_either_but_unwanted_ones_go() {
    let (mut stage, before) = one_ready().await;
    std::fs::remove_file(stage.settings.data_dir.join("ledger.json")).unwrap();
    stage.start().await;
    assert_eq!(stage.until_state(before.instance, InstanceState::Ready).await.pid, before.pid);
    stage.want(vec![]).await;
    stage.until_gone(before.instance).await;
    assert!(processes_of(before.instance).is_empty());
    stage.end().await;
}

#[tokio::test]
async fn instances_that_no_ledger_knows_are_ended() {
    let (mut stage, before) = one_ready().await;
    let path = stage.settings.data_dir.join("ledger.json");
    let mut ledger: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    ledger["instances"] = serde_json::json!({});
    ledger["desired"]["instances"] = serde_json::json!([]);
    std::fs::write(&path, ledger.to_string()).unwrap();
    stage.wish.lock().unwrap().silent = true;
    stage.start().await;
    eventually("their end", || processes_of(before.instance).is_empty()).await;
    eventually("their files' end", || !stage.instance_dir(before.instance).exists()).await;
    stage.end().await;
}

#[tokio::test]
async fn a_process_that_got_the_number_of_a_dead_one_is_left_alone() {
    let (mut stage, before) = one_ready().await;
    let mut innocent = Command::new("sleep").arg("1000").spawn().unwrap();
    let path = stage.instance_dir(before.instance).join("control/started.json");
    let mut started: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for who in ["shim", "app"] {
        // As if the machine had given both numbers to a later process.
        started[who]["pid"] = innocent.id().into();
    }
    std::fs::write(&path, started.to_string()).unwrap();
    stage.start().await;
    stage
        .until("a new start", |a| {
            a.instances.iter().any(|r| r.restarts == 1 && r.state == InstanceState::Ready)
        })
        .await;
    assert!(!processes_of(before.instance).contains(&before.pid), "the real one is gone");
    assert!(innocent.try_wait().unwrap().is_none(), "the innocent one lives");
    stage.end().await;
    assert!(innocent.try_wait().unwrap().is_none());
    innocent.kill().unwrap();
    innocent.wait().unwrap();
}

#[tokio::test]
async fn a_start_that_was_not_recorded_is_no_second_copy() {
    let (mut stage, before) = one_ready().await;
    // As if the cell had been killed before the shim wrote it.
    std::fs::remove_file(stage.instance_dir(before.instance).join("control/started.json")).unwrap();
    stage.start().await;
    let after = stage
        .until("a new start", |a| {
            a.instances.iter().any(|r| r.state == InstanceState::Ready && r.pid != before.pid)
        })
        .await;
    assert_eq!(processes_of(before.instance), [after.instances[0].pid]);
    stage.end().await;
}

#[tokio::test]
async fn an_adopted_ready_instance_is_never_announced_as_less() {
    let (mut stage, before) = one_ready().await;
    let heard = stage.all().len();
    stage.start().await;
    // Until after its first probe, and the regular announcement that follows.
    eventually("two announcements", || stage.all().len() >= heard + 2).await;
    let incarnation = stage.last().incarnation;
    let told: Vec<_> = stage.all().into_iter().filter(|a| a.incarnation == incarnation).collect();
    assert!(told.len() >= 2);
    for announce in told {
        let shown: Vec<_> = announce.instances.iter().map(|r| (r.instance, r.state, r.port, r.pid)).collect();
        assert_eq!(shown, [(before.instance, InstanceState::Ready, before.port, before.pid)]);
    }
    stage.end().await;
}

#[tokio::test]
async fn an_adopted_instance_is_watched_as_before() {
    let (mut stage, before) = one_ready().await;
    stage.start().await;
    stage.until_state(before.instance, InstanceState::Ready).await;
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(before.pid.cast_signed()),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    let seen = stage
        .until("its end", |a| a.instances.iter().any(|r| r.restarts == 1 && r.state == InstanceState::Ready))
        .await;
    assert_ne!(seen.instances[0].pid, before.pid);
    tokio::time::sleep(Duration::from_millis(10)).await;
    stage.end().await;
}
