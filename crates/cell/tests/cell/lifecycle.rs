//! Instances are started, announced, drained and stopped as the manager wishes.
use crate::support::{SERVER, Stage, eventually, fetch, processes_of};
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
