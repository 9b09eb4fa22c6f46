//! What should run: pages, revisions, owners, silence.

use crate::support::{SERVER, Stage, processes_of};
use std::time::Duration;
use towpath_bus::{Bus, BusState};
use towpath_cell::{Cell, CellError, StopMode};
use towpath_types::Revision;
use towpath_types::health::Probe;
use towpath_wire::cell::{CellPoke, InstanceState};
use towpath_wire::subject;

#[tokio::test]
async fn pages_make_one_whole() {
    let mut stage = Stage::new().await;
    stage.wish.lock().unwrap().page = 2;
    stage.start().await;
    let mut specs = Vec::new();
    for _ in 0..5 {
        let mut spec = stage.spec(&[], "exec sleep 1000");
        spec.health.probe = Probe::Process;
        specs.push(spec);
    }
    stage.want(specs).await;
    let all = stage
        .until("five", |a| a.instances.iter().filter(|r| r.state == InstanceState::Ready).count() == 5)
        .await;
    assert_eq!(all.desired, Revision(2));
    stage.end().await;
}

#[tokio::test]
async fn a_stale_owner_or_revision_is_refused() {
    let mut stage = Stage::new().await;
    stage.wish.lock().unwrap().epoch = 5;
    stage.start().await;
    let spec = stage.spec(&[("app.py", SERVER)], "exec python3 app.py");
    let id = spec.instance;
    stage.want(vec![spec.clone()]).await;
    let ready = stage.until_state(id, InstanceState::Ready).await;
    for (epoch, revision) in [(4, 99), (5, 1)] {
        {
            let mut wish = stage.wish.lock().unwrap();
            (wish.epoch, wish.revision, wish.instances) = (epoch, revision, vec![]);
        }
        // Longer than several syncs.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let now = stage.last();
        assert_eq!((now.instances[0].pid, now.desired), (ready.pid, Revision(2)));
    }
    // A poke of the old owner is not even followed; a new owner's word holds, whatever its revision.
    let cell = stage.cell.as_ref().unwrap().id();
    let poke = CellPoke { epoch: 4, revision: Revision(100) };
    stage.bus.publish(&subject::cell_poke(cell), towpath_wire::encode(&poke).into()).await.unwrap();
    stage.wish.lock().unwrap().epoch = 6;
    stage.until_gone(id).await;
    stage.end().await;
}

#[tokio::test]
async fn a_silent_manager_or_bus_changes_nothing() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let spec = stage.spec(&[("app.py", SERVER)], "exec python3 app.py");
    let id = spec.instance;
    stage.want(vec![spec]).await;
    let ready = stage.until_state(id, InstanceState::Ready).await;
    stage.bus.set_state(BusState::Down);
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(processes_of(id).contains(&ready.pid));
    stage.bus.set_state(BusState::Up);
    stage.wish.lock().unwrap().silent = true;
    stage.stop(StopMode::LeaveRunning).await;
    assert!(processes_of(id).contains(&ready.pid));
    stage.start().await;
    let again = stage.until("the adoption", |a| a.seq == 1 || a.instances.len() == 1).await;
    assert_eq!(again.cell, stage.cell.as_ref().unwrap().id());
    assert_eq!(stage.until_state(id, InstanceState::Ready).await.pid, ready.pid);
    stage.end().await;
}

#[tokio::test]
async fn announcements_are_numbered_regular_and_prompt() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let first = stage.until("the first", |a| a.seq >= 1).await;
    let later = stage.until("a later one", |a| a.seq > first.seq + 1).await;
    assert_eq!((later.cell, later.incarnation), (first.cell, first.incarnation));
    assert!(!later.leaving && later.instances.is_empty());
    stage.stop(StopMode::LeaveRunning).await;
    stage.start().await;
    let again = stage.until("a new incarnation", |a| a.incarnation > first.incarnation).await;
    assert_eq!(again.cell, first.cell);
    stage.end().await;
}

#[tokio::test]
async fn one_directory_is_for_one_cell() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let second = Cell::start(stage.settings.clone(), stage.bus.clone()).await;
    assert!(matches!(second, Err(CellError::InUse(_))));
    stage.end().await;
}

#[tokio::test]
async fn a_poke_for_what_no_manager_has_does_not_keep_a_cell_from_what_there_is() {
    let mut stage = Stage::new().await;
    stage.start().await;
    stage.wish.lock().unwrap().strict = true;
    let cell = stage.cell.as_ref().unwrap().id();
    let poke = CellPoke { epoch: 1 << 63, revision: Revision(1 << 63) };
    stage.bus.publish(&subject::cell_poke(cell), towpath_wire::encode(&poke).into()).await.unwrap();
    let spec = stage.spec(&[("app.py", SERVER)], "exec python3 app.py");
    let id = spec.instance;
    stage.want(vec![spec]).await;
    stage.until_state(id, InstanceState::Ready).await;
    stage.end().await;
}
