//! Instances are started, announced, drained and stopped as the manager wishes.
use crate::support::{SERVER, Stage, eventually, fetch, processes_of};
use towpath_types::Millis;
use towpath_types::spec::Wanted;
use towpath_wire::cell::{InstanceSpec, InstanceState};

#[tokio::test]
async fn an_instance_is_started_announced_ready_drained_and_stopped() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let spec = stage.spec(&[("app.py", SERVER)], "python3 app.py");
    let id = spec.instance;
    stage.want(vec![spec.clone()]).await;
    let report = stage.until_state(id, InstanceState::Ready).await;
    assert!(report.port > 0 && report.pid > 0);
    assert!(fetch(report.port).await.unwrap().ends_with("hello"));

    stage.want(vec![InstanceSpec { wanted: Wanted::Drain, ..spec }]).await;
    let draining = stage.until_state(id, InstanceState::Draining).await;
    assert_eq!((draining.port, draining.pid), (report.port, report.pid));
    assert!(fetch(report.port).await.unwrap().ends_with("hello"), "it serves while it drains");

    stage.want(vec![]).await;
    stage.until_gone(id).await;
    eventually("no process", || processes_of(id).is_empty()).await;
    assert!(!stage.instance_dir(id).exists());
    stage.end().await;
}

#[tokio::test]
async fn an_instance_that_ends_while_it_drains_stays_ended_unless_it_is_wanted_again() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let spec = stage.spec(&[("app.py", SERVER)], "exec python3 app.py");
    let id = spec.instance;
    stage.want(vec![InstanceSpec { wanted: Wanted::Drain, ..spec.clone() }]).await;
    let draining = stage.until("its process", |a| a.instances.first().is_some_and(|r| r.pid > 0)).await;
    let pid = nix::unistd::Pid::from_raw(draining.instances[0].pid.cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let ended =
        stage.until("its end", |a| a.instances[0].pid == 0 && !a.instances[0].reason.is_empty()).await;
    assert_eq!(ended.instances[0].state, InstanceState::Draining);
    stage.want(vec![spec]).await;
    assert_eq!(stage.until_state(id, InstanceState::Ready).await.restarts, 1);
    stage.end().await;
}

#[tokio::test]
async fn a_stopped_process_is_unhealthy_although_the_kernel_accepts_for_it_and_is_started_anew() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let mut spec = stage.spec(&[("app.py", SERVER)], "exec python3 app.py");
    (spec.health.interval, spec.health.failures) = (Millis(50), 2);
    // Long enough for a server to start on a busy machine; one that takes longer is tried again.
    (spec.health.start_timeout, spec.grace) = (Millis(5000), Millis(100));
    let id = spec.instance;
    stage.want(vec![spec]).await;
    let ready = stage.until_state(id, InstanceState::Ready).await;
    let pid = nix::unistd::Pid::from_raw(ready.pid.cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let sick = stage.until_state(id, InstanceState::Unhealthy).await;
    assert!(sick.reason.starts_with("its main process is stopped by a signal"), "{}", sick.reason);
    stage
        .until("a new start", |a| {
            a.instances.iter().any(|r| r.restarts > ready.restarts && r.state == InstanceState::Ready)
        })
        .await;
    stage.end().await;
}
