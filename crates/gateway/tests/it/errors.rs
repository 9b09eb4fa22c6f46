//! Errors of the gateway's own: stable codes, in the form that the client likes.

use crate::support::{Raw, Rig, World, app_ref, dead_address};
use serde_json::json;
use std::io::Write;
use towpath_testkit::HttpApp;

#[tokio::test]
async fn each_kind_of_absence_has_its_code() {
    let mut world = World::new().app("empty", json!({})).app("dead", json!({"retry": {"retries": 0}}));
    world = world.instance("dead", dead_address()).item(json!({
        "kind": "app", "app": app_ref("stopped"), "upstream": {}, "stopped": true, "lanes": ["base"],
    }));
    world = world
        .item(json!({"kind": "route", "host": "stopped.localhost", "path": "/", "app": app_ref("stopped")}));
    world = world.item(json!({
        "kind": "app", "app": app_ref("half"), "upstream": {}, "stopped": false, "base_stopped": true,
        "lanes": ["base", "blue"],
    }));
    world =
        world.item(json!({"kind": "route", "host": "half.localhost", "path": "/", "app": app_ref("half")}));
    let rig = Rig::start(world).await;
    for (host, status, code) in [
        ("nobody.localhost", 404, "no_route"),
        ("stopped.localhost", 503, "app_stopped"),
        ("half.localhost", 503, "app_stopped"),
        ("empty.localhost", 503, "no_endpoint"),
        ("dead.localhost", 502, "connect_failed"),
    ] {
        let answer = rig.get(host, "/");
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{host}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!(answer.json()["status"], status);
        assert_eq!(answer.json()["instance"], answer.header("x-request-id").unwrap());
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let html = rig.client().request(&format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nAccept: text/html,*/*;q=0.8\r\nX-Request-Id: my-id\r\n\r\n"
        ));
        assert_eq!((html.status, html.header("content-type")), (status, Some("text/html; charset=utf-8")));
        let page = html.text();
        assert!(
            page.contains(code)
                && page.contains("my-id")
                && !page.contains("src=")
                && !page.contains("href="),
            "{page}"
        );
        let mut client = rig.client();
        let head = client.request(&format!("HEAD / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!((head.status, head.body.len()), (status, 0));
        assert_eq!(
            client.request(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).status,
            status,
            "the connection stays"
        );
    }
}

#[tokio::test]
async fn timeouts_have_their_codes_and_never_outlive_the_total() {
    let raw = Raw::start(|_, mut client| {
        client.read_request();
        client.rest();
    });
    let app = |timeouts| json!({"timeouts": timeouts, "retry": {"retries": 5, "min_per_10s": 100}, "ejection": {"consecutive": 0, "rate": 0.0}});
    let mut world = World::new()
        .app("try", app(json!({"response": "200ms"})))
        .app("total", app(json!({"response": "400ms", "total": "600ms"})));
    for name in ["try", "total", "total", "total", "total"] {
        world = world.instance(name, raw.address);
    }
    let rig = Rig::start(world).await;
    let answer = rig.get("try.localhost", "/");
    assert_eq!((answer.status, &answer.json()["code"]), (504, &json!("upstream_timeout")));
    let before = raw.connections();
    let answer = rig.get("total.localhost", "/");
    assert_eq!(answer.status, 504);
    let tries = raw.connections() - before;
    assert!((1..=2).contains(&tries), "{tries} tries of 400 ms within a total of 600 ms");
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_ended() {
    let raw = Raw::start(|_, mut client| {
        client.read_request();
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        client.rest();
    });
    let world =
        World::new().app("shop", json!({"timeouts": {"idle": "200ms"}})).instance("shop", raw.address);
    let rig = Rig::start(world).await;
    let mut client = rig.client();
    client.send("GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n");
    assert_eq!(client.head().status, 200);
    assert_eq!(client.rest(), b"hello");
}

#[tokio::test]
async fn a_stream_that_goes_on_outlives_total_and_idle() {
    let app = HttpApp::start("a");
    let timeouts = json!({"timeouts": {"idle": "5s", "total": "300ms"}});
    let rig = Rig::start(World::new().app("shop", timeouts).instance("shop", app.address())).await;
    let answer = rig.get("shop.localhost", "/sse/10/100");
    assert!(answer.text().ends_with("data: event 9\n\n"));
}

#[tokio::test]
async fn a_total_that_passes_while_connecting_is_not_the_instances_failure() {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    // Fill the queue of connections that nobody accepts, so that the next one is not even refused.
    let mut queued = Vec::new();
    while let Ok(stream) =
        std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_millis(300))
    {
        queued.push(stream);
    }
    let spec = json!({"timeouts": {"connect": "10s", "total": "300ms"}, "ejection": {"consecutive": 1}});
    let rig = Rig::start(World::new().app("shop", spec).instance("shop", address)).await;
    let answer = rig.get("shop.localhost", "/");
    assert_eq!((answer.status, &answer.json()["code"]), (504, &json!("upstream_timeout")));
    assert!(rig.metric("towpath_gateway_ejections_total") == 0.0);
}

#[tokio::test]
async fn a_wish_to_eject_is_no_ejection() {
    let (bad, good) = (dead_address(), HttpApp::start("a"));
    let spec = json!({"ejection": {"consecutive": 1}, "retry": {"retries": 1, "min_per_10s": 100}, "balancer": "roundrobin"});
    let world = World::new()
        .app("alone", spec.clone())
        .instance("alone", bad)
        .app("both", spec)
        .instance("both", bad)
        .instance("both", good.address());
    let rig = Rig::start(world).await;
    for _ in 0..3 {
        assert_eq!(rig.get("alone.localhost", "/").status, 502);
    }
    assert!(rig.metric("towpath_gateway_ejections_total") == 0.0, "at most half of a tier is ejected");
    for _ in 0..4 {
        assert_eq!(rig.get("both.localhost", "/status/200").status, 200);
    }
    assert!(rig.metric("towpath_gateway_ejections_total") == 1.0);
}

#[tokio::test]
async fn silence_in_a_stream_is_a_failure_only_where_bytes_are_owed() {
    let raw = Raw::start(|_, mut client| {
        let head = client.read_request();
        let length =
            if head[0].contains("/owed") { "Content-Length: 10" } else { "Transfer-Encoding: chunked" };
        let body = if head[0].contains("/owed") { "hello" } else { "5\r\nhello\r\n" };
        client.send(format!("HTTP/1.1 200 OK\r\n{length}\r\n\r\n{body}"));
        client.rest();
    });
    let spec = json!({"timeouts": {"idle": "200ms"}, "ejection": {"consecutive": 1, "max_share": 1.0}});
    let rig = Rig::start(World::new().app("shop", spec).instance("shop", raw.address)).await;
    for (path, ejections) in [("/events", 0.0), ("/owed", 1.0)] {
        let mut client = rig.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: shop.localhost\r\n\r\n"));
        assert_eq!(client.head().status, 200);
        assert!(String::from_utf8_lossy(&client.rest()).contains("hello"));
        assert!((rig.metric("towpath_gateway_ejections_total") - ejections).abs() < 0.1, "{path}");
    }
    assert!(rig.metric("towpath_gateway_errors_total{code=\"upstream_timeout\"}") == 2.0);
}

#[tokio::test]
async fn some_interim_responses_are_taken_and_a_flood_of_them_is_no_answer() {
    const EARLY: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
    let some = Raw::start(|_, mut client| {
        client.read_request();
        (0..20).for_each(|_| client.send(EARLY));
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    let flood = Raw::start(|_, mut client| {
        client.read_request();
        while client.stream.write_all(EARLY).is_ok() {}
    });
    let world = World::new()
        .app("some", json!({}))
        .instance("some", some.address)
        .app("flood", json!({"retry": {"retries": 0}}))
        .instance("flood", flood.address);
    let rig = Rig::start(world).await;
    assert_eq!(rig.get("some.localhost", "/").text(), "ok");
    let answer = rig.get("flood.localhost", "/");
    assert_eq!((answer.status, answer.json()["code"].as_str()), (502, Some("upstream_failed")));
}
