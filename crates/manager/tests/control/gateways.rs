//! The routing table's way to gateways.

use crate::fleet::{FaultyStore, Fleet, SOON, app, settings, until, until_async};
use serde_json::json;
use std::time::Duration;
use towpath_bus::{Bus, MemoryBus};
use towpath_manager::Manager;
use towpath_manager::core::keys;
use towpath_store::{Expect, Write};
use towpath_types::spec::RouteSpec;
use towpath_types::{GatewayId, LaneName, Revision, SpaceRef};
use towpath_wire::gateway::{Item, ItemKey, SnapshotPage, SnapshotRequest};
use towpath_wire::manager::ManagerReport;
use towpath_wire::{decode, encode, subject};

fn route(host: &str, name: &str) -> RouteSpec {
    RouteSpec {
        host: host.into(),
        path: "/".into(),
        app: app(name),
        strip_path: false,
        entry: vec![],
        automatic: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_gets_a_snapshot_then_changes_as_they_come() {
    let fleet = Fleet::start().await;
    fleet.make_app("shop", 1).await;
    fleet.put(keys::route_key("a.example", "/"), json!(route("a.example", "shop"))).await;
    let gateway = fleet.gateway().await;
    until("it has the table", || gateway.items().len() == 3).await;
    assert_eq!(gateway.snapshots(), 1);
    let space = &gateway.items()[&ItemKey::Space(SpaceRef::first())];
    assert!(matches!(space, Item::Space { names, .. } if *names == [LaneName::base()]));
    let Item::App { lanes, stopped, .. } = &gateway.items()[&ItemKey::App(app("shop"))] else { panic!() };
    assert_eq!((lanes.as_slice(), *stopped), ([LaneName::base()].as_slice(), false));

    fleet.put(keys::route_key("b.example", "/"), json!(route("b.example", "shop"))).await;
    until("the new route is there", || gateway.items().len() == 4).await;
    let delete = Write::Delete { key: keys::route_key("a.example", "/"), expect: Expect::Present };
    let commit = fleet.core().commit(vec![delete]).await.unwrap();
    assert!(fleet.core().wait_revision_served(commit.revision, SOON).await);
    assert!(!gateway.items().contains_key(&ItemKey::Route("a.example/".into())));
    assert_eq!(gateway.snapshots(), 1, "no gap, no second snapshot");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_changes_no_item_is_served_soon_and_an_idle_manager_gives_signs_of_life() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    until("it has the table", || gateway.snapshots() == 1).await;
    fleet.put(keys::token_key("x"), json!({"hash": crate::fleet::release(1), "role": "viewer"})).await;
    let revision = fleet.core().cache.revision();
    assert!(fleet.core().wait_revision_served(revision, SOON).await);
    let before = gateway.deltas().len();
    until("signs of life", || gateway.deltas().len() >= before + 2).await;
    assert!(gateway.deltas().last().unwrap().put.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_changes_sends_no_items() {
    let fleet = Fleet::start().await;
    let (_cell, gateway) = (fleet.cell().await, fleet.gateway().await);
    let group = fleet.make_app("shop", 1).await;
    fleet.settle(&group).await;
    let apps = |items: &[Item]| items.iter().filter(|item| matches!(item, Item::App { .. })).count();
    let told: usize = gateway.deltas().iter().map(|delta| apps(&delta.put)).sum();
    fleet.change(&group, |spec| spec.restart += 1).await;
    fleet.settle(&group).await;
    let after: usize = gateway.deltas().iter().map(|delta| apps(&delta.put)).sum();
    assert_eq!(after, told);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_many_routes_comes_in_pages_and_a_dead_gateway_is_not_waited_for() {
    let fleet = Fleet::start().await;
    let writes = |from: usize| -> Vec<Write> {
        (from..from + 1000)
            .map(|n| {
                let host = format!("host-{n}.{}.example", "x".repeat(100));
                Write::Put {
                    key: keys::route_key(&host, "/"),
                    id: fleet.core().mint_record_id(),
                    expect: Expect::Absent,
                    spec: Some(json!(route(&host, "shop"))),
                    status: None,
                }
            })
            .collect()
    };
    for from in [0, 1000, 2000, 3000] {
        fleet.core().commit(writes(from)).await.unwrap();
    }
    let gateway = fleet.gateway().await;
    until("it has all routes", || gateway.items().len() == 4001).await;
    drop(gateway);
    // Alive for a while yet as far as anybody knows; then it counts no more.
    fleet.put(keys::token_key("x"), json!({"hash": crate::fleet::release(1), "role": "viewer"})).await;
    let revision = fleet.core().cache.revision();
    assert!(fleet.core().wait_revision_served(revision, SOON).await);
}

/// A page, if anybody answers.
async fn ask(bus: &MemoryBus, epoch: u64) -> Option<SnapshotPage> {
    let gateway = GatewayId::mint(1, [9; 10]);
    let request = SnapshotRequest { gateway, cursor: None, epoch, at_least: Revision(0) };
    let patience = Duration::from_secs(4);
    let answer = bus.request(subject::GATEWAY_SNAPSHOT, encode(&request).into(), patience).await.ok()?;
    Some(decode(&answer).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_may_have_missed_something_tells_no_gateway_the_table() {
    let fleet = Fleet::start().await;
    fleet.put(keys::route_key("old.example", "/"), json!(route("old.example", "shop"))).await;
    let (dir, store) = (tempfile::tempdir().unwrap(), FaultyStore::new(fleet.store.clone()));
    let second = Manager::start(settings(dir.path()), store.clone(), fleet.bus()).await.unwrap();
    let both = |core: &towpath_manager::core::Core| core.ownership.ring().members().len() == 2;
    until("both know both", || both(fleet.core()) && both(second.core())).await;
    assert!(second.core().wait_cache(fleet.core().cache.revision(), SOON).await);
    // Each that comes raises it, the other hears of it a moment later.
    until_async("both tell the same epoch", || async {
        let told = [ask(&fleet.bus, 0).await, ask(&fleet.bus, 0).await];
        told.iter().flatten().all(|page| page.epoch == fleet.core().epoch())
    })
    .await;
    let epoch = fleet.core().epoch();

    let mut reports = fleet.bus.subscribe(subject::MANAGER_REPORT).await.unwrap();
    // Cut off from the store, evicted, and still on the bus.
    let before = fleet.core().fence().unwrap();
    store.set_down(true);
    fleet.store.evict_silent(0).await.unwrap();
    until("the first is a member again", || {
        fleet.core().fence().is_some_and(|fence| fence.incarnation > before.incarnation)
    })
    .await;
    let delete = Write::Delete { key: keys::route_key("old.example", "/"), expect: Expect::Present };
    let deleted = fleet.core().commit(vec![delete]).await.unwrap().revision;
    // What it said before the last time has surely been heard.
    for _ in 0..2 {
        loop {
            let report: ManagerReport = decode(&reports.next().await.unwrap().payload).unwrap();
            if report.revision >= deleted && report.manager == fleet.core().manager {
                break;
            }
        }
    }
    let old = ItemKey::Route("old.example/".into());
    let mut answers = 0;
    for _ in 0..6 {
        let Some(page) = ask(&fleet.bus, 0).await else { continue };
        answers += 1;
        assert!(page.revision >= deleted, "{} of {deleted}", page.revision);
        assert!(page.epoch > epoch);
        let has_old = |item: &Item| matches!(item, Item::Route(route) if route.host == "old.example");
        assert!(!page.items.iter().any(has_old), "{old} is there no more");
    }
    assert!(answers > 0, "the first answers");

    // A gateway that has obeyed a higher epoch than the store has given out is won back.
    second.stop().await;
    let page = ask(&fleet.bus, fleet.core().epoch() + 1_000_000).await.unwrap();
    assert!(page.epoch > epoch + 1_000_000 && fleet.store.epoch().await.unwrap() == page.epoch);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_store_the_table_that_is_known_is_told() {
    let (dir, bus) = (tempfile::tempdir().unwrap(), MemoryBus::new());
    let store = FaultyStore::new(std::sync::Arc::new(
        towpath_store::SqliteStore::open(&dir.path().join("store.db")).await.unwrap(),
    ));
    let manager =
        Manager::start(settings(dir.path()), store.clone(), std::sync::Arc::new(bus.clone())).await.unwrap();
    let known = ask(&bus, 0).await.unwrap();
    store.set_down(true);
    until("it is noticed", || !manager.core().store_is_up()).await;
    // The manager's row is written again when its API listens, which raises the epoch.
    let epoch = manager.core().epoch();
    assert_eq!(ask(&bus, epoch).await, Some(SnapshotPage { epoch, ..known }));
    manager.stop().await;
}
