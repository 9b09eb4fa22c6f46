//! Apps that do not start.

use crate::apps;
use crate::platform::Up;
use std::time::Duration;
use towpath_testkit::wait::block_until;

#[test]
fn a_failing_push_prints_the_last_lines_and_the_old_version_serves_on() {
    let up = Up::start();
    up.push(&apps::python(up.dir.path(), "shop", "good"), &[]).ok();
    let failed = up.push(&apps::crashing(up.dir.path(), "shop"), &[]);
    assert_eq!(failed.code, 1, "{failed:#?}");
    for part in ["no database configured", "giving up", "start_failed", "hint: "] {
        assert!(failed.stderr.contains(part), "{part} in {failed:#?}");
    }
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["version"], "good");
    let app = up.towpath(&["app", "shop"]).ok().stdout;
    assert!(app.contains("start_failed"), "{app}");
    // It is mended by the next push.
    up.push(&apps::python(up.dir.path(), "shop", "better"), &[]).ok();
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["version"], "better");
}

#[test]
fn a_limit_that_failed_once_does_not_fail_later_pushes() {
    let up = Up::start();
    let good = apps::python(up.dir.path(), "shop", "good");
    let memory = || {
        let app = up.towpath(&["app", "shop", "-o", "json"]).ok().json();
        app["groups"][0]["limits"]["memory"].clone()
    };
    up.push(&good, &["--memory", "200M"]).ok();
    let failed = up.push(&apps::crashing(up.dir.path(), "shop"), &["--memory", "180M", "--env", "A=1"]);
    assert_eq!(failed.code, 1, "{failed:#?}");
    let kept = "Kept for the next try: env A. Not kept for the next push: memory 180M.";
    assert!(failed.stderr.contains(kept) && failed.stderr.contains("still serves"), "{failed:#?}");
    up.push(&apps::python(up.dir.path(), "shop", "better"), &[]).ok();
    assert_eq!(memory(), "200M");

    // What never found room is taken back as a whole.
    let failed = up.push(&good, &["--memory", "90T"]);
    assert_eq!(failed.code, 7, "{failed:#?}");
    assert!(
        failed.stderr.contains("no_room") && failed.stderr.contains("nothing was changed"),
        "{failed:#?}"
    );
    assert_eq!(memory(), "200M");
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["version"], "better");
    up.towpath(&["restart", "shop"]).ok();
}

#[test]
fn an_app_that_never_listens_fails_in_time() {
    let up = Up::start();
    let failed = up.push(&apps::deaf(up.dir.path(), "deaf"), &[]);
    assert_eq!(failed.code, 1, "{failed:#?}");
    for part in ["I do not listen", "$PORT", "start_failed"] {
        assert!(failed.stderr.contains(part), "{part} in {failed:#?}");
    }
}

#[test]
fn an_app_that_listens_late_is_waited_for() {
    let up = Up::start();
    up.push(&apps::odd(up.dir.path(), "late", "sleep 3"), &[]).ok();
    assert_eq!(up.get("late.localhost", "/", &[]).json()["version"], "odd");
}

#[test]
fn an_app_that_ends_well_is_a_failed_one_too() {
    let up = Up::start();
    let failed = up.push(&apps::odd(up.dir.path(), "done", "echo 'nothing to do'; exit 0"), &[]);
    assert_eq!(failed.code, 1, "{failed:#?}");
    assert!(failed.stderr.contains("nothing to do"), "{failed:#?}");
}

#[test]
fn an_app_that_ignores_sigterm_and_forks_is_gone_after_a_delete() {
    let up = Up::start();
    // The shell stays the parent, ignores SIGTERM as its child does, and leaves a grandchild behind.
    let before = "trap '' TERM\n(sleep 4711 & )\npython3 app.py\n: never reached";
    up.push(&apps::odd(up.dir.path(), "stubborn", before), &[]).ok();
    assert_eq!(up.get("stubborn.localhost", "/", &[]).status, 200);
    let data = up.role.data.clone();
    let left = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let below = |entry: &std::fs::DirEntry| {
            let cwd = std::fs::read_link(entry.path().join("cwd"));
            cwd.is_ok_and(|cwd| cwd.starts_with(&data) && cwd.ends_with("app"))
        };
        processes.filter(below).count()
    };
    assert!(left() >= 2, "{} processes of the app", left());
    up.towpath(&["delete", "stubborn", "--yes"]).ok();
    block_until(Duration::from_secs(60), "all processes of the app are gone", || (left() == 0).then_some(()));
}

#[test]
fn a_flood_of_log_lines_harms_nobody() {
    let up = Up::start();
    let flood = "(while :; do cat app.py app.py app.py app.py app.py app.py; done) &";
    up.push(&apps::odd(up.dir.path(), "loud", flood), &[]).ok();
    up.push(&apps::python(up.dir.path(), "quiet", "one"), &[]).ok();
    assert_eq!(up.get("quiet.localhost", "/", &[]).status, 200);
    assert_eq!(up.get("loud.localhost", "/", &[]).status, 200);
    let logs = up.towpath(&["logs", "loud", "--tail", "50"]).ok().stdout;
    assert!(logs.lines().count() >= 40, "{logs}");
    let size = |dir: &std::path::Path| -> u64 {
        let mut dirs = vec![dir.to_owned()];
        let mut sum = 0;
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                match entry.metadata() {
                    Ok(about) if about.is_dir() => dirs.push(entry.path()),
                    Ok(about) => sum += about.len(),
                    Err(_) => {}
                }
            }
        }
        sum
    };
    let bytes = size(&up.role.data.join("cell"));
    assert!(bytes < 400 << 20, "{bytes} bytes in the cell's directory");
}

#[test]
fn source_that_no_builder_knows_is_said() {
    let up = Up::start();
    let dir = up.dir.path().join("poem");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("poem.txt"), "a towpath\n").unwrap();
    let failed = up.push(&dir, &[]);
    assert_eq!(failed.code, 1, "{failed:#?}");
    assert!(failed.stderr.contains("no_builder") && failed.stderr.contains("--builder"), "{failed:#?}");
}

#[test]
fn a_failed_build_shows_what_it_printed_once() {
    let up = Up::start();
    let dir = up.dir.path().join("broken");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("app.py"), "").unwrap();
    std::fs::write(dir.join("requirements.txt"), "./no-such-package-here\n").unwrap();
    let failed = up.push(&dir, &[]);
    assert_eq!(failed.code, 1, "{failed:#?}");
    assert!(failed.stderr.contains("build_failed"), "{failed:#?}");
    let named = failed.stderr.lines().filter(|line| line.starts_with("  ") && line.contains("ERROR")).count();
    let distinct: std::collections::BTreeSet<&str> =
        failed.stderr.lines().filter(|line| line.starts_with("  ") && line.contains("ERROR")).collect();
    assert_eq!(named, distinct.len(), "{failed:#?}");
}

#[test]
fn a_push_right_after_a_start_waits_for_what_comes_back() {
    let mut up = Up::start();
    let app = apps::python(up.dir.path(), "shop", "one");
    up.push(&app, &["--instances", "2"]).ok();
    assert_eq!(up.role.terminate(), 0, "a clean end stops the instances");
    up.again();
    let pushed = up.push(&app, &[]).ok();
    assert!(pushed.stdout.contains("✓") && pushed.stdout.contains("2/2 ready"), "{pushed:#?}");
    assert_eq!(up.get("shop.localhost", "/", &[]).status, 200);
}
