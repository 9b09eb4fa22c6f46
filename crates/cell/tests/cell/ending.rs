//! Apps that end by themselves, or will not end.

use crate::support::{SERVER, Stage, eventually, is_root, processes_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};
use towpath_cell::StopMode;
use towpath_types::Millis;
use towpath_types::health::Probe;
use towpath_wire::cell::InstanceState;

#[tokio::test]
async fn a_crashing_app_is_started_again_ever_more_seldom_until_it_is_a_crash_loop() {
    let mut stage = Stage::new().await;
    stage.settings.restart.first = Duration::from_millis(20);
    stage.start().await;
    let spec = stage.spec(&[], "echo starting; echo broken >&2; exit 3");
    let id = spec.instance;
    stage.want(vec![spec]).await;
    let first = stage.until_state(id, InstanceState::Backoff).await;
    assert!(first.reason.starts_with("exited with status 3 after 0."), "{}", first.reason);
    assert_eq!(first.pid, 0);
    let looping = stage.until_state(id, InstanceState::CrashLoop).await;
    assert!(looping.restarts >= 4, "{}", looping.restarts);
    stage.end().await;
}

#[tokio::test]
async fn an_app_that_exits_with_0_has_ended_too() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let command = "python3 app.py & while [ ! -e stop ]; do sleep 0.02; done; exit 0";
    let spec = stage.spec(&[("app.py", SERVER)], command);
    let id = spec.instance;
    stage.want(vec![spec]).await;
    stage.until_state(id, InstanceState::Ready).await;
    std::fs::write(stage.instance_dir(id).join("app/stop"), "").unwrap();
    stage.until("its end", |a| a.instances[0].reason.contains("exited with status 0 after")).await;
    // What it left behind is gone too, so that the next start finds its port free.
    stage
        .until("its next start", |a| {
            a.instances[0].restarts == 1 && a.instances[0].state == InstanceState::Ready
        })
        .await;
    stage.end().await;
}

#[tokio::test]
async fn a_killed_app_is_back_at_once() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let spec = stage.spec(&[("app.py", SERVER)], "exec python3 app.py");
    let id = spec.instance;
    stage.want(vec![spec]).await;
    let ready = stage.until_state(id, InstanceState::Ready).await;
    kill(Pid::from_raw(ready.pid.cast_signed()), Signal::SIGKILL).unwrap();
    stage.until("its end", |a| a.instances[0].state != InstanceState::Ready).await;
    let again = stage.until_state(id, InstanceState::Ready).await;
    assert!(again.pid != ready.pid && again.port != ready.port);
    stage.end().await;
}

#[tokio::test]
async fn an_app_that_ignores_sigterm_is_killed_after_its_grace() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let mut spec = stage.spec(&[], "trap '' TERM; touch ready; while :; do sleep 0.05; done");
    spec.health.probe = Probe::Process;
    spec.grace = Millis(400);
    let id = spec.instance;
    stage.want(vec![spec]).await;
    eventually("its start", || stage.instance_dir(id).join("app/ready").exists()).await;
    stage.until_state(id, InstanceState::Ready).await;
    let began = Instant::now();
    stage.want(vec![]).await;
    stage.until_gone(id).await;
    assert!(began.elapsed() >= Duration::from_millis(400));
    assert!(processes_of(id).is_empty());
    stage.end().await;
}

