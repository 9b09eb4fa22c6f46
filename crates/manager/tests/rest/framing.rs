//! What the API's listener refuses, byte by byte: the same as the gateway.

use crate::client::Platform;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// All that comes back for these bytes until the connection is closed.
async fn answer(platform: &Platform, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(platform.address()).await.unwrap();
    // It may be closed before all is written.
    let _ = stream.write_all(bytes).await;
    let mut text = Vec::new();
    let read = stream.read_to_end(&mut text);
    let _ = tokio::time::timeout(Duration::from_secs(20), read).await.expect("it is closed");
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_two_parsers_could_read_in_two_ways_is_refused() {
    let platform = Platform::start().await;
    let get = "GET /v1/healthz HTTP/1.1\r\n";
    let put = "PUT /v1/apps/shop HTTP/1.1\r\nHost: a\r\n";
    let end = "Content-Length: 2\r\n";
    for (what, bytes) in [
        ("no host", format!("{get}\r\n")),
        ("two hosts", format!("{get}Host: a\r\nHost: a\r\n\r\n")),
        ("a host that is none", format!("{get}Host: a b\r\n\r\n")),
        ("line ends of LF alone", "GET /v1/healthz HTTP/1.1\nHost: a\n\n".to_owned()),
        ("one line end of LF alone", format!("{get}Host: a\nX: b\r\n\r\n")),
        ("length and encoding", format!("{put}{end}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
        ("two lengths", format!("{put}{end}{end}\r\n{{}}")),
        ("a signed length", format!("{put}Content-Length: +2\r\n\r\n{{}}")),
        ("another encoding", format!("{put}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")),
        ("a folded line", format!("{get}Host: a\r\nX: b\r\n c\r\n\r\n")),
        ("a blank before the colon", format!("{get}Host : a\r\n\r\n")),
        ("NUL", format!("{get}Host: a\r\nX: b\0c\r\n\r\n")),
        ("no version", "GET /v1/healthz\r\n\r\n".to_owned()),
    ] {
        let told = answer(&platform, bytes.as_bytes()).await;
        assert!(told.starts_with("HTTP/1.1 400 "), "{what}: {told}");
        assert!(told.contains("application/problem+json"), "{what}: {told}");
        assert_eq!(told.matches("HTTP/1.1 ").count(), 1, "{what}: nothing behind it is a request: {told}");
    }
    // What comes before it is answered first.
    let told = answer(&platform, format!("{get}Host: a\r\n\r\n{get}\r\n").as_bytes()).await;
    assert!(told.starts_with("HTTP/1.1 200 ") && told.contains("HTTP/1.1 400 "), "{told}");
    // An upgrade is not made, and what follows is a request like any other.
    let upgrade = format!("{get}Host: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    let both = format!("{upgrade}{get}Host: a\r\nConnection: close\r\n\r\n");
    let told = answer(&platform, both.as_bytes()).await;
    assert_eq!(told.matches("HTTP/1.1 200 ").count(), 2, "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_are_too_large_or_too_slow_are_refused() {
    let platform = Platform::start_with(|settings| settings.limits.head = Duration::from_millis(500)).await;
    let get = "GET /v1/healthz HTTP/1.1\r\nHost: a\r\n";
    let many: String = (0..200).map(|n| format!("X-{n}: b\r\n")).collect();
    assert!(answer(&platform, format!("{get}{many}\r\n").as_bytes()).await.starts_with("HTTP/1.1 431 "));
    let large = "b".repeat(40_000);
    let told = answer(&platform, format!("{get}X: {large}\r\n\r\n").as_bytes()).await;
    assert!(told.starts_with("HTTP/1.1 431 "), "{told}");
    // One that never ends, and one of which nothing comes: both are closed.
    assert!(!answer(&platform, get.as_bytes()).await.contains("200 OK"));
    assert_eq!(answer(&platform, b"").await, "");
    // A body whose chunks are no chunks ends its request, with whatever follows.
    let auth = format!("Authorization: Bearer {}\r\n", platform.token);
    let put = format!("PUT /v1/apps/shop HTTP/1.1\r\nHost: a\r\n{auth}Transfer-Encoding: chunked\r\n\r\n");
    let told = answer(&platform, format!("{put}2 \r\n{{}}\r\n0\r\n\r\n{get}\r\n").as_bytes()).await;
    assert!(!told.contains("HTTP/1.1 20"), "{told}");
}
