//! `proxy-cache` through a real gateway.

use crate::alone::{Alone, route, until};
use crate::support::{Answer, Client, Raw};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};

/// An upstream that answers the n-th request with what `answer` makes of n and the head, and counts.
fn upstream(answer: impl Fn(usize, &[String]) -> String + Send + Sync + 'static) -> (Raw, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let raw = Raw::start(move |_, mut client| {
        while let Some(head) = client.try_read_request() {
            let n = counted.fetch_add(1, SeqCst) + 1;
            client.send(answer(n, &head));
        }
    });
    (raw, asked)
}

fn ok(headers: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn cached(config: Value) -> Value {
    let mut all = json!({"cache_strategy": "memory"});
    all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    json!({"proxy-cache": all})
}

async fn start(raw: &Raw, plugins: Value) -> Alone {
    Alone::start(json!({"routes": [route(raw.address, plugins)]})).await
}

fn status(answer: &Answer) -> &str {
    answer.header("apisix-cache-status").unwrap_or("none")
}

fn lacks(head: &[String], name: &str) -> bool {
    !head.iter().any(|line| line.to_ascii_lowercase().starts_with(name))
}

#[tokio::test]
async fn a_second_request_is_answered_from_memory() {
    let (raw, asked) = upstream(|n, _| ok("ETag: \"e\"\r\nX-Own: 1\r\n", &format!("body {n}")));
    let alone = start(&raw, cached(json!({}))).await;
    let first = alone.get("/a?x=1");
    assert_eq!(
        (status(&first), first.text().as_str(), first.header("content-length")),
        ("MISS", "body 1", Some("6"))
    );
    let second = alone.get("/a?x=1");
    assert_eq!(
        (status(&second), second.text().as_str(), second.header("x-own")),
        ("HIT", "body 1", Some("1"))
    );
    assert!(second.header("age").is_some());
    assert_ne!(first.header("x-request-id"), second.header("x-request-id"));
    let head = alone.send("HEAD /a?x=1 HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!((status(&head), head.header("content-length")), ("HIT", Some("6")));
    let known = alone.get_with("/a?x=1", "If-None-Match: W/\"e\"");
    assert_eq!((known.status, status(&known)), (304, "HIT"));
    for (path, lines) in [("/a?x=2", "X: 1"), ("/a?x=1", "Range: bytes=0-1")] {
        assert_ne!(status(&alone.get_with(path, lines)), "HIT", "{path} {lines}");
    }
    assert_eq!(asked.load(SeqCst), 3);
    assert_eq!(alone.metric("towpath_gateway_cache_hits_total"), 3.0);
    // PURGE forgets it.
    let purge = "PURGE /a?x=1 HTTP/1.1\r\nHost: a.test\r\n\r\n";
    assert_eq!((alone.send(purge).status, alone.send(purge).status), (200, 404));
    assert_eq!(status(&alone.get("/a?x=1")), "MISS");
    // So does a write.
    assert_eq!(status(&alone.get("/a?x=1")), "HIT");
    let post = alone.send("POST /a?x=1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(status(&post), "BYPASS");
    assert_eq!(status(&alone.get("/a?x=1")), "MISS");
}

#[tokio::test]
async fn what_must_not_be_kept_is_not() {
    let (raw, _) = upstream(|_, head| {
        let line = head.iter().find_map(|line| line.strip_prefix("x-say: ").or(line.strip_prefix("X-Say: ")));
        let line = line.map_or_else(String::new, |line| format!("{line}\r\n"));
        ok(&line, "x")
    });
    let alone =
        start(&raw, cached(json!({"no_cache": ["$arg_never"], "cache_bypass": ["$http_x_fresh"]}))).await;
    for (n, (say, kept)) in [
        ("X: 1", true),
        ("Cache-Control: private", false),
        ("Cache-Control: no-store", false),
        ("Cache-Control: no-cache", false),
        ("Cache-Control: max-age=0", false),
        ("Cache-Control: max-age=60", true),
        ("Expires: 0", false),
        ("Set-Cookie: a=1", false),
        ("Vary: *", false),
        ("Content-Type: text/event-stream", false),
    ]
    .into_iter()
    .enumerate()
    {
        let get = || alone.get_with(&format!("/{n}"), &format!("X-Say: {say}"));
        assert_eq!((status(&get()), status(&get())), ("MISS", if kept { "HIT" } else { "MISS" }), "{say}");
    }
    for say in ["X: 1", "Cache-Control: public, max-age=60", "Cache-Control: s-maxage=60"] {
        let get = || {
            alone.get_with(
                &format!("/auth/{}", say.len()),
                &format!("Authorization: Bearer x\r\nX-Say: {say}"),
            )
        };
        get();
        assert_eq!(status(&get()) == "HIT", say != "X: 1", "{say}");
    }
    let never = || alone.get_with("/n?never=1", "X-Say: X: 1");
    assert_eq!((status(&never()), status(&never())), ("MISS", "MISS"));
    assert_eq!(status(&alone.get_with("/0", "X-Fresh: 1\r\nX-Say: X: 1")), "BYPASS");
    assert_eq!(status(&alone.get_with("/0", "X-Say: X: 1")), "HIT");
}

#[tokio::test]
async fn responses_that_vary_are_told_apart() {
    let (raw, asked) = upstream(|n, _| ok("Vary: Accept-Language\r\n", &n.to_string()));
    let alone = start(&raw, cached(json!({}))).await;
    let get = |language: &str| alone.get_with("/", &format!("Accept-Language: {language}")).text();
    assert_eq!(
        (get("de"), get("fr"), get("de"), get("fr")),
        ("1".into(), "2".into(), "1".into(), "2".into())
    );
    assert_eq!(alone.get("/").text(), "3");
    assert_eq!(asked.load(SeqCst), 3);
}

#[tokio::test]
async fn what_is_old_is_asked_for_again_and_served_when_nobody_answers() {
    let (raw, asked) = upstream(|n, head| {
        match n {
        1 => ok("ETag: \"1\"\r\nAge: 100\r\nCache-Control: max-age=100, stale-if-error=600\r\n", "one"),
        2 if !lacks(head, "if-none-match: \"1\"") => {
            "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nX-New: 1\r\nCache-Control: max-age=100, stale-if-error=600\r\nAge: 100\r\n\r\n".into()
        }
        3 => "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nbad".into(),
        // No answer at all.
        _ => String::new(),
    }
    });
    let alone = start(&raw, cached(json!({}))).await;
    assert_eq!(status(&alone.get("/")), "MISS");
    let again = alone.get("/");
    assert_eq!((status(&again), again.status, again.text().as_str()), ("REVALIDATED", 200, "one"));
    assert_eq!((again.header("x-new"), again.header("etag")), (Some("1"), Some("\"1\"")));
    let stale = alone.get("/");
    assert_eq!((status(&stale), stale.status, stale.text().as_str()), ("STALE", 200, "one"));
    assert_eq!(asked.load(SeqCst), 3);
}

#[tokio::test]
async fn what_a_304_says_to_one_client_is_not_given_to_others() {
    let (raw, _) = upstream(|_, head| {
        if lacks(head, "if-none-match") {
            let headers = "ETag: \"1\"\r\nAge: 100\r\nCache-Control: max-age=100, stale-if-error=600\r\n";
            return ok(headers, "one");
        }
        let say = match head[0].split(' ').nth(1).unwrap() {
            "/cookie" => "Set-Cookie: a=1",
            "/private" => "Cache-Control: private",
            "/no-store" => "Cache-Control: no-store",
            "/any" => "Vary: *",
            _ => "Vary: X",
        };
        format!("HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nCache-Control: max-age=60\r\n{say}\r\n\r\n")
    });
    let alone = start(&raw, cached(json!({}))).await;
    for path in ["/cookie", "/private", "/no-store", "/any", "/other"] {
        assert_eq!(status(&alone.get(path)), "MISS", "{path}");
        let again = alone.get(path);
        assert_eq!((status(&again), again.text().as_str()), ("REVALIDATED", "one"), "{path}");
        let is_cookie = path == "/cookie";
        assert_eq!(again.header("set-cookie").is_some(), is_cookie);
        let other = alone.get(path);
        assert_eq!(status(&other), if is_cookie { "HIT" } else { "MISS" }, "{path}");
        assert_eq!(other.header("set-cookie"), None);
    }
}

#[tokio::test]
async fn a_request_says_how_old_it_may_be_where_that_counts() {
    let (raw, _) = upstream(|n, _| ok("Age: 50\r\nCache-Control: max-age=100\r\n", &n.to_string()));
    let alone = start(&raw, cached(json!({"cache_control": true, "hide_cache_headers": true}))).await;
    assert_eq!(alone.get_with("/", "Cache-Control: only-if-cached").status, 504);
    let first = alone.get("/");
    assert_eq!((status(&first), first.header("cache-control")), ("MISS", None));
    for (control, expected) in [
        ("max-age=80", "HIT"),
        ("max-age=10", "EXPIRED"),
        ("min-fresh=20", "HIT"),
        ("min-fresh=70", "EXPIRED"),
        ("no-cache", "BYPASS"),
        ("only-if-cached", "HIT"),
    ] {
        let answer = alone.get_with("/", &format!("Cache-Control: {control}"));
        assert_eq!(status(&answer), expected, "{control}");
    }
}

#[tokio::test]
async fn consumers_do_not_see_each_others_responses() {
    let (raw, asked) = upstream(|n, _| ok("", &n.to_string()));
    let plugins = json!({"key-auth": {}, "proxy-cache": {"cache_strategy": "memory"}});
    let consumer = |name: &str| json!({"username": name, "plugins": {"key-auth": {"key": name}}});
    let alone = Alone::start(json!({
        "routes": [route(raw.address, plugins)], "consumers": [consumer("jack"), consumer("jill")],
    }))
    .await;
    let get = |key: &str| alone.get_with("/", &format!("apikey: {key}"));
    assert_eq!(
        (get("jack").text(), get("jill").text(), get("jack").text()),
        ("1".into(), "2".into(), "1".into())
    );
    assert_eq!((alone.get("/").status, get("other").status), (401, 401), "what is kept is for who may ask");
    assert_eq!(asked.load(SeqCst), 2);
}

#[tokio::test]
async fn one_request_fetches_while_others_wait() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let (raw, asked) = upstream(move |n, _| {
        if n == 1 {
            let _ = wait.lock().unwrap().recv();
        }
        ok("", "x")
    });
    let alone = start(&raw, cached(json!({}))).await;
    let mut clients: Vec<Client> = (0..8).map(|_| alone.client()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    }
    until("the upstream is asked", || asked.load(SeqCst) == 1);
    go.send(()).unwrap();
    let answers: Vec<Answer> = clients.iter_mut().map(Client::answer).collect();
    assert_eq!(answers.iter().filter(|answer| status(answer) == "MISS").count(), 1);
    assert!(answers.iter().all(|answer| answer.text() == "x"));
    assert_eq!(asked.load(SeqCst), 1);
}

#[tokio::test]
async fn half_a_response_is_not_kept_whoever_broke_off() {
    let (raw, asked) = upstream(|n, _| match n {
        // The upstream breaks off.
        1 => "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".into(),
        2 => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 8 << 20, "h".repeat(1 << 20)),
        _ => ok("", "whole"),
    });
    let breaking = Raw::start(move |_, mut client| {
        // A connection for each request, closed after it.
        let _ = client.try_read_request();
        let n = asked.load(SeqCst);
        let mut through = Client::connect(raw.address);
        through.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut head = String::new();
        loop {
            let line = through.line();
            head += &format!("{line}\r\n");
            if line.is_empty() {
                break;
            }
        }
        client.send(head);
        match n {
            0 => client.send(through.bytes(4)),
            1 => {
                let bytes = through.bytes(1 << 20);
                // The client is gone by then.
                let _ = std::io::Write::write_all(&mut client.stream, &bytes);
                let _ = client.try_read_request();
            }
            _ => client.send(through.bytes(5)),
        }
    });
    let alone = start(&breaking, cached(json!({}))).await;
    let mut client = alone.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!((client.head().status, client.rest()), (200, b"half".to_vec()));
    let mut client = alone.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.head().header("apisix-cache-status"), Some("MISS"));
    client.bytes(100_000);
    drop(client);
    let whole = alone.get("/");
    assert_eq!((status(&whole), whole.text().as_str()), ("MISS", "whole"));
    assert_eq!(status(&alone.get("/")), "HIT");
}

