use super::*;
use crate::core::keys::{app_key, group_key, lane_key, org_key, route_key, space_key};
use serde_json::json;
use towpath_types::spec::{Assignment, InstanceSettings, InstanceVersion, Limits, Wanted};
use towpath_types::{ByteSize, Generation, SpaceRef};

fn app(name: &str) -> AppRef {
    AppRef::new(&SpaceRef::first(), name.parse().unwrap())
}

fn record(key: Key, revision: u64, spec: serde_json::Value, status: serde_json::Value) -> Record {
    Record {
        id: "1".into(),
        key,
        generation: Generation(1),
        revision: Revision(revision),
        created_ms: 0,
        updated_ms: 0,
        spec,
        status,
    }
}

fn put(key: Key, revision: u64, spec: serde_json::Value, status: serde_json::Value) -> Change {
    let record = record(key.clone(), revision, spec, status);
    Change { revision: Revision(revision), key, record: Some(record) }
}

fn delete(key: Key, revision: u64) -> Change {
    Change { revision: Revision(revision), key, record: None }
}

fn group_spec(name: &str, lane: &str, stopped: bool) -> serde_json::Value {
    let release = Digest::from_bytes([1; 32]);
    json!({"app": name, "lane": lane, "count": 1, "release": release, "stopped": stopped})
}

fn base() -> LaneName {
    LaneName::base()
}

fn instance(n: u8) -> InstanceId {
    InstanceId::mint(1, [n; 10])
}

fn cell(n: u8) -> CellId {
    CellId::mint(1, [n; 10])
}

/// A status with these instances on these cells, each promised 100 MiB.
fn status(instances: &[(u8, u8)]) -> serde_json::Value {
    let digest = Digest::from_bytes([1; 32]);
    let version = InstanceVersion { release: digest, settings: digest };
    let limits = Limits { memory: Some(ByteSize::mib(100)), ..Limits::default() };
    let assignment = |(n, at): &(u8, u8)| Assignment {
        instance: instance(*n),
        cell: cell(*at),
        ordinal: (*n).into(),
        version,
        wanted: Wanted::Run,
        since_ms: 0,
        drain_ms: None,
    };
    json!(GroupStatus {
        assignments: instances.iter().map(assignment).collect(),
        settings: [(digest, InstanceSettings { limits, ..Default::default() })].into(),
        ..GroupStatus::default()
    })
}

#[test]
fn the_instances_of_a_cell_follow_the_groups_statuses() {
    let cache = Cache::default();
    cache.load(vec![], Revision(1));
    let key = group_key(&app("shop"), &base(), "");
    cache.apply(vec![put(key.clone(), 2, group_spec("shop", "base", false), status(&[(1, 1), (2, 2)]))]);
    assert_eq!(cache.cell_instances(cell(1), None, 10).1.len(), 1);
    assert_eq!(cache.promised_memory()[&cell(1)], 100 << 20);
    assert_eq!(cache.cell_changed(cell(1)), Some(Revision(2)));
    assert_eq!(cache.group_of(instance(2)).unwrap().app, app("shop"));
    cache.apply(vec![put(key.clone(), 3, group_spec("shop", "base", false), status(&[(2, 2), (3, 2)]))]);
    assert_eq!(cache.cell_instances(cell(1), None, 10).0, Revision(3), "a loss is a change too");
    assert_eq!(cache.promised_memory()[&cell(1)], 0);
    assert_eq!(cache.promised_memory()[&cell(2)], 200 << 20);
    let first = cache.cell_instances(cell(2), None, 1).1;
    assert_eq!(first.len(), 1);
    assert_eq!(cache.take_changed_cells(), [cell(1), cell(2)].into());
    assert!(cache.take_changed_cells().is_empty());
    assert_eq!(cache.promises_on(cell(2)), (Default::default(), 200 << 20, 2));
    assert_eq!(cache.cell_instances(cell(2), Some(first[0].instance), 10).1.len(), 1);
    cache.apply(vec![delete(key, 4)]);
    assert!(cache.cell_instances(cell(2), None, 10).1.is_empty());
    assert_eq!(cache.group_of(instance(2)), None);
    assert_eq!(cache.revision(), Revision(4));
    assert_eq!(cache.cell_instances(cell(9), None, 10).0, Revision(1), "unknown cells: since it was loaded");
}

#[test]
fn older_news_and_repetitions_change_nothing() {
    let cache = Cache::default();
    let key = org_key(&"o".parse().unwrap());
    cache.load(vec![record(key.clone(), 5, json!({"n": 5}), json!({}))], Revision(3));
    let step = cache.apply(vec![put(key.clone(), 4, json!({"n": 4}), json!({}))]);
    assert_eq!((step.keys.len(), step.to), (0, Revision(4)));
    let step = cache.apply(vec![put(key.clone(), 5, json!({"n": 5}), json!({}))]);
    assert_eq!((step.keys.len(), step.to), (0, Revision(5)));
    assert_eq!(cache.get(&key).unwrap().spec["n"], 5);
    // A deletion that the listing has overtaken: the resource was made anew since.
    cache.apply(vec![delete(key.clone(), 4)]);
    assert!(cache.get(&key).is_some());
    cache.apply(vec![delete(key.clone(), 6)]);
    assert!(cache.get(&key).is_none());
}

