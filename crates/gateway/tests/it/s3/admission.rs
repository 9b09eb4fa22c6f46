//! `s3-admission`.

use super::refusal;
use crate::alone::{Alone, route, until, upstream};
use crate::support::{Client, Raw, dead_address};
use serde_json::{Value, json};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use towpath_testkit::HttpApp;

/// An upstream that says what comes, and answers when it is told to.
struct Held {
    raw: Raw,
    came: Receiver<String>,
    go: Sender<()>,
}

impl Held {
    fn start() -> Self {
        let (tell, came) = channel();
        let (go, gone) = channel();
        let (tell, gone) = (Mutex::new(tell), Arc::new(Mutex::new(gone)));
        let raw = Raw::start(move |_, mut client| {
            while let Some(lines) = client.try_read_request() {
                tell.lock().unwrap().send(lines[0].trim_end_matches(" HTTP/1.1").to_owned()).unwrap();
                if gone.lock().unwrap().recv().is_err() {
                    return;
                }
                client.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        });
        Self { raw, came, go }
    }

    fn next(&self) -> String {
        self.came.recv_timeout(Duration::from_secs(20)).unwrap()
    }
}

fn start_request(alone: &Alone, method: &str, target: &str) -> Client {
    let mut client = alone.client();
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: s3.test\r\nContent-Length: 0\r\n\r\n"));
    client
}

fn waited(alone: &Alone) -> f64 {
    alone.metric("towpath_gateway_s3_waited_total")
}

#[tokio::test]
async fn gets_go_before_puts_and_nobody_is_forgotten() {
    let held = Held::start();
    let config =
        json!({"concurrency": 1, "read": {"weight": 2}, "write": {"weight": 1}, "list": {"weight": 1}});
    let alone =
        Alone::start(json!({"routes": [route(held.raw.address, json!({"s3-admission": config}))]})).await;
    let mut clients = vec![start_request(&alone, "PUT", "/b/first")];
    assert_eq!(held.next(), "PUT /b/first");
    let asked = [
        ("PUT", "/b/1"),
        ("PUT", "/b/2"),
        ("DELETE", "/b/3"),
        ("GET", "/b?list-type=2"),
        ("GET", "/b/4"),
        ("HEAD", "/b/5"),
        ("GET", "/b/6"),
        ("GET", "/b/7"),
    ];
    for (n, (method, target)) in asked.into_iter().enumerate() {
        clients.push(start_request(&alone, method, target));
        until("it waits", || waited(&alone) == (n + 1) as f64);
    }
    let mut order = Vec::new();
    for _ in asked {
        held.go.send(()).unwrap();
        order.push(held.next());
    }
    held.go.send(()).unwrap();
    let place = |text: &str| order.iter().position(|seen| seen == text).unwrap();
    assert_eq!(order[0], "GET /b/4", "{order:?}");
    // Of four turns two are reads' as long as all wait.
    let reads = order.iter().take(5).filter(|seen| {
        !seen.contains("list-type") && !seen.starts_with("PUT") && !seen.starts_with("DELETE")
    });
    assert!(reads.count() >= 2, "{order:?}");
    assert!(place("PUT /b/1") < place("PUT /b/2") && place("PUT /b/1") < 5, "{order:?}");
    assert!(place("DELETE /b/3") < 5 && place("GET /b?list-type=2") < 5, "{order:?}");
    assert!(place("GET /b/4") < place("GET /b/6") && place("GET /b/6") < place("GET /b/7"), "{order:?}");
    for client in &mut clients {
        assert_eq!(client.head().status, 200);
    }
}

#[tokio::test]
async fn who_has_no_room_or_waits_too_long_is_told_to_slow_down() {
    let held = Held::start();
    let config = json!({"concurrency": 1, "retry_after": 7, "read": {"weight": 8, "queue": 1, "max_wait": 0.05}, "write": {"weight": 1, "queue": 0}});
    let alone =
        Alone::start(json!({"routes": [route(held.raw.address, json!({"s3-admission": config}))]})).await;
    let mut first = start_request(&alone, "GET", "/b/first");
    held.next();
    let full = start_request(&alone, "PUT", "/b/k").answer();
    assert_eq!((refusal(&full), full.header("retry-after")), ((503, "SlowDown".into()), Some("7")));
    let late = start_request(&alone, "GET", "/b/k").answer();
    assert_eq!(refusal(&late), (503, "SlowDown".into()));
    assert_eq!(alone.metric("towpath_gateway_s3_turned_away_total"), 2.0);
    held.go.send(()).unwrap();
    assert_eq!(first.answer().status, 200);
    let mut next = start_request(&alone, "PUT", "/b/k");
    assert_eq!(held.next(), "PUT /b/k");
    held.go.send(()).unwrap();
    assert_eq!(next.answer().status, 200);
}

#[tokio::test]
async fn uploads_leave_slots_to_reads() {
    let held = Held::start();
    let alone = Alone::start(json!({"routes": [route(held.raw.address, json!({"s3-admission": {
        "concurrency": 4, "write": {"weight": 2, "max_share": 50}
    }}))]}))
    .await;
    let mut clients: Vec<_> = (0..3).map(|_| start_request(&alone, "PUT", "/b/k")).collect();
    until("the third waits", || waited(&alone) == 1.0);
    assert_eq!([held.next(), held.next()], ["PUT /b/k", "PUT /b/k"]);
    clients.push(start_request(&alone, "GET", "/b/k"));
    assert_eq!(held.next(), "GET /b/k");
    for _ in 0..4 {
        held.go.send(()).unwrap();
    }
    assert_eq!(held.next(), "PUT /b/k");
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
}

/// Two routes, and the slots that both share.
fn shared(held: &Held, app: &HttpApp, other: Value) -> Value {
    let admission = json!({"concurrency": 1, "key": "everything"});
    let mut plugins = other;
    plugins["s3-admission"] = admission.clone();
    json!({"routes": [
        {"id": "1", "uri": "/held/*", "plugins": {"s3-admission": admission}, "upstream": upstream(&[held.raw.address])},
        {"id": "2", "uri": "/*", "plugins": plugins, "upstream": upstream(&[app.address()])},
        {"id": "3", "uri": "/dead/*", "plugins": {"s3-admission": admission}, "upstream": upstream(&[dead_address()])},
    ]})
}

#[tokio::test]
async fn a_slot_comes_back_whatever_ends_the_request() {
    let (held, app) = (Held::start(), HttpApp::start("a"));
    let late_answer = json!({"redirect": {"uri": "/elsewhere", "ret_code": 302}, "limit-count": {"count": 2, "time_window": 3600, "rejected_code": 429}});
    let alone = Alone::start_with(shared(&held, &app, late_answer), |settings| settings.workers = 2).await;
    // Another plugin answers, before and behind; the upstream is dead; nobody is there.
    for _ in 0..3 {
        let statuses = ["/b/k", "/dead/k"].map(|path| alone.get(path).status);
        assert!(statuses.iter().all(|status| [302, 429, 502, 503].contains(status)), "{statuses:?}");
        assert_eq!(alone.metric("towpath_gateway_s3_waited_total"), 0.0);
    }
    // Clients go away while they have it, and while they wait for it.
    let gone = |client: Client| {
        socket2::SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
    };
    let has = start_request(&alone, "GET", "/held/b/has");
    assert_eq!(held.next(), "GET /held/b/has");
    let waits = start_request(&alone, "GET", "/held/b/waits");
    until("it waits", || waited(&alone) == 1.0);
    let mut last = start_request(&alone, "GET", "/held/b/last");
    until("it waits too", || waited(&alone) == 2.0);
    gone(waits);
    until("the first who waited is gone", || alone.metric("towpath_gateway_clients_gone_total") == 1.0);
    gone(has);
    assert_eq!(held.next(), "GET /held/b/last");
    held.go.send(()).unwrap();
    held.go.send(()).unwrap();
    assert_eq!(last.answer().status, 200);
    assert_eq!(alone.get("/dead/k").status, 502);
    assert_eq!(waited(&alone), 2.0);
}

#[tokio::test]
async fn slots_are_shared_by_all_workers_and_by_each_value_of_a_key() {
    let held = Held::start();
    let with =
        |admission: Value| json!({"routes": [route(held.raw.address, json!({"s3-admission": admission}))]});
    let by_bucket = json!({"concurrency": 1, "key_type": "var", "key": "arg_k"});
    let alone = Alone::start_with(with(by_bucket), |settings| settings.workers = 2).await;
    // Each connection goes to one of both workers; none of these values waits for another.
    let mut clients: Vec<_> = (0..6).map(|n| start_request(&alone, "GET", &format!("/b/k?k={n}"))).collect();
    (0..6).for_each(|_| drop(held.next()));
    assert_eq!(waited(&alone), 0.0);
    clients.extend((0..6).map(|n| start_request(&alone, "GET", &format!("/b/k?k={n}"))));
    until("all of the second wait", || waited(&alone) == 6.0);
    (0..12).for_each(|_| held.go.send(()).unwrap());
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
}
