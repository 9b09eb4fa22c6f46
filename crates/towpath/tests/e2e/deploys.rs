//! Changes under constant load lose nothing.

use crate::apps;
use crate::load::Load;
use crate::platform::Up;
use nix::sys::signal::Signal;

#[test]
fn changes_under_load_lose_no_request() {
    let up = Up::start();
    up.push(&apps::python(up.dir.path(), "shop", "one"), &["--instances", "2"]).ok();
    let load = Load::start(up.role.address("gateway"), "shop.localhost", 6);

    up.push(&apps::python(up.dir.path(), "shop", "two"), &[]).ok();
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["version"], "two");
    up.towpath(&["scale", "shop", "4"]).ok();
    up.towpath(&["restart", "shop"]).ok();
    up.towpath(&["scale", "shop", "1"]).ok();
    up.towpath(&["env", "set", "shop", "LEVEL=x"]).ok();
    let failed = up.push(&apps::crashing(up.dir.path(), "shop"), &[]);
    assert_eq!(failed.code, 1, "{failed:#?}");
    up.towpath(&["rollback", "shop"]).ok();

    let (sent, failures) = load.end();
    assert!(sent > 200, "{sent} requests are no load");
    let shown: Vec<&String> = failures.iter().take(3).chain(failures.iter().rev().take(3)).collect();
    assert!(failures.is_empty(), "{} of {sent} failed: {shown:#?}", failures.len());
}

#[test]
fn ending_lets_requests_finish() {
    let mut up = Up::start();
    up.push(&apps::python(up.dir.path(), "shop", "one"), &[]).ok();
    let address = up.role.address("gateway");
    let slow =
        std::thread::spawn(move || crate::client::try_get(address, "shop.localhost", "/slow/1500", &[]));
    // The request is under way once the gateway counts it.
    towpath_testkit::wait::block_until(std::time::Duration::from_secs(5), "the request is in flight", || {
        let found = up.towpath(&["explain", "http://shop.localhost/", "-o", "json"]).ok().json();
        (found[0]["endpoints"][0]["in_flight"].as_u64() == Some(1)).then_some(())
    });
    assert_eq!(up.role.terminate(), 0);
    let answer = slow.join().unwrap().unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut up = Up::start();
    up.push(&apps::python(up.dir.path(), "shop", "one"), &[]).ok();
    let address = up.role.address("gateway");
    std::thread::spawn(move || crate::client::try_get(address, "shop.localhost", "/slow/20000", &[]));
    towpath_testkit::wait::block_until(std::time::Duration::from_secs(5), "the request is in flight", || {
        let found = up.towpath(&["explain", "http://shop.localhost/", "-o", "json"]).ok().json();
        (found[0]["endpoints"][0]["in_flight"].as_u64() == Some(1)).then_some(())
    });
    up.role.process.signal(Signal::SIGTERM);
    let log = up.role.log.clone();
    towpath_testkit::wait::block_until(std::time::Duration::from_secs(5), "the end begins", || {
        std::fs::read_to_string(&log).unwrap().contains("a second signal ends at once").then_some(())
    });
    up.role.process.signal(Signal::SIGINT);
    assert_eq!(up.role.process.wait(std::time::Duration::from_secs(5)).code(), Some(130));
}
