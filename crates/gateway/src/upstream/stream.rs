//! The byte stream to an instance: TCP, or TLS over it.

use super::AttemptFault;
use crate::deadline::Deadline;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How TLS is spoken to an endpoint.
#[derive(Debug, Clone)]
pub(crate) struct TlsPeer {
    /// Trust, own certificate, protocols.
    pub(crate) config: Arc<ClientConfig>,
    /// The name that is asked for, and checked where certificates are.
    pub(crate) name: ServerName<'static>,
    /// Differs where connections must not be shared.
    pub(crate) key: u64,
}

/// See the module.
pub(crate) enum UpstreamStream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl UpstreamStream {
    /// Speaks TLS over a fresh connection, before the deadline.
    pub(crate) async fn secure(
        stream: TcpStream,
        peer: &TlsPeer,
        deadline: &Deadline,
    ) -> Result<Self, AttemptFault> {
        let connector = TlsConnector::from(peer.config.clone());
        let mut shaking = pin!(connector.connect(peer.name.clone(), stream));
        poll_fn(|cx| match shaking.as_mut().poll(cx) {
            Poll::Ready(Ok(stream)) => Poll::Ready(Ok(Self::Tls(Box::new(stream)))),
            Poll::Ready(Err(error)) => Poll::Ready(Err(AttemptFault::Connect(error))),
            Poll::Pending if deadline.is_over(cx) => {
                Poll::Ready(Err(AttemptFault::of_late_connect(deadline)))
            }
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Writes what can be written now.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Tls(stream) => {
                let mut cx = Context::from_waker(Waker::noop());
                match Pin::new(stream.as_mut()).poll_write(&mut cx, bytes) {
                    Poll::Ready(written) => written,
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
        }
    }
}

impl AsyncRead for UpstreamStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
