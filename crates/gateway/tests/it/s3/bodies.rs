//! `s3-auth`: bodies that are compared while they stream.

use super::{Signed, refusal, resources};
use crate::alone::Alone;
use crate::support::{Answer, Raw};
use serde_json::json;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use towpath_s3::checksum::Checksum;
use towpath_s3::encode::hex;
use towpath_s3::sigv4::{Chunks, EMPTY_SHA256, sha256};
use towpath_testkit::HttpApp;

/// Chunks of `aws-chunked`, each signed, and the trailer.
fn encode(mut chunks: Chunks, data: &[&[u8]], trailer: Option<&str>) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in data.iter().copied().chain([b"".as_slice()]) {
        let text = format!(
            "AWS4-HMAC-SHA256-PAYLOAD\n{}{}\n{}\n{}",
            chunks.stamp,
            hex(&chunks.last),
            hex(&EMPTY_SHA256),
            hex(&sha256(piece))
        );
        chunks.last = chunks.key.sign(text.as_bytes());
        out.extend(format!("{:x};chunk-signature={}\r\n", piece.len(), hex(&chunks.last)).into_bytes());
        out.extend_from_slice(piece);
        if !piece.is_empty() {
            out.extend_from_slice(b"\r\n");
        }
    }
    if let Some(trailer) = trailer {
        let hash = hex(&sha256(format!("{trailer}\n").as_bytes()));
        let text = format!("AWS4-HMAC-SHA256-TRAILER\n{}{}\n{hash}", chunks.stamp, hex(&chunks.last));
        let signature = hex(&chunks.key.sign(text.as_bytes()));
        out.extend(format!("{trailer}\r\nx-amz-trailer-signature:{signature}\r\n").into_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out
}

fn send(alone: &Alone, head: &str, body: &[u8]) -> Answer {
    let head = head.replace("\r\n\r\n", &format!("\r\nContent-Length: {}\r\n\r\n", body.len()));
    let mut client = alone.client();
    client.send(head);
    client.send(body);
    client.answer()
}

const SIGNED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const SIGNED_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
const UNSIGNED_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

fn put(payload: &str, length: usize) -> Signed {
    let put = Signed::new("PUT", "/b/k").payload(payload).line("content-encoding", "aws-chunked,gzip");
    put.line("x-amz-decoded-content-length", length)
}

fn crc32(bytes: &[u8]) -> String {
    let mut checksum = Checksum::of_header("x-amz-checksum-crc32").unwrap();
    checksum.add(bytes);
    format!("x-amz-checksum-crc32:{}", checksum.text())
}

#[tokio::test]
async fn chunks_are_verified_and_unwrapped() {
    let app = HttpApp::start("a");
    let alone = Alone::start(resources(app.address(), json!({"s3-auth": {"forward": "unsigned"}}))).await;
    let check = |answer: &Answer, body: &str| {
        assert_eq!((answer.status, answer.json()["body"].as_str()), (200, Some(body)), "{}", answer.text());
        assert_eq!(answer.seen("content-length"), Some(body.len().to_string()));
        assert_eq!(answer.seen("content-encoding").as_deref(), Some("gzip"));
        let gone = ["x-amz-decoded-content-length", "x-amz-trailer", "x-amz-content-sha256", "authorization"];
        assert!(gone.iter().all(|name| answer.seen(name).is_none()));
    };
    let (head, chunks) = put(SIGNED, 10).head();
    let body = encode(chunks, &[b"hello", b"world"], None);
    check(&send(&alone, &head, &body), "helloworld");
    let trailed = put(SIGNED_TRAILER, 5).line("x-amz-trailer", "x-amz-checksum-crc32");
    let (head, chunks) = trailed.head();
    check(&send(&alone, &head, &encode(chunks, &[b"hello"], Some(&crc32(b"hello")))), "hello");
    let (head, _) = put(UNSIGNED_TRAILER, 5).line("x-amz-trailer", "x-amz-checksum-crc32").head();
    let body = format!("2\r\nhe\r\n3\r\nllo\r\n0\r\n{}\r\n\r\n", crc32(b"hello"));
    check(&send(&alone, &head, body.as_bytes()), "hello");
    let (head, chunks) = put(SIGNED, 0).head();
    let empty = send(&alone, &head, &encode(chunks, &[], None));
    assert_eq!((empty.status, empty.seen("content-length").as_deref()), (200, Some("0")), "{}", empty.text());
}

#[tokio::test]
async fn chunks_may_go_on_as_they_came() {
    let app = HttpApp::start("a");
    let alone = Alone::start(resources(app.address(), json!({"s3-auth": {}}))).await;
    let (head, chunks) = put(SIGNED, 10).head();
    let body = encode(chunks, &[b"hello", b"world"], None);
    let answer = send(&alone, &head, &body);
    assert_eq!(answer.json()["body"].as_str().unwrap().as_bytes(), body);
    assert_eq!(answer.seen("content-encoding").as_deref(), Some("aws-chunked,gzip"));
    let (head, chunks) = put(SIGNED, 0).head();
    let body = encode(chunks, &[], None);
    assert_eq!(send(&alone, &head, &body).json()["body"].as_str().unwrap().as_bytes(), body);
}

/// An upstream that says how many bytes of each body it got, and whether that was all of it.
fn counting() -> (Raw, Receiver<(usize, bool)>) {
    let (tell, told) = channel();
    let tell = Arc::new(Mutex::new(tell));
    let raw = Raw::start(move |_, mut client| {
        while let Some(lines) = client.try_read_request() {
            let length =
                lines.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let length = length.unwrap_or_default();
            let got = client.up_to(length).len();
            tell.lock().unwrap().send((got, got == length)).unwrap();
            if got < length {
                return;
            }
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    (raw, told)
}

#[tokio::test]
async fn the_upstream_never_gets_the_whole_of_a_body_that_is_not_what_its_head_says() {
    let (raw, told) = counting();
    let alone = Alone::start(resources(raw.address, json!({"s3-auth": {"forward": "unsigned"}}))).await;
    let body = vec![b'x'; 1_000_000];
    let mut last_differs = body.clone();
    *last_differs.last_mut().unwrap() = b'y';
    let never_whole = |what: &str| {
        let (got, whole) = told.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        assert!(!whole, "{what}: {got}");
    };
    let answer = send(&alone, &Signed::new("PUT", "/b/k").hash_of(&body).text(), &last_differs);
    assert_eq!(refusal(&answer), (400, "XAmzContentSHA256Mismatch".into()));
    never_whole("hash");
    let pieces: Vec<&[u8]> = body.chunks(100_000).collect();
    let (head, chunks) = put(SIGNED, body.len()).head();
    let mut wrong = encode(chunks, &pieces, None);
    let at = wrong.len() - 200;
    wrong[at] = b'y';
    assert_eq!(refusal(&send(&alone, &head, &wrong)), (403, "SignatureDoesNotMatch".into()));
    never_whole("chunk");
    let (head, chunks) = put(SIGNED, body.len()).head();
    let mut wrong = encode(chunks, &pieces, None);
    let at = wrong.len() - 10;
    wrong[at] = if wrong[at] == b'0' { b'1' } else { b'0' };
    assert_eq!(refusal(&send(&alone, &head, &wrong)), (403, "SignatureDoesNotMatch".into()));
    never_whole("last chunk");
    let (head, _) = put(UNSIGNED_TRAILER, 5).line("x-amz-trailer", "x-amz-checksum-crc32").head();
    let wrong = format!("5\r\nhello\r\n0\r\n{}\r\n\r\n", crc32(b"hellO"));
    assert_eq!(refusal(&send(&alone, &head, wrong.as_bytes())), (400, "BadDigest".into()));
    never_whole("trailer");
    let (head, chunks) = put(SIGNED, 0).head();
    let mut wrong = encode(chunks, &[], None);
    wrong[20..30].copy_from_slice(b"=000000000");
    let answer = send(&alone, &head, &wrong);
    assert!([400, 403].contains(&answer.status), "{}", answer.text());
    let (head, chunks) = put(SIGNED, 6).head();
    let cut = encode(chunks, &[b"hello"], None);
    assert_eq!(refusal(&send(&alone, &head, &cut)), (400, "IncompleteBody".into()));
    never_whole("short");
    assert!(told.try_recv().is_err());
    let good = send(&alone, &Signed::new("PUT", "/b/k").hash_of(&body).text(), &body);
    assert_eq!((good.status, told.recv().unwrap()), (200, (1_000_000, true)));
}

#[tokio::test]
async fn a_body_that_is_said_to_be_and_is_not_there_is_missed() {
    let app = HttpApp::start("a");
    let alone = Alone::start(resources(app.address(), json!({"s3-auth": {}}))).await;
    let without = |signed: &Signed| {
        refusal(&alone.send(&signed.text().replace("\r\n\r\n", "\r\nContent-Length: 0\r\n\r\n")))
    };
    assert_eq!(without(&Signed::new("PUT", "/b/k").hash_of(b"x")), (400, "XAmzContentSHA256Mismatch".into()));
    assert_eq!(without(&put(SIGNED, 1)), (400, "IncompleteBody".into()));
    assert_eq!(without(&Signed::new("PUT", "/b/k").payload(SIGNED)), (411, "MissingContentLength".into()));
    assert_eq!(app.requests(), 0);
}
