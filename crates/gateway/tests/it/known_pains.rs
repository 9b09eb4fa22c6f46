//! What gateways of this kind are known to do wrong, on routes of resources.

use crate::alone::{Alone, until};
use crate::support::{Client, Raw};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use towpath_testkit::HttpApp;

fn nodes(weights: &[(SocketAddr, u32)]) -> Value {
    Value::Object(weights.iter().map(|(address, weight)| (address.to_string(), json!(weight))).collect())
}

#[tokio::test]
async fn only_routes_that_say_so_pass_web_sockets_on() {
    let app = Raw::start(|_, mut client| {
        while let Some(head) = client.try_read_request() {
            if head.iter().any(|line| line == "upgrade: websocket") {
                client.send(
                    "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
                );
                let bytes = client.bytes(5);
                return client.send(bytes);
            }
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain");
        }
    });
    let route = |uri: &str, websocket: bool| {
        json!({"id": uri.trim_matches('/'), "uri": uri, "enable_websocket": websocket,
            "upstream": {"nodes": nodes(&[(app.address, 1)])}})
    };
    let alone = Alone::start(json!({"routes": [route("/with", true), route("/without", false)]})).await;
    let ask = |path: &str| {
        let mut client = alone.client();
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n"
        ));
        client
    };
    let mut client = ask("/with");
    assert_eq!(client.head().status, 101);
    client.send("hello");
    assert_eq!(client.bytes(5), b"hello");
    assert!(client.is_closed());
    let answer = ask("/without").answer();
    assert_eq!((answer.status, answer.text().as_str()), (200, "plain"));
}

#[tokio::test]
async fn no_further_attempt_begins_after_the_time_for_retries() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let breaking = || {
        let count = attempts.clone();
        Raw::start(move |_, mut client: Client| {
            client.read_request();
            count.fetch_add(1, SeqCst);
            std::thread::sleep(Duration::from_millis(400));
        })
    };
    let (a, b, c) = (breaking(), breaking(), breaking());
    let with = |seconds: f64| {
        json!({"routes": [{"id": "1", "uri": "/*", "upstream": {"retries": 2, "retry_timeout": seconds,
            "nodes": nodes(&[(a.address, 1), (b.address, 1), (c.address, 1)])}}]})
    };
    for (seconds, expected) in [(0.1, 1), (0.0, 3)] {
        attempts.store(0, SeqCst);
        let alone = Alone::start(with(seconds)).await;
        assert_eq!(alone.get("/").status, 502);
        assert_eq!(attempts.load(SeqCst), expected, "retry_timeout {seconds}");
    }
}

/// Which of the apps answer these requests, each asked several times; each has to be answered by one.
fn answered_by(alone: &Alone, apps: &[HttpApp], lines: impl Fn(usize) -> String) -> BTreeSet<usize> {
    let counts = || apps.iter().map(HttpApp::requests).collect::<Vec<_>>();
    let mut all = BTreeSet::new();
    for n in 0..24 {
        let before = counts();
        for _ in 0..3 {
            assert_eq!(alone.get_with("/x", &lines(n)).status, 200);
        }
        let served: Vec<_> = counts().iter().zip(&before).map(|(now, before)| now - before).collect();
        let at = served.iter().position(|served| *served == 3);
        all.insert(at.unwrap_or_else(|| panic!("request {n} went to several: {served:?}")));
    }
    all
}

#[tokio::test]
async fn a_consistent_hash_goes_by_what_it_is_told_to() {
    let apps = ["a", "b", "c"].map(HttpApp::start);
    // Large weights cost no memory and change no proportion.
    let all: Vec<_> = apps.iter().map(|app| (app.address(), 5_000)).collect();
    let with = |more: Value| {
        let mut upstream = json!({"type": "chash", "nodes": nodes(&all)});
        upstream.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let consumers =
            ["jack", "jill"].map(|name| json!({"username": name, "plugins": {"key-auth": {"key": name}}}));
        let plugins = if more["hash_on"] == "consumer" { json!({"key-auth": {}}) } else { json!({}) };
        json!({"routes": [{"id": "1", "uri": "/*", "plugins": plugins, "upstream": upstream}], "consumers": consumers})
    };
    type Lines = fn(usize) -> String;
    let varied: [(Value, Lines); 4] = [
        (json!({"hash_on": "header", "key": "x-user"}), |n| format!("X-User: {n}")),
        (json!({"hash_on": "cookie", "key": "user"}), |n| format!("Cookie: a=1; user={n}")),
        (json!({"hash_on": "vars", "key": "http_x_user"}), |n| format!("X-User: {n}")),
        (json!({"hash_on": "vars_combinations", "key": "$http_x_user:$remote_addr"}), |n| {
            format!("X-User: {n}")
        }),
    ];
    for (more, lines) in varied {
        let alone = Alone::start(with(more.clone())).await;
        assert_eq!(answered_by(&alone, &apps, lines).len(), 3, "{more}: all nodes serve somebody");
    }
    // What they have in common is all that counts.
    let alone = Alone::start(with(json!({"hash_on": "vars", "key": "remote_addr"}))).await;
    assert_eq!(answered_by(&alone, &apps, |n| format!("X-User: {n}")).len(), 1);
    let alone = Alone::start(with(json!({"hash_on": "consumer"}))).await;
    assert_eq!(answered_by(&alone, &apps, |n| format!("apikey: jack\r\nX-User: {n}")).len(), 1);
}

#[tokio::test]
async fn probing_stops_with_its_node_and_the_health_of_those_that_stay_is_kept() {
    let probes = Arc::new(AtomicUsize::new(0));
    let probed = |status: &'static str| {
        let count = probes.clone();
        Raw::start(move |_, mut client| {
            while let Some(head) = client.try_read_request() {
                if head[0].contains("/probe") {
                    count.fetch_add(1, SeqCst);
                }
                client.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
            }
        })
    };
    let (ill, well) = (probed("500 No"), HttpApp::start("a"));
    let with = |addresses: &[SocketAddr]| {
        let weights: Vec<_> = addresses.iter().map(|address| (*address, 1)).collect();
        json!({"routes": [{"id": "1", "uri": "/*", "upstream": {"nodes": nodes(&weights), "checks": {"active": {
            "http_path": "/probe", "healthy": {"interval": 1, "successes": 1},
            "unhealthy": {"interval": 1, "http_failures": 1}}}}}]})
    };
    let alone = Alone::start(with(&[ill.address, well.address()])).await;
    until("it is found ill", || (0..6).all(|_| alone.get("/status/200").status == 200));
    // Another node comes: the one that is ill stays so, from the first request on.
    let third = HttpApp::start("c");
    alone.write(with(&[ill.address, well.address(), third.address()]));
    until("the third serves", || {
        assert_eq!(alone.get("/status/200").status, 200);
        third.requests() > 0
    });
    alone.write(with(&[well.address(), third.address()]));
    // One that is under way may still come; after that there are none for longer than the interval.
    let mut seen = probes.load(SeqCst);
    let mut quiet = std::time::Instant::now();
    let end = quiet + Duration::from_secs(30);
    while quiet.elapsed() < Duration::from_millis(1_600) {
        assert!(std::time::Instant::now() < end, "it is probed on and on");
        std::thread::sleep(Duration::from_millis(50));
        let now = probes.load(SeqCst);
        if now != seen {
            (seen, quiet) = (now, std::time::Instant::now());
        }
    }
}
