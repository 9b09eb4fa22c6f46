//! Managers' rows and fences.

use crate::rig::{Rig, SOON, app, fence, plain, put, row};
use std::time::Duration;
use towpath_store::{Expect, Fence, Store, StoreError, Transaction};
use towpath_testkit::poll_until_async;
use towpath_types::Revision;

async fn write_as(store: &dyn Store, fence: Fence) -> Result<Revision, StoreError> {
    let writes = vec![put(&app(&uuid::Uuid::new_v4().to_string()), Expect::Absent, 1)];
    store.commit(Transaction { fence: Some(fence), ..plain(writes) }).await.map(|commit| commit.revision)
}

fn is_fenced<T: std::fmt::Debug>(result: Result<T, StoreError>, fence: Fence) {
    assert!(matches!(&result, Err(StoreError::Fenced(manager)) if *manager == fence.manager), "{result:?}");
}

pub(crate) async fn fences_let_only_members_write(rig: &impl Rig) {
    let store = rig.open().await;
    let (member, stranger) = (fence(1, 5), fence(2, 5));
    is_fenced(write_as(&*store, member).await, member);
    let before = store.now_ms().await.unwrap();
    store.register_manager(&row(member)).await.unwrap();
    assert_eq!(write_as(&*store, member).await.unwrap(), Revision(1));
    store.heartbeat(member).await.unwrap();
    let rows = store.managers().await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (rows[0].manager, rows[0].incarnation, rows[0].evicted),
        (member.manager, member.incarnation, false)
    );
    assert_eq!((rows[0].address.as_str(), rows[0].version.as_str()), ("http://10.0.0.1:7700", "0.1.0"));
    assert!((before..=store.now_ms().await.unwrap()).contains(&rows[0].started_ms));
    for wrong in [stranger, Fence { incarnation: fence(0, 4).incarnation, ..member }, fence(1, 6)] {
        is_fenced(write_as(&*store, wrong).await, wrong);
        is_fenced(store.heartbeat(wrong).await, wrong);
        is_fenced(store.leave(wrong).await, wrong);
    }
    // A refused transaction leaves nothing, and one without a fence is for tools.
    assert_eq!(*store.watch().borrow(), Revision(1));
    store.commit(plain(vec![put(&app("tool"), Expect::Absent, 1)])).await.unwrap();
}

pub(crate) async fn a_silent_manager_is_evicted(rig: &impl Rig) {
    let store = rig.open().await;
    let (silent, alive) = (fence(1, 1), fence(2, 1));
    store.register_manager(&row(silent)).await.unwrap();
    store.register_manager(&row(alive)).await.unwrap();
    assert_eq!(store.evict_silent(60_000).await.unwrap(), []);
    let silence = Duration::from_secs(2);
    let evicted = poll_until_async(SOON, "an eviction", async || {
        store.heartbeat(alive).await.unwrap();
        let evicted = store.evict_silent(u64::try_from(silence.as_millis()).unwrap()).await.unwrap();
        (!evicted.is_empty()).then_some(evicted)
    })
    .await;
    assert_eq!(evicted, [silent.manager]);
    is_fenced(write_as(&*store, silent).await, silent);
    is_fenced(store.heartbeat(silent).await, silent);
    is_fenced(store.register_manager(&row(silent)).await, silent);
    write_as(&*store, alive).await.unwrap();
    let rows = store.managers().await.unwrap();
    let evicted_row = rows.iter().find(|row| row.manager == silent.manager).unwrap();
    assert!(evicted_row.evicted && evicted_row.silent_ms >= 2_000);
    // It may come back as a new incarnation.
    let again = fence(1, 2);
    store.register_manager(&row(again)).await.unwrap();
    write_as(&*store, again).await.unwrap();
    is_fenced(write_as(&*store, silent).await, silent);
    assert!(store.managers().await.unwrap().iter().all(|row| !row.evicted));
}

