//! WebSocket and other protocols behind an upgrade.

use crate::support::{Raw, Rig, World};
use serde_json::json;
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
