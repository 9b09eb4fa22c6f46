//! Apps that come up late, wrongly, or not at all.

use crate::support::{SERVER, Stage, eventually, fetch, is_root, processes_of};
use std::collections::BTreeMap;
use std::net::{IpAddr, TcpListener};
use towpath_types::health::Probe;
use towpath_types::{Digest, Millis};
use towpath_wire::cell::{InstanceReport, InstanceState};

#[tokio::test]
async fn an_app_that_never_binds_fails_with_the_reason_and_is_tried_again() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let mut spec = stage.spec(&[], "exec sleep 1000");
    spec.health.start_timeout = Millis(300);
    let id = spec.instance;
    stage.want(vec![spec]).await;
    let report = stage.until_state(id, InstanceState::Backoff).await;
    assert!(
        report.reason.starts_with("did not become healthy within 0.3 s: it does not listen on $PORT ("),
        "{}",
        report.reason
    );
    stage.until("a second try", |a| a.instances[0].restarts >= 1).await;
    stage.end().await;
    eventually("no process", || processes_of(id).is_empty()).await;
}

#[tokio::test]
async fn an_app_that_listens_elsewhere_is_told_where_it_should() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let app = SERVER.replace("int(os.environ[\"PORT\"])", "0");
    let mut spec = stage.spec(&[("app.py", &app)], "exec python3 app.py");
    spec.health.start_timeout = Millis(4000);
    let id = spec.instance;
    stage.want(vec![spec]).await;
    // Long before its time is over.
    let says = |report: &InstanceReport| {
        report.state == InstanceState::Starting && report.reason.starts_with("listens on port ")
    };
    let told = stage.until("the warning", |a| a.instances.iter().any(says)).await;
    assert!(told.instances[0].reason.contains("but must listen on $PORT ("), "{told:?}");
    assert_eq!(told.instances[0].restarts, 0);
    let report = stage.until_state(id, InstanceState::Backoff).await;
    assert!(
        report.reason.contains("it listens on port ") && report.reason.contains("but must listen on $PORT ("),
        "{}",
        report.reason
    );
    stage.end().await;
}

#[tokio::test]
async fn a_late_app_is_starting_until_it_binds_and_then_ready() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let app = format!("import time\ntime.sleep(0.7)\nopen('bound', 'w').close()\n{SERVER}");
    let spec = stage.spec(&[("app.py", &app)], "exec python3 app.py");
    let id = spec.instance;
    stage.want(vec![spec]).await;
    stage
        .until("its process", |a| a.instances.iter().any(|r| r.pid > 0 && r.state == InstanceState::Starting))
        .await;
    let bound = stage.instance_dir(id).join("app/bound");
    eventually("the bind", || bound.exists()).await;
    stage.until_state(id, InstanceState::Ready).await;
    stage.end().await;
}

#[tokio::test]
async fn http_checks_decide_and_a_sick_app_is_started_anew() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let app = SERVER
        .replace("self.send_response(200)", "self.send_response(500 if os.path.exists('sick') else 200)");
    let mut spec = stage.spec(&[("app.py", &app)], "exec python3 app.py");
    spec.health.probe = Probe::Http("/".into());
    (spec.health.interval, spec.health.failures, spec.health.start_timeout) = (Millis(50), 2, Millis(5000));
    let id = spec.instance;
    stage.want(vec![spec]).await;
    let ready = stage.until_state(id, InstanceState::Ready).await;
    std::fs::write(stage.instance_dir(id).join("app/sick"), "").unwrap();
    let sick = stage.until_state(id, InstanceState::Unhealthy).await;
    assert_eq!(
        (sick.pid, sick.reason.as_str()),
        (ready.pid, "/ answers with status 500 Internal Server Error")
    );
    // The fresh copy of the release has no such file.
    let again = stage
        .until("a new start", |a| {
            a.instances.iter().any(|r| r.restarts > ready.restarts && r.state == InstanceState::Ready)
        })
        .await;
    assert_ne!(again.instances[0].pid, ready.pid);
    stage.end().await;
}

#[tokio::test]
async fn a_listener_of_another_process_is_not_taken_for_the_app() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let spec = stage.spec(&[], "exec sleep 1000");
    stage.want(vec![spec]).await;
    let started = stage.until("its process", |a| a.instances.first().is_some_and(|r| r.pid > 0)).await;
    let thief = TcpListener::bind(("127.0.0.1", started.instances[0].port)).unwrap();
    let reason = "its port was taken by another process of the machine";
    stage.until("the reason", |a| a.instances[0].reason.contains(reason)).await;
    drop(thief);
    stage.end().await;
}

#[tokio::test]
async fn a_missing_artifact_is_said_and_helps_itself_once_it_is_there() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let mut spec = stage.spec(&[("app.py", SERVER)], "exec python3 app.py");
    let id = spec.instance;
    let real = spec.artifact;
    spec.artifact = Digest::from_bytes([7; 32]);
    stage.want(vec![spec.clone()]).await;
    let report = stage.until_state(id, InstanceState::Failed).await;
    assert!(report.reason.contains("the manager does not have sha256:0707"), "{}", report.reason);
    spec.artifact = real;
    stage.want(vec![spec]).await;
    stage.until_state(id, InstanceState::Ready).await;
    stage.end().await;
}

#[tokio::test]
async fn a_damaged_artifact_is_refused() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let mut spec = stage.spec(&[], "exec sleep 1000");
    spec.artifact = Digest::from_bytes([8; 32]);
    stage.blobs.put(spec.artifact, b"something else".to_vec());
    let id = spec.instance;
    stage.want(vec![spec]).await;
    let report = stage.until_state(id, InstanceState::Failed).await;
    assert!(report.reason.contains("has the digest"), "{}", report.reason);
    stage.end().await;
}

