//! A wall clock that is set while everything runs.

use crate::apps;
use crate::load::Load;
use crate::platform::{FREE_ARGS, Role, Up, open_dir};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use towpath_testkit::wait::block_until;

/// A program that runs another one with its wall clock shifted (`+7m`, `-1h`). [`set`] changes it under way.
pub fn shifted(dir: &Path, by: &str) -> PathBuf {
    let places = std::fs::read_dir("/usr/lib").unwrap().flatten().map(|entry| entry.path().join("faketime"));
    let shim = places.map(|place| place.join("libfaketimeMT.so.1")).find(|file| file.is_file());
    let shim = shim.expect("this test needs libfaketime: install it with `apt-get install libfaketime`");
    let script = dir.join("shifted.sh");
    let text = format!(
        "#!/bin/sh\nLD_PRELOAD={} FAKETIME_TIMESTAMP_FILE={} FAKETIME_NO_CACHE=1 DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1 \
         exec \"$@\"\n",
        shim.display(),
        dir.join("shift").display()
    );
    set(dir, by);
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}

/// Sets the clock of what [`shifted`] runs, all at once.
fn set(dir: &Path, by: &str) {
    std::fs::write(dir.join("shift.new"), by).unwrap();
    std::fs::rename(dir.join("shift.new"), dir.join("shift")).unwrap();
}

/// The time of the last line of the access log, as text; it sorts like time.
fn last_line_at(up: &Up) -> String {
    let log = std::fs::read_to_string(up.role.data.join("gateway/access.log")).unwrap_or_default();
    let line = log.lines().next_back().and_then(|line| serde_json::from_str::<Value>(line).ok());
    line.and_then(|line| line["time"].as_str().map(str::to_owned)).unwrap_or_default()
}

/// What tells one run of an instance from another.
fn runs(up: &Up) -> Vec<[String; 4]> {
    let told = |one: &Value| ["id", "pid", "restarts", "state"].map(|field| one[field].to_string());
    let mut runs: Vec<_> = up.instances("shop").iter().map(told).collect();
    runs.sort();
    runs
}

#[test]
fn a_wall_clock_that_jumps_by_an_hour_and_back_loses_nothing() {
    let dir = open_dir();
    let script = shifted(dir.path(), "+0");
    let role = Role::start_by(dir.path(), "data", "up", FREE_ARGS, Some(script.to_str().unwrap()));
    let up = Up { role, dir };
    up.push(&apps::python(up.dir.path(), "shop", "one"), &["--instances", "2"]).ok();
    let before = runs(&up);
    assert_eq!(before.len(), 2, "{before:?}");
    let load = Load::start(up.role.address("gateway"), "shop.localhost", 1);
    load.goes_on(5);
    for (step, (by, forwards)) in
        [("+1h", true), ("+0", false), ("-1h", false), ("+0", true)].into_iter().enumerate()
    {
        let told = last_line_at(&up);
        set(up.dir.path(), by);
        block_until(Duration::from_secs(60), &format!("the clock is at {by}"), || {
            let now = last_line_at(&up);
            // Whole minutes: time goes on by itself.
            let (then, now) = (told.get(..16)?, now.get(..16)?);
            (if forwards { now > then } else { now < then }).then_some(())
        });
        // Long enough for whoever counts in wall-clock time to look.
        load.goes_on(20);
        assert_eq!(runs(&up), before, "at {by}");
        let explained = up.towpath(&["explain", "http://shop.localhost/", "-o", "json"]).ok().json();
        let endpoints = explained[0]["endpoints"].as_array().unwrap().clone();
        assert!(endpoints.iter().all(|one| one["why_not"] == ""), "at {by}: {endpoints:#?}");
        assert_eq!(endpoints.len(), 2, "at {by}");
        // And changes go on.
        up.towpath(&["lanes", "add", &format!("lane-{step}")]).ok();
    }
    up.towpath(&["scale", "shop", "3"]).ok();
    load.goes_on(5);
    load.lost_nothing();
}
