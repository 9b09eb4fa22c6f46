//! An HTTP/1 client connection from its first request to its end.

use super::conn::{Conn, Phase, TunnelEnd};
use super::doze;
use super::guarded_io::GuardedIo;
use super::stream::ClientStream;
use super::tunnel;
use crate::framing::{FramingLimits, Guard};
use crate::request;
use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bytes that hyper buffers per direction; bounds what a slow client costs.
const BUFFER_BYTES: usize = 128 * 1024;

/// Header lines that hyper takes without being told.
const HYPER_HEADERS: usize = 100;

/// What follows a stretch of serving.
enum Next {
    /// Nothing came for a while, and everything is out. So many messages were complete.
    Doze(ClientStream, u64),
    /// Another protocol; these bytes have come already.
    Tunnel(ClientStream, Bytes, Box<TunnelEnd>),
    Over,
}

/// Serves the connection to its end. What a stretch needs is in a box of its own, so that it is there only while it is needed.
pub(crate) async fn serve(conn: Rc<Conn>, mut stream: ClientStream) {
    let mut heads = 0;
    loop {
        match Box::pin(serve_awake(&conn, stream, heads)).await {
            Next::Doze(quiet, so_far) => (stream, heads) = (quiet, so_far),
            Next::Tunnel(stream, first, end) => {
                return Box::pin(tunnel::run(&conn.deadline, stream, first, *end)).await;
            }
            Next::Over => return,
        }
        conn.doze_ms.set(0);
        if !doze::doze(&conn, &mut stream).await {
            let _ = stream.shutdown().await;
            return;
        }
        // What has come is judged, however late: it may be a whole request.
        conn.deadline.clear();
        conn.deadline.set_in(conn.worker.settings.timeouts.head_ms);
    }
}

async fn serve_awake(conn: &Rc<Conn>, stream: ClientStream, heads: u64) -> Next {
    let limits = &conn.worker.settings.limits;
    let guard = Guard::after(FramingLimits { head_bytes: limits.head, headers: limits.headers }, heads);
    let io = GuardedIo::new(stream, guard, conn.clone());
    let service = service_fn(|request| {
        let conn = conn.clone();
        async move { Ok::<_, Infallible>(request::serve(conn, None, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.max_buf_size(BUFFER_BYTES.max(limits.head * 2)).header_read_timeout(None);
    if limits.headers > HYPER_HEADERS {
        // Costs hyper an initialised table for each request.
        builder.max_headers(limits.headers);
    }
    let mut serving = builder.serve_connection(io, service);
    let (mut draining, mut polled, mut tired, mut quiet_until) = (false, false, false, None);
    let ended = poll_fn(|cx| {
        let waits = conn.worker.draining.get()
            && conn.phase.get() == Phase::Between
            && waits_for_last(conn, &mut quiet_until);
        if conn.worker.draining.get() && !draining && !waits {
            if polled {
                draining = true;
                Pin::new(&mut serving).graceful_shutdown();
            } else {
                // hyper closes at once what it has read nothing of; the first request may be here already.
                cx.waker().wake_by_ref();
            }
        }
        polled = true;
        let over = conn.deadline.is_over(cx);
        if over && conn.phase.get() == Phase::Between {
            if !conn.head_begun.get() {
                tired = may_doze(conn);
                if tired || conn.doze_ms.replace(0) == 0 {
                    return Poll::Ready(true);
                }
            } else {
                conn.head_late.set(true);
                conn.linger.set(true);
                conn.deadline.clear();
            }
        }
        match Pin::new(&mut serving).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(true),
            Poll::Ready(Err(error)) => {
                tracing::trace!(%error, "a client connection ended");
                Poll::Ready(conn.linger.get())
            }
            Poll::Pending if over && conn.phase.get() == Phase::Streaming && conn.deadline.is_over(cx) => {
                Poll::Ready(false)
            }
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    let parts = serving.into_parts();
    let in_body = parts.io.in_body();
    if in_body {
        // The answer came before the upload was there.
        conn.linger.set(true);
    }
    let (stream, held, heads) = parts.io.into_parts();
    if tired && !in_body && parts.read_buf.is_empty() && held.is_empty() {
        return Next::Doze(stream, heads);
    }
    finish(conn, stream, parts.read_buf, held, ended).await
}

/// Whether nothing is left to do for the connection, and some of its keep-alive time is; its deadline is that of the rest
/// from here on.
fn may_doze(conn: &Conn) -> bool {
    let rest_ms = conn.doze_ms.get();
    if rest_ms > 0 {
        conn.deadline.clear();
        conn.deadline.set_in(rest_ms);
    }
    rest_ms > 0 && !conn.unsent.get() && !conn.linger.get() && !conn.worker.draining.get()
}

/// Whether an idle connection is kept while the worker drains: who keeps connections may be sending the next request at this very
/// moment, and gets an answer that says that it is the last. `until` = the end of that, once it is known.
fn waits_for_last(conn: &Conn, until: &mut Option<u64>) -> bool {
    let Some(quiet_ms) = conn.worker.quiet_ms.get() else { return false };
    let now = conn.deadline.now_ms();
    let until = *until.get_or_insert(now.saturating_add(quiet_ms));
    if !conn.head_begun.get() {
        if now >= until {
            return false;
        }
        conn.deadline.set_in(until - now);
    }
    true
}

/// What follows the last message: a tunnel, or an orderly end.
async fn finish(conn: &Conn, mut stream: ClientStream, read: Bytes, held: Bytes, ended: bool) -> Next {
    let end = conn.tunnel.borrow_mut().take();
    if let Some(end) = end {
        let first = if held.is_empty() { read } else { [read, held].concat().into() };
        return Next::Tunnel(stream, first, Box::new(end));
    }
    if ended {
        let _ = stream.shutdown().await;
        if conn.linger.get() {
            linger(conn, stream).await;
        }
    }
    Next::Over
}

/// Reads on for a moment. Closing a socket with unread bytes resets it, and the client may lose the answer that it was
/// just sent.
async fn linger(conn: &Conn, mut stream: ClientStream) {
    let mut reading = pin!(async {
        let mut bytes = [0; 4096];
        let mut total = 0_usize;
        while let Ok(read @ 1..) = stream.read(&mut bytes).await {
            total += read;
            if total > 4 << 20 {
                break;
            }
        }
    });
    let ms = u64::try_from(conn.worker.settings.timeouts.linger.as_millis()).unwrap_or(u64::MAX);
    conn.deadline.clear();
    conn.deadline.set_in(ms.max(1));
    poll_fn(|cx| {
        if conn.deadline.is_over(cx) {
            return Poll::Ready(());
        }
        reading.as_mut().poll(cx)
    })
    .await;
}
