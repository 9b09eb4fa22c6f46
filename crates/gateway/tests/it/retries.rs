//! Only what is safe is sent again.

use crate::support::{Client, Raw, Rig, World, dead_address};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use towpath_testkit::HttpApp;

fn policy(retries: u32) -> Value {
    json!({"retry": {"retries": retries, "min_per_10s": 1000}, "ejection": {"consecutive": 0, "rate": 0.0}, "balancer": "roundrobin"})
}

const POST: &str = "POST /body HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 5\r\n\r\nhello";

/// An instance that takes a whole request and closes, counting.
fn breaking() -> (Raw, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let raw = Raw::start(move |_, mut client: Client| {
        client.read_request();
        count.fetch_add(1, Ordering::SeqCst);
    });
    (raw, requests)
}

#[tokio::test]
async fn a_connect_failure_is_tried_elsewhere_whatever_the_method() {
    let app = HttpApp::start("a");
    let world =
        World::new().app("shop", policy(2)).instance("shop", dead_address()).instance("shop", app.address());
    let rig = Rig::start(world).await;
    for _ in 0..6 {
        assert_eq!(rig.client().request(POST).text(), "hello");
        assert_eq!(rig.get("shop.localhost", "/status/200").status, 200);
    }
    assert!(rig.metric("towpath_gateway_connect_failures_total") > 0.0);
}

#[tokio::test]
async fn with_no_retries_there_is_exactly_one_attempt() {
    let (raw, requests) = breaking();
    let world =
        World::new().app("shop", policy(0)).instance("shop", raw.address).instance("shop", dead_address());
    let rig = Rig::start(world).await;
    let codes: Vec<_> = (0..4).map(|_| rig.get("shop.localhost", "/").json()["code"].clone()).collect();
    assert!(
        codes.contains(&json!("upstream_failed")) && codes.contains(&json!("connect_failed")),
        "{codes:?}"
    );
    assert_eq!(
        requests.load(Ordering::SeqCst),
        codes.iter().filter(|code| *code == "upstream_failed").count()
    );
    assert!(rig.metric("towpath_gateway_retries_total") == 0.0);
}

#[tokio::test]
async fn a_get_is_sent_again_when_the_connection_breaks_and_a_post_never() {
    let (raw, requests) = breaking();
    let app = HttpApp::start("a");
    let world =
        World::new().app("shop", policy(2)).instance("shop", raw.address).instance("shop", app.address());
    let rig = Rig::start(world).await;
    for _ in 0..4 {
        assert_eq!(rig.get("shop.localhost", "/status/200").status, 200);
    }
    assert!(requests.load(Ordering::SeqCst) > 0);
    let before = requests.load(Ordering::SeqCst);
    let mut failed = 0;
    for text in [
        POST,
        "POST /status/200 HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 0\r\n\r\n",
        "PATCH /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n",
    ] {
        for _ in 0..4 {
            failed += usize::from(rig.client().request(text).status == 502);
        }
    }
    assert_eq!(requests.load(Ordering::SeqCst) - before, failed, "each that broke failed, and was seen once");
    assert!(failed > 0);
    let put = "PUT /body HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 5\r\n\r\nhello";
    let before = requests.load(Ordering::SeqCst);
    let failed = (0..4).filter(|_| rig.client().request(put).status == 502).count();
    assert_eq!(requests.load(Ordering::SeqCst) - before, failed, "the body of a PUT was used up");
}

#[tokio::test]
async fn the_budget_bounds_retries() {
    let world = World::new()
        .app("shop", json!({"retry": {"retries": 1, "budget": 0.2, "min_per_10s": 3}, "ejection": {"consecutive": 0, "rate": 0.0}}))
        .instance("shop", dead_address())
        .instance("shop", dead_address());
    let rig = Rig::start(world).await;
    for _ in 0..10 {
        assert_eq!(rig.get("shop.localhost", "/").status, 502);
    }
    let (retried, denied) =
        (rig.metric("towpath_gateway_retries_total"), rig.metric("towpath_gateway_retries_denied_total"));
    assert!((2.0..=5.0).contains(&retried) && (retried + denied - 10.0).abs() < 0.5, "{retried} {denied}");
}

