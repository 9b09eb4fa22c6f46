//! Static upstreams: nodes, hosts, retries, TLS, health.

use crate::alone::{Alone, until, upstream};
use crate::support::{Raw, dead_address};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use towpath_testkit::HttpApp;

fn to(upstream: Value) -> Value {
    json!({"routes": [{"id": "1", "uri": "/*", "upstream": upstream}]})
}

fn nodes(weights: &[(SocketAddr, u32)]) -> Value {
    let nodes = weights.iter().map(|(address, weight)| (address.to_string(), json!(weight)));
    Value::Object(nodes.collect())
}

#[tokio::test]
async fn weights_are_obeyed_and_a_node_of_none_gets_nothing_at_once() {
    let (a, b) = (HttpApp::start("a"), HttpApp::start("b"));
    let weights = |a_weight, b_weight| {
        to(json!({"type": "roundrobin", "nodes": nodes(&[(a.address(), a_weight), (b.address(), b_weight)])}))
    };
    let alone = Alone::start(weights(3, 1)).await;
    for _ in 0..40 {
        assert_eq!(alone.get("/").status, 200);
    }
    assert_eq!((a.requests(), b.requests()), (30, 10));
    alone.write(weights(0, 1));
    until("the edit is there", || {
        let before = b.requests();
        (0..4).for_each(|_| drop(alone.get("/")));
        b.requests() == before + 4
    });
    let before = a.requests();
    (0..20).for_each(|_| drop(alone.get("/")));
    assert_eq!(a.requests(), before);
}

#[tokio::test]
async fn the_host_is_passed_on_rewritten_or_the_nodes() {
    let app = HttpApp::start("a");
    let with = |more: Value| {
        let mut spec = upstream(&[app.address()]);
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        to(spec)
    };
    for (more, host) in [
        (json!({}), "a.test".to_owned()),
        (json!({"pass_host": "rewrite", "upstream_host": "up.test"}), "up.test".to_owned()),
        (json!({"pass_host": "node"}), app.address().to_string()),
    ] {
        let alone = Alone::start(with(more)).await;
        assert_eq!(alone.get("/").seen("host").unwrap(), host);
    }
    let named = json!({"type": "roundrobin", "pass_host": "node", "nodes": [{"host": "localhost", "port": app.address().port(), "weight": 1}]});
    let alone = Alone::start(to(named)).await;
    let answer = alone.get("/");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.seen("host").unwrap(), format!("localhost:{}", app.address().port()));
}

#[tokio::test]
async fn three_stale_nodes_in_a_row_do_not_matter_and_no_retries_are_no_retries() {
    let good: Vec<_> = ["a", "b", "c"].map(HttpApp::start).into_iter().collect();
    let mut all = vec![dead_address(), dead_address(), dead_address()];
    all.extend(good.iter().map(HttpApp::address));
    let alone = Alone::start(to(upstream(&all))).await;
    for _ in 0..30 {
        assert_eq!(alone.get("/").status, 200);
    }
    let count = Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    let closing = Raw::start(move |_, mut client| {
        client.read_request();
        seen.fetch_add(1, SeqCst);
    });
    let mut spec = upstream(&[closing.address, good[0].address()]);
    spec["retries"] = json!(0);
    let alone = Alone::start(to(spec)).await;
    let statuses: Vec<_> = (0..4).map(|_| alone.get("/").status).collect();
    let failed = statuses.iter().filter(|status| **status == 502).count();
    assert_eq!(failed, count.load(SeqCst), "{statuses:?}");
    assert!(failed > 0);
}

#[tokio::test]
async fn nodes_are_asked_fall_come_back_and_are_left_alone_once_gone() {
    let (a, b) = (HttpApp::start("a"), HttpApp::start("b"));
    let checks = json!({"active": {"http_path": "/healthz", "healthy": {"interval": 1, "successes": 1}, "unhealthy": {"interval": 1, "http_failures": 1}}});
    let with = |addresses: &[SocketAddr]| {
        let mut spec = upstream(addresses);
        spec["checks"] = checks.clone();
        to(spec)
    };
    let alone = Alone::start(with(&[a.address(), b.address()])).await;
    b.set_status(500);
    let only_a = || {
        let before = a.requests();
        (0..6).for_each(|_| drop(alone.get("/")));
        a.requests() >= before + 6
    };
    until("b has fallen", only_a);
    b.set_status(200);
    until("b has come back", || !only_a());
    alone.write(with(&[a.address()]));
    until("b is gone", || {
        let before = b.requests();
        std::thread::sleep(std::time::Duration::from_millis(2500));
        b.requests() == before
    });
}

#[tokio::test]
async fn passive_checks_take_a_node_out() {
    let (a, b) = (HttpApp::start("a"), HttpApp::start("b"));
    let mut spec = upstream(&[a.address(), b.address()]);
    spec["checks"] = json!({
        "active": {"type": "tcp", "healthy": {"interval": 3600}, "unhealthy": {"interval": 3600}},
        "passive": {"unhealthy": {"http_statuses": [500], "http_failures": 2}},
    });
    let alone = Alone::start(to(spec)).await;
    b.set_status(500);
    until("b has been taken out", || (0..6).all(|_| alone.get("/").status == 200));
    assert!(b.requests() >= 2);
}
