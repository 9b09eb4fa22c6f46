//! Push: manifests, uploads, builders, errors.

use crate::apps;
use crate::platform::{FREE_ARGS, Role, Up, open_dir};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn write(dir: &Path, name: &str, text: &str) {
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join(name), text).unwrap();
}

#[test]
fn a_pushed_app_answers_at_its_url_and_the_same_content_is_not_built_again() {
    let up = Up::start();
    let app = apps::python(up.dir.path(), "shop", "one");
    let first = up.push(&app, &["--env", "LEVEL=high"]).ok();
    let port = up.role.address("gateway").port();
    let url = format!("http://shop.localhost:{port}");
    assert!(first.stdout.contains(&url), "{first:#?}");
    assert!(first.stderr.contains("Uploaded 2 files"), "{first:#?}");
    let answer = up.get("shop.localhost", "/x?y=1", &[]).json();
    assert_eq!(answer["version"], "one");
    assert_eq!(answer["level"], "high");
    assert_eq!(answer["path"], "/x?y=1");
    assert_eq!(answer["lane"], "base");

    let second = up.push(&app, &[]).ok();
    assert!(second.stderr.contains("nothing to upload"), "{second:#?}");
    assert!(second.stdout.contains("built before"), "{second:#?}");
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["level"], "high", "env stays");

    let apps = up.towpath(&["apps"]).ok().stdout;
    assert!(apps.contains("shop") && apps.contains("running") && apps.contains("1/1"), "{apps}");
    let json = up.towpath(&["app", "shop", "-o", "json"]).ok().json();
    assert_eq!(json["urls"][0], url.as_str());
    let releases = up.towpath(&["releases", "shop", "-o", "json"]).ok().json();
    assert_eq!(releases.as_array().unwrap().len(), 1, "{releases}");
    let logs = up.towpath(&["logs", "shop"]).ok().stdout;
    assert!(logs.contains("version one listens on"), "{logs}");
}

#[test]
fn static_pages_are_served() {
    let up = Up::start();
    let dir = apps::pages(up.dir.path(), "site", "Hello boat");
    up.push(&dir, &["--app", "site"]).ok();
    let page = up.get("site.localhost", "/", &[]);
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.body.contains("Hello boat"), "{page:?}");
}

#[test]
fn a_cloud_foundry_manifest_pushes_all_its_apps_and_says_what_it_ignores() {
    let up = Up::start();
    let root = up.dir.path().join("cf");
    for name in ["front", "back"] {
        let app = apps::python(up.dir.path(), name, "cf");
        std::fs::remove_file(app.join("towpath.toml")).unwrap();
        std::fs::create_dir_all(&root).unwrap();
        std::fs::rename(&app, root.join(name)).unwrap();
    }
    let manifest = "applications:\n- name: front\n  path: front\n  command: exec python3 app.py\n  buildpacks: [binary_buildpack]\n  memory: 64M\n  env: {LEVEL: cf}\n  stack: cflinuxfs4\n  routes:\n  - route: front.example.com\n- name: back\n  path: back\n  command: exec python3 app.py\n  buildpacks: [binary_buildpack]\n";
    write(&root, "manifest.yml", manifest);
    let pushed = up.push(&root, &[]).ok();
    assert!(pushed.stderr.contains("manifest.yml:8: applications[0].stack: ignored"), "{pushed:#?}");
    let front = up.get("front.example.com", "/", &[]);
    assert!(front.status == 200 && front.json()["level"] == "cf", "{front:#?}");
    assert_eq!(up.get("back.localhost", "/", &[]).json()["app"], "back");
    let app = up.towpath(&["app", "front", "-o", "json"]).ok().json();
    assert_eq!(app["groups"][0]["limits"]["memory"], "64M");
    let wrong = up.push(&root, &["--app", "fornt"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.one_error_line().contains("did you mean \"front\"?"), "{wrong:?}");
}

#[test]
fn a_procfile_gives_the_command() {
    let up = Up::start();
    let app = apps::python(up.dir.path(), "proc", "one");
    std::fs::remove_file(app.join("towpath.toml")).unwrap();
    write(&app, "Procfile", "web: exec python3 app.py\nworker: python3 work.py\n");
    let pushed = up.push(&app, &["--app", "proc", "--builder", "binary"]).ok();
    assert!(pushed.stderr.contains("Procfile:2: worker: only web is run"), "{pushed:#?}");
    assert_eq!(up.get("proc.localhost", "/", &[]).status, 200);
}

#[test]
fn a_command_is_found_in_the_apps_own_virtual_environment() {
    let up = Up::start();
    let app = apps::packaged(up.dir.path(), "greeter");
    let pushed = up.push(&app, &["--app", "greeter"]).ok();
    assert!(pushed.stderr.contains("greeter-1.0"), "the installer's output is shown: {pushed:#?}");
    assert_eq!(up.get("greeter.localhost", "/", &[]).json()["version"], "packaged");
}

#[test]
fn a_single_file_is_an_app() {
    let up = Up::start();
    let dir = up.dir.path().join("built");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("index.html"), "<h1>one page</h1>").unwrap();
    up.push(&dir.join("index.html"), &["--app", "page"]).ok();
    assert!(up.get("page.localhost", "/", &[]).body.contains("one page"));
    write(&dir, "manifest.yml", "applications:\n- name: cf-page\n  path: index.html\n");
    up.push(&dir, &[]).ok();
    assert!(up.get("cf-page.localhost", "/", &[]).body.contains("one page"));
}

