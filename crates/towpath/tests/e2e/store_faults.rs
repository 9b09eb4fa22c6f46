//! PostgreSQL is restarted under traffic and under changes.

use crate::apps;
use crate::bus_faults::Roles;
use crate::platform::open_dir;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use towpath_testkit::postgres::Stop;
use towpath_testkit::{NatsServer, Postgres};

/// Changes one after the other until told to stop: the names that were acknowledged, and those that were refused.
fn change(
    roles: &Roles,
    dir: &std::path::Path,
    stop: &AtomicBool,
    acknowledged: &std::sync::Mutex<BTreeSet<String>>,
) -> BTreeSet<String> {
    let mut refused = BTreeSet::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("lane-{number}");
        let output = roles.towpath(dir, &["lanes", "add", &name]);
        if output.code == 0 {
            acknowledged.lock().unwrap().insert(name);
        } else {
            assert!(output.stderr.starts_with("error: "), "refused without a word: {output:?}");
            refused.insert(name);
        }
    }
    refused
}

#[test]
fn traffic_feels_nothing_while_postgresql_restarts_and_what_was_acknowledged_is_there() {
    let dir = open_dir();
    let nats = NatsServer::start();
    let mut postgres = Postgres::start();
    let settings = format!("[bus]\nnats = [{:?}]\n", nats.url());
    let roles = Roles::start(dir.path(), &settings, &postgres.url());
    let app = apps::python(dir.path(), "shop", "one");
    roles.towpath(dir.path(), &["push", app.to_str().unwrap(), "--instances", "2"]).ok();
    let load = roles.load();
    let (stop, acknowledged) = (AtomicBool::new(false), std::sync::Mutex::default());
    let refused = std::thread::scope(|scope| {
        let changing = scope.spawn(|| change(&roles, dir.path(), &stop, &acknowledged));
        let more = |count: usize| {
            let goal = acknowledged.lock().unwrap().len() + count;
            towpath_testkit::wait::block_until(std::time::Duration::from_secs(90), "changes go on", || {
                (acknowledged.lock().unwrap().len() >= goal).then_some(())
            });
        };
        for how in [Stop::Fast, Stop::Immediate, Stop::Kill] {
            more(5);
            postgres.stop(how);
            load.goes_on(20);
            postgres.restart();
        }
        more(5);
        stop.store(true, Ordering::Relaxed);
        changing.join().unwrap()
    });
    load.lost_nothing();
    let acknowledged = acknowledged.into_inner().unwrap();
    let listed = roles.towpath(dir.path(), &["lanes", "-o", "json"]).ok().json();
    let there: BTreeSet<String> = listed
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|lane| lane["name"].as_str().map(str::to_owned))
        .filter(|name| name.starts_with("lane-"))
        .collect();
    let lost: Vec<_> = acknowledged.difference(&there).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    // What was in flight is there or not, but nothing is there that nobody asked for; and asking again is right.
    assert!(there.iter().all(|name| acknowledged.contains(name) || refused.contains(name)));
    for name in refused.iter().take(3) {
        let again = roles.towpath(dir.path(), &["lanes", "add", name]);
        assert!(again.code == 0 || there.contains(name), "{again:?}");
    }
    roles.towpath(dir.path(), &["scale", "shop", "3"]).ok();
}
