//! Clients that end their side of the connection after their request, and wait for the answer.

use crate::support::{PATIENCE, Rig, World};
use serde_json::json;
use std::net::Shutdown;
use std::time::Duration;
use towpath_testkit::HttpApp;
use towpath_testkit::wait::block_until;

/// Idle connections are kept for longer than a test waits, so that an end is one that was asked for.
async fn rig(app: &HttpApp) -> Rig {
    let world = World::new().app("shop", json!({})).instance("shop", app.address());
    Rig::start_with(world, |settings| settings.timeouts.keep_alive_ms = 600_000, None).await
}

#[tokio::test]
async fn who_has_said_everything_gets_the_answer_and_the_end() {
    let app = HttpApp::start("a");
    let rig = rig(&app).await;
    for (request, answers) in [
        ("GET /delay/300 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n", 1),
        ("GET /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n", 1),
        ("POST /delay/300 HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 5\r\n\r\nhello", 1),
        (
            "POST /delay/300 HTTP/1.1\r\nHost: shop.localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            1,
        ),
        (
            "GET /delay/300 HTTP/1.1\r\nHost: shop.localhost\r\n\r\nGET /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
            2,
        ),
    ] {
        let mut client = rig.client();
        client.send(request);
        client.stream.shutdown(Shutdown::Write).unwrap();
        for _ in 0..answers {
            assert_eq!(client.answer().status, 200, "{request:?}");
        }
        assert!(client.is_closed(), "{request:?}");
    }
    block_until(PATIENCE, "no connection left", || {
        (rig.metric("towpath_gateway_connections") == 0.0).then_some(())
    });
    assert_eq!(rig.metric("towpath_gateway_clients_gone_total"), 0.0);
}

#[tokio::test]
async fn a_large_answer_comes_whole_though_much_of_it_waits_for_the_client() {
    const BYTES: usize = 24 << 20;
    let app = HttpApp::start("a");
    let rig = rig(&app).await;
    for _ in 0..5 {
        let mut client = rig.client();
        client.send(format!("GET /bytes/{BYTES} HTTP/1.1\r\nHost: shop.localhost\r\n\r\n"));
        client.stream.shutdown(Shutdown::Write).unwrap();
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.len()), (200, BYTES));
        assert!(client.is_closed());
    }
}

#[tokio::test]
async fn who_ends_in_the_middle_of_a_request_or_after_an_answer_is_gone() {
    let app = HttpApp::start("a");
    let rig = rig(&app).await;
    for cut in [
        "POST /delay/0 HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 50\r\n\r\nhello",
        "GET /status/200 HTTP/1.1\r\nHost:",
        "",
    ] {
        let mut client = rig.client();
        client.send(cut);
        client.stream.shutdown(Shutdown::Write).unwrap();
        let _ = client.rest();
    }
    let mut client = rig.client();
    assert_eq!(client.request("GET /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n").status, 200);
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert!(client.is_closed());
    block_until(Duration::from_secs(60), "no connection left", || {
        (rig.metric("towpath_gateway_connections") == 0.0).then_some(())
    });
}
