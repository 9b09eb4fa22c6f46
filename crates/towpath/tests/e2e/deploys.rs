//! Changes under constant load lose nothing.

use crate::apps;
use crate::load::Load;
use crate::platform::Up;
use crate::streams::Streams;
use nix::sys::signal::Signal;
use std::time::Duration;
use towpath_testkit::wait::block_until;

/// A platform with an app under load.
fn loaded(instances: &str) -> (Up, Load) {
    let up = Up::start();
    up.push(&apps::python(up.dir.path(), "shop", "one"), &["--instances", instances]).ok();
    let load = Load::start(up.role.address("gateway"), "shop.localhost", 2);
    load.goes_on(5);
    (up, load)
}

#[test]
fn a_rolling_update_and_a_rollback_lose_no_request() {
    let (up, load) = loaded("2");
    up.push(&apps::python(up.dir.path(), "shop", "two"), &[]).ok();
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["version"], "two");
    load.goes_on(5);
    up.towpath(&["rollback", "shop"]).ok();
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["version"], "one");
    load.goes_on(5);
    load.lost_nothing();
}

#[test]
fn scaling_up_and_down_loses_no_request() {
    let (up, load) = loaded("1");
    for count in ["4", "2", "3", "1"] {
        up.towpath(&["scale", "shop", count]).ok();
        load.goes_on(5);
    }
    load.lost_nothing();
}

#[test]
fn a_restart_and_changes_of_settings_lose_no_request() {
    let (up, load) = loaded("2");
    up.towpath(&["restart", "shop"]).ok();
    load.goes_on(5);
    up.towpath(&["env", "set", "shop", "LEVEL=x"]).ok();
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["level"], "x");
    load.goes_on(5);
    up.towpath(&["scale", "shop", "--memory", "300M"]).ok();
    load.goes_on(5);
    load.lost_nothing();
}

#[test]
fn a_release_that_fails_loses_no_request() {
    let (up, load) = loaded("2");
    for bad in [apps::crashing(up.dir.path(), "shop"), apps::deaf(up.dir.path(), "shop")] {
        let failed = up.push(&bad, &[]);
        assert_eq!(failed.code, 1, "{failed:#?}");
        load.goes_on(5);
    }
    up.towpath(&["rollback", "shop"]).ok();
    load.goes_on(5);
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["version"], "one");
    load.lost_nothing();
}

#[test]
fn a_lane_that_comes_and_goes_loses_no_request() {
    let (up, load) = loaded("1");
    up.push(&apps::python(up.dir.path(), "shop", "blue"), &["--lane", "blue"]).ok();
    let blue = Load::start(up.role.address("gateway"), "blue--shop.localhost", 1);
    blue.goes_on(5);
    // Who asks for the lane while it goes gets it or base.
    up.towpath(&["delete", "shop", "--lane", "blue", "--yes"]).ok();
    blue.goes_on(5);
    load.goes_on(5);
    blue.lost_nothing();
    load.lost_nothing();
}

/// A request that an app holds until it is told to let go; it is under way once the gateway counts it.
fn held(up: &Up) -> std::thread::JoinHandle<std::io::Result<crate::client::Response>> {
    let address = up.role.address("gateway");
    let held = std::thread::spawn(move || crate::client::try_get(address, "shop.localhost", "/hold", &[]));
    are_in_flight(up, 1);
    held
}

fn are_in_flight(up: &Up, requests: u64) {
    block_until(Duration::from_secs(60), "the requests are in flight", || {
        let found = up.towpath(&["explain", "http://shop.localhost/", "-o", "json"]).ok().json();
        (found[0]["endpoints"][0]["in_flight"].as_u64() == Some(requests)).then_some(())
    });
}

/// Asks the platform to end, and returns when it says that it does.
fn begins_to_end(up: &Up) {
    up.role.process.signal(Signal::SIGTERM);
    block_until(Duration::from_secs(60), "the end begins", || {
        let log = std::fs::read_to_string(&up.role.log).unwrap();
        log.contains("a second signal ends at once").then_some(())
    });
}

#[test]
fn ending_lets_requests_finish() {
    let mut up = Up::start();
    up.push(&apps::python(up.dir.path(), "shop", "one"), &[]).ok();
    let instance = up.instances("shop")[0]["address"].as_str().unwrap().parse().unwrap();
    let held = held(&up);
    begins_to_end(&up);
    assert!(up.role.process.exited().is_none(), "it waits for the request");
    assert_eq!(crate::client::get(instance, "shop.localhost", "/let-go", &[]).status, 200);
    let answer = held.join().unwrap().unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(up.role.process.wait(Duration::from_secs(60)).code(), Some(0));
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut up = Up::start();
    up.push(&apps::python(up.dir.path(), "shop", "one"), &[]).ok();
    let _held = held(&up);
    begins_to_end(&up);
    up.role.process.signal(Signal::SIGINT);
    assert_eq!(up.role.process.wait(Duration::from_secs(60)).code(), Some(130));
}

#[test]
fn ending_lets_the_streams_of_a_connection_finish_and_takes_no_new_ones() {
    const STREAMS: usize = 8;
    let mut up = Up::start();
    up.push(&apps::python(up.dir.path(), "shop", "one"), &[]).ok();
    let instance = up.instances("shop")[0]["address"].as_str().unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let streams = Streams::new(up.role.address("gateway"), "shop.localhost");
    let held: Vec<_> = (0..STREAMS)
        .map(|_| {
            let streams = streams.clone();
            runtime.spawn(async move { streams.send(streams.get("/hold")).await })
        })
        .collect();
    are_in_flight(&up, STREAMS as u64);
    begins_to_end(&up);
    block_until(Duration::from_secs(60), "the goodbye", || {
        (!runtime.block_on(streams.is_taking())).then_some(())
    });
    assert!(held.iter().all(|one| !one.is_finished()), "what is under way goes on");
    assert_eq!(crate::client::get(instance, "shop.localhost", "/let-go", &[]).status, 200);
    for one in held {
        assert_eq!(runtime.block_on(one).unwrap().unwrap().0, 200);
    }
    assert_eq!(up.role.process.wait(Duration::from_secs(60)).code(), Some(0));
}
