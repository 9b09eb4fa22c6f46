//! Clients that the gateway has no room for: they are told so, and nothing else is done for them.

use crate::access_log::AccessLine;
use crate::clock;
use crate::request::ids::RequestId;
use crate::worker::Worker;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use towpath_types::ErrorCode;

/// How long a client may take to read why.
const PATIENCE: Duration = Duration::from_millis(500);

/// Most clients of a worker that are being told at once; further ones are cut off.
const MOST: usize = 256;

/// Tells a client in a task of its own.
pub(crate) fn spawn(worker: &Rc<Worker>, stream: TcpStream, peer: SocketAddr, tls: bool) {
    if Rc::strong_count(&worker.turning_away) > MOST {
        worker.metrics.turned_away.add(1);
        return;
    }
    let (worker, token) = (worker.clone(), worker.turning_away.clone());
    tokio::task::spawn_local(async move {
        let _token = token;
        say(&worker, stream, peer, tls, PATIENCE).await;
    });
}

/// Tells a client, and reads on for a moment: closing a socket with unread bytes resets it, and the answer would be lost.
/// Behind TLS nothing can be said without a handshake, which is the dearest thing that a client can ask for.
pub(crate) async fn say(
    worker: &Worker,
    mut stream: TcpStream,
    peer: SocketAddr,
    tls: bool,
    patience: Duration,
) {
    worker.metrics.turned_away.add(1);
    if tls {
        return;
    }
    let id = RequestId::new(None, worker);
    let answer = answer(&String::from_utf8_lossy(id.as_bytes()));
    log(worker, peer, &id, answer.len());
    let _ = tokio::time::timeout(patience, async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<_, std::io::Error>(())
    })
    .await;
}

fn answer(id: &str) -> String {
    let code = ErrorCode::Overloaded;
    let body = serde_json::json!({
        "type": format!("https://towpath.dev/problems/{code}"), "title": code.title(), "status": code.status(), "code": code,
        "detail": "The gateway has no room for another connection now.", "instance": id,
    })
    .to_string();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\n\
         content-length: {}\r\nx-request-id: {id}\r\nretry-after: 1\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// So that the id that the client was given can be found. What it asked for was never read.
fn log(worker: &Worker, peer: SocketAddr, id: &RequestId, bytes_out: usize) {
    worker.metrics.error(ErrorCode::Overloaded);
    worker.at_wall_clock(clock::now_ns(), |second, millisecond| {
        worker.log(&AccessLine {
            second,
            millisecond,
            id: id.as_bytes(),
            client: peer.ip().to_canonical(),
            method: "-",
            scheme: "http",
            host: b"-",
            path: "-",
            protocol: "-",
            status: ErrorCode::Overloaded.status(),
            bytes_in: 0,
            bytes_out: bytes_out as u64,
            duration_us: 0,
            upstream_us: None,
            app: None,
            lane: None,
            instance: None,
            attempts: 0,
            route: None,
            service: None,
            consumer: None,
            plugin: None,
            error: Some(ErrorCode::Overloaded),
            complete: true,
        });
    });
}
