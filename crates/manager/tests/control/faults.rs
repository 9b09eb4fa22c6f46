//! What a manager does when store, bus, cells or its own membership go away.

use crate::fleet::{FaultyStore, Fleet, SOON, release, until, until_async};
use std::sync::Arc;
use std::time::Duration;
use towpath_bus::BusState;
use towpath_manager::core::keys;
use towpath_manager::core::outcome::GroupOutcome;
use towpath_manager::{CommitError, Manager};
use towpath_store::{Expect, Fence, MemoryStore, Query, SqliteStore, Store, StoreError, Transaction, Write};
use towpath_types::{Kind, LaneName, Revision, SpaceRef};

/// What a count rises by in a while, and how many seconds that was: a busy machine wakes nobody in time.
async fn rise(count: impl Fn() -> u64, during: Duration) -> (f64, f64) {
    let (before, begin) = (count(), std::time::Instant::now());
    tokio::time::sleep(during).await;
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let rise = (count() - before) as f64;
    (rise, begin.elapsed().as_secs_f64())
}

async fn faulty(dir: &tempfile::TempDir) -> Arc<FaultyStore> {
    FaultyStore::new(Arc::new(SqliteStore::open(&dir.path().join("store.db")).await.unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_makes_the_default_org_space_and_lane_and_a_second_changes_nothing() {
    let mut fleet = Fleet::start().await;
    let space = SpaceRef::first();
    let cache = &fleet.core().cache;
    assert!(cache.get(&keys::org_key(&space.org)).is_some());
    assert!(cache.get(&keys::space_key(&space)).is_some());
    assert!(cache.get(&keys::lane_key(&space, &LaneName::base())).is_some());
    let made = cache.list(Kind::Lane, None, None);
    let before = fleet.core().fence().unwrap();
    fleet.restart().await;
    assert_eq!(fleet.core().cache.list(Kind::Lane, None, None), made);
    let after = fleet.core().fence().unwrap();
    assert_eq!(after.manager, before.manager);
    assert!(after.incarnation > before.incarnation);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_stops_leaves_the_table() {
    let mut fleet = Fleet::start().await;
    assert_eq!(fleet.store.managers().await.unwrap().len(), 1);
    fleet.manager.take().unwrap().stop().await;
    assert_eq!(fleet.store.managers().await.unwrap(), vec![]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_manager_keeps_what_runs_as_it_is() {
    let mut fleet = Fleet::start().await;
    let (cell, gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 3).await;
    fleet.settle(&group).await;
    let status = fleet.group(&group).status.clone();
    let before = gateway.endpoints();
    fleet.restart().await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(fleet.group(&group).status.assignments, status.assignments);
    assert_eq!(gateway.endpoints(), before);
    assert!(cell.stopped().is_empty());
    // And it works on.
    fleet.change(&group, |spec| spec.restart += 1).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_gone_stops_changes_but_not_what_runs_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = faulty(&dir).await;
    let fleet = Fleet::start_with(dir, store.clone(), |_| {}).await;
    let (cell, gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 2).await;
    fleet.settle(&group).await;
    store.set_down(true);
    until("the manager notices", || !fleet.core().store_is_up()).await;
    assert_eq!(gateway.endpoints().len(), 2);
    assert!(cell.stopped().is_empty());
    let error = fleet.core().commit(vec![]).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    // It does not hammer on the door.
    let (refused, seconds) = rise(|| store.refused(), Duration::from_secs(1)).await;
    assert!(refused < 30.0 * seconds, "{refused} in {seconds} s");
    store.set_down(false);
    until("the manager notices", || fleet.core().store_is_up()).await;
    fleet.change(&group, |spec| spec.count = 3).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_manager_stops_writing_and_joins_anew() {
    let fleet = Fleet::start().await;
    let (_cell, _gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 1).await;
    fleet.settle(&group).await;
    let old = fleet.core().fence().unwrap();
    let evicted = fleet.store.evict_silent(0).await.unwrap();
    assert_eq!(evicted, vec![old.manager]);
    assert!(matches!(fleet.store.heartbeat(old).await, Err(StoreError::Fenced(_))));
    let error = fleet
        .core()
        .commit(vec![towpath_store::Write::Delete { key: group.key(), expect: towpath_store::Expect::Any }]);
    let error = error.await.unwrap_err();
    assert!(matches!(error, CommitError::NotMember | CommitError::Store(StoreError::Fenced(_))), "{error}");
    until("it joins anew", || fleet.core().fence().is_some_and(|fence| fence.incarnation > old.incarnation))
        .await;
    fleet.change(&group, |spec| spec.count = 2).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_starts_without_its_store_and_joins_when_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let store = faulty(&dir).await;
    store.set_down(true);
    let key = dir.path().join("secrets.key");
    let fleet = Fleet::start_with(dir, store.clone(), |settings| {
        settings.secrets_key_file = Some(key.clone());
        settings.make_secrets_key = true;
    })
    .await;
    assert_eq!(fleet.core().fence(), None);
    assert!(!fleet.core().store_is_up());
    assert!(!key.exists(), "the store may know of another key");
    store.set_down(false);
    until("it joins", || fleet.core().fence().is_some()).await;
    until("the default space is there", || {
        fleet.core().cache.get(&keys::space_key(&SpaceRef::first())).is_some()
    })
    .await;
    until("it has a key for secrets", || fleet.core().cache.get(&keys::keyring_key()).is_some()).await;
    assert!(key.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_is_lost_is_replaced_and_its_leftovers_are_not_in_its_set_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = faulty(&dir).await;
    let fleet = Fleet::start_with(dir, store, |settings| settings.rollout.lost_ms = 6_000).await;
    let (first, _gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 2).await;
    fleet.settle(&group).await;
    let second = fleet.cell().await;
    until("the second is known", || fleet.core().soft.cells().len() == 2).await;
    first.mute(true);
    until("the second runs them all", || second.specs().len() == 2).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
    first.mute(false);
    until("the first has stopped them", || first.stopped().len() == 2).await;
    assert_eq!(second.specs().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_bus_is_down_nobody_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let store = faulty(&dir).await;
    let fleet = Fleet::start_with(dir, store, |settings| settings.rollout.lost_ms = 6_000).await;
    let (cell, _gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 1).await;
    fleet.settle(&group).await;
    let before = fleet.group(&group).status.assignments.clone();
    fleet.bus.set_state(BusState::Down);
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(!fleet.core().soft.cells()[0].lost);
    fleet.bus.set_state(BusState::Up);
    fleet.change(&group, |spec| spec.count = 2).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
    assert!(fleet.group(&group).status.assignments.contains(&before[0]));
    assert!(cell.stopped().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_manager_on_the_same_store_sees_the_same_and_is_fenced_apart() {
    let fleet = Fleet::start().await;
    let group = fleet.make_app("shop", 1).await;
    let dir = tempfile::tempdir().unwrap();
    let second =
        Manager::start(crate::fleet::settings(dir.path()), fleet.store.clone(), fleet.bus()).await.unwrap();
    assert_ne!(second.core().manager, fleet.core().manager);
    let revision = fleet.core().cache.revision();
    assert!(second.core().wait_cache(revision, SOON).await);
    assert!(second.core().cache.group(&group).is_some());
    until_async("both are in the table", || async { fleet.store.managers().await.unwrap().len() == 2 }).await;
    assert!(second.core().epoch() >= fleet.core().fence().unwrap().incarnation.0);
    let fence = Fence { manager: second.core().manager, ..fleet.core().fence().unwrap() };
    assert!(fleet.store.heartbeat(fence).await.is_err(), "one's incarnation is not the other's");
    second.stop().await;
    fleet.put_release(&group.app, 9).await;
    assert!(fleet.core().cache.release(&group.app, release(9)).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_managers_share_the_groups_and_one_takes_over_when_the_other_leaves() {
    let fleet = Fleet::start().await;
    let (_cell, gateway) = (fleet.cell().await, fleet.gateway().await);
    let dir = tempfile::tempdir().unwrap();
    let second =
        Manager::start(crate::fleet::settings(dir.path()), fleet.store.clone(), fleet.bus()).await.unwrap();
    let both = |core: &towpath_manager::core::Core| core.ownership.ring().members().len() == 2;
    until("both know both", || both(fleet.core()) && both(second.core())).await;
    let mut groups = Vec::new();
    for n in 0..12 {
        groups.push(fleet.make_app(&format!("app-{n}"), 1).await);
    }
    for group in &groups {
        assert_eq!(fleet.settle(group).await, GroupOutcome::Done);
        let name = group.to_string();
        assert_ne!(fleet.core().ownership.is_mine(&name), second.core().ownership.is_mine(&name));
    }
    let shared = |core: &towpath_manager::core::Core| {
        groups.iter().filter(|group| core.ownership.is_mine(&group.to_string())).count()
    };
    assert!(shared(fleet.core()) > 0 && shared(second.core()) > 0);
    assert_eq!(shared(fleet.core()) + shared(second.core()), 12);
    assert_eq!(gateway.endpoints().len(), 12);
    second.stop().await;
    until("the first owns all", || shared(fleet.core()) == 12).await;
    for group in &groups {
        fleet.change(group, |spec| spec.restart += 1).await;
    }
    for group in &groups {
        assert_eq!(fleet.settle(group).await, GroupOutcome::Done);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_bus_in_the_middle_of_a_drain_cuts_off_no_request() {
    let fleet = Fleet::start().await;
    let (cell, gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 2).await;
    fleet.settle(&group).await;
    gateway.set_in_flight(1);
    fleet.change(&group, |spec| spec.count = 1).await;
    until("one drains", || cell.states().contains(&towpath_wire::cell::InstanceState::Draining)).await;
    fleet.bus.set_state(BusState::Down);
    tokio::time::sleep(Duration::from_secs(1)).await;
    fleet.bus.set_state(BusState::Up);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(cell.stopped().is_empty(), "it has a request yet");
    gateway.set_in_flight(0);
    until("it goes", || cell.stopped().len() == 1).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_has_obeyed_a_higher_epoch_is_won_back() {
    let fleet = Fleet::start().await;
    let (cell, _gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 1).await;
    fleet.settle(&group).await;
    // As if the store had been made anew on a clock that was set back by a year.
    let future = fleet.core().epoch() + 31_536_000_000;
    cell.has_obeyed(future, 1_000_000);
    fleet.change(&group, |spec| spec.count = 2).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
    assert_eq!(cell.specs().len(), 2);
    assert_eq!(fleet.store.epoch().await.unwrap(), future + 1, "other managers know it, too");
    assert!(fleet.core().epoch() > future);
}

/// A known pain: news do not come any more, and nothing says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_dies_silently_costs_a_moment() {
    let dir = tempfile::tempdir().unwrap();
    let store = faulty(&dir).await;
    let fleet = Fleet::start_with(dir, store.clone(), |_| {}).await;
    let (cell, _gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 1).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
    store.silence_watch();
    // What this manager and what another one writes.
    fleet.change(&group, |spec| spec.count = 2).await;
    assert_eq!(fleet.settle(&group).await, GroupOutcome::Done);
    let mut spec = fleet.group(&group).spec.clone();
    spec.count = 3;
    let (id, spec) = (fleet.core().mint_record_id(), Some(serde_json::json!(spec)));
    let write = towpath_store::Write::Put {
        id,
        key: group.key(),
        expect: towpath_store::Expect::Any,
        spec,
        status: None,
    };
    let written = towpath_store::Transaction { writes: vec![write], fence: None, idempotency: None };
    store.inner().commit(written).await.unwrap();
    until("it is seen and done", || cell.specs().len() == 3).await;
}

/// A known pain: the first one to reach a store that returns finds all others silent, and takes over from everybody.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_evicted_for_silence_in_an_outage_of_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (faulty(&dir).await, faulty(&dir).await);
    let fleet = Fleet::start_with(dir, first.clone(), |_| {}).await;
    let other = tempfile::tempdir().unwrap();
    let other =
        Manager::start(crate::fleet::settings(other.path()), second.clone(), fleet.bus()).await.unwrap();
    let is_evicted = || async {
        let rows = first.inner().managers().await.unwrap();
        rows.iter().any(|row| row.manager == other.core().manager && row.evicted)
    };
    first.set_down(true);
    second.set_down(true);
    let are_silent = || async {
        let rows = first.inner().managers().await.unwrap();
        rows.iter().all(|row| row.silent_ms > 6_000)
    };
    until_async("both are silent for longer than they may be", are_silent).await;
    let fence = other.core().fence();
    // One is served again before the other.
    first.set_down(false);
    let silence = || fleet.core().members.all().get(&other.core().manager).map_or(0, |m| m.row.silent_ms);
    until("the first has seen the silence of the second", || silence() > 6_000).await;
    second.set_down(false);
    until("the second acts again", || other.core().may_act()).await;
    assert!(!is_evicted().await);
    assert_eq!((other.core().fence(), fence.is_some()), (fence, true), "it is a member as before");
    // One that is silent while the store answers is evicted all the same.
    second.set_down(true);
    until_async("it is evicted", is_evicted).await;
}

/// A known pain: all that had to wait comes at once when the store is back, and brings it down again.
mod storm {
    use super::*;
    use crate::fleet::FakeCell;
    use serde_json::json;
    use towpath_manager::core::keys::GroupRef;
    use towpath_store::{Expect, Transaction, Write};

    const GROUPS: usize = 40;

    struct Rig {
        store: Arc<FaultyStore>,
        fleet: Fleet,
        groups: Vec<GroupRef>,
        _cells: [FakeCell; 4],
        _gateway: crate::fleet::FakeGateway,
    }

    /// Many groups, all of which are as wanted.
    async fn rig() -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let store = faulty(&dir).await;
        let fleet = Fleet::start_with(dir, store.clone(), |_| {}).await;
        let cells = [fleet.cell().await, fleet.cell().await, fleet.cell().await, fleet.cell().await];
        let gateway = fleet.gateway().await;
        let mut groups = Vec::new();
        for n in 0..GROUPS {
            groups.push(fleet.make_app(&format!("app-{n}"), 1).await);
        }
        for group in &groups {
            assert_eq!(fleet.settle(group).await, GroupOutcome::Done);
        }
        Rig { store, fleet, groups, _cells: cells, _gateway: gateway }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn where_nothing_has_changed_nobody_storms_a_store_that_returns() {
        let Rig { store, fleet, groups, .. } = &rig().await;
        store.set_down(true);
        until("the manager notices", || !fleet.core().store_is_up()).await;
        let (calls, seconds) = rise(|| store.calls(), Duration::from_secs(2)).await;
        assert!(calls < 30.0 * seconds, "it hammers on the door: {calls} in {seconds} s");
        let (before, begin) = (store.calls(), std::time::Instant::now());
        store.set_down(false);
        until("the manager notices", || fleet.core().store_is_up()).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (after, seconds) = (store.calls() - before, begin.elapsed().as_secs());
        assert!(
            after < 100 + 10 * seconds,
            "nothing has changed, and there were {after} calls in {seconds} s"
        );
        fleet.change(&groups[0], |spec| spec.count = 2).await;
        assert_eq!(fleet.settle(&groups[0]).await, GroupOutcome::Done);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn of_many_that_want_to_write_one_finds_out_whether_the_store_takes_writes_again() {
        let Rig { store, fleet, groups, .. } = &rig().await;
        // It gives, but takes nothing, and each of the groups has something to write.
        store.set_read_only(true);
        for group in groups {
            let mut spec = fleet.group(group).spec.clone();
            spec.count = 2;
            let write = Write::Put {
                id: fleet.core().mint_record_id(),
                key: group.key(),
                expect: Expect::Any,
                spec: Some(json!(spec)),
                status: None,
            };
            let all = Transaction { writes: vec![write], fence: None, idempotency: None };
            store.inner().commit(all).await.unwrap();
        }
        until("the first has tried", || store.commits() > 0).await;
        let (attempts, seconds) = rise(|| store.commits(), Duration::from_secs(3)).await;
        // Pauses of 0.1, 0.2, 0.4 … 2 s, and those that were under way when the first one failed: each group once at most.
        // Each group by itself would try every half second.
        let most = 50.0 + 2.0 * seconds;
        assert!(attempts < most, "{attempts} attempts to write by {GROUPS} groups in {seconds} s");
        store.set_read_only(false);
        for group in groups {
            assert_eq!(fleet.settle(group).await, GroupOutcome::Done);
            assert_eq!(fleet.group(group).status.assignments.len(), 2);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_set_back_and_went_on_is_noticed_and_what_it_never_had_is_forgotten() {
    let memory = Arc::new(MemoryStore::new(1_700_000_000_000, 100_000));
    let store = FaultyStore::new(memory.clone());
    let fleet = Fleet::start_with(tempfile::tempdir().unwrap(), store.clone(), |_| {}).await;
    let gateway = fleet.gateway().await;
    let token = |name: &str| serde_json::json!({"hash": release(1), "role": "viewer", "note": name});
    let route = |host: &str| serde_json::json!({"host": host, "path": "/", "app": crate::fleet::app("shop")});
    fleet.put(keys::token_key("kept"), token("kept")).await;
    let backup = memory.back_up();
    for n in 0..5 {
        fleet.put(keys::route_key(&format!("lost-{n}"), "/"), route(&format!("lost-{n}"))).await;
    }
    let before = fleet.core().cache.revision();
    until("the gateway has it", || gateway.revision() >= before).await;
    let epoch = fleet.core().epoch();

    // A standby that was behind takes over, and another manager writes before this one is back.
    store.set_down(true);
    until("the manager notices", || !fleet.core().store_is_up()).await;
    memory.restore(&backup);
    for n in 0..20 {
        let host = format!("new-{n}");
        let put = Write::Put {
            key: keys::route_key(&host, "/"),
            id: fleet.core().mint_record_id(),
            expect: Expect::Absent,
            spec: Some(route(&host)),
            status: None,
        };
        memory.commit(Transaction { writes: vec![put], fence: None, idempotency: None }).await.unwrap();
    }
    let newest = memory.revision().await.unwrap();
    assert!(newest > before);
    store.keep_epoch(2);
    store.set_down(false);
    let routes = Query { kind: Some(Kind::Route), ..Query::default() };
    let stored = memory.list(&routes).await.unwrap().records;
    until("the manager has what is stored", || {
        fleet
            .core()
            .cache
            .list(Kind::Route, None, None)
            .iter()
            .map(|record| (**record).clone())
            .eq(stored.iter().cloned())
    })
    .await;
    until("the gateway has it", || {
        let items = gateway.items();
        let has = |host: &str| items.keys().any(|key| key.to_string().contains(host));
        has("new-0") && has("new-19") && !has("lost-")
    })
    .await;
    until("what was told before counts no more", || fleet.core().epoch() > epoch).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_promises_more_than_there_is_makes_no_manager_ask_without_pause() {
    let dir = tempfile::tempdir().unwrap();
    let store = faulty(&dir).await;
    let fleet = Fleet::start_with(dir, store.clone(), |_| {}).await;
    until("it is a member", || fleet.core().fence().is_some()).await;
    store.boast(Revision(1_000_000));
    // What is told wakes it up, so that it takes up the new watch.
    fleet.put(keys::token_key("x"), serde_json::json!({"hash": release(1), "role": "viewer"})).await;
    let (calls, seconds) = rise(|| store.calls(), Duration::from_secs(2)).await;
    assert!(calls < 40.0 * seconds, "{calls} in {seconds} s");
}
