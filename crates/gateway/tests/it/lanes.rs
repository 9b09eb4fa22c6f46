//! Requests stay in their lane, and are told on.

use crate::support::{Rig, World};
use serde_json::json;
use towpath_testkit::HttpApp;

struct Lanes {
    rig: Rig,
    _apps: [HttpApp; 2],
}

async fn lanes() -> Lanes {
    let apps = [HttpApp::start("base"), HttpApp::start("blue")];
    let world = World::new()
        .app("shop", json!({}))
        .instance("shop", apps[0].address())
        .instance_with("shop", apps[1].address(), json!({"lane": "blue"}))
        .app("plain", json!({}))
        .instance("plain", apps[0].address());
    Lanes { rig: Rig::start(world).await, _apps: apps }
}

#[tokio::test]
async fn the_tag_chooses_the_lane_from_every_source_and_is_told_on() {
    let lanes = lanes().await;
    let rig = &lanes.rig;
    assert_eq!(rig.get("shop.localhost", "/").json()["app"], "base");
    for (target, host, header) in [
        ("/", "shop.localhost", "towpath-lane: blue"),
        ("/", "shop.localhost", "towpath-lane: blue\r\nbaggage: a=b"),
        ("/", "shop.localhost", "towpath-lane: blue\r\nbaggage: towpath.lane=blue"),
        ("/", "shop.localhost", "Cookie: a=b; towpath_lane=blue"),
        ("/?towpath_lane=blue", "shop.localhost", "X: y"),
        ("/", "blue--shop.localhost", "X: y"),
        ("/", "shop.localhost", "baggage: a=b,towpath.lane=blue"),
    ] {
        let answer =
            rig.client().request(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{header}\r\n\r\n"));
        assert_eq!(answer.json()["app"], "blue", "{target} {host} {header}");
        assert_eq!(answer.header("towpath-lane-served"), None);
        assert_eq!(answer.seen_all("towpath-lane"), ["blue"], "{header}");
        let baggage = answer.seen_all("baggage").join(",");
        assert_eq!(baggage.matches("towpath.lane=blue").count(), 1, "{header}: {baggage}");
        assert_eq!(baggage.contains("a=b"), header.contains("baggage: a=b"), "{header}: {baggage}");
    }
}

#[tokio::test]
async fn where_the_lane_has_nobody_base_serves_and_the_response_says_so() {
    let lanes = lanes().await;
    for (host, lane) in [
        ("plain.localhost", "blue"),
        ("shop.localhost", "red"),
        ("shop.localhost", "unknown"),
        ("shop.localhost", "NOT-A-LANE"),
    ] {
        let answer = lanes
            .rig
            .client()
            .request(&format!("GET / HTTP/1.1\r\nHost: {host}\r\ntowpath-lane: {lane}\r\n\r\n"));
        assert_eq!(
            (answer.json()["app"].as_str(), answer.header("towpath-lane-served")),
            (Some("base"), Some("base")),
            "{lane}"
        );
        assert_eq!(answer.seen_all("towpath-lane"), [lane], "the tag goes on as it came");
    }
}

#[tokio::test]
async fn a_rule_of_the_route_brings_clients_into_a_lane() {
    let apps = [HttpApp::start("base"), HttpApp::start("blue")];
    let mut world = World::new().app("shop", json!({})).instance("shop", apps[0].address()).instance_with(
        "shop",
        apps[1].address(),
        json!({"lane": "blue"}),
    );
    world.items.pop();
    let route = json!({
        "kind": "route", "host": "shop.localhost", "path": "/", "app": crate::support::app_ref("shop"),
        "entry": [{"lane": "blue", "headers": [{"name": "x-beta", "value": "yes"}]}],
    });
    let rig = Rig::start(world.item(route)).await;
    let answer = rig.client().request("GET / HTTP/1.1\r\nHost: shop.localhost\r\nX-Beta: yes\r\n\r\n");
    assert_eq!(
        (&answer.json()["app"], answer.seen("towpath-lane").unwrap().as_str()),
        (&json!("blue"), "blue")
    );
    assert_eq!(rig.get("shop.localhost", "/").json()["app"], "base");
}

#[tokio::test]
async fn a_lane_in_baggage_that_is_not_believed_goes_no_further() {
    let lanes = lanes().await;
    for (more, app) in [
        ("baggage: a=b,towpath.lane=blue\r\nX-Forwarded-For: 9.9.9.9", "base"),
        ("baggage: a=b, towpath.lane = blue;x=y\r\nVia: 1.1 proxy", "base"),
        ("baggage: towpath.lane=blue, a=b\r\nForwarded: for=9.9.9.9", "base"),
        ("baggage: a=b\r\nbaggage: towpath.lane=red\r\ntowpath-lane: blue", "blue"),
    ] {
        let answer =
            lanes.rig.client().request(&format!("GET / HTTP/1.1\r\nHost: shop.localhost\r\n{more}\r\n\r\n"));
        assert_eq!(answer.json()["app"], app, "{more}");
        let baggage = answer.seen_all("baggage").join(",");
        assert!(
            baggage.contains("a=b")
                && !baggage.contains("red")
                && !(app == "base" && baggage.contains("lane")),
            "{more}: {baggage}"
        );
    }
}
