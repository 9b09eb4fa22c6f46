//! Requests that could be read in two ways never reach an instance.

use crate::support::{Rig, World};
use serde_json::json;
use towpath_testkit::HttpApp;

async fn rig(app: &HttpApp) -> Rig {
    Rig::start(World::new().app("shop", json!({})).instance("shop", app.address())).await
}

#[tokio::test]
async fn ambiguous_requests_get_400_and_the_connection_closed() {
    let app = HttpApp::start("a");
    let rig = rig(&app).await;
    let head = "POST / HTTP/1.1\r\nHost: shop.localhost\r\n";
    for bad in [
        format!("{head}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{head}Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
        format!("{head}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"),
        format!("{head}Content-Length: +3\r\n\r\nabc"),
        format!("{head}Content-Length: 3,3\r\n\r\nabc"),
        format!("{head}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        format!("{head}X: a\r\n b\r\n\r\n"),
        format!("{head}X: a\n\r\n"),
        format!("{head}X: a\rb\r\n\r\n"),
        format!("{head}X: a\0b\r\n\r\n"),
        format!("{head}X : a\r\n\r\n"),
        format!("{head}Host: other.localhost\r\n\r\n"),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        "GET http://other.localhost/ HTTP/1.1\r\nHost: shop.localhost\r\n\r\n".to_owned(),
        "CONNECT shop.localhost:80 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n".to_owned(),
        "get / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n".to_owned(),
        "GET / HTTP/1.2\r\nHost: shop.localhost\r\n\r\n".to_owned(),
        "\u{1}\u{2}\u{3}\r\n".to_owned(),
    ] {
        let mut client = rig.client();
        client.send(&bad);
        let answer = client.answer();
        assert_eq!(answer.status, 400, "{bad:?}");
        assert_eq!(answer.json()["code"], "bad_request");
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(answer.header("x-request-id").is_some());
        assert!(client.is_closed(), "{bad:?}");
    }
    assert_eq!(app.requests(), 0);
}

#[tokio::test]
async fn a_refusal_is_answered_in_its_turn() {
    let app = HttpApp::start("a");
    let rig = rig(&app).await;
    let mut client = rig.client();
    let good = "GET /delay/50 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n";
    client.send(format!("{good}{good}GET / HTTP/1.1\nHost: shop.localhost\r\n\r\n{good}"));
    assert_eq!(client.answer().status, 200);
    assert_eq!(client.answer().status, 200);
    assert_eq!(client.answer().status, 400);
    assert!(client.is_closed());
    assert_eq!(app.requests(), 2, "nothing behind the refused head is served");
}

#[tokio::test]
async fn bad_chunks_fail_the_request_and_close_the_connection() {
    let app = HttpApp::start("a");
    let rig = rig(&app).await;
    for bad in ["zz\r\n", "3\r\nabcX\r\n", "3\nabc\r\n", "0\r\nContent-Length: 3\r\n\r\n", "-1\r\n"] {
        let mut client = rig.client();
        client.send("POST /body HTTP/1.1\r\nHost: shop.localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(bad);
        let rest = String::from_utf8_lossy(&client.rest()).into_owned();
        assert!(rest.starts_with("HTTP/1.1 400 ") || rest.starts_with("HTTP/1.1 200 "), "{bad:?}: {rest}");
        if rest.starts_with("HTTP/1.1 200 ") {
            assert!(!rest.ends_with("0\r\n\r\n"), "an answer that had begun does not end well: {rest}");
        }
    }
}

#[tokio::test]
async fn a_head_may_arrive_byte_by_byte_and_requests_may_be_pipelined() {
    let app = HttpApp::start("a");
    let rig = rig(&app).await;
    let mut client = rig.client();
    let text = "POST /body HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 3\r\n\r\nabc";
    for byte in text.bytes() {
        client.send([byte]);
    }
    assert_eq!(client.answer().text(), "abc");
    client.send(text.repeat(5));
    for _ in 0..5 {
        assert_eq!(client.answer().text(), "abc");
    }
    assert_eq!(app.requests(), 6);
    assert_eq!(app.connections(), 1, "one connection to the instance carries them all");
}

#[tokio::test]
async fn malformed_responses_become_502_and_are_never_passed_on() {
    use crate::support::Raw;
    for bad in [
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n\r\n",
        "",
    ] {
        let raw = Raw::saying(bad);
        let rig = Rig::start(
            World::new().app("shop", json!({"retry": {"retries": 0}})).instance("shop", raw.address),
        )
        .await;
        let answer = rig.get("shop.localhost", "/");
        assert_eq!((answer.status, &answer.json()["code"]), (502, &json!("upstream_failed")), "{bad:?}");
    }
}
