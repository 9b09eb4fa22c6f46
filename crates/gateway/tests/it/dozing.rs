//! Kept connections that nothing comes over for a while give back all but their socket, and nobody notices.

use crate::support::{Client, PATIENCE, Rig, World};
use serde_json::json;
use std::net::Shutdown;
use towpath_testkit::HttpApp;
use towpath_testkit::wait::block_until;

const GET: &str = "GET /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n";

async fn rig(app: &HttpApp, keep_alive_ms: u64) -> Rig {
    let world = World::new().app("shop", json!({})).instance("shop", app.address());
    Rig::start_with(world, |settings| settings.timeouts.keep_alive_ms = keep_alive_ms, None).await
}

fn until_dozing(rig: &Rig, count: f64) {
    block_until(PATIENCE, "connections that doze", || {
        (rig.metric("towpath_gateway_connections_dozing") == count).then_some(())
    });
}

fn dozing(rig: &Rig) -> Client {
    let mut client = rig.client();
    assert_eq!(client.request(GET).status, 200);
    until_dozing(rig, 1.0);
    client
}

#[tokio::test]
async fn a_connection_that_dozed_off_serves_on() {
    let app = HttpApp::start("a");
    let rig = rig(&app, 600_000).await;
    let mut client = dozing(&rig);
    for request in
        [GET, "POST /status/200 HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 5\r\n\r\nhello"]
    {
        assert_eq!(client.request(request).status, 200, "{request:?}");
        until_dozing(&rig, 1.0);
    }
    // Several in one go, the head in pieces, and more than wakes it.
    client.send(format!("{GET}{GET}GET /status/200 HT"));
    assert_eq!((client.answer().status, client.answer().status), (200, 200));
    client.send(format!("TP/1.1\r\nHost: shop.localhost\r\nx-long: {}\r\n\r\n", "y".repeat(8000)));
    assert_eq!(client.answer().status, 200);
    assert_eq!(rig.metric("towpath_gateway_connections_accepted_total"), 1.0);
}

#[tokio::test]
async fn one_that_wakes_is_guarded_as_before() {
    let app = HttpApp::start("a");
    let rig = rig(&app, 600_000).await;
    let mut client = dozing(&rig);
    let refused = client.request(
        "POST /status/200 HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    assert_eq!(refused.status, 400);
    assert!(client.is_closed());
}

#[tokio::test]
async fn clients_that_go_and_time_that_ends_end_it() {
    let app = HttpApp::start("a");
    let rig = rig(&app, 3_000).await;
    let client = dozing(&rig);
    drop(client);
    until_dozing(&rig, 0.0);
    let mut client = dozing(&rig);
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert!(client.is_closed());
    let mut late = dozing(&rig);
    assert!(late.is_closed(), "its keep-alive time ends while it dozes");
    block_until(PATIENCE, "no connection left", || {
        (rig.metric("towpath_gateway_connections") == 0.0).then_some(())
    });
}

/// Answers of many sizes, so that some have ended for the gateway and not for the socket: their last part is between the two.
#[tokio::test]
async fn who_still_reads_its_answer_gets_it_whole() {
    let app = HttpApp::start("a");
    let rig = rig(&app, 600_000).await;
    let mut slow = Vec::new();
    for bytes in (1..40).map(|n| n << 17) {
        let mut client = rig.client();
        client.send(format!("GET /bytes/{bytes} HTTP/1.1\r\nHost: shop.localhost\r\n\r\n"));
        let head = client.head();
        assert_eq!(head.status, 200);
        slow.push((client, bytes));
    }
    let mut quick = rig.client();
    assert_eq!(quick.request(GET).status, 200);
    block_until(PATIENCE, "the quick one dozes, so the time is over for the others", || {
        (rig.metric("towpath_gateway_connections_dozing") >= 1.0).then_some(())
    });
    for (client, bytes) in &mut slow {
        assert_eq!(client.bytes(*bytes).len(), *bytes);
        assert_eq!(client.request(GET).status, 200, "and it serves on");
    }
}

#[tokio::test]
async fn a_drain_ends_those_that_doze() {
    let app = HttpApp::start("a");
    let rig = rig(&app, 600_000).await;
    let mut client = dozing(&rig);
    rig.stop().await;
    assert!(client.is_closed());
}
