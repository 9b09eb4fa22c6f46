//! Compression through a real gateway.

use crate::alone::{Alone, route};
use crate::support::{Client, Raw};
use serde_json::{Value, json};
use std::io::Read;
use std::sync::{Mutex, mpsc};

const ALL: &str = "gzip, br, zstd";

fn all() -> Value {
    json!({"gzip": {"types": "*", "vary": true}, "brotli": {"types": "*", "vary": true}, "zstd": {"types": "*"}})
}

async fn start(answer: &'static str, plugins: Value) -> Alone {
    let raw = Raw::start(move |_, mut client| {
        while client.try_read_request().is_some() {
            client.send(answer);
        }
    });
    Alone::start(json!({"routes": [route(raw.address, plugins)]})).await
}

fn text(headers: &str, body: &str) -> &'static str {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .leak()
}

fn decoded(coding: Option<&str>, bytes: &[u8]) -> String {
    let mut out = Vec::new();
    // Of a stream that goes on the end is missing.
    let _ = match coding {
        Some("br") => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out),
        Some("zstd") => zstd::stream::read::Decoder::new(bytes).unwrap().read_to_end(&mut out),
        Some("gzip") => flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut out),
        _ => std::io::Cursor::new(bytes).read_to_end(&mut out),
    };
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn the_coding_that_the_client_likes_best_is_used_once() {
    let body = "hello ".repeat(1000);
    let alone = start(text("ETag: \"1\"\r\nVary: Accept-Encoding\r\n", &body), all()).await;
    for (accept, coding) in [
        (ALL, Some("zstd")),
        ("gzip, br", Some("br")),
        ("gzip;q=1, br;q=0.5, zstd;q=0.1", Some("gzip")),
        ("br;q=0.5, *;q=0.4", Some("br")),
        ("gzip", Some("gzip")),
        ("identity, zstd;q=0", None),
        ("", None),
    ] {
        let answer = alone.get_with("/", &format!("Accept-Encoding: {accept}"));
        assert_eq!(answer.header("content-encoding"), coding, "{accept}");
        assert_eq!(decoded(coding, &answer.body), body, "{accept}");
        assert_eq!(answer.all("vary"), ["Accept-Encoding"]);
        assert_eq!(answer.header("etag"), Some(if coding.is_some() { "W/\"1\"" } else { "\"1\"" }));
        assert_eq!(answer.body.len() < 200, coding.is_some());
    }
}

#[tokio::test]
async fn what_is_not_to_be_changed_stays() {
    let long = "x".repeat(100);
    for (headers, body) in [
        ("Content-Encoding: br\r\n", long.as_str()),
        ("Cache-Control: no-transform\r\n", &long),
        ("", "short"),
    ] {
        let alone = start(text(headers, body), all()).await;
        let answer = alone.get_with("/", &format!("Accept-Encoding: {ALL}"));
        assert_eq!(answer.text(), body, "{headers}");
    }
}

#[tokio::test]
async fn bodies_are_rewritten_before_they_are_compressed() {
    let mut plugins = all();
    plugins["response-rewrite"] =
        json!({"filters": [{"regex": "hello", "scope": "global", "replace": "bye"}]});
    let alone = start(text("", &"hello ".repeat(100)), plugins.clone()).await;
    let answer = alone.get_with("/", "Accept-Encoding: br");
    assert_eq!(decoded(Some("br"), &answer.body), "bye ".repeat(100));
    assert_eq!(answer.header("content-encoding"), Some("br"));
    plugins["response-rewrite"] = json!({"body": "another body, which is long enough"});
    let alone = start(text("", &"hello ".repeat(100)), plugins).await;
    let answer = alone.get_with("/", "Accept-Encoding: gzip");
    assert_eq!(
        decoded(answer.header("content-encoding"), &answer.body),
        "another body, which is long enough"
    );
}

#[tokio::test]
async fn what_is_kept_is_kept_uncompressed() {
    let mut plugins = all();
    plugins["proxy-cache"] = json!({"cache_strategy": "memory"});
    let body = "hello ".repeat(1000);
    let alone = start(text("", &body), plugins).await;
    for (accept, status) in [("br", "MISS"), ("gzip", "HIT"), ("", "HIT")] {
        let answer = alone.get_with("/", &format!("Accept-Encoding: {accept}"));
        assert_eq!(answer.header("apisix-cache-status"), Some(status));
        assert_eq!(decoded(answer.header("content-encoding"), &answer.body), body);
    }
}

#[tokio::test]
async fn no_coding_delays_an_event() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let events = Raw::start(move |_, mut client| {
        client.read_request();
        client.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n");
        let _ = wait.lock().unwrap().recv();
        client.send("0\r\n\r\n");
    });
    let alone = Alone::start(json!({"routes": [route(events.address, all())]})).await;
    for coding in ["br", "zstd", "gzip"] {
        let mut client: Client = alone.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: {coding}\r\n\r\n"));
        assert_eq!(client.head().header("content-encoding"), Some(coding));
        let mut packed = Vec::new();
        while decoded(Some(coding), &packed) != "data: 1\n\n" {
            let size = usize::from_str_radix(&client.line(), 16).unwrap();
            packed.extend(client.bytes(size));
            client.line();
        }
        go.send(()).unwrap();
    }
}
