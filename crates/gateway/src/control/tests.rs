use super::state::{AnnounceOutcome, DeltaOutcome, FORGET_MS, STALE_MS, State};
use towpath_types::{Place, Revision};
use towpath_wire::cell::CellAnnounce;
use towpath_wire::gateway::{GatewayDelta, Item};

pub(super) fn items(names: &[&str]) -> Vec<Item> {
    let app = |name: &str| serde_json::json!({"org": "default", "space": "default", "app": name});
    let mut items = vec![serde_json::json!({
        "kind": "space", "space": {"org": "default", "space": "default"}, "lanes": {}, "names": ["base"],
    })];
    for name in names {
        items.push(serde_json::json!({"kind": "app", "app": app(name), "upstream": {}, "stopped": false, "lanes": ["base"]}));
        items.push(serde_json::json!({"kind": "route", "host": format!("{name}.localhost"), "path": "/", "app": app(name)}));
    }
    items.into_iter().map(|item| serde_json::from_value(item).unwrap()).collect()
}

pub(super) fn delta(epoch: u64, from: u64, to: u64, put: Vec<Item>) -> GatewayDelta {
    GatewayDelta { epoch, from: Revision(from), to: Revision(to), put, delete: Vec::new() }
}

fn announce(cell: u64, seq: u64, instances: usize) -> CellAnnounce {
    let instances: Vec<_> = (0..instances)
        .map(|n| {
            serde_json::json!({
                "instance": format!("0190a5e0-0000-7000-8000-{:012}", cell * 1000 + n as u64),
                "app": {"org": "default", "space": "default", "app": "shop"}, "lane": "base",
                "release": format!("sha256:{}", "0".repeat(64)), "port": 4000 + n, "protocol": "http1", "weight": 100,
                "state": "ready", "state_ms": 1000, "restarts": 0, "reason": "", "load": {"cpu": 0.1, "mem": 0.1, "io": 0.0},
                "memory_bytes": 0, "pid": 0,
            })
        })
        .collect();
    serde_json::from_value(serde_json::json!({
        "cell": format!("0190a5e0-0000-7000-8000-0000000f{cell:04}"), "incarnation": 1, "seq": seq, "place": {},
        "address": format!("10.0.0.{cell}"), "version": "", "driver": "process", "memory_bytes": 0, "cores": 1,
        "host": {"cpu": 0.1, "mem": 0.1, "io": 0.0}, "cordoned": false, "leaving": false, "desired": 1, "builders": [],
        "instances": instances,
    }))
    .unwrap()
}

fn endpoints(state: &State) -> usize {
    state.table().counts().endpoints
}

#[test]
fn deltas_apply_in_order_and_a_gap_is_noticed() {
    let mut state = State::new(Place::default());
    state.apply_snapshot(Revision(5), items(&["shop"]));
    assert_eq!(state.apply_delta(delta(1, 5, 6, items(&["shop", "blog"]))), DeltaOutcome::Applied);
    assert_eq!(state.apply_delta(delta(1, 4, 6, items(&[]))), DeltaOutcome::Known);
    assert_eq!(state.apply_delta(delta(1, 7, 8, items(&[]))), DeltaOutcome::Gap);
    assert_eq!(state.revision(), Revision(6));
    assert_eq!(
        state.apply_delta(delta(0, 6, 9, items(&[]))),
        DeltaOutcome::Known,
        "of an owner that was replaced"
    );
    assert_eq!(state.apply_delta(delta(2, 2, 3, items(&[]))), DeltaOutcome::Gap, "the store went back");
    state.commit(1);
    assert_eq!(state.table().counts().routes, 2);
    assert!(state.table().find(b"blog.localhost", b"/").is_some());
    state.apply_snapshot(Revision(3), items(&["blog"]));
    state.commit(2);
    assert!(state.table().find(b"shop.localhost", b"/").is_none(), "what a snapshot does not have is gone");
}

#[test]
fn a_bad_item_is_refused_by_name_and_forgiven_when_it_is_mended() {
    let mut state = State::new(Place::default());
    let mut bad = items(&["shop"]);
    if let Some(Item::Route(route)) = bad.last_mut() {
        route.host = "not a host".into();
    }
    state.apply_snapshot(Revision(1), bad);
    state.commit(1);
    assert_eq!(state.refused().len(), 1, "{:?}", state.refused());
    let key = state.refused().keys().next().unwrap().clone();
    assert_eq!(key, "route not a host/");
    state.apply_snapshot(Revision(2), items(&["shop"]));
    state.commit(2);
    assert!(state.refused().is_empty());
}