#[test]
fn the_groups_of_an_app_are_its_own_alone() {
    let cache = Cache::default();
    let put_group = |name: &str, lane: &str, revision| {
        let lane_name: LaneName = lane.parse().unwrap();
        put(group_key(&app(name), &lane_name, ""), revision, group_spec(name, lane, false), json!({}))
    };
    cache.apply(vec![
        put_group("shop", "base", 1),
        put_group("shop", "0", 2),
        put_group("shop-2", "base", 3),
        put_group("sho", "z", 4),
    ]);
    let lanes: Vec<String> =
        cache.groups_of(&app("shop")).iter().map(|(name, _)| name.lane.to_string()).collect();
    assert_eq!(lanes, ["0", "base"]);
    assert_eq!(cache.groups().len(), 4);
}

#[test]
fn a_group_that_cannot_be_read_is_noticed_until_it_can() {
    let cache = Cache::default();
    let key = group_key(&app("shop"), &base(), "");
    assert!(cache.all_groups_readable());
    cache.apply(vec![put(key.clone(), 1, json!({"from": "the future"}), json!({}))]);
    assert!(!cache.all_groups_readable());
    cache.apply(vec![put(key, 2, group_spec("shop", "base", false), json!({"field": "of the future"}))]);
    assert!(cache.all_groups_readable(), "statuses may have more fields");
}

#[test]
fn routing_items_are_made_of_several_resources_and_change_only_when_they_differ() {
    let cache = Cache::default();
    let space = SpaceRef::first();
    let shop = app("shop");
    let key = group_key(&shop, &base(), "");
    let step = cache.apply(vec![
        put(space_key(&space), 1, json!({}), json!({})),
        put(lane_key(&space, &base()), 1, json!({"kind": "base"}), json!({})),
        put(lane_key(&space, &"laptop".parse().unwrap()), 1, json!({"kind": "local"}), json!({})),
        put(app_key(&shop), 2, json!({}), json!({})),
        put(key.clone(), 3, group_spec("shop", "base", false), json!({})),
    ]);
    assert_eq!(step.items.len(), 2);
    let items = cache.routing_items(None, 10);
    let [(_, first), (_, second)] = items.as_slice() else { panic!("{items:?}") };
    assert!(matches!(&**first, Item::App { stopped: false, lanes, .. } if *lanes == [base()]));
    let local: LaneName = "laptop".parse().unwrap();
    assert!(matches!(&**second, Item::Space { names, local: l, .. } if names.len() == 2 && *l == [local]));
    let step = cache.apply(vec![put(key.clone(), 4, group_spec("shop", "base", false), status(&[(1, 1)]))]);
    assert!(step.items.is_empty(), "a status is no routing");
    let step = cache.apply(vec![put(key.clone(), 5, group_spec("shop", "base", true), json!({}))]);
    assert!(matches!(step.items[0].1.as_deref(), Some(Item::App { stopped: true, base_stopped: true, .. })));
    // Another lane that runs is no reason to promise requests of base that somebody is starting.
    let blue = group_key(&shop, &"blue".parse().unwrap(), "");
    let step = cache.apply(vec![put(blue, 5, group_spec("shop", "blue", false), json!({}))]);
    assert!(matches!(step.items[0].1.as_deref(), Some(Item::App { stopped: false, base_stopped: true, .. })));
    // Another manager tells: what only gateways need is made when somebody asks.
    let other = app("other");
    let step = cache.apply_for(vec![put(app_key(&other), 5, json!({}), json!({}))], false);
    assert!(step.partial && step.items.is_empty());
    assert_eq!(cache.app(&other).map(|app| app.record.revision), Some(Revision(5)));
    assert!(cache.routing_items(None, 10).iter().any(|(key, _)| *key == ItemKey::App(other.clone())));
    cache.apply_for(vec![delete(app_key(&other), 6)], false);
    let step =
        cache.apply_for(vec![put(lane_key(&space, &"l".parse().unwrap()), 6, json!({}), json!({}))], true);
    assert!(!step.partial && step.items.contains(&(ItemKey::App(other), None)), "what waited is told, too");
    let step = cache.apply(vec![delete(key, 6), delete(app_key(&shop), 6)]);
    assert_eq!(step.items, vec![(ItemKey::App(shop), None)]);
    let route = json!({"host": "h", "app": {"org": "default", "space": "default", "app": "shop"}});
    let step = cache.apply(vec![put(route_key("h", "/"), 7, route, json!({}))]);
    assert_eq!(step.items.len(), 1);
    assert_eq!(cache.routes_of(&app("shop")), [step.items[0].1.clone().unwrap()]);
    let route = json!({"host": "h", "app": {"org": "default", "space": "default", "app": "other"}});
    cache.apply(vec![put(route_key("h", "/"), 8, route, json!({}))]);
    assert_eq!((cache.routes_of(&app("shop")), cache.routes_of(&app("other")).len()), (vec![], 1));
    cache.apply(vec![delete(route_key("h", "/"), 9)]);
    assert_eq!(cache.routes_of(&app("other")), []);
}
