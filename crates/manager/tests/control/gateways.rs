//! The routing table's way to gateways.

use crate::fleet::{Fleet, SOON, app, until};
use serde_json::json;
use towpath_manager::core::keys;
use towpath_store::{Expect, Write};
use towpath_types::spec::RouteSpec;
use towpath_types::{LaneName, SpaceRef};
use towpath_wire::gateway::{Item, ItemKey};

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
