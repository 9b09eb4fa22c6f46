//! Accepting connections, and finding out what they speak.

use super::conn::{Conn, Scheme};
use super::stream::ClientStream;
use super::{h1, h2};
use crate::worker::Worker;
use crate::worker_thread::Drain;
use bytes::Bytes;
use rustls::ServerConfig;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// What an HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a client above the limit is told.
const TURNED_AWAY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n\
content-length: 97\r\nretry-after: 1\r\nconnection: close\r\n\r\n\
{\"type\":\"about:blank\",\"title\":\"The gateway is at its limit\",\"status\":503,\"code\":\"overloaded\"}    ";

/// How long a connection that has sent nothing yet, or is in its handshake, may hold up a drain.
const DRAIN_QUIET_MS: u64 = 500;

/// Accepts until the worker drains.
pub(crate) async fn run(
    worker: Rc<Worker>,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    mut drain: watch::Receiver<Drain>,
) {
    let tls = tls.map(TlsAcceptor::from);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = drain.wait_for(Option::is_some) => break,
        };
        match accepted {
            Ok((stream, peer)) => accept(&worker, stream, peer, tls.as_ref()),
            Err(error) if is_about_one_client(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "connections cannot be accepted; trying again");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    // Clients in the queue believe that they are connected; closing the socket would reset them.
    let Ok(listener) = listener.into_std() else { return };
    while let Ok((stream, peer)) = listener.accept() {
        if stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            accept(&worker, stream, peer, tls.as_ref());
        }
    }
}

fn is_about_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

fn accept(worker: &Rc<Worker>, mut stream: TcpStream, peer: SocketAddr, tls: Option<&TlsAcceptor>) {
    worker.metrics.accepted.add(1);
    let most = worker.settings.limits.connections.div_ceil(worker.settings.workers) as u64;
    if worker.metrics.connections.get() >= most {
        worker.metrics.turned_away.add(1);
        if tls.is_none() {
            tokio::task::spawn_local(async move {
                let _ = stream.write_all(TURNED_AWAY).await;
                let _ = stream.shutdown().await;
                let mut rest = [0; 1024];
                let _ = tokio::time::timeout(Duration::from_millis(500), stream.read(&mut rest)).await;
            });
        }
        return;
    }
    let _ = stream.set_nodelay(true);
    let scheme = if tls.is_some() { Scheme::Https } else { Scheme::Http };
    let conn = Conn::new(worker, peer, scheme);
    let tls = tls.cloned();
    let count = Counted::new(worker.clone());
    tokio::task::spawn_local(async move {
        let _count = count;
        match tls {
            None => serve_clear(conn, stream).await,
            Some(tls) => serve_tls(conn, stream, tls).await,
        }
    });
}

/// A connection in the count of connections.
struct Counted(Rc<Worker>);

impl Counted {
    fn new(worker: Rc<Worker>) -> Self {
        worker.metrics.connections.add(1);
        Self(worker)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metrics.connections.sub(1);
    }
}

/// Clear text: HTTP/2 if the first bytes are its preface.
async fn serve_clear(conn: Rc<Conn>, mut stream: TcpStream) {
    let Some(Ok(first)) = until(&conn, peek(&mut stream)).await else { return };
    let is_h2 = first.starts_with(PREFACE);
    let mut stream = ClientStream::tcp(stream);
    stream.unread(first);
    if is_h2 { h2::serve(conn, stream).await } else { h1::serve(conn, stream).await }
}

/// Reads until it is certain whether this is HTTP/2.
async fn peek(stream: &mut TcpStream) -> io::Result<Bytes> {
    let mut first = Vec::with_capacity(1024);
    loop {
        let read = stream.read_buf(&mut first).await?;
        let same = first.iter().zip(PREFACE).all(|(a, b)| a == b);
        if read == 0 || !same || first.len() >= PREFACE.len() {
            return Ok(first.into());
        }
    }
}

async fn serve_tls(conn: Rc<Conn>, stream: TcpStream, tls: TlsAcceptor) {
    let Some(Ok(stream)) = until(&conn, tls.accept(stream)).await else { return };
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = ClientStream::tls(stream);
    if is_h2 { h2::serve(conn, stream).await } else { h1::serve(conn, stream).await }
}

/// The future's result, if it is there before the deadline, which a drain brings nearer.
async fn until<T>(conn: &Conn, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut hurried = false;
    let result = poll_fn(|cx| {
        if conn.worker.draining.get() && !hurried {
            hurried = true;
            conn.deadline.clear();
            conn.deadline.set_in(DRAIN_QUIET_MS);
        }
        match future.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending if conn.deadline.is_over(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    if hurried {
        conn.deadline.clear();
        conn.deadline.set_in(conn.worker.settings.timeouts.head_ms);
    }
    result
}
