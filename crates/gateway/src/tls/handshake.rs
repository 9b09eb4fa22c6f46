//! A handshake: the client's first message, the choice by its name, the rest.

use super::listener::TlsListener;
use super::served::Served;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// A fatal alert of TLS, `unrecognized_name` (RFC 6066, 3), as a record in clear text.
const UNKNOWN_NAME: &[u8] = &[21, 3, 3, 0, 2, 2, 112];

/// What the connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// HTTP: `h2` or `http/1.1`.
    Http,
    /// Bytes: no protocol is negotiated.
    Stream,
}

/// What a handshake came to.
#[derive(Debug)]
pub(crate) struct Session {
    /// Where it came in.
    pub(crate) listener: Arc<TlsListener>,
    /// What it is served with.
    pub(crate) served: Arc<Served>,
    /// The name that the client has asked for.
    pub(crate) name: Option<Box<str>>,
    /// The client has shown a certificate that is right by the rule of `served`.
    pub(crate) verified: bool,
    /// Version and cipher, for variables.
    pub(crate) version: Option<rustls::ProtocolVersion>,
    /// The cipher suite.
    pub(crate) cipher: Option<rustls::CipherSuite>,
}

/// Pace of the handshakes of one worker. The dear part of a handshake is one signature, which nothing else on the thread
/// can interrupt: everybody else gets a turn between two of them.
#[derive(Debug)]
pub(crate) struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

impl TlsListener {
    /// The whole handshake. The caller bounds its time, and how many there are ([`TlsListener::place`]).
    pub(crate) async fn accept<S>(
        self: &Arc<Self>,
        turns: &Turns,
        stream: S,
        purpose: Use,
    ) -> io::Result<(TlsStream<S>, Session)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
        let name: Option<Box<str>> =
            start.client_hello().server_name().map(|name| name.to_ascii_lowercase().into());
        let Some(served) = self.find(name.as_deref()) else {
            let _ = start.io.write_all(UNKNOWN_NAME).await;
            let _ = start.io.shutdown().await;
            return Err(io::Error::other("no certificate serves this name"));
        };
        let config = match purpose {
            Use::Http => served.http.clone(),
            Use::Stream => served.stream.clone(),
        };
        let accept = {
            let _turn = turns.0.acquire().await;
            let accept = start.into_stream(config);
            tokio::task::yield_now().await;
            accept
        };
        let stream = accept.await?;
        let connection = stream.get_ref().1;
        let session = Session {
            listener: self.clone(),
            verified: served.client.is_some() && connection.peer_certificates().is_some(),
            version: connection.protocol_version(),
            cipher: connection.negotiated_cipher_suite().map(|suite| suite.suite()),
            served,
            name,
        };
        Ok((stream, session))
    }
}
