//! What instances get to see of a request, and clients of a response.

use crate::support::{Raw, Rig, World};
use serde_json::json;
use towpath_testkit::HttpApp;

async fn rig(app: &HttpApp) -> Rig {
    Rig::start(World::new().app("shop", json!({})).instance("shop", app.address())).await
}

#[tokio::test]
async fn hop_by_hop_headers_end_here_and_others_pass() {
    let app = HttpApp::start("a");
    let rig = rig(&app).await;
    let answer = rig.client().request(
        "GET /x?y=1 HTTP/1.1\r\nHost: Shop.localhost:8080\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n\
         Proxy-Connection: keep-alive\r\nProxy-Authorization: x\r\nTE: gzip\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\
         X-End: 1\r\nX-End: 2\r\nCookie: a=b\r\n\r\n",
    );
    assert_eq!(answer.status, 200);
    for gone in [
        "connection",
        "x-hop",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "te",
        "upgrade",
        "http2-settings",
    ] {
        assert_eq!(answer.seen(gone), None, "{gone}");
    }
    assert_eq!(answer.seen_all("x-end"), ["1", "2"]);
    assert_eq!(answer.seen("cookie").unwrap(), "a=b");
    assert_eq!(answer.seen("host").unwrap(), "Shop.localhost:8080", "the host stays as the client wrote it");
    assert_eq!(answer.json()["path"], "/x?y=1");
    assert_eq!(answer.json()["method"], "GET");
}