pub(crate) async fn a_manager_that_leaves_is_gone(rig: &impl Rig) {
    let store = rig.open().await;
    let manager = fence(1, 1);
    store.register_manager(&row(manager)).await.unwrap();
    store.leave(manager).await.unwrap();
    assert_eq!(store.managers().await.unwrap(), []);
    is_fenced(write_as(&*store, manager).await, manager);
    is_fenced(store.leave(manager).await, manager);
}

pub(crate) async fn a_newer_incarnation_supersedes(rig: &impl Rig) {
    let store = rig.open().await;
    let (old, new) = (fence(1, 1), fence(1, 2));
    store.register_manager(&row(old)).await.unwrap();
    store.register_manager(&row(old)).await.unwrap();
    let moved = towpath_store::ManagerRow { address: "http://10.0.0.2:7700".to_owned(), ..row(new) };
    store.register_manager(&moved).await.unwrap();
    is_fenced(write_as(&*store, old).await, old);
    is_fenced(store.register_manager(&row(old)).await, old);
    write_as(&*store, new).await.unwrap();
    let rows = store.managers().await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].address, "http://10.0.0.2:7700");
    // It is remembered over a restart.
    drop(store);
    let store = rig.open().await;
    is_fenced(write_as(&*store, old).await, old);
    write_as(&*store, new).await.unwrap();
}

pub(crate) async fn the_epoch_is_raised_above_one_that_was_heard_of(rig: &impl Rig) {
    let store = rig.open().await;
    let member = fence(1, 1);
    store.register_manager(&row(member)).await.unwrap();
    let own = store.epoch().await.unwrap();
    assert_eq!(store.raise_epoch(member, own + 1000).await.unwrap(), own + 1001);
    assert_eq!(store.raise_epoch(member, own).await.unwrap(), own + 1001, "it never falls");
    assert_eq!(store.epoch().await.unwrap(), own + 1001);
    let stranger = fence(2, 1);
    assert!(matches!(store.raise_epoch(stranger, own + 5000).await, Err(StoreError::Fenced(_))));
    assert!(matches!(store.raise_epoch(member, u64::MAX).await, Err(StoreError::Invalid(_))));
    assert!(matches!(store.raise_epoch(member, i64::MAX as u64).await, Err(StoreError::Invalid(_))));
    drop(store);
    assert_eq!(rig.open().await.epoch().await.unwrap(), own + 1001);
}

pub(crate) async fn the_epoch_rises_with_every_change_of_ownership(rig: &impl Rig) {
    let store = rig.open().await;
    let mut before = store.epoch().await.unwrap();
    let mut rose = async |what: &str| {
        let now = store.epoch().await.unwrap();
        assert!(now > before, "{what}: {before} -> {now}");
        before = now;
    };
    let (first, second) = (fence(1, 1), fence(2, 1));
    store.register_manager(&row(first)).await.unwrap();
    rose("the first registers").await;
    store.register_manager(&row(second)).await.unwrap();
    rose("another registers").await;
    store.leave(second).await.unwrap();
    rose("it leaves").await;
    poll_until_async(SOON, "an eviction", async || {
        (!store.evict_silent(20).await.unwrap().is_empty()).then_some(())
    })
    .await;
    rose("one is evicted").await;
    // What changes no ownership raises nothing.
    let still = store.epoch().await.unwrap();
    is_fenced(store.heartbeat(first).await, first);
    is_fenced(store.register_manager(&row(first)).await, first);
    is_fenced(store.leave(first).await, first);
    assert_eq!(store.evict_silent(0).await.unwrap(), []);
    store.commit(plain(vec![put(&app("x"), Expect::Absent, 1)])).await.unwrap();
    assert_eq!(store.epoch().await.unwrap(), still);
    assert_eq!(store.revision().await.unwrap(), Revision(1));
    drop(store);
    assert_eq!(rig.open().await.epoch().await.unwrap(), still);
}
