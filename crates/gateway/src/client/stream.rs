//! A client's byte stream: TCP, or TLS over it, with bytes in front that were read already.

use bytes::{Buf, Bytes};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// The stream under a connection.
pub(crate) struct ClientStream {
    first: Bytes,
    kind: Kind,
}

enum Kind {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl ClientStream {
    /// Clear text.
    pub(crate) fn tcp(stream: TcpStream) -> Self {
        Self { first: Bytes::new(), kind: Kind::Tcp(stream) }
    }

    /// TLS, after its handshake.
    pub(crate) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self { first: Bytes::new(), kind: Kind::Tls(Box::new(stream)) }
    }

    /// Puts bytes back in front.
    pub(crate) fn unread(&mut self, first: Bytes) {
        self.first = first;
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let len = self.first.len().min(buf.remaining());
            buf.put_slice(self.first.get(..len).unwrap_or_default());
            self.first.advance(len);
            return Poll::Ready(Ok(()));
        }
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Kind::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Kind::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Kind::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Kind::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Kind::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