#[test]
fn an_item_that_cannot_be_read_costs_nobody_but_itself() {
    let raw = |shop: &str| {
        let page = serde_json::json!({"v": 1, "m": "gateway.snapshot_page", "b": {"revision": 2, "next": null, "items": [
            {"kind": "balloon", "height": 7},
            {"kind": "route", "host": "shop.localhost", "path": "/", "app": shop},
            {"kind": "space", "space": {"org": "default", "space": "default"}, "lanes": {}, "names": ["base"]},
            {"kind": "app", "app": {"org": "default", "space": "default", "app": "shop"}, "upstream": {}, "stopped": false,
             "lanes": ["base"]},
            {"kind": "app", "app": {"org": "default", "space": "default", "app": "blog"}, "upstream": {}, "stopped": false,
             "lanes": ["base"]},
            {"kind": "route", "host": "blog.localhost", "path": "/",
             "app": {"org": "default", "space": "default", "app": "blog"}},
        ]}});
        super::incoming::read_page(page.to_string().as_bytes()).unwrap()
    };
    let mut state = State::new(Place::default());
    state.apply_snapshot(Revision(1), items(&["shop"]));
    let page = raw("a text where a name belongs");
    state.apply_snapshot(page.stand.revision, page.items);
    state.commit(1);
    assert!(state.table().find(b"blog.localhost", b"/").is_some(), "the rest is served");
    assert!(state.table().find(b"shop.localhost", b"/").is_some(), "its older version is served");
    let refused: Vec<_> = state.refused().keys().map(String::as_str).collect();
    assert_eq!(refused, ["item of kind \"balloon\"", "route shop.localhost/"]);

    let delta = serde_json::json!({"v": 1, "m": "gateway.delta", "b": {"epoch": 1, "from": 2, "to": 3,
        "put": [{"kind": "app", "app": {"org": "default", "space": "default", "app": "shop"}, "upstream": 5},
                {"kind": "route", "host": "new.localhost", "path": "/",
                 "app": {"org": "default", "space": "default", "app": "shop"}}],
        "delete": [{"kind": "balloon", "key": 7}, {"kind": "route", "key": "blog.localhost/"}]}});
    let delta = super::incoming::read_delta(delta.to_string().as_bytes()).unwrap();
    assert_eq!(state.apply_delta(delta), DeltaOutcome::Applied);
    state.commit(2);
    assert!(state.table().find(b"new.localhost", b"/").is_some());
    assert!(state.table().find(b"blog.localhost", b"/").is_none());
    assert!(state.refused().contains_key("app default/default/shop"), "{:?}", state.refused());
    state.apply_snapshot(Revision(4), items(&["shop"]));
    assert!(state.refused().is_empty(), "{:?}", state.refused());
}

#[test]
fn a_silent_cell_is_stale_then_gone_but_silence_of_all_is_not() {
    let mut state = State::new(Place::default());
    state.apply_snapshot(Revision(1), items(&["shop"]));
    for cell in [1, 2] {
        assert_eq!(state.apply_announce(announce(cell, 1, 2), 0), AnnounceOutcome::Changed);
    }
    state.commit(1);
    assert_eq!(endpoints(&state), 4);
    state.expire(FORGET_MS * 2, Some(0), None);
    assert!(!state.commit(2), "all are silent at once");
    let now = FORGET_MS * 2;
    assert_eq!(state.apply_announce(announce(1, 2, 2), now), AnnounceOutcome::Refreshed);
    state.expire(now, None, None);
    assert!(!state.commit(3), "the bus is down");
    state.expire(now, Some(now - STALE_MS + 1), None);
    assert!(!state.commit(4), "the bus came back just now");
    state.expire(now, Some(now - STALE_MS), None);
    assert!(state.commit(5), "stale");
    assert_eq!(endpoints(&state), 4);
    state.apply_announce(announce(1, 3, 2), now + FORGET_MS);
    state.expire(now + FORGET_MS, Some(0), None);
    assert!(state.commit(6));
    assert_eq!(endpoints(&state), 2);
    assert_eq!(state.heard().len(), 1);
}

#[test]
fn a_cell_that_is_alone_dies_too_as_long_as_managers_speak() {
    let mut state = State::new(Place::default());
    state.apply_snapshot(Revision(1), items(&["shop"]));
    state.apply_announce(announce(1, 1, 2), 0);
    state.commit(1);
    assert!(!state.expire(STALE_MS, Some(0), Some(0)), "managers are silent too: it is the bus");
    assert!(state.expire(STALE_MS, Some(0), Some(STALE_MS - 1)), "stale");
    assert!(!state.expire(STALE_MS + 1, Some(0), Some(STALE_MS)), "once");
    assert!(state.expire(FORGET_MS, Some(0), Some(FORGET_MS)), "forgotten");
    state.commit(2);
    assert_eq!(endpoints(&state), 0);
}

#[test]
fn loads_alone_are_no_change() {
    let mut state = State::new(Place::default());
    state.apply_snapshot(Revision(1), items(&["shop"]));
    assert_eq!(state.apply_announce(announce(1, 1, 2), 0), AnnounceOutcome::Changed);
    let mut loaded = announce(1, 2, 2);
    loaded.host.cpu = 0.9;
    loaded.instances[1].memory_bytes = 77;
    assert_eq!(state.apply_announce(loaded, 0), AnnounceOutcome::Refreshed);
    assert_eq!(state.heard().values().next().unwrap().seq, 2);
    let mut draining = announce(1, 3, 2);
    draining.instances[0].state = towpath_wire::cell::InstanceState::Draining;
    assert_eq!(state.apply_announce(draining, 0), AnnounceOutcome::Changed);
    assert_eq!(state.apply_announce(announce(1, 4, 1), 0), AnnounceOutcome::Changed);
    let mut restarted = announce(1, 1, 1);
    restarted.incarnation.0 = 2;
    assert_eq!(state.apply_announce(restarted, 0), AnnounceOutcome::Changed);
}

