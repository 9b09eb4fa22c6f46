//! WebSocket and other protocols behind an upgrade.

use crate::support::{Raw, Rig, World};
use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::ext::Protocol;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use towpath_testkit::HttpApp;

const ASK: &str = "GET /upgrade HTTP/1.1\r\nHost: shop.localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                   Sec-WebSocket-Key: x\r\n\r\n";

#[tokio::test]
async fn an_upgraded_connection_carries_bytes_both_ways() {
    let app = HttpApp::start("a");
    let rig = Rig::start(World::new().app("shop", json!({})).instance("shop", app.address())).await;
    let mut client = rig.client();
    client.send(ASK);
    let answer = client.head();
    assert_eq!(
        (answer.status, answer.header("upgrade"), answer.header("connection")),
        (101, Some("websocket"), Some("upgrade"))
    );
    for text in ["hello", "GET / HTTP/1.1\r\n\r\n", "\0\r\n\n"] {
        client.send(text);
        assert_eq!(client.bytes(text.len()), text.as_bytes());
    }
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(client.is_closed());
    assert!(rig.metric("towpath_gateway_upgrades_total") == 1.0);
}

#[tokio::test]
async fn bytes_sent_ahead_of_the_answer_are_kept_for_the_tunnel() {
    let app = HttpApp::start("a");
    let rig = Rig::start(World::new().app("shop", json!({})).instance("shop", app.address())).await;
    let mut client = rig.client();
    client.send(format!("{ASK}early"));
    assert_eq!(client.head().status, 101);
    assert_eq!(client.bytes(5), b"early");
}

#[tokio::test]
async fn without_a_101_the_connection_goes_on_speaking_http() {
    let raw = Raw::start(|_, mut client| {
        while let Some(head) = client.try_read_request() {
            let body = if head.iter().any(|line| line == "upgrade: websocket") { "no" } else { "yes" };
            client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        }
    });
    let rig = Rig::start(World::new().app("shop", json!({})).instance("shop", raw.address)).await;
    let mut client = rig.client();
    // What an attacker would hope to smuggle past the gateway, did it believe in the upgrade too early.
    client.send(format!("{ASK}GET /second HTTP/1.1\r\nHost: shop.localhost\r\n\r\n"));
    assert_eq!(client.answer().text(), "no");
    assert_eq!(client.answer().text(), "yes");
    assert_eq!(client.request("GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n").text(), "yes");
    client.send(format!("{ASK}nonsense\r\n\r\n"));
    assert_eq!(client.answer().text(), "no");
    assert_eq!(client.answer().status, 400);
}

#[tokio::test]
async fn an_instance_that_speaks_first_is_heard() {
    let raw = Raw::start(|_, mut client| {
        client.read_request();
        client.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nwelcome",
        );
        let heard = client.bytes(3);
        client.send(heard);
    });
    let rig = Rig::start(World::new().app("shop", json!({})).instance("shop", raw.address)).await;
    let mut client = rig.client();
    client.send(ASK);
    assert_eq!(client.head().status, 101);
    assert_eq!(client.bytes(7), b"welcome");
    client.send("abc");
    assert_eq!(client.rest(), b"abc");
}

#[tokio::test]
async fn http_2_is_never_among_the_protocols_that_an_instance_is_offered() {
    let (tell, told) = std::sync::mpsc::channel();
    let raw = Raw::start(move |_, mut client| {
        let head = client.read_request();
        tell.send(head.into_iter().filter(|line| line.starts_with("upgrade")).collect::<Vec<_>>()).unwrap();
        client.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n");
        client.rest();
    });
    let spec = json!({"retry": {"retries": 0}});
    let rig = Rig::start(World::new().app("shop", spec).instance("shop", raw.address)).await;
    let ask = "GET / HTTP/1.1\r\nHost: shop.localhost\r\nUpgrade: websocket, h2c\r\nUpgrade: H2\r\nConnection: Upgrade\r\n\r\n";
    let answer = rig.client().request(ask);
    assert_eq!((answer.status, &answer.json()["code"]), (502, &json!("upstream_failed")));
    assert_eq!(told.recv().unwrap(), ["upgrade: websocket"]);
    assert!(rig.metric("towpath_gateway_upgrades_total") == 0.0);
}

/// An HTTP/2 client, once it knows that extended CONNECT is possible.
async fn h2_client(rig: &Rig) -> SendRequest<Empty<Bytes>> {
    let stream = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    let (mut send, conn) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(conn);
    let request = Request::get("http://shop.localhost/status/200").body(Empty::new()).unwrap();
    assert_eq!(send.send_request(request).await.unwrap().status(), 200);
    send
}

