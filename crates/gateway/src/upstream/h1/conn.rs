//! One connection to an instance.

use crate::buffer::Buffer;
use crate::upstream::stream::UpstreamStream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// An HTTP/1.1 connection, kept in the pool while it carries no request.
pub(crate) struct H1Conn {
    stream: UpstreamStream,
    unsent: Vec<u8>,
    unsent_from: usize,
    /// When its last response ended.
    pub(crate) idle_since_ms: u64,
    /// How long it may stay idle, from the instance's `Keep-Alive: timeout=…`.
    pub(crate) idle_limit_ms: u64,
    /// Responses that it has carried.
    pub(crate) served: u64,
}

impl H1Conn {
    /// Wraps a fresh connection.
    pub(crate) fn new(stream: UpstreamStream) -> Self {
        Self {
            stream,
            unsent: Vec::new(),
            unsent_from: 0,
            idle_since_ms: 0,
            idle_limit_ms: u64::MAX,
            served: 0,
        }
    }

    /// Whether the peer has neither closed it nor sent anything unasked. Costs a system call only if something came.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let mut buf = ReadBuf::new(&mut byte);
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(&mut self.stream).poll_read(&mut cx, &mut buf).is_pending()
    }

    /// Begins to send: writes what fits, keeps the rest for [`H1Conn::poll_flush`]. `Err` = nothing was written.
    pub(crate) fn start(&mut self, head: &[u8]) -> io::Result<()> {
        let written = match self.stream.try_write(head) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        self.unsent.clear();
        self.unsent_from = 0;
        self.unsent.extend_from_slice(head.get(written..).unwrap_or_default());
        Ok(())
    }

    /// Writes what [`H1Conn::start`] left over.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.unsent.get(self.unsent_from..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.unsent_from += written,
            }
        }
        // What TLS has encrypted may wait in its own buffer.
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Writes from several slices.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    /// Reads into the free part of the buffer; 0 = the peer has closed.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        let mut free = ReadBuf::new(buffer.free_mut());
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut free))?;
        let read = free.filled().len();
        buffer.add_filled(read);
        Poll::Ready(Ok(read))
    }

    /// The bare stream, for a tunnel.
    pub(crate) fn into_stream(self) -> UpstreamStream {
        self.stream
    }
}