#[test]
fn all_errors_of_a_manifest_are_listed_and_nothing_is_sent() {
    let up = Up::start();
    let dir = up.dir.path().join("wrong");
    write(
        &dir,
        "towpath.toml",
        "name = \"Wrong\"\nmemroy = \"1G\"\ninstances = \"two\"\n[health]\npath = 1\n",
    );
    let output = up.push(&dir, &[]);
    assert_eq!(output.code, 2);
    let lines: Vec<&str> = output.stderr.lines().collect();
    assert_eq!(lines.len(), 4, "{output:#?}");
    assert!(
        lines[1].starts_with("error: towpath.toml:2: memroy: unknown key; hint: did you mean \"memory\"?")
    );
    assert!(up.towpath(&["apps", "-o", "json"]).ok().json().as_array().unwrap().is_empty());
}

#[test]
fn what_cannot_be_pushed_is_said() {
    let up = Up::start();
    let empty = up.dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let output = up.push(&empty, &[]);
    assert_eq!(output.code, 2);
    assert!(output.one_error_line().contains("has no files"), "{output:?}");

    let output = up.push(Path::new("/nonexistent"), &[]);
    assert_eq!(output.code, 2);
    assert!(output.one_error_line().contains("no such directory"), "{output:?}");

    let large = up.dir.path().join("large");
    write(&large, "blob", &"x".repeat(100_000));
    let output = up.push(&large, &["--max-size", "10K"]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("blob"), "names the largest files: {output:#?}");
}

#[test]
fn an_unknown_app_is_met_with_did_you_mean() {
    let up = Up::start();
    let app = apps::python(up.dir.path(), "catalogue", "one");
    up.push(&app, &[]).ok();
    for args in
        [&["app", "catalog"][..], &["logs", "catalog"], &["scale", "catalog", "2"], &["restart", "catalog"]]
    {
        let output = up.towpath(args);
        assert_eq!(output.code, 4, "{args:?}: {output:?}");
        assert!(output.one_error_line().contains("did you mean \"catalogue\"?"), "{args:?}: {output:?}");
    }
}

#[test]
fn two_pushes_at_once_both_end_in_a_defined_state() {
    let up = Up::start();
    let one = apps::python(up.dir.path(), "race", "one");
    let two = apps::python(up.dir.path(), "race", "two");
    let outputs = std::thread::scope(|scope| {
        let tasks = [&one, &two].map(|dir| scope.spawn(|| up.push(dir, &[])));
        tasks.map(|task| task.join().unwrap())
    });
    assert!(outputs.iter().any(|output| output.code == 0), "{outputs:#?}");
    for output in &outputs {
        assert!(output.code == 0 || output.stderr.contains("superseded"), "{outputs:#?}");
    }
    let answer = up.get("race.localhost", "/", &[]).json();
    assert!(answer["version"] == "one" || answer["version"] == "two", "{answer}");
}

#[test]
fn json_output_is_the_operation_and_nothing_else() {
    let up = Up::start();
    let app = apps::python(up.dir.path(), "shop", "one");
    let pushed = up.push(&app, &["-o", "json"]).ok();
    assert_eq!(pushed.stderr, "");
    let operation = pushed.json();
    assert_eq!(operation["phase"], "succeeded");
    assert_eq!(operation["urls"].as_array().unwrap().len(), 1, "{operation}");

    let detached = up.push(&app, &["--detach", "--env", "LEVEL=x"]).ok();
    let id = detached.stderr.split_whitespace().last().unwrap();
    let followed = up.towpath(&["follow", id]).ok();
    assert!(followed.stdout.contains("shop runs release"), "{followed:#?}");
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["level"], "x");
}

#[test]
fn an_upload_over_the_limit_is_refused_before_it_is_sent() {
    let dir = open_dir();
    let config = dir.path().join("config.toml");
    std::fs::write(&config, "[api]\nmax_upload = \"1M\"\n").unwrap();
    let mut args = FREE_ARGS.to_vec();
    args.extend(["--config", config.to_str().unwrap()]);
    let up = Up { role: Role::start(dir.path(), "data", "up", &args), dir };
    let large = up.dir.path().join("large");
    std::fs::create_dir(&large).unwrap();
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(8_000_000).collect();
    std::fs::write(large.join("noise"), noise).unwrap();
    let refused = up.push(&large, &[]);
    assert_eq!(refused.code, 2, "{refused:#?}");
    assert!(refused.stderr.contains("upload_too_large"), "{refused:#?}");
}

#[test]
fn an_upload_without_room_is_said_and_what_runs_runs_on() {
    let dir = open_dir();
    // No file may grow beyond 4 MiB: to the platform that is a disk which is full in the middle of an upload.
    let small = dir.path().join("small-disk");
    std::fs::write(&small, "#!/bin/sh\ntrap '' XFSZ\nulimit -f 8192\nexec \"$@\"\n").unwrap();
    std::fs::set_permissions(&small, PermissionsExt::from_mode(0o755)).unwrap();
    let role = Role::start_by(dir.path(), "data", "up", FREE_ARGS, small.to_str());
    let up = Up { role, dir };
    up.push(&apps::python(up.dir.path(), "shop", "one"), &[]).ok();

    let large = apps::python(up.dir.path(), "shop", "large");
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(12_000_000).collect();
    std::fs::write(large.join("noise"), noise).unwrap();
    let refused = up.push(&large, &[]);
    assert_eq!(refused.code, 7, "{refused:#?}");
    assert!(refused.stderr.contains("storage_full"), "{refused:#?}");
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["version"], "one");
    // Nothing of it is kept, and what fits is taken again.
    let left = std::fs::read_dir(up.role.data.join("manager/blobs/uploads")).unwrap().count();
    assert_eq!(left, 0, "files of an upload that failed");
    up.push(&apps::python(up.dir.path(), "shop", "two"), &[]).ok();
    assert_eq!(up.get("shop.localhost", "/", &[]).json()["version"], "two");
}
