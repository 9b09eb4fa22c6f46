//! Apps that take more than they may.

use crate::logs::until_logged;
use crate::support::{SERVER, Stage, is_root};
use std::time::Duration;
use towpath_types::ByteSize;
use towpath_types::health::Probe;
use towpath_wire::cell::InstanceState;

#[tokio::test]
async fn a_memory_hog_is_ended_with_the_reason() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let hog =
        "import time\nhoard = []\nwhile True:\n    hoard.append(bytearray(1 << 20))\n    time.sleep(0.002)\n";
    let mut spec = stage.spec(&[("hog.py", hog)], "python3 hog.py; true");
    spec.limits.memory = Some(ByteSize::mib(100));
    spec.health.probe = Probe::Process;
    let id = spec.instance;
    stage.want(vec![spec]).await;
    stage.until_reason(id, "used more memory than its limit of 100M after").await;
    stage.end().await;
}

#[tokio::test]
async fn memory_that_is_reserved_but_not_used_or_shared_by_workers_is_no_offence() {
    let mut stage = Stage::new().await;
    stage.start().await;
    // 8 GB of address space, and five processes that share 60 MB.
    let app = format!(
        "import mmap, os, time\nspace = mmap.mmap(-1, 8 << 30)\nshared = b'x' * (60 << 20)\nfor _ in range(4):\n    if os.fork() == 0:\n        time.sleep(1000)\n{SERVER}"
    );
    let mut spec = stage.spec(&[("app.py", &app)], "exec python3 app.py");
    spec.limits.memory = Some(ByteSize::mib(150));
    let id = spec.instance;
    stage.want(vec![spec]).await;
    stage.until_state(id, InstanceState::Ready).await;
    let seen = stage.until("three samples", |a| a.instances[0].state_ms > 4500).await;
    assert_eq!(seen.instances[0].restarts, 0);
    let memory = seen.instances[0].memory_bytes;
    assert!((60 << 20..150 << 20).contains(&memory), "{memory}");
    stage.end().await;
}

#[tokio::test]
async fn a_fork_bomb_is_bounded_and_ends_with_the_instance() {
    if !is_root() {
        // Without a user of its own the limit would count the tester's processes.
        return;
    }
    let mut stage = Stage::new().await;
    stage.start().await;
    let bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        open('full', 'w').close()\n        import time; time.sleep(0.2)\n";
    let mut spec = stage.spec(&[("bomb.py", bomb)], "exec python3 bomb.py");
    spec.health.probe = Probe::Process;
    spec.limits.processes = Some(40);
    spec.grace = towpath_types::Millis(200);
    let id = spec.instance;
    stage.want(vec![spec]).await;
    let full = stage.instance_dir(id).join("app/full");
    crate::support::eventually("the limit", || full.exists()).await;
    assert!(crate::support::processes_of(id).len() <= 41);
    stage.want(vec![]).await;
    stage.until_gone(id).await;
    assert_eq!(crate::support::processes_of(id), Vec::<u32>::new());
    stage.end().await;
}

#[tokio::test]
async fn load_is_reported() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let app = format!("import os\nif os.fork() == 0:\n    while True:\n        pass\n{SERVER}");
    let spec = stage.spec(&[("app.py", &app)], "exec python3 app.py");
    stage.want(vec![spec]).await;
    let report = stage
        .until("load", |a| a.instances.first().is_some_and(|r| r.load.cpu > 0.0 && r.memory_bytes > 1 << 20))
        .await;
    assert!(report.host.cpu > 0.0 && report.host.mem > 0.0, "{:?}", report.host);
    assert!(report.instances[0].load.mem > 0.0);
    assert!(report.memory_bytes > 0 && report.cores > 0);
    assert_eq!(report.driver, "process");
    stage.end().await;
}

#[tokio::test]
async fn a_flood_of_output_fills_neither_disk_nor_log() {
    let mut stage = Stage::new().await;
    stage.settings.logs.segment_bytes = 64 << 10;
    // Well below what the segments hold in a second, so that they hold a notice at any time.
    stage.settings.logs.rate_bytes = 100 << 10;
    stage.settings.logs.burst_bytes = 100 << 10;
    stage.start().await;
    let mut spec =
        stage.spec(&[], "echo first; exec yes 'a line of some length that is repeated without end'");
    spec.health.probe = Probe::Process;
    let id = spec.instance;
    stage.want(vec![spec]).await;
    stage.until_state(id, InstanceState::Ready).await;
    let logs = stage.instance_dir(id).join("logs");
    let size = || {
        std::fs::read_dir(&logs).unwrap().flatten().map(|e| e.metadata().map_or(0, |m| m.len())).sum::<u64>()
    };
    crate::support::eventually("a second segment", || size() > 64 << 10).await;
    let mut largest = 0;
    for _ in 0..100 {
        largest = largest.max(size());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(largest <= 5 * (64 << 10) + (64 << 10), "{largest}");
    let reply = stage.command(&crate::logs::query(id, 10_000, 0)).await;
    let towpath_wire::cell::CellReply::Log { lines } = reply else { panic!("{reply:?}") };
    assert!(lines.iter().any(|line| line.text.contains("were dropped: the app logs faster than its limit")));
    assert!(
        lines
            .iter()
            .filter(|l| l.text.starts_with("a line"))
            .all(|l| l.text == "a line of some length that is repeated without end")
    );
    stage.end().await;
}

#[tokio::test]
async fn an_app_that_fills_the_disk_is_warned_ended_and_begun_clean() {
    let mut stage = Stage::new().await;
    stage.settings.disk_interval = Duration::from_millis(50);
    stage.start().await;
    // Ten tenths and a little more, the last of it only after the warning was written; the next start finds a clean directory.
    let app = format!(
        "import os, time, threading\ndef fill():\n    open('a', 'wb').write(b'x' * (1900 << 10))\n    while not os.path.exists('go'):\n        time.sleep(0.02)\n    open('b', 'wb').write(b'x' * (600 << 10))\n    time.sleep(1000)\nif os.environ.get('FILL') == '1':\n    threading.Thread(target=fill, daemon=True).start()\n{SERVER}"
    );
    let large = "y".repeat(3 << 20);
    let mut spec = stage.spec(&[("app.py", &app), ("large.txt", &large)], "exec python3 app.py");
    spec.limits.disk = Some(ByteSize::mib(2));
    spec.env.insert("FILL".into(), "1".into());
    let id = spec.instance;
    stage.want(vec![spec.clone()]).await;
    stage.until_state(id, InstanceState::Ready).await;
    until_logged(&stage, id, "disk nearly full: 1.9 MB of 2 MB are used").await;
    let dir = stage.instance_dir(id).join("app");
    assert_eq!(stage.last().instances[0].restarts, 0, "the release's own size does not count");
    std::fs::write(dir.join("go"), "").unwrap();
    stage.until_reason(id, "disk limit exceeded: uses 2.").await;
    stage
        .until("it runs again", |a| {
            a.instances[0].restarts == 1 && a.instances[0].state == InstanceState::Ready
        })
        .await;
    assert!(!dir.join("go").exists() && !dir.join("b").exists(), "begun clean");
    until_logged(&stage, id, "disk limit exceeded").await;
    stage.end().await;
}