#[tokio::test]
async fn who_asked_is_said_and_the_unasked_word_of_clients_is_not_believed() {
    let app = HttpApp::start("a");
    let world = World::new().app("shop", json!({})).instance("shop", app.address());
    let trusting =
        Rig::start_with(world, |settings| settings.trusted = vec!["127.0.0.0/8".parse().unwrap()], None)
            .await;
    let request = "GET / HTTP/1.1\r\nHost: shop.localhost\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\n\
                   X_Forwarded_For: 8.8.8.8\r\nX-Real-IP: 8.8.8.8\r\nForwarded: for=9.9.9.9\r\nVia: 1.1 other\r\n\r\n";
    let answer = trusting.client().request(request);
    assert_eq!(answer.seen("x-forwarded-for").unwrap(), "9.9.9.9, 127.0.0.1");
    assert_eq!(answer.seen("x-forwarded-proto").unwrap(), "https");
    assert_eq!(answer.seen("x-forwarded-host").unwrap(), "shop.localhost");
    assert_eq!(
        answer.seen("forwarded").unwrap(),
        "for=9.9.9.9, for=127.0.0.1;host=\"shop.localhost\";proto=http"
    );
    assert_eq!(answer.seen("via").unwrap(), "1.1 other, 1.1 towpath");
    assert_eq!((answer.seen("x_forwarded_for"), answer.seen("x-real-ip")), (None, None));

    // On one machine every client has a cell's address: that alone is no reason to believe it.
    let outside = rig(&app).await;
    let answer = outside.client().request(request);
    assert_eq!(answer.seen_all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(answer.seen("x-forwarded-proto").unwrap(), "http");
    assert_eq!(answer.seen("forwarded").unwrap(), "for=127.0.0.1;host=\"shop.localhost\";proto=http");
}

#[tokio::test]
async fn request_id_and_trace_context_are_made_when_absent_and_kept_when_good() {
    let app = HttpApp::start("a");
    let rig = rig(&app).await;
    let made = rig.get("shop.localhost", "/");
    let id = made.seen("x-request-id").unwrap();
    assert_eq!(id.len(), 32);
    assert!(id.bytes().all(|b| b.is_ascii_hexdigit()));
    assert_eq!(made.header("x-request-id"), Some(id.as_str()), "the client gets it too");
    let trace = made.seen("traceparent").unwrap();
    assert!(trace.starts_with("00-") && trace.len() == 55 && trace.ends_with("-01"), "{trace}");
    assert_ne!(rig.get("shop.localhost", "/").seen("x-request-id").unwrap(), id);

    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let kept = rig.client().request(&format!(
        "GET / HTTP/1.1\r\nHost: shop.localhost\r\nX-Request-Id: my-id\r\ntraceparent: {trace}\r\ntracestate: a=b\r\n\r\n"
    ));
    assert_eq!(kept.seen("x-request-id").unwrap(), "my-id");
    assert_eq!(kept.header("x-request-id"), Some("my-id"));
    assert_eq!(kept.seen("traceparent").unwrap(), trace);
    assert_eq!(kept.seen("tracestate").unwrap(), "a=b");

    let mended = rig.client().request(
        "GET / HTTP/1.1\r\nHost: shop.localhost\r\nX-Request-Id: a b\r\ntraceparent: nonsense\r\ntracestate: a=b\r\n\r\n",
    );
    assert_eq!(mended.seen("x-request-id").unwrap().len(), 32);
    assert_eq!(mended.seen("traceparent").unwrap().len(), 55);
    assert_eq!(mended.seen("tracestate"), None);
}

#[tokio::test]
async fn a_client_that_closes_does_not_cost_the_instances_connection() {
    let app = HttpApp::start("a");
    let rig = rig(&app).await;
    for _ in 0..5 {
        let mut client = rig.client();
        let answer = client.request("GET / HTTP/1.1\r\nHost: shop.localhost\r\nConnection: close\r\n\r\n");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(client.is_closed());
    }
    assert_eq!(app.connections(), 1);
}

#[tokio::test]
async fn http_10_clients_get_what_they_understand() {
    let app = HttpApp::start("a");
    let rig = rig(&app).await;
    let mut client = rig.client();
    client.send("GET /sse/2/1 HTTP/1.0\r\nHost: shop.localhost\r\n\r\n");
    let text = String::from_utf8(client.rest()).unwrap();
    assert!(
        text.starts_with("HTTP/1.0 200") && !text.contains("chunked") && text.ends_with("event 1\n\n"),
        "{text}"
    );
    let mut client = rig.client();
    let request = "GET /bytes/3 HTTP/1.0\r\nHost: shop.localhost\r\nConnection: keep-alive\r\n\r\n";
    for _ in 0..2 {
        assert_eq!(client.request(request).body, b"xxx");
    }
}

#[tokio::test]
async fn responses_without_body_keep_their_length_and_the_connection() {
    let app = HttpApp::start("a");
    let rig = rig(&app).await;
    let mut client = rig.client();
    let head = client.request("HEAD /bytes/1000 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n");
    assert_eq!((head.status, head.header("content-length")), (200, Some("1000")));
    for code in [204, 304] {
        let answer = client.request(&format!("GET /status/{code} HTTP/1.1\r\nHost: shop.localhost\r\n\r\n"));
        assert_eq!((answer.status, answer.body.len()), (code, 0));
    }
    assert_eq!(client.request("GET /bytes/3 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n").body, b"xxx");
    assert_eq!(app.connections(), 1);
}

#[tokio::test]
async fn hop_by_hop_headers_of_responses_end_here_too() {
    let raw = Raw::saying(
        "HTTP/1.1 200 OK\r\nConnection: close, x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nServer: me\r\n\
         Set-Cookie: a=b\r\nSet-Cookie: c=d\r\nContent-Length: 2\r\n\r\nhi",
    );
    let rig = Rig::start(World::new().app("shop", json!({})).instance("shop", raw.address)).await;
    let mut client = rig.client();
    let answer = client.request("GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n");
    assert_eq!((answer.status, answer.text().as_str()), (200, "hi"));
    for gone in ["connection", "x-hop", "keep-alive"] {
        assert_eq!(answer.header(gone), None, "{gone}");
    }
    assert_eq!(answer.header("server"), Some("me"));
    assert_eq!(answer.all("set-cookie"), ["a=b", "c=d"]);
    assert!(answer.header("date").is_some());
    assert_eq!(
        client.request("GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n").status,
        200,
        "the client's connection stays"
    );
}

#[tokio::test]
async fn a_routes_path_is_cut_off_where_it_asks_for_that() {
    let app = HttpApp::start("a");
    let route = json!({
        "kind": "route", "host": "shop.localhost", "path": "/api", "app": crate::support::app_ref("shop"), "strip_path": true,
    });
    let world = World::new().app("shop", json!({})).item(route).instance("shop", app.address());
    let rig = Rig::start(world).await;
    let answer = rig.get("shop.localhost", "/api/items?x=1");
    assert_eq!(answer.json()["path"], "/items?x=1");
    assert_eq!(answer.seen("x-forwarded-prefix").unwrap(), "/api");
    assert_eq!(rig.get("shop.localhost", "/apix").json()["path"], "/apix");
    let absolute =
        rig.client().request("GET http://shop.localhost/api HTTP/1.1\r\nHost: shop.localhost\r\n\r\n");
    assert_eq!(absolute.json()["path"], "/");
}

#[tokio::test]
async fn the_client_behind_trusted_proxies_is_the_one_that_is_logged() {
    let app = HttpApp::start("a");
    let world = World::new().app("shop", json!({})).instance("shop", app.address());
    let trusted = vec!["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
    let rig = Rig::start_with(world, |settings| settings.trusted = trusted, None).await;
    let asked = [
        ("X-Forwarded-For: 6.6.6.6, 9.9.9.9, 10.1.2.3\r\n", "9.9.9.9"),
        ("X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 9.9.9.8:1234\r\n", "9.9.9.8"),
        ("X-Forwarded-For: 10.1.1.1, 10.1.2.3\r\n", "10.1.1.1"),
        ("X-Forwarded-For: 6.6.6.6, unknown\r\n", "127.0.0.1"),
        ("", "127.0.0.1"),
    ];
    for (header, _) in asked {
        let answer = rig.client().request(&format!("GET / HTTP/1.1\r\nHost: shop.localhost\r\n{header}\r\n"));
        assert!(answer.seen("x-forwarded-for").unwrap().ends_with("127.0.0.1"));
    }
    let dir = rig.stop().await;
    let log = std::fs::read_to_string(dir.path().join("access.log")).unwrap();
    let clients: Vec<_> = log
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["client"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(clients, asked.map(|(_, client)| client));
}