#[tokio::test]
async fn responses_on_disk_survive_a_restart_and_damage_is_seen() {
    let long = "0123456789abcdef".repeat(40_000);
    let body = long.clone();
    let (raw, asked) = upstream(move |n, head| {
        if head[0].contains("/long") { ok("", &body) } else { ok("X: y\r\n", &format!("short {n}")) }
    });
    let dir = towpath_testkit::temp_dir();
    let cache = dir.path().join("cache");
    let begin = || {
        let cache = cache.clone();
        let resources = json!({"routes": [route(raw.address, json!({"proxy-cache": {}}))]});
        Alone::start_with(resources, move |settings| settings.cache.dir = Some(cache))
    };
    let alone = begin().await;
    let hit = |alone: &Alone, path: &str| {
        let mut last = alone.get(path);
        until("it is a hit", || {
            let done = status(&last) == "HIT";
            if !done {
                last = alone.get(path);
            }
            done
        });
        last
    };
    assert_eq!((status(&alone.get("/long")), status(&alone.get("/short"))), ("MISS", "MISS"));
    assert_eq!(hit(&alone, "/long").text(), long);
    let short = hit(&alone, "/short").text();
    drop(alone);
    let before = asked.load(SeqCst);
    let alone = begin().await;
    let again = hit(&alone, "/long");
    assert_eq!((again.text() == long, again.header("content-length")), (true, Some("640000")));
    let head = alone.send("HEAD /long HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!((status(&head), head.header("content-length")), ("HIT", Some("640000")));
    assert_eq!((hit(&alone, "/short").header("x"), hit(&alone, "/short").text()), (Some("y"), short));
    let asked_more = asked.load(SeqCst) - before;
    // A changed byte in the body of the short one: it is fetched anew.
    let mut damaged = 0;
    for part in std::fs::read_dir(&cache).unwrap() {
        for file in std::fs::read_dir(part.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            if path.extension().unwrap() == "body" && bytes.len() < 100 {
                let mut bytes = bytes;
                *bytes.last_mut().unwrap() ^= 1;
                std::fs::write(&path, bytes).unwrap();
                damaged += 1;
            }
        }
    }
    assert!(damaged >= 1);
    assert_ne!(status(&alone.get("/short")), "HIT");
    assert_eq!(hit(&alone, "/short").header("x"), Some("y"));
    // Until the files were looked through, and while the first response was not written yet, requests went on.
    assert!(asked_more < 50, "{asked_more}");
    assert_eq!(alone.send("PURGE /long HTTP/1.1\r\nHost: a.test\r\n\r\n").status, 200);
    assert_eq!(status(&alone.get("/long")), "MISS");
}

#[tokio::test]
async fn no_route_gets_anothers_response() {
    let (raw, _) = upstream(|n, _| ok("", &n.to_string()));
    let plugins = cached(json!({}));
    let mut one = route(raw.address, plugins.clone());
    one["vars"] = json!([["http_x_which", "==", "1"]]);
    let mut two = route(raw.address, plugins);
    two["id"] = json!("2");
    let alone = Alone::start(json!({"routes": [one, two]})).await;
    assert_eq!(alone.get_with("/", "X-Which: 1").text(), "1");
    assert_eq!(alone.get("/").text(), "2");
    assert_eq!((alone.get_with("/", "X-Which: 1").text(), alone.get("/").text()), ("1".into(), "2".into()));
}

#[tokio::test]
async fn events_go_through_the_cache_and_loggers_and_compression_at_once() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let events = Raw::start(move |_, mut client| {
        client.read_request();
        client.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n");
        let _ = wait.lock().unwrap().recv();
        client.send("9\r\ndata: 2\n\n\r\n0\r\n\r\n");
    });
    let dir = towpath_testkit::temp_dir();
    let alone = start(
        &events,
        json!({
            "proxy-cache": {"cache_strategy": "memory"}, "proxy-buffering": {"disable_proxy_buffering": true},
            "file-logger": {"path": dir.path().join("log"), "include_resp_body": true},
            "gzip": {"types": ["text/event-stream"]}, "brotli": {"types": "*"}, "zstd": {"types": "*"},
            "response-rewrite": {"headers": {"set": {"X": "1"}}},
        }),
    )
    .await;
    let mut client = alone.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let head = client.head();
    assert_eq!((head.header("apisix-cache-status"), head.header("x")), (Some("MISS"), Some("1")));
    assert_eq!((client.line(), client.line()), ("9".into(), "data: 1".into()));
    go.send(()).unwrap();
    while client.line() != "0" {}
    until("the line is there", || {
        std::fs::read_to_string(dir.path().join("log")).is_ok_and(|text| text.ends_with('\n'))
    });
    let line: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("log")).unwrap()).unwrap();
    assert_eq!(line["response"]["body"], "data: 1\n\ndata: 2\n\n");
}