/// What the app sees of itself.
const SELF: &str = r#"
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
limits = {line[:26].strip(): line[26:].split()[:2] for line in open("/proc/self/limits")}
json.dump({
    "env": dict(os.environ),
    "fds": sorted(os.listdir("/proc/self/fd")),
    "stdin": os.readlink("/proc/self/fd/0"),
    "uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(),
    "cwd": os.getcwd(),
    "session": os.getsid(0) == os.getpid(), "group": os.getpgid(0) == os.getpid(),
    "no_new_privs": status["NoNewPrivs"].strip(), "mask": status["SigBlk"].strip(), "ignored": status["SigIgn"].strip(),
    "files": limits["Max open files"], "core": limits["Max core file size"], "processes": limits["Max processes"],
    "oom": open("/proc/self/oom_score_adj").read().strip(),
    "mode": oct(os.stat(".").st_mode & 0o777),
    "writable": os.access(".", os.W_OK),
}, open("self.json.new", "w"))
os.rename("self.json.new", "self.json")
import time
time.sleep(1000)
"#;

#[tokio::test]
async fn an_app_has_its_own_user_directory_environment_and_limits_and_inherits_nothing() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let mut specs = Vec::new();
    for _ in 0..2 {
        let mut spec = stage.spec(&[("self.py", SELF)], "exec python3 -I self.py");
        spec.health.probe = Probe::Process;
        spec.env = BTreeMap::from([("KEY".into(), "value".into()), ("PORT".into(), "1".into())]);
        (spec.limits.files, spec.limits.processes) = (Some(777), Some(88));
        specs.push(spec);
    }
    stage.want(specs.clone()).await;
    let mut uids = Vec::new();
    for spec in &specs {
        let report = stage.until_state(spec.instance, InstanceState::Ready).await;
        let app = stage.instance_dir(spec.instance).join("app");
        eventually("its words", || app.join("self.json").exists()).await;
        let it: serde_json::Value =
            serde_json::from_slice(&std::fs::read(app.join("self.json")).unwrap()).unwrap();
        let names: Vec<&str> =
            it["env"].as_object().unwrap().keys().map(String::as_str).filter(|n| *n != "LC_CTYPE").collect();
        assert_eq!(
            names,
            [
                "HOME",
                "HOST",
                "KEY",
                "PATH",
                "PORT",
                "PWD",
                "TOWPATH_APP",
                "TOWPATH_BIN",
                "TOWPATH_DOMAIN",
                "TOWPATH_GATEWAY",
                "TOWPATH_INSTANCE",
                "TOWPATH_INSTANCE_INDEX",
                "TOWPATH_LANE",
                "TOWPATH_MEMORY",
                "TOWPATH_ORG",
                "TOWPATH_RELEASE",
                "TOWPATH_SPACE"
            ]
        );
        assert_eq!(it["env"]["PORT"], report.port.to_string());
        assert_eq!(it["env"]["TOWPATH_INSTANCE_INDEX"], "3");
        assert_eq!(it["env"]["HOME"], app.to_str().unwrap());
        assert_eq!(it["cwd"], app.to_str().unwrap());
        // 3 is the directory that is being listed.
        assert_eq!(it["fds"], serde_json::json!(["0", "1", "2", "3"]));
        assert_eq!(it["stdin"], "/dev/null");
        assert_eq!((&it["session"], &it["group"]), (&true.into(), &true.into()));
        assert_eq!(it["no_new_privs"], "1");
        assert_eq!(it["mask"], "0000000000000000");
        assert_eq!(it["files"], serde_json::json!(["777", "777"]));
        assert_eq!(it["core"], serde_json::json!(["0", "0"]));
        assert_eq!(
            (&it["oom"], &it["mode"], &it["writable"]),
            (&"400".into(), &"0o700".into(), &true.into())
        );
        if is_root() {
            assert_eq!(it["processes"], serde_json::json!(["88", "88"]));
            assert_eq!(it["groups"], serde_json::json!([]));
            assert_eq!(it["uid"], it["gid"]);
            uids.push(it["uid"].as_u64().unwrap());
        }
    }
    if is_root() {
        assert!(uids[0] >= 200_000 && uids[0] != uids[1], "{uids:?}");
    }
    stage.end().await;
}

#[tokio::test]
async fn the_first_of_many_copies_fetches_for_all() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let first = stage.spec(&[("app.py", SERVER)], "exec python3 app.py");
    let specs: Vec<_> = (0..4)
        .map(|_| crate::support::spec((first.artifact, first.artifact_bytes), "exec python3 app.py"))
        .collect();
    stage.want(specs.clone()).await;
    let mut ports = Vec::new();
    for spec in &specs {
        let report = stage.until_state(spec.instance, InstanceState::Ready).await;
        assert!(fetch(report.port).await.unwrap().contains("200"));
        ports.push(report.port);
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 4);
    assert_eq!(*stage.blobs.requests.lock().unwrap(), 1);
    assert!(stage.settings.address == IpAddr::from([127, 0, 0, 1]));
    stage.end().await;
}

#[tokio::test]
async fn a_full_disk_is_said_and_nothing_is_fetched() {
    let mut stage = Stage::new().await;
    stage.settings.disk_reserve = towpath_types::ByteSize(u64::MAX / 2);
    stage.start().await;
    let spec = stage.spec(&[], "exec sleep 1000");
    let id = spec.instance;
    stage.want(vec![spec]).await;
    let report = stage.until_state(id, InstanceState::Failed).await;
    assert!(
        report.reason.starts_with("the cell's disk is too full for the release: it needs about"),
        "{}",
        report.reason
    );
    assert_eq!(*stage.blobs.requests.lock().unwrap(), 0);
    stage.end().await;
}