fn connect(protocol: &'static str) -> Request<Empty<Bytes>> {
    let mut request = Request::connect("http://shop.localhost/upgrade?room=1")
        .header("sec-websocket-version", "13")
        .header("origin", "http://shop.localhost")
        .body(Empty::new())
        .unwrap();
    request.extensions_mut().insert(Protocol::from_static(protocol));
    request
}

#[tokio::test]
async fn an_extended_connect_of_http_2_becomes_an_upgrade_and_carries_bytes_both_ways() {
    let app = HttpApp::start("a");
    let rig = Rig::start(World::new().app("shop", json!({})).instance("shop", app.address())).await;
    let mut send = h2_client(&rig).await;
    let mut response = send.send_request(connect("websocket")).await.unwrap();
    assert_eq!(response.status(), 200);
    for name in ["connection", "upgrade", "sec-websocket-accept", "content-length"] {
        assert!(!response.headers().contains_key(name), "{name}");
    }
    assert!(response.headers().contains_key("x-request-id"));
    let mut tunnel = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    let large = "x".repeat(300_000);
    for text in ["hello", "GET / HTTP/1.1\r\n\r\n", large.as_str()] {
        let mut back = vec![0; text.len()];
        let (mut from, mut to) = tokio::io::split(&mut tunnel);
        let (sent, got) = tokio::join!(to.write_all(text.as_bytes()), from.read_exact(&mut back));
        sent.unwrap();
        got.unwrap();
        assert!(back == text.as_bytes());
    }
    // Other streams of the connection go on beside it.
    let request = Request::get("http://shop.localhost/status/200").body(Empty::new()).unwrap();
    assert_eq!(send.send_request(request).await.unwrap().status(), 200);
    tunnel.shutdown().await.unwrap();
    assert_eq!(tunnel.read(&mut [0; 8]).await.unwrap(), 0, "the instance's end is passed on");
    drop((tunnel, send));
    assert!(rig.metric("towpath_gateway_upgrades_total") == 1.0);
    let dir = rig.stop().await;
    let log = std::fs::read_to_string(dir.path().join("access.log")).unwrap();
    let line = log.lines().find(|line| line.contains("/upgrade")).unwrap();
    assert!(line.contains("\"in\":300023") && line.contains("\"out\":300023"), "{line}");
}

#[tokio::test]
async fn an_instance_is_asked_for_a_tunnel_as_an_http_1_client_would() {
    let (tell, told) = std::sync::mpsc::channel();
    let raw = Raw::start(move |_, mut client| {
        while let Some(head) = client.try_read_request() {
            if head[0].starts_with("GET /status") {
                client.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                continue;
            }
            tell.send(head).unwrap();
            client.send(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nfirst",
            );
            client.rest();
        }
    });
    let rig = Rig::start(World::new().app("shop", json!({})).instance("shop", raw.address)).await;
    let mut response = h2_client(&rig).await.send_request(connect("websocket")).await.unwrap();
    let mut tunnel = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    let mut first = [0; 5];
    tunnel.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"first", "what came right behind the head");
    let head = told.recv().unwrap();
    assert_eq!(head[0], "GET /upgrade?room=1 HTTP/1.1");
    for line in [
        "host: shop.localhost",
        "upgrade: websocket",
        "connection: upgrade",
        "sec-websocket-version: 13",
        "origin: http://shop.localhost",
        "via: 2 towpath",
    ] {
        assert_eq!(head.iter().filter(|other| *other == line).count(), 1, "{line} in {head:?}");
    }
    let key = head.iter().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
    assert!(key.len() == 24 && key.ends_with("=="), "{key}");
}

#[tokio::test]
async fn what_is_no_tunnel_is_answered_as_such() {
    let raw = Raw::start(|_, mut client| {
        while let Some(head) = client.try_read_request() {
            let status =
                if head.iter().any(|line| line.contains("sec-websocket-protocol: no")) { 403 } else { 200 };
            client.send(format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nno"));
        }
    });
    let app = HttpApp::start("a");
    let spec = json!({"retry": {"retries": 0}, "ejection": {"consecutive": 0, "rate": 0.0}});
    let world = World::new().app("shop", spec.clone()).instance("shop", raw.address);
    let rig =
        Rig::start(world.app("two", spec).instance_with("two", app.address(), json!({"protocol": "h2c"})))
            .await;
    let mut send = h2_client(&rig).await;
    let mut refused = connect("websocket");
    refused.headers_mut().insert("sec-websocket-protocol", "no".parse().unwrap());
    let mut other = connect("websocket");
    *other.uri_mut() = "http://two.localhost/".parse().unwrap();
    for (request, status) in
        [(refused, 403), (connect("websocket"), 502), (connect("connect-udp"), 400), (other, 400)]
    {
        let what = format!("{request:?}");
        assert_eq!(send.send_request(request).await.unwrap().status(), status, "{what}");
    }
    assert!(rig.metric("towpath_gateway_upgrades_total") == 0.0);
}