#[tokio::test]
async fn three_dead_endpoints_in_a_row_do_not_hide_the_live_one() {
    let app = HttpApp::start("a");
    let mut world = World::new().app("shop", policy(3));
    for _ in 0..3 {
        world = world.instance("shop", dead_address());
    }
    let rig = Rig::start(world.instance("shop", app.address())).await;
    for _ in 0..8 {
        assert_eq!(rig.get("shop.localhost", "/status/200").status, 200);
    }
}

#[tokio::test]
async fn kept_connections_that_the_instance_has_closed_are_replaced_unseen() {
    // Closes after each response without saying so.
    let closed = Arc::new(AtomicUsize::new(0));
    let count = closed.clone();
    let raw = Raw::start(move |_, mut client| {
        client.read_request();
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        drop(client);
        count.fetch_add(1, Ordering::SeqCst);
    });
    let rig = Rig::start(World::new().app("shop", policy(0)).instance("shop", raw.address)).await;
    for n in 0..10 {
        let answer =
            rig.client().request("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 0\r\n\r\n");
        assert_eq!((answer.status, n), (200, n));
        towpath_testkit::wait::block_until(crate::support::PATIENCE, "the close", || {
            (closed.load(Ordering::SeqCst) > n).then_some(())
        });
    }
    assert_eq!(raw.connections(), 10);
    assert!(rig.metric("towpath_gateway_upstream_stale_total") >= 5.0);
}

#[tokio::test]
async fn an_endpoint_that_fails_again_and_again_is_left_alone() {
    let (raw, requests) = breaking();
    let app = HttpApp::start("a");
    let spec = json!({"ejection": {"consecutive": 3}, "retry": {"retries": 1, "min_per_10s": 1000}, "balancer": "roundrobin"});
    let world = World::new().app("shop", spec).instance("shop", raw.address).instance("shop", app.address());
    let rig = Rig::start(world).await;
    for _ in 0..40 {
        assert_eq!(rig.get("shop.localhost", "/status/200").status, 200);
    }
    assert_eq!(requests.load(Ordering::SeqCst), 3);
    assert!(rig.metric("towpath_gateway_ejections_total") == 1.0);
}

#[tokio::test]
async fn a_kept_connection_that_dies_under_a_get_costs_one_repetition_at_the_same_instance() {
    // Takes a second request on each connection and closes without a word, as a keep-alive timeout does.
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let raw = Raw::start(move |_, mut client| {
        client.read_request();
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        client.read_request();
        count.fetch_add(1, Ordering::SeqCst);
    });
    let spec = json!({"retry": {"retries": 0}, "ejection": {"consecutive": 1}});
    let rig = Rig::start(World::new().app("shop", spec).instance("shop", raw.address)).await;
    for n in 1..=3 {
        assert_eq!(rig.get("shop.localhost", "/").text(), "ok");
        assert_eq!(raw.connections(), n);
    }
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    for metric in ["towpath_gateway_ejections_total", "towpath_gateway_retries_total"] {
        assert!(rig.metric(metric) == 0.0, "{metric}");
    }
    let post = "POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(rig.client().request(post).status, 502, "a POST is not sent twice");
}

#[tokio::test]
async fn an_absurd_keep_alive_of_an_instance_is_taken_as_forever() {
    let raw = Raw::start(|_, mut client| {
        while client.try_read_request().is_some() {
            client.send(
                "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=18446744073709551615\r\nContent-Length: 2\r\n\r\nok",
            );
        }
    });
    let rig = Rig::start(World::new().app("shop", policy(0)).instance("shop", raw.address)).await;
    for _ in 0..3 {
        assert_eq!(rig.get("shop.localhost", "/").text(), "ok");
    }
    assert_eq!(raw.connections(), 1);
}
