//! Projects that were not written here, as people would push them: from PyPI, from npm, and a jar. They need the registries;
//! nothing is skipped.

use crate::client::{Request, Response};
use crate::platform::{Up, run_within};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Longest wait for what a registry has a part in.
const LONG: Duration = Duration::from_secs(540);

fn project(up: &Up, name: &str, files: &[(&str, &str)]) -> PathBuf {
    let dir = up.dir.path().join(name);
    std::fs::create_dir(&dir).unwrap();
    for (file, text) in files {
        std::fs::write(dir.join(file), text).unwrap();
    }
    dir
}

fn push(up: &Up, dir: &Path) {
    let pushed = run_within(up.command(&["push", dir.to_str().unwrap()]), LONG).ok();
    assert!(pushed.stdout.contains("1/1 ready"), "{pushed:#?}");
}

fn ask(up: &Up, request: &Request) -> Response {
    request.send(up.role.address("gateway")).unwrap_or_else(|error| panic!("{request:?}: {error}"))
}

/// Flask's best known app, with its extensions, under gunicorn.
#[test]
fn httpbin_from_pypi() {
    let up = Up::start();
    let files = [
        ("requirements.txt", "httpbin==0.10.2\nflask<3.2\nwerkzeug<3.2\ngunicorn==23.0.0\n"),
        ("Procfile", "web: gunicorn -b 0.0.0.0:$PORT --threads 4 httpbin:app\n"),
    ];
    push(&up, &project(&up, "httpbin", &files));

    let get = |path: &str| ask(&up, &Request::get("httpbin.localhost", path));
    let found = get("/get?lane=one&lane=two").json();
    assert_eq!(found["args"], json!({"lane": ["one", "two"]}), "{found}");
    assert_eq!(found["headers"]["Host"], "httpbin.localhost", "{found}");
    assert_eq!(get("/status/418").status, 418);
    assert_eq!(get("/stream-bytes/70000?seed=7").bytes.len(), 70_000);
    let part =
        ask(&up, &Request::get("httpbin.localhost", "/range/90000").header("range", "bytes=100-70099"));
    assert_eq!((part.status, part.bytes.len()), (206, 70_000), "{}", part.head);
    let stream = get("/stream/5");
    assert_eq!(stream.body.lines().count(), 5, "{stream:?}");
    let moved = get("/redirect-to?url=/elsewhere&status_code=307");
    assert_eq!((moved.status, moved.header("location")), (307, Some("/elsewhere")), "{moved:?}");
    let cookie = get("/cookies/set/flavour/oat");
    assert!(cookie.header("set-cookie").is_some_and(|one| one.starts_with("flavour=oat")), "{cookie:?}");

    // A body comes back as it was sent, with a length and in chunks.
    let text = "zwölf Boote\n".repeat(5_000);
    for chunked in [false, true] {
        let post = Request::post("httpbin.localhost", "/anything", text.as_bytes()).chunked(chunked);
        let echoed = ask(&up, &post).json();
        assert_eq!(
            (&echoed["method"], &echoed["data"]),
            (&json!("POST"), &json!(text)),
            "chunked: {chunked}"
        );
    }
    let packed = get("/gzip");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert_eq!(packed.bytes[..2], [0x1f, 0x8b]);

    // The very same again is not built, and its users notice nothing.
    let again = up.push(&up.dir.path().join("httpbin"), &[]).ok();
    assert!(again.stdout.contains("built before"), "{again:#?}");
    assert_eq!(get("/get").status, 200);
}

/// An Express app that keeps what it is sent in a file of its own directory.
#[test]
fn json_server_from_npm() {
    let up = Up::start();
    let package = json!({
        "name": "posts", "version": "1.0.0", "private": true,
        "dependencies": {"json-server": "0.17.4"},
        "scripts": {"start": "json-server --host $HOST --port $PORT db.json"}
    });
    let db = json!({"posts": [{"id": 1, "title": "hello", "boat": "barge"}], "profile": {"name": "towpath"}});
    let files = [("package.json", package.to_string()), ("db.json", db.to_string())];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    push(&up, &project(&up, "posts", &files));

    let get = |path: &str| ask(&up, &Request::get("posts.localhost", path));
    assert_eq!(get("/posts").json(), db["posts"]);
    assert_eq!(get("/profile").json(), db["profile"]);
    assert_eq!(get("/posts/2").status, 404);
    let new = json!({"title": "second", "boat": "narrow"});
    let post = Request::post("posts.localhost", "/posts", new.to_string().as_bytes())
        .header("content-type", "application/json");
    let made = ask(&up, &post);
    assert_eq!((made.status, made.json()["id"].as_u64()), (201, Some(2)), "{made:?}");
    assert_eq!(get("/posts?boat=narrow").json()[0]["title"], "second");
    // Its front page and what belongs to it.
    let page = get("/");
    assert!(page.status == 200 && page.body.contains("JSON Server"), "{page:?}");
    // A request for what is there already is answered without a body.
    let tag = page.header("etag").expect("an entity tag").to_owned();
    let seen = ask(&up, &Request::get("posts.localhost", "/").header("if-none-match", &tag));
    assert_eq!((seen.status, seen.body.len()), (304, 0), "{seen:?}");
}

/// A plain Java program in one jar, taken from the package that carries it.
#[test]
fn a_selenium_server_jar() {
    let up = Up::start();
    let fetched = up.dir.path().join("fetched");
    std::fs::create_dir(&fetched).unwrap();
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "selenium-server@3.141.59"]).current_dir(&fetched);
    npm.env("HOME", up.dir.path());
    run_within(npm, LONG).ok();
    let jar = "package/lib/runner/selenium-server-standalone-3.141.59.jar";
    let mut tar = Command::new("tar");
    tar.args(["-xzf", "selenium-server-3.141.59.tgz", jar]).current_dir(&fetched);
    run_within(tar, LONG).ok();
    let dir = project(&up, "grid", &[("Procfile", "web: java -jar selenium.jar -port $PORT\n")]);
    std::fs::rename(fetched.join(jar), dir.join("selenium.jar")).unwrap();
    push(&up, &dir);

    let status = ask(&up, &Request::get("grid.localhost", "/wd/hub/status")).json();
    assert_eq!(status["value"]["ready"], true, "{status}");
    assert_eq!(status["value"]["build"]["version"], "3.141.59", "{status}");
    let page = ask(&up, &Request::get("grid.localhost", "/wd/hub/static/resource/hub.html"));
    assert!(page.status == 200 && page.body.contains("WebDriver Hub"), "{page:?}");
    // No browser is here: the refusal is the server's own.
    let wanted = json!({"desiredCapabilities": {"browserName": "no-such-browser"}}).to_string();
    let post = Request::post("grid.localhost", "/wd/hub/session", wanted.as_bytes())
        .header("content-type", "application/json");
    let refused = ask(&up, &post);
    assert!(refused.status >= 400 && refused.body.contains("no-such-browser"), "{refused:?}");
}
