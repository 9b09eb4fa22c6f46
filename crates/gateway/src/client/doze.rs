//! What a kept connection costs while nothing comes: a parser, its buffers and the request's future are some 30 KB, a socket
//! that waits is not a tenth of that. So a connection that has been idle for a second gives everything back but its
//! stream, and is made anew around it when the client says something.

use super::conn::Conn;
use super::stream::ClientStream;
use bytes::Bytes;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use tokio::io::{AsyncRead, ReadBuf};

/// How long a connection idles before it dozes off. Long enough that clients who ask again and again do not pay.
pub(crate) const AFTER_MS: u64 = 1_000;

/// Bytes of the read that wakes it.
const FIRST_BYTES: usize = 1024;

/// In the count of those that doze.
struct Dozing<'a>(&'a Conn);

impl<'a> Dozing<'a> {
    fn new(conn: &'a Conn) -> Self {
        conn.worker.metrics.dozing.add(1);
        Self(conn)
    }
}

impl Drop for Dozing<'_> {
    fn drop(&mut self) {
        self.0.worker.metrics.dozing.sub(1);
    }
}

/// Waits for bytes, which are put back in front; `false` = the client has gone, the time is over, or the worker drains.
pub(crate) async fn doze(conn: &Conn, stream: &mut ClientStream) -> bool {
    let _counted = Dozing::new(conn);
    let mut hurried = false;
    poll_fn(|cx| {
        // Where another process has taken over, the next request is answered still, if it comes soon.
        let quiet_ms = conn.worker.quiet_ms.get();
        if let Some(quiet_ms) = quiet_ms.filter(|_| conn.worker.draining.get() && !hurried) {
            hurried = true;
            conn.deadline.set_in(quiet_ms);
        }
        let drains = conn.worker.draining.get() && quiet_ms.is_none();
        let mut bytes = [0; FIRST_BYTES];
        let mut read = ReadBuf::new(&mut bytes);
        match Pin::new(&mut *stream).poll_read(cx, &mut read) {
            Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                stream.unread(Bytes::copy_from_slice(read.filled()));
                Poll::Ready(true)
            }
            Poll::Ready(_) => Poll::Ready(false),
            Poll::Pending if drains || conn.deadline.is_over(cx) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