#[test]
fn a_refused_endpoint_is_forgiven_with_the_next_announcement() {
    let mut state = State::new(Place::default());
    state.apply_snapshot(Revision(1), items(&["shop"]));
    let mut twice = announce(1, 1, 1);
    twice.instances.push(twice.instances[0].clone());
    state.apply_announce(twice, 0);
    state.commit(1);
    assert_eq!(state.refused().len(), 1);
    state.apply_announce(announce(1, 2, 1), 0);
    state.commit(2);
    assert!(state.refused().is_empty(), "{:?}", state.refused());
}

#[test]
fn a_lane_header_that_never_arrives_is_refused() {
    let space = |header: &str| {
        let mut items = items(&["shop"]);
        if let Some(Item::Space { lanes, .. }) = items.first_mut() {
            lanes.header = header.into();
        }
        items
    };
    let mut state = State::new(Place::default());
    for header in ["Connection", "X-Request-Id", "baggage", "x_forwarded_for", "content-length", "no header"]
    {
        state.apply_snapshot(Revision(1), space(header));
        state.commit(1);
        let why = state.refused().get("space default/default");
        assert!(why.is_some_and(|why| why.contains("lanes.header")), "{header}: {why:?}");
    }
    for header in ["x-lane", ""] {
        state.apply_snapshot(Revision(2), space(header));
        assert!(state.refused().is_empty(), "{header}: {:?}", state.refused());
    }
}

#[test]
fn old_announcements_are_ignored_and_leaving_cells_forgotten_at_once() {
    let mut state = State::new(Place::default());
    state.apply_snapshot(Revision(1), items(&["shop"]));
    assert_eq!(state.apply_announce(announce(1, 5, 2), 0), AnnounceOutcome::Changed);
    assert_eq!(state.apply_announce(announce(1, 5, 0), 0), AnnounceOutcome::Old);
    assert_eq!(state.apply_announce(announce(1, 4, 0), 0), AnnounceOutcome::Old);
    let mut restarted = announce(1, 1, 1);
    restarted.incarnation.0 = 2;
    assert_eq!(state.apply_announce(restarted.clone(), 0), AnnounceOutcome::Changed);
    state.commit(1);
    assert_eq!(endpoints(&state), 1);
    assert_eq!(state.inside(), ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
    restarted.seq = 2;
    restarted.leaving = true;
    assert_eq!(state.apply_announce(restarted, 0), AnnounceOutcome::Changed);
    state.commit(2);
    assert_eq!(endpoints(&state), 0);
    assert!(state.heard().is_empty());
}

#[test]
fn a_snapshot_file_brings_everything_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = State::new(Place::default());
    state.apply_snapshot(Revision(7), items(&["shop"]));
    state.apply_announce(announce(1, 5, 2), 0);
    state.commit(1);
    state.snapshot().write(dir.path()).unwrap();
    let again = super::load_state(&crate::GatewaySettings::in_dir(dir.path()));
    assert_eq!(again.revision(), Revision(7));
    assert_eq!(endpoints(&again), 2);
    std::fs::write(dir.path().join("snapshot.json"), b"{\"version\":1,").unwrap();
    let damaged = super::load_state(&crate::GatewaySettings::in_dir(dir.path()));
    assert_eq!(damaged.revision(), Revision(0), "a damaged file does not keep a gateway from starting");
    let stored = serde_json::json!({"version": 1, "revision": 3, "cells": [7, announce(1, 5, 2)],
        "items": [{"kind": "balloon"}, items(&[])[0], items(&["shop"])[1]]});
    std::fs::write(dir.path().join("snapshot.json"), stored.to_string()).unwrap();
    let partly = super::load_state(&crate::GatewaySettings::in_dir(dir.path()));
    assert_eq!((partly.revision(), endpoints(&partly)), (Revision(3), 2), "what can be read of it is used");
}

#[test]
fn a_cell_of_higher_priority_is_asked_first_and_weights_are_its_own() {
    let mut state = State::new(Place::default());
    state.apply_snapshot(Revision(1), items(&["shop"]));
    let mut usual = announce(1, 1, 1);
    usual.instances[0].weight = 250;
    let mut first = announce(2, 1, 1);
    first.priority = 5;
    let of = |cell: &CellAnnounce| {
        let endpoint = super::state::endpoint(cell, &cell.instances[0]).unwrap();
        (endpoint.priority, endpoint.weight)
    };
    assert_eq!((of(&usual), of(&first)), ((0, 250), (5, 100)));
    assert_eq!(state.apply_announce(first.clone(), 0), AnnounceOutcome::Changed);
    first.seq += 1;
    first.priority = 0;
    assert_eq!(state.apply_announce(first, 0), AnnounceOutcome::Changed);
}
