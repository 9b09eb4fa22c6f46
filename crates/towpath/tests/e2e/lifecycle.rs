//! Scale, env, restart, rollback, stop, delete; kill and restart of the platform.

use crate::apps;
use crate::platform::Up;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

fn pids(instances: &[Value]) -> BTreeSet<u64> {
    instances.iter().filter_map(|instance| instance["pid"].as_u64()).filter(|pid| *pid != 0).collect()
}

/// Waits until a host answers 200: "within seconds" after a start.
fn serves_again(up: &Up, host: &str) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match crate::client::try_get(up.role.address("gateway"), host, "/", &[]) {
            Ok(answer) if answer.status == 200 => return,
            other => assert!(Instant::now() < end, "{host}: {other:?}"),
        }
    }
}

fn ready(instances: &[Value]) -> usize {
    instances.iter().filter(|instance| instance["state"] == "ready").count()
}

#[test]
fn scale_env_restart_rollback_stop_and_delete() {
    let up = Up::start();
    let one = apps::python(up.dir.path(), "shop", "one");
    let two = apps::python(up.dir.path(), "shop", "two");
    up.push(&one, &[]).ok();

    let scaled = up.towpath(&["scale", "shop", "3"]).ok();
    assert!(scaled.stdout.contains("3/3"), "{scaled:#?}");
    assert_eq!(ready(&up.instances("shop")), 3);
    let url = "http://shop.localhost/";
    let explained = up.towpath(&["explain", url, "-o", "json"]).ok().json();
    let eligible = explained[0]["endpoints"].as_array().unwrap().iter().filter(|one| !one["score"].is_null());
    assert_eq!(eligible.count(), 3, "{explained:#}");

    let before = pids(&up.instances("shop"));
    up.towpath(&["restart", "shop"]).ok();
    assert_eq!(up.get("shop.localhost", "/", &[]).status, 200);
    let end = Instant::now() + Duration::from_secs(20);
    while !pids(&up.instances("shop")).is_disjoint(&before) {
        assert!(Instant::now() < end, "restart replaces every process");
    }

    up.towpath(&["env", "set", "shop", "LEVEL=low"]).ok();
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["level"], "low");
    let hidden = up.towpath(&["env", "list", "shop"]).ok().stdout;
    assert!(hidden.contains("LEVEL") && !hidden.contains("low"), "{hidden}");
    assert!(up.towpath(&["env", "list", "shop", "--show"]).ok().stdout.contains("low"));
    up.towpath(&["env", "unset", "shop", "LEVEL"]).ok();
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["level"], Value::Null);

    up.push(&two, &[]).ok();
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["version"], "two");
    up.towpath(&["rollback", "shop"]).ok();
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["version"], "one");
    assert_eq!(up.towpath(&["releases", "shop", "-o", "json"]).ok().json().as_array().unwrap().len(), 2);

    up.towpath(&["stop", "shop"]).ok();
    let stopped = up.get("shop.localhost", "/", &[("accept", "application/json")]);
    assert_eq!((stopped.status, stopped.json()["code"].as_str()), (503, Some("app_stopped")), "{stopped:?}");
    up.towpath(&["start", "shop"]).ok();
    assert_eq!(up.get("shop.localhost", "/", &[]).status, 200);

    assert_eq!(up.towpath(&["delete", "shop"]).code, 2, "without a terminal it has to be said");
    up.towpath(&["delete", "shop", "--yes"]).ok();
    assert_eq!(up.get("shop.localhost", "/", &[]).status, 404);
    assert_eq!(up.towpath(&["app", "shop"]).code, 4);
}

#[test]
fn routes_lanes_tokens_and_the_platform_are_shown_and_changed() {
    let up = Up::start();
    let app = apps::python(up.dir.path(), "shop", "one");
    up.push(&app, &[]).ok();
    up.towpath(&["routes", "add", "shop", "shop.example.com/api", "--strip-path"]).ok();
    assert_eq!(up.get("shop.example.com", "/api/x", &[]).json()["path"], "/x");
    let routes = up.towpath(&["routes", "list"]).ok().stdout;
    assert!(routes.contains("shop.example.com") && routes.contains("automatic"), "{routes}");
    up.towpath(&["routes", "remove", "shop.example.com/api"]).ok();
    assert_eq!(up.get("shop.example.com", "/api/x", &[]).status, 404);

    up.towpath(&["lanes", "add", "blue"]).ok();
    assert!(up.towpath(&["lanes", "list"]).ok().stdout.contains("blue"));
    up.towpath(&["lanes", "remove", "blue"]).ok();

    let token = up.towpath(&["token", "create", "ci", "--role", "viewer"]).ok().stdout;
    let token = token.trim();
    up.towpath(&["apps", "--token", token]).ok();
    assert_eq!(up.towpath(&["scale", "shop", "2", "--token", token]).code, 5);
    assert!(up.towpath(&["token", "list"]).ok().stdout.contains("viewer"));
    up.towpath(&["token", "revoke", "ci"]).ok();
    assert_eq!(up.towpath(&["apps", "--token", token]).code, 5);

    for args in [&["status"][..], &["cells"], &["gateways"], &["instances"], &["top"], &["version"]] {
        up.towpath(args).ok();
        let mut json = args.to_vec();
        json.extend(["-o", "json"]);
        up.towpath(&json).ok().json();
    }
}

#[test]
fn after_a_kill_every_app_is_back_and_its_processes_never_ended() {
    let mut up = Up::start();
    let app = apps::python(up.dir.path(), "shop", "one");
    up.push(&app, &["--instances", "2", "--env", "LEVEL=kept"]).ok();
    up.push(&apps::python(up.dir.path(), "other", "one"), &[]).ok();
    let before = pids(&up.instances("shop"));
    assert_eq!(before.len(), 2);

    up.role.process.kill();
    let killed = Instant::now();
    up.again();
    serves_again(&up, "shop.localhost");
    serves_again(&up, "other.localhost");
    assert!(killed.elapsed() < Duration::from_secs(15), "{:?}", killed.elapsed());
    let end = Instant::now() + Duration::from_secs(10);
    while ready(&up.instances("shop")) != 2 {
        assert!(Instant::now() < end, "{:#?}", up.instances("shop"));
    }
    assert_eq!(pids(&up.instances("shop")), before, "instances were adopted");
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["level"], "kept");
    assert_eq!(up.get("other.localhost", "/", &[]).json()["app"], "other");
    up.towpath(&["scale", "shop", "3"]).ok();
    assert_eq!(up.role.terminate(), 0);
    let alive = before.iter().filter(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists()).count();
    assert_eq!(alive, 0, "a clean end stops the instances");
    up.again();
    serves_again(&up, "shop.localhost");
}