#[tokio::test]
async fn an_app_that_ends_gracefully_gets_the_time_even_below_a_shell() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let worker = r#"
import signal, sys, time
def end(*_):
    time.sleep(0.5)
    open(sys.argv[1], "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open("ready", "w").close()
while True:
    time.sleep(10)
"#;
    let proof = tempfile::NamedTempFile::new_in(stage.dir.path()).unwrap();
    let mark = stage.dir.path().join("ended");
    std::fs::create_dir(&mark).unwrap();
    std::os::unix::fs::chown(&mark, None, None).unwrap();
    std::fs::set_permissions(&mark, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    drop(proof);
    // The shell dies of the signal at once; its child does not.
    let mut spec =
        stage.spec(&[("worker.py", worker)], &format!("python3 worker.py {}/done; true", mark.display()));
    spec.health.probe = Probe::Process;
    let id = spec.instance;
    stage.want(vec![spec]).await;
    eventually("its start", || stage.instance_dir(id).join("app/ready").exists()).await;
    stage.want(vec![]).await;
    stage.until_gone(id).await;
    assert!(mark.join("done").exists());
    stage.end().await;
}

/// Children that hide: another session, another group, orphaned, deaf to SIGTERM.
const FORKS: &str = r#"
import os, signal, time
for n in range(5):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            open(f"child{n}", "w").close()
            time.sleep(1000)
        os._exit(0)
open("parent", "w").close()
time.sleep(1000)
"#;

#[tokio::test]
async fn no_child_is_left_however_it_hides() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let mut spec = stage.spec(&[("forks.py", FORKS)], "exec python3 forks.py");
    spec.health.probe = Probe::Process;
    spec.grace = Millis(300);
    let id = spec.instance;
    stage.want(vec![spec.clone()]).await;
    let app = stage.instance_dir(id).join("app");
    let all_there = || (0..5).all(|n| app.join(format!("child{n}")).exists()) && app.join("parent").exists();
    eventually("the children", all_there).await;
    assert!(processes_of(id).len() >= 6);
    stage.want(vec![]).await;
    stage.until_gone(id).await;
    assert_eq!(processes_of(id), Vec::<u32>::new());

    // The same when only the parent dies.
    let mut spec = stage.spec(
        &[("forks.py", FORKS)],
        "python3 forks.py & while [ ! -e parent ]; do sleep 0.02; done; exit 1",
    );
    spec.health.probe = Probe::Process;
    let id = spec.instance;
    stage.settings.restart.first = Duration::from_secs(60);
    stage.want(vec![spec]).await;
    stage
        .until("its end", |a| a.instances.iter().any(|r| r.instance == id && r.reason.contains("status 1")))
        .await;
    stage.end().await;
    assert_eq!(processes_of(id), Vec::<u32>::new());
}

#[tokio::test]
async fn an_app_whose_supervisor_is_killed_is_cleaned_up_and_started_again() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let spec = stage.spec(&[("app.py", SERVER)], "exec python3 app.py");
    let id = spec.instance;
    stage.want(vec![spec]).await;
    let ready = stage.until_state(id, InstanceState::Ready).await;
    let started: serde_json::Value =
        serde_json::from_slice(&std::fs::read(stage.instance_dir(id).join("control/started.json")).unwrap())
            .unwrap();
    let shim = i32::try_from(started["shim"]["pid"].as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(shim), Signal::SIGKILL).unwrap();
    stage
        .until("a new start", |a| {
            a.instances[0].restarts == 1 && a.instances[0].state == InstanceState::Ready
        })
        .await;
    assert!(!processes_of(id).contains(&ready.pid));
    stage.end().await;
}

#[tokio::test]
async fn a_stopped_cell_leaves_nothing_and_the_next_start_brings_everything_back() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let spec = stage.spec(&[("app.py", SERVER)], "exec python3 app.py");
    let id = spec.instance;
    stage.want(vec![spec]).await;
    stage.until_state(id, InstanceState::Ready).await;
    stage.stop(StopMode::StopInstances(Duration::from_secs(5))).await;
    assert_eq!(processes_of(id), Vec::<u32>::new());
    let last = stage.until("the farewell", |a| a.leaving).await;
    assert!(last.instances.is_empty());
    stage.wish.lock().unwrap().silent = true;
    stage.start().await;
    stage.until_state(id, InstanceState::Ready).await;
    stage.end().await;
}

#[tokio::test]
async fn a_process_that_left_its_group_and_hid_its_mark_ends_with_a_lost_instance() {
    if !is_root() {
        // Only a user of its own tells it from others.
        return;
    }
    let mut stage = Stage::new().await;
    stage.start().await;
    let app = format!(
        "import os\nif not os.path.exists('hidden') and os.fork() == 0:\n    os.setsid()\n    open('hidden', 'w').write(str(os.getpid()))\n    os.execve('/bin/sleep', ['sleep', '1000'], {{}})\n{SERVER}"
    );
    let spec = stage.spec(&[("app.py", &app)], "exec python3 app.py");
    let id = spec.instance;
    stage.want(vec![spec]).await;
    let ready = stage.until_state(id, InstanceState::Ready).await;
    let file = stage.instance_dir(id).join("app/hidden");
    let pid = || std::fs::read_to_string(&file).ok().and_then(|text| text.parse::<u32>().ok());
    eventually("the hidden process", || pid().is_some()).await;
    let hidden = pid().unwrap();
    let stat = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = |pid: u32| {
        let text = stat(pid);
        let rest = text.rsplit_once(')').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        rest.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let shim: i32 = fields(ready.pid)[1].parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(shim), nix::sys::signal::Signal::SIGKILL).unwrap();
    stage
        .until("it runs again", |a| {
            a.instances[0].restarts == 1 && a.instances[0].state == InstanceState::Ready
        })
        .await;
    let state = fields(hidden).first().cloned();
    assert!(state.as_deref().is_none_or(|state| state == "Z"), "{state:?}");
    stage.end().await;
}
