//! Scale, env, restart, rollback, stop, delete; kill and restart of the platform.

use crate::apps;
use crate::platform::{Up, processes_below};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use towpath_testkit::wait::block_until;

fn pids(instances: &[Value]) -> BTreeSet<u64> {
    instances.iter().filter_map(|instance| instance["pid"].as_u64()).filter(|pid| *pid != 0).collect()
}

/// No processes.
const NONE: [u32; 0] = [];
/// Longest wait for something to come about, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a host answers 200.
fn serves_again(up: &Up, host: &str) {
    block_until(PATIENCE, &format!("{host} is served again"), || {
        let answer = crate::client::try_get(up.role.address("gateway"), host, "/", &[]);
        answer.is_ok_and(|answer| answer.status == 200).then_some(())
    });
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
    block_until(PATIENCE, "every process replaced", || {
        pids(&up.instances("shop")).is_disjoint(&before).then_some(())
    });

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
    let blue = apps::python(up.dir.path(), "shop", "blue");
    up.push(&blue, &["--lane", "blue", "--instances", "1", "--env", "LEVEL=deep"]).ok();
    up.push(&apps::python(up.dir.path(), "other", "one"), &[]).ok();
    up.push(&apps::python(up.dir.path(), "idle", "one"), &[]).ok();
    up.towpath(&["stop", "idle"]).ok();
    let before = pids(&up.instances("shop"));
    assert_eq!(before.len(), 3);

    up.role.process.kill();
    up.again();
    serves_again(&up, "shop.localhost");
    serves_again(&up, "other.localhost");
    block_until(PATIENCE, "three instances of the shop", || {
        (ready(&up.instances("shop")) == 3).then_some(())
    });
    assert_eq!(pids(&up.instances("shop")), before, "instances were adopted");
    for (host, version, level) in
        [("shop.localhost", "one", "kept"), ("blue--shop.localhost", "blue", "deep")]
    {
        let answer = up.get(host, "/", &[]).json();
        assert_eq!((&answer["version"], &answer["level"]), (&json!(version), &json!(level)), "{answer}");
    }
    assert_eq!(up.get("other.localhost", "/", &[]).json()["app"], "other");
    assert_eq!(up.get("idle.localhost", "/", &[]).status, 503, "what was stopped stays so");
    up.towpath(&["scale", "shop", "3"]).ok();
    up.towpath(&["start", "idle"]).ok();
    assert_eq!(up.role.terminate(), 0);
    assert_eq!(processes_below(&up.role.data), NONE, "a clean end stops all instances");
    up.again();
    serves_again(&up, "shop.localhost");
    serves_again(&up, "idle.localhost");
    block_until(PATIENCE, "the count of the last scaling", || {
        (ready(&up.instances("shop")) == 4).then_some(())
    });
}

#[test]
fn a_kill_in_the_middle_of_a_deploy_leaves_the_asked_for_count_and_no_orphan() {
    let mut up = Up::start();
    up.push(&apps::python(up.dir.path(), "shop", "one"), &["--instances", "2", "--env", "LEVEL=kept"]).ok();
    let two = apps::python(up.dir.path(), "shop", "two");
    for step in ["push", "scale"] {
        match step {
            "push" => up.push(&two, &["--detach"]).ok(),
            _ => up.towpath(&["scale", "shop", "3", "--detach"]).ok(),
        };
        up.role.process.kill();
        up.again();
        serves_again(&up, "shop.localhost");
    }
    let settled = block_until(PATIENCE, "three copies of the second version", || {
        let instances = up.instances("shop");
        let done = instances.len() == 3 && ready(&instances) == 3;
        let version = up.get("shop.localhost", "/", &[]).json()["version"] == "two";
        (done && version).then_some(instances)
    });
    let releases: BTreeSet<&str> = settled.iter().filter_map(|one| one["release"].as_str()).collect();
    assert_eq!(releases.len(), 1, "{settled:#?}");
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["level"], "kept");
    // One process in the app's directory for each instance, and none of an older version.
    let running = processes_below(&up.role.data.join("cell"));
    let known = pids(&settled);
    let orphans: Vec<&u32> =
        running.iter().filter(|pid| is_app(**pid) && !known.contains(&u64::from(**pid))).collect();
    assert!(orphans.is_empty(), "{orphans:?} are none of {settled:#?}");
    assert_eq!(up.role.terminate(), 0);
    assert_eq!(processes_below(&up.role.data), NONE);
}

/// Whether a process is the server of an app, and not what watches over it.
fn is_app(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.windows(6).any(|window| window == b"app.py"))
}
