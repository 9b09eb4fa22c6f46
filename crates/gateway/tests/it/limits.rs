//! Limits on what clients may cost.

use crate::support::{Rig, World};
use serde_json::json;
use std::time::Instant;
use towpath_testkit::HttpApp;

fn world(app: &HttpApp) -> World {
    World::new().app("shop", json!({"max_body": "1K"})).instance("shop", app.address())
}

#[tokio::test]
async fn large_heads_get_431_and_large_bodies_413() {
    let app = HttpApp::start("a");
    let rig = Rig::start_with(world(&app), |settings| settings.limits.head = 2048, None).await;
    let mut client = rig.client();
    client.send(format!("GET / HTTP/1.1\r\nHost: shop.localhost\r\nX: {}\r\n\r\n", "x".repeat(3000)));
    let answer = client.answer();
    assert_eq!((answer.status, &answer.json()["code"]), (431, &json!("head_too_large")));
    assert!(client.is_closed());
    let many = format!("GET / HTTP/1.1\r\nHost: shop.localhost\r\n{}\r\n", "X: y\r\n".repeat(101));
    assert_eq!(rig.client().request(&many).status, 431);

    let mut client = rig.client();
    client.send("POST /body HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 1025\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, &answer.json()["code"]), (413, &json!("body_too_large")));
    assert_eq!(app.requests(), 0, "a length that is too large is refused before anything is sent");
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: shop.localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("401\r\n{}\r\n0\r\n\r\n", "x".repeat(1025)));
    assert_eq!(client.answer().status, 413);
    let fits = format!(
        "POST /body HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 1024\r\n\r\n{}",
        "x".repeat(1024)
    );
    assert_eq!(rig.client().request(&fits).body.len(), 1024);
}

#[tokio::test]
async fn slow_heads_get_408_and_idle_connections_are_closed() {
    let app = HttpApp::start("a");
    let settings = |settings: &mut towpath_gateway::GatewaySettings| {
        settings.timeouts.head_ms = 2_000;
        settings.timeouts.keep_alive_ms = 2_000;
    };
    let rig = Rig::start_with(world(&app), settings, None).await;
    let mut slow = rig.client();
    slow.send("GET / HTTP/1.1\r\nHost: shop.loc");
    let answer = slow.answer();
    assert_eq!((answer.status, &answer.json()["code"]), (408, &json!("client_timeout")));
    assert!(slow.is_closed());
    let mut silent = rig.client();
    assert!(silent.is_closed(), "a client that never says anything");
    let since = Instant::now();
    let mut idle = rig.client();
    assert_eq!(idle.request("GET /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n").status, 200);
    assert!(idle.is_closed());
    assert!(since.elapsed().as_millis() >= 1_500);
    let mut second = rig.client();
    assert_eq!(second.request("GET /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n").status, 200);
    second.send("GET /");
    assert_eq!(second.answer().status, 408, "the second head of a connection too");
}

#[tokio::test]
async fn a_slow_upload_gets_408() {
    let app = HttpApp::start("a");
    let world =
        World::new().app("shop", json!({"timeouts": {"idle": "200ms"}})).instance("shop", app.address());
    let rig = Rig::start(world).await;
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 10\r\n\r\nabc");
    assert_eq!(client.answer().status, 408);
}

#[tokio::test]
async fn connections_and_requests_per_connection_are_bounded() {
    let app = HttpApp::start("a");
    let settings = |settings: &mut towpath_gateway::GatewaySettings| {
        settings.limits.connections = 2;
        settings.limits.requests_per_connection = 2;
    };
    let rig = Rig::start_with(world(&app), settings, None).await;
    let request = "GET /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n";
    let (mut one, mut two) = (rig.client(), rig.client());
    assert_eq!(one.request(request).header("connection"), None);
    assert_eq!(two.request(request).status, 200);
    let mut three = rig.client();
    let answer = three.answer();
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("overloaded")));
    let last = one.request(request);
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert!(one.is_closed());
    towpath_testkit::wait::block_until(crate::support::PATIENCE, "room for another", || {
        (rig.get("shop.localhost", "/status/200").status == 200).then_some(())
    });
}

#[tokio::test]
async fn as_many_files_may_be_open_as_the_system_permits() {
    use nix::sys::resource::{Resource::RLIMIT_NOFILE, getrlimit, setrlimit};
    let (_, hard) = getrlimit(RLIMIT_NOFILE).unwrap();
    setrlimit(RLIMIT_NOFILE, hard.min(128), hard).unwrap();
    let _rig = Rig::start(World::new()).await;
    assert_eq!(getrlimit(RLIMIT_NOFILE).unwrap(), (hard, hard));
}

#[tokio::test]
async fn the_limit_on_connections_is_one_for_the_process_and_names_the_request() {
    let app = HttpApp::start("a");
    let settings = |settings: &mut towpath_gateway::GatewaySettings| {
        settings.workers = 3;
        settings.limits.connections = 12;
    };
    let rig = Rig::start_with(world(&app), settings, None).await;
    let request = "GET /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n";
    let mut clients: Vec<_> = (0..12).map(|_| rig.client()).collect();
    for client in &mut clients {
        assert_eq!(client.request(request).status, 200, "however the kernel deals clients out to workers");
    }
    let answer = rig.client().answer();
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("overloaded")));
    let id = answer.header("x-request-id").unwrap().to_owned();
    assert_eq!(answer.json()["instance"], json!(id));
    drop(clients);
    let dir = rig.stop().await;
    let log = std::fs::read_to_string(dir.path().join("access.log")).unwrap();
    let line = log.lines().find(|line| line.contains(&id)).unwrap();
    assert!(line.contains("overloaded"), "{line}");
}

/// Takes all descriptors of this process (each test is one of its own).
fn take_all_descriptors() -> Vec<std::fs::File> {
    use nix::sys::resource::{Resource::RLIMIT_NOFILE, getrlimit, setrlimit};
    let (_, hard) = getrlimit(RLIMIT_NOFILE).unwrap();
    setrlimit(RLIMIT_NOFILE, hard.min(256), hard).unwrap();
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

#[tokio::test]
async fn without_descriptors_clients_get_503_and_no_instance_is_blamed() {
    let app = HttpApp::start("a");
    let spec = json!({"ejection": {"consecutive": 1, "max_share": 1.0}, "retry": {"retries": 0}});
    let rig = Rig::start(World::new().app("shop", spec).instance("shop", app.address())).await;
    let request = "GET /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n";
    let mut accepted = rig.client();
    assert_eq!(accepted.request("GET / HTTP/1.1\r\nHost: nobody.localhost\r\n\r\n").status, 404);
    let waiting = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let taken = take_all_descriptors();
    assert!(!taken.is_empty());
    // No descriptor for a connection to the instance.
    let answer = accepted.request(request);
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("overloaded")));
    assert_eq!(answer.json()["instance"], answer.header("x-request-id").unwrap());
    // No descriptor for a client.
    waiting.connect(&rig.address.into()).unwrap();
    let mut waiting = crate::support::Client::of(waiting.into());
    let answer = waiting.request(request);
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("overloaded")));
    assert_eq!(answer.json()["instance"], answer.header("x-request-id").unwrap());
    drop(taken);
    assert_eq!(accepted.request(request).status, 200);
    assert!(rig.metric("towpath_gateway_ejections_total") == 0.0);
    assert!(rig.metric("towpath_gateway_connections_turned_away_total") == 1.0);
}
