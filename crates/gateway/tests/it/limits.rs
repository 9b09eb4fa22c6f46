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
        settings.timeouts.head_ms = 300;
        settings.timeouts.keep_alive_ms = 400;
    };
    let rig = Rig::start_with(world(&app), settings, None).await;
    let mut slow = rig.client();
    slow.send("GET / HTTP/1.1\r\nHost: shop.loc");
    let answer = slow.answer();
    assert_eq!((answer.status, &answer.json()["code"]), (408, &json!("client_timeout")));
    assert!(slow.is_closed());
    let mut silent = rig.client();
    assert!(silent.is_closed(), "a client that never says anything");
    let mut idle = rig.client();
    assert_eq!(idle.request("GET /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n").status, 200);
    let since = Instant::now();
    assert!(idle.is_closed());
    assert!(since.elapsed().as_millis() >= 300);
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
