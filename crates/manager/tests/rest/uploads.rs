//! Uploads: what is taken, what is refused, and that nothing is left of the rest.

use crate::client::{Platform, source};
use crate::fleet::until;
use bytes::Bytes;
use http::{Method, StatusCode};
use std::path::PathBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use towpath_archive::PackOptions;
use towpath_types::{ByteSize, Digest};

fn blobs(platform: &Platform, directory: &str) -> Vec<PathBuf> {
    let path = platform.fleet.dir.path().join("manager/blobs").join(directory);
    std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// A connection on which half of an upload was sent.
async fn half_an_upload(platform: &Platform) -> TcpStream {
    let (digest, bytes) = source(&"hello ".repeat(1000));
    let mut stream = TcpStream::connect(platform.address()).await.unwrap();
    let head = format!(
        "PUT /v1/sources/{digest} HTTP/1.1\r\nhost: api\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
        platform.token,
        bytes.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&bytes[..bytes.len() / 2]).await.unwrap();
    stream
}

async fn nothing_is_left(platform: &Platform) {
    until("nothing is left of it", || blobs(platform, "uploads").is_empty()).await;
    assert!(blobs(platform, "sources").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_is_taken_once_and_found() {
    let platform = Platform::start().await;
    let (digest, bytes) = source("hello");
    let path = format!("/v1/sources/{digest}");
    assert_eq!(platform.api().head(&path).await.status, StatusCode::NOT_FOUND);
    let stored = platform.api().send(Method::PUT, &path, bytes.clone()).await;
    assert_eq!(stored.status, StatusCode::CREATED, "{stored:?}");
    assert_eq!(stored.json()["bytes"], bytes.len());
    assert_eq!(platform.api().head(&path).await.status, StatusCode::OK);
    assert_eq!(platform.api().send(Method::PUT, &path, bytes.clone()).await.status, StatusCode::OK);
    let cell = platform.api_as(&platform.cell_token);
    let fetched = cell.get(&format!("/internal{path}")).await;
    assert_eq!((fetched.status, fetched.body), (StatusCode::OK, Bytes::from(bytes)));
    assert!(blobs(&platform, "uploads").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_source_can_be_uploaded_by_many_at_once() {
    let platform = Platform::start().await;
    let (digest, bytes) = source("hello");
    let path = format!("/v1/sources/{digest}");
    let api = platform.api();
    let uploads = (0..8).map(|_| api.send(Method::PUT, &path, bytes.clone()));
    for answer in futures::future::join_all(uploads).await {
        assert!(answer.status.is_success(), "{answer:?}");
    }
    assert_eq!(blobs(&platform, "sources").len(), 1);
    assert!(blobs(&platform, "uploads").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_broken_and_mislabelled_archives_are_refused() {
    let platform = Platform::start().await;
    let (digest, bytes) = source("hello");
    let other = Digest::from_bytes([7; 32]);
    let mut cut = bytes.clone();
    cut.truncate(bytes.len() - 3);
    let mut trailing = bytes.clone();
    trailing.extend(b"more");
    for (digest, body) in [
        (other, bytes.clone()),
        (digest, b"not an archive at all".to_vec()),
        (digest, Vec::new()),
        (digest, cut),
        (digest, trailing),
    ] {
        let answer = platform.api().send(Method::PUT, &format!("/v1/sources/{digest}"), body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (422, "bad_archive"),
            "{}",
            answer.text()
        );
        nothing_is_left(&platform).await;
    }
    let nonsense = platform.api().send(Method::PUT, "/v1/sources/sha256:abc", bytes).await;
    assert_eq!(nonsense.fields(), ["digest"]);
    let artifact = platform.api().send(Method::PUT, &format!("/internal/v1/artifacts/{other}"), "x").await;
    assert_eq!(artifact.code(), "bad_archive");
    assert!(blobs(&platform, "artifacts").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_much_is_refused_packed_or_unpacked() {
    let platform = Platform::start_with(|settings| {
        settings.limits.blobs.source = ByteSize(256 * 1024);
        settings.limits.blobs.source_unpacked = ByteSize(1024 * 1024);
    })
    .await;
    // Not compressible, and so over the first limit.
    let noise: String = (0..600_000).map(|_| fastrand::alphanumeric()).collect();
    // Over the second limit alone.
    let zeros = "0".repeat(2 << 20);
    for content in [noise, zeros] {
        let (digest, bytes) = source(&content);
        let answer = platform.api().send(Method::PUT, &format!("/v1/sources/{digest}"), bytes).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (413, "upload_too_large"),
            "{}",
            answer.text()
        );
        nothing_is_left(&platform).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_is_cut_off_leaves_nothing() {
    let platform = Platform::start().await;
    let stream = half_an_upload(&platform).await;
    until("it has begun", || blobs(&platform, "uploads").len() == 1).await;
    drop(stream);
    nothing_is_left(&platform).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_stalls_is_given_up() {
    let platform = Platform::start_with(|settings| {
        settings.limits.blobs.idle = std::time::Duration::from_millis(200);
    })
    .await;
    let mut stream = half_an_upload(&platform).await;
    let mut answer = vec![0; 4096];
    let n = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..n]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    nothing_is_left(&platform).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_uploads_than_permitted_are_told_to_come_back() {
    let platform = Platform::start_with(|settings| settings.limits.blobs.uploads = 1).await;
    let _stream = half_an_upload(&platform).await;
    until("it has begun", || blobs(&platform, "uploads").len() == 1).await;
    let (digest, bytes) = source("y");
    let second = platform.api().send(Method::PUT, &format!("/v1/sources/{digest}"), bytes).await;
    assert_eq!((second.status.as_u16(), second.code().as_str()), (429, "busy"));
    assert!(second.headers.contains_key("retry-after"));
}

/// Set in a process whose files cannot grow beyond 2 MiB.
const SMALL: &str = "TOWPATH_TEST_SMALL_FILES";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told_over_http_and_nothing_is_left() {
    if std::env::var_os(SMALL).is_none() {
        let name = "uploads::a_full_disk_is_told_over_http_and_nothing_is_left";
        // The limit is one of the whole process, and would end it if the signal were not ignored.
        let script = "trap '' XFSZ; ulimit -f 4096; exec \"$0\" --exact \"$1\" --nocapture";
        let mut again = tokio::process::Command::new("sh");
        again.args(["-c", script]).arg(std::env::current_exe().unwrap()).arg(name).env(SMALL, "1");
        let ended = again.kill_on_drop(true).output().await.unwrap();
        let told = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(
            ended.status.success() && told.contains("1 passed"),
            "{told}{}",
            String::from_utf8_lossy(&ended.stderr)
        );
        return;
    }
    let platform = Platform::start().await;
    // Each file is small enough; together they are not.
    let dir = tempfile::tempdir().unwrap();
    for n in 0..5 {
        let noise: String = (0..1_000_000).map(|_| fastrand::alphanumeric()).collect();
        std::fs::write(dir.path().join(n.to_string()), noise).unwrap();
    }
    let mut bytes = Vec::new();
    let packed = towpath_archive::pack(dir.path(), &PackOptions::default(), &mut bytes, &mut |_| {}).unwrap();
    let digest = packed.digest;
    assert!(bytes.len() > 2 << 20);
    let path = format!("/v1/sources/{digest}");
    let answer = platform.api().send(Method::PUT, &path, bytes).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (507, "storage_full"), "{}", answer.text());
    nothing_is_left(&platform).await;
    assert_eq!(platform.api().head(&path).await.status, StatusCode::NOT_FOUND);
    // All else goes on.
    let (digest, bytes) = source("small");
    let stored = platform.api().send(Method::PUT, &format!("/v1/sources/{digest}"), bytes).await;
    assert_eq!(stored.status, StatusCode::CREATED, "{stored:?}");
}
