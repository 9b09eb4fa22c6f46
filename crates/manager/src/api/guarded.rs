//! The framing guard between a client's socket and hyper's parser: the API refuses what the gateway refuses.
//!
//! hyper is shown complete, judged heads only. In the place of a head that is refused it gets a request of our own making,
//! which is answered in its turn with the reason, as the connection's last. A body that is refused ends in an error.

use hyper::rt::ReadBufCursor;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use towpath_framing::{FramingLimits, Guard, Refusal, Stop};

/// Most bytes that one read takes in.
const READ_BYTES: usize = 16 * 1024;
/// What hyper reads in the place of a refused head.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// Which request of a connection was refused, and why; shared with the one that answers.
#[derive(Debug, Clone, Default)]
pub(super) struct RefusedHead(Arc<Mutex<Option<(u64, Refusal)>>>);

impl RefusedHead {
    /// Why the request of this number (from 1) was refused.
    pub(super) fn find(&self, number: u64) -> Option<Refusal> {
        let refused = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refused.filter(|(at, _)| *at == number).map(|(_, refusal)| refusal)
    }

    fn set(&self, number: u64, refusal: Refusal) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((number, refusal));
    }
}

/// A client's stream under guard.
pub(super) struct Guarded<S> {
    stream: S,
    guard: Guard,
    refused: RefusedHead,
    /// Read, and not passed on yet: judged up to `judged`, then a head that is not complete.
    held: Vec<u8>,
    judged: usize,
    stop: Option<Stop>,
    stand_in_given: bool,
}

impl<S> Guarded<S> {
    /// Guards a stream.
    pub(super) fn new(stream: S, refused: RefusedHead) -> Self {
        let guard = Guard::new(FramingLimits::default());
        Self { stream, guard, refused, held: Vec::new(), judged: 0, stop: None, stand_in_given: false }
    }

    fn judge(&mut self, read: &[u8]) {
        self.held.extend_from_slice(read);
        loop {
            let verdict = self.guard.judge(self.held.get(self.judged..).unwrap_or_default());
            self.judged += verdict.pass;
            self.stop = verdict.stop;
            if self.stop != Some(Stop::Upgrade) {
                return;
            }
            // The API speaks nothing else.
            self.guard.resume(false);
            self.stop = None;
        }
    }

    /// Passes on what is judged; `false` = there is nothing.
    fn pass(&mut self, buf: &mut ReadBufCursor<'_>) -> bool {
        let len = self.judged.min(buf.remaining());
        buf.put_slice(self.held.get(..len).unwrap_or_default());
        self.held.drain(..len);
        self.judged -= len;
        len > 0
    }
}

impl<S: AsyncRead + Unpin> hyper::rt::Read for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.pass(&mut buf) {
                return Poll::Ready(Ok(()));
            }
            match this.stop {
                None | Some(Stop::Upgrade) => {}
                // The connection ends with the answer.
                Some(Stop::BadHead(_)) if this.stand_in_given => return Poll::Pending,
                Some(Stop::BadHead(refusal)) => {
                    this.stand_in_given = true;
                    this.refused.set(this.guard.heads() + 1, refusal);
                    buf.put_slice(STAND_IN);
                    return Poll::Ready(Ok(()));
                }
                Some(Stop::BadBody(refusal)) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, refusal.detail())));
                }
            }
            let mut bytes = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.judge(read.filled());
        }
    }
}

impl<S: AsyncWrite + Unpin> hyper::rt::Write for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
