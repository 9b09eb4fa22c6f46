//! Managers are killed in the middle of things, and managers of two builds work side by side.

use crate::load::Load;
use crate::managers::{Build, Cluster};
use crate::platform::forget;
use crate::{apps, client};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use towpath_testkit::wait::block_until;

/// Instances of an app, as any manager lists them.
fn instances(cluster: &Cluster, asked: usize, app: &str) -> Vec<Value> {
    let listed = cluster.get(asked, &format!("/v1/apps/{app}/instances")).json();
    listed["items"].as_array().cloned().unwrap_or_default()
}

/// The phase of an app's newest operation, as a manager tells it.
fn phase(cluster: &Cluster, asked: usize, app: &str) -> String {
    let listed = cluster.get(asked, "/v1/operations").json();
    let all = listed["items"].as_array().cloned().unwrap_or_default();
    let newest = all.iter().find(|operation| operation["app"] == app).expect("an operation");
    newest["phase"].as_str().unwrap().to_owned()
}

/// The owner of an app is killed when the first instance of the new version serves and the last of the old one does, too.
#[test]
fn a_rollout_goes_on_when_its_owner_is_killed_and_loses_no_request() {
    let mut cluster = Cluster::start(3);
    cluster.start_cell(2);
    let name = cluster.app_of(1, "shop");
    let one = apps::python(cluster.dir.path(), &name, "one");
    cluster.towpath(0, &["push", one.to_str().unwrap(), "--instances", "4"]).ok();
    let old: BTreeSet<String> =
        instances(&cluster, 0, &name).iter().map(|one| one["id"].to_string()).collect();
    assert_eq!(old.len(), 4);
    let host = format!("{name}.localhost");
    let load = Load::start(cluster.gateway.address("gateway"), &host, 1);
    load.goes_on(5);

    // Each instance takes its time, and they come one by one.
    let two = apps::odd(cluster.dir.path(), &name, "sleep 1");
    cluster.towpath(0, &["push", two.to_str().unwrap(), "--detach"]).ok();
    let is_new = |one: &&Value| !old.contains(&one["id"].to_string());
    block_until(Duration::from_secs(60), "the first new instance is ready", || {
        instances(&cluster, 0, &name).iter().filter(is_new).any(|one| one["state"] == "ready").then_some(())
    });
    cluster.managers[1].process.kill();
    assert!(instances(&cluster, 0, &name).iter().any(|one| !is_new(&one)), "it was in the middle of it");
    assert_eq!(phase(&cluster, 0, &name), "rolling");

    block_until(Duration::from_secs(60), "the rollout ends under another manager", || {
        let phases = [0, 2].map(|asked| phase(&cluster, asked, &name));
        assert!(phases.iter().all(|phase| phase != "failed"), "{phases:?}");
        phases.iter().all(|phase| phase == "succeeded").then_some(())
    });
    load.goes_on(5);
    load.lost_nothing();
    let left = instances(&cluster, 0, &name);
    assert!(left.len() == 4 && left.iter().all(|one| one["state"] == "ready"), "{left:#?}");
    assert!(left.iter().all(|one| is_new(&one)), "nothing of the old version is left: {left:#?}");
    for _ in 0..20 {
        let answer = client::get(cluster.gateway.address("gateway"), &host, "/", &[]);
        assert_eq!(answer.json()["version"], "odd");
    }
}

/// How often a manager has worked on a call whose sender it knows, which is told since protocol 2.
fn calls_of_protocol_2(cluster: &Cluster, manager: usize) -> usize {
    let log = std::fs::read_to_string(&cluster.managers[manager].log).unwrap();
    log.matches("works on a call that was sent on").count()
}

fn versions(cluster: &Cluster, asked: usize) -> Vec<String> {
    let listed = cluster.get(asked, "/v1/managers").json();
    let live = listed["items"].as_array().unwrap().iter().filter(|row| row["state"] == "live").cloned();
    live.map(|row| row["version"].as_str().unwrap().to_owned()).collect()
}

/// Kills a manager and has the other one change what either owned; then it comes back.
fn kill_and_take_over(cluster: &mut Cluster, victim: usize, build: Build, apps: [&str; 2], count: &str) {
    let other = 1 - victim;
    let id = cluster.id(victim);
    cluster.managers[victim].process.kill();
    cluster.eventually("it is evicted", |cluster| {
        cluster.states(other).iter().any(|(who, state)| *who == id && state == "evicted")
    });
    for app in apps {
        cluster.towpath(other, &["scale", app, count]).ok();
        assert_eq!(instances(cluster, other, app).len().to_string(), count);
    }
    let again = cluster.start_manager_of(victim, "127.0.0.1:0", build);
    forget(std::mem::replace(&mut cluster.managers[victim], again));
    cluster.eventually("it is back", |cluster| versions(cluster, other).len() == 2);
}

#[test]
fn managers_of_two_builds_share_the_work_and_take_over_from_each_other() {
    let mut cluster = Cluster::start_of(&[Build::This, Build::Before]);
    cluster.start_cell(0);
    let marked = |versions: Vec<String>| versions.iter().filter(|v| v.contains("+protocol.")).count();
    assert_eq!(marked(versions(&cluster, 0)), 1, "{:?}", versions(&cluster, 0));
    let (ours, theirs) = (cluster.app_of(0, "ours"), cluster.app_of(1, "theirs"));
    // What each of them owns is made and changed through either.
    for (through, app) in [(0, &theirs), (1, &ours)] {
        let source = apps::python(cluster.dir.path(), app, "one");
        cluster.towpath(through, &["push", source.to_str().unwrap()]).ok();
        for through in [0, 1] {
            cluster.towpath(through, &["env", "set", app, &format!("LEVEL={through}")]).ok();
            let answer =
                client::get(cluster.gateway.address("gateway"), &format!("{app}.localhost"), "/", &[]);
            assert_eq!(answer.json()["level"], through.to_string());
        }
    }
    assert_eq!(
        calls_of_protocol_2(&cluster, 0) + calls_of_protocol_2(&cluster, 1),
        0,
        "one could not read them"
    );
    let apps = [ours.as_str(), theirs.as_str()];
    kill_and_take_over(&mut cluster, 1, Build::Before, apps, "2");
    kill_and_take_over(&mut cluster, 0, Build::This, apps, "3");

    // The upgrade is finished: what is new is spoken from then on.
    assert_eq!(cluster.managers[1].terminate(), 0);
    let again = cluster.start_manager_of(1, "127.0.0.1:0", Build::This);
    forget(std::mem::replace(&mut cluster.managers[1], again));
    cluster.eventually("both know that both are new", |cluster| {
        [0, 1].into_iter().all(|asked| marked(versions(cluster, asked)) == 2)
    });
    cluster.towpath(0, &["env", "set", &theirs, "LEVEL=new"]).ok();
    cluster.towpath(1, &["env", "set", &ours, "LEVEL=new"]).ok();
    assert!(calls_of_protocol_2(&cluster, 0) > 0 && calls_of_protocol_2(&cluster, 1) > 0);
}
