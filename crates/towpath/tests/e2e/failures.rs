//! Apps that do not start.

use crate::apps;
use crate::platform::Up;

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
fn an_app_that_never_listens_fails_in_time() {
    let up = Up::start();
    let failed = up.push(&apps::deaf(up.dir.path(), "deaf"), &[]);
    assert_eq!(failed.code, 1, "{failed:#?}");
    for part in ["I do not listen", "$PORT", "start_failed"] {
        assert!(failed.stderr.contains(part), "{part} in {failed:#?}");
    }
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
