//! Accepting connections, and finding out what they speak.

use super::conn::{Conn, Scheme};
use super::stream::ClientStream;
use super::{h1, h2, proxied, turn_away};
use crate::clock;
use crate::descriptors::{self, LastDescriptor};
use crate::tls::{TlsListener, Use};
use crate::worker::Worker;
use crate::worker_thread::Drain;
use bytes::Bytes;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use towpath_telemetry::Seldom;
use towpath_types::NetBlock;

/// What an HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Pause after a failure to accept that is not about one client.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// How long a connection that has sent nothing yet, or is in its handshake, may hold up a drain.
const DRAIN_QUIET_MS: u64 = 500;

/// What a listener speaks.
#[derive(Clone, Default)]
pub(crate) struct Kind {
    /// TLS.
    pub(crate) tls: Option<Arc<TlsListener>>,
    /// Proxies whose connections begin with a header of the PROXY protocol.
    pub(crate) proxies: Arc<[NetBlock]>,
}

/// Accepts until the worker drains.
pub(crate) async fn run(
    worker: Rc<Worker>,
    listener: TcpListener,
    kind: Kind,
    mut drain: watch::Receiver<Drain>,
) {
    let mut last = LastDescriptor::new();
    let mut warned = Seldom::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = drain.wait_for(Option::is_some) => break,
        };
        match accepted {
            Ok((stream, peer)) => accept(&worker, stream, peer, &kind),
            Err(error) if is_about_one_client(&error) => {}
            Err(error) => {
                if let Some(left_out) = warned.now(clock::now_ms()) {
                    tracing::warn!(%error, left_out, "connections cannot be accepted; trying again");
                }
                if descriptors::are_used_up(&error) {
                    turn_away_with_the_last(&worker, &listener, &mut last, kind.tls.is_some()).await;
                } else {
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }
    // Clients in the queue believe that they are connected; closing the socket would reset them.
    let Ok(listener) = listener.into_std() else { return };
    while let Ok((stream, peer)) = listener.accept() {
        if stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            accept(&worker, stream, peer, &kind);
        }
    }
}

fn is_about_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// No descriptor is left to accept with. The one that is kept for this moment is: a client that is told so can go
/// elsewhere, one that waits in the queue cannot.
async fn turn_away_with_the_last(
    worker: &Rc<Worker>,
    listener: &TcpListener,
    last: &mut LastDescriptor,
    tls: bool,
) {
    last.free();
    let accepted = poll_fn(|cx| Poll::Ready(listener.poll_accept(cx))).await;
    if let Poll::Ready(Ok((stream, peer))) = accepted {
        worker.metrics.accepted.add(1);
        turn_away::say(worker, stream, peer, tls, ACCEPT_AGAIN).await;
    } else {
        tokio::time::sleep(ACCEPT_AGAIN).await;
    }
    last.keep();
}

fn accept(worker: &Rc<Worker>, stream: TcpStream, peer: SocketAddr, kind: &Kind) {
    worker.metrics.accepted.add(1);
    let Some(count) = Counted::new(worker) else {
        turn_away::spawn(worker, stream, peer, kind.tls.is_some());
        return;
    };
    let _ = stream.set_nodelay(true);
    let scheme = if kind.tls.is_some() { Scheme::Https } else { Scheme::Http };
    let mut conn = Conn::new(worker, peer, stream.local_addr().ok(), scheme);
    let tls = kind.tls.clone();
    let announced = kind.proxies.iter().any(|proxy| proxy.contains(conn.client()));
    tokio::task::spawn_local(async move {
        let _count = count;
        let mut stream = stream;
        if announced {
            // Boxed, as the handshake is: what lasts for a moment is not to make the task of a connection larger.
            let read = until(&conn, Box::pin(proxied::read(&mut stream))).await;
            match read {
                Some(Ok(None)) => {}
                Some(Ok(Some(of))) => {
                    conn = Conn::new(&conn.worker, of.source, Some(of.destination), scheme);
                }
                Some(Err(_)) | None => {
                    conn.worker.metrics.proxy_headers_refused.add(1);
                    return;
                }
            }
        }
        match tls {
            None => serve_clear(conn, stream).await,
            Some(tls) => serve_tls(conn, stream, tls).await,
        }
    });
}

/// A connection in the count of connections.
pub(crate) struct Counted(Rc<Worker>);

impl Counted {
    /// Counts one more, if the process may have it: the limit is one for all workers, since the kernel deals clients out
    /// unevenly.
    pub(crate) fn new(worker: &Rc<Worker>) -> Option<Self> {
        worker.open_connections.take_one().then(|| Self::taken(worker))
    }

    /// Likewise for a client whose address may be forged: such ones get half of the places at the most.
    pub(crate) fn of_datagrams(worker: &Rc<Worker>) -> Option<Self> {
        worker.open_connections.take_one_of_half().then(|| Self::taken(worker))
    }

    fn taken(worker: &Rc<Worker>) -> Self {
        worker.metrics.connections.add(1);
        Self(worker.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metrics.connections.sub(1);
        self.0.open_connections.give_back();
    }
}

/// Clear text: HTTP/2 if the first bytes are its preface.
async fn serve_clear(conn: Rc<Conn>, mut stream: TcpStream) {
    let Some(Ok(first)) = until(&conn, peek(&mut stream)).await else { return };
    let is_h2 = first.starts_with(PREFACE);
    let mut stream = ClientStream::tcp(stream);
    stream.unread(first);
    if is_h2 { Box::pin(h2::serve(conn, stream)).await } else { h1::serve(conn, stream).await }
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

async fn serve_tls(conn: Rc<Conn>, stream: TcpStream, tls: Arc<TlsListener>) {
    let worker = conn.worker.clone();
    let Some(place) = tls.place() else {
        worker.metrics.handshakes_refused.add(1);
        return;
    };
    conn.deadline.clear();
    conn.deadline.set_in(worker.settings.timeouts.handshake_ms);
    let made = until(&conn, Box::pin(tls.accept(&worker.turns, stream, Use::Http))).await;
    drop(place);
    let (stream, session) = match made {
        Some(Ok(made)) => made,
        Some(Err(error)) => {
            worker.metrics.handshake_failures.add(1);
            tracing::debug!(%error, peer = %conn.peer, "a TLS handshake failed");
            return;
        }
        None => {
            worker.metrics.handshake_failures.add(1);
            tracing::debug!(peer = %conn.peer, "a TLS handshake took too long");
            return;
        }
    };
    worker.metrics.handshakes.add(1);
    conn.deadline.clear();
    conn.deadline.set_in(worker.settings.timeouts.head_ms);
    let _ = conn.tls.set(session);
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = ClientStream::tls(stream);
    if is_h2 { Box::pin(h2::serve(conn, stream)).await } else { h1::serve(conn, stream).await }
}

/// The future's result, if it is there before the deadline, which a drain brings nearer.
async fn until<T>(conn: &Conn, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut hurried = false;
    let result = poll_fn(|cx| {
        if conn.worker.draining.get() && !hurried {
            hurried = true;
            conn.deadline.clear();
            conn.deadline.set_in(conn.worker.quiet_ms(DRAIN_QUIET_MS));
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
