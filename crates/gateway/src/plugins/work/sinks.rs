//! Where entries of loggers go.

use super::outbound::{self, Place};
use crate::resources::tls;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use http_body_util::Full;
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio_rustls::TlsConnector;

/// A place that takes entries, many at a time.
pub(super) trait Sink: Send + 'static {
    /// What it takes.
    type Entry: Send + 'static;

    /// What it is called when something is wrong. No secrets.
    fn name(&self) -> &str;

    /// Sends a batch.
    async fn send(&mut self, batch: &[&Self::Entry]) -> io::Result<()>;
}

/// Posts a body; an answer of 300 or more is a failure.
pub(super) async fn post(
    place: &Place,
    kind: &'static str,
    headers: &[(HeaderName, HeaderValue)],
    verify: bool,
    body: impl Into<Bytes>,
) -> io::Result<()> {
    let mut request =
        http::Request::post(place.target.as_str()).header(HOST, &place.authority).header(CONTENT_TYPE, kind);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(body.into())).map_err(io::Error::other)?;
    let answer = outbound::send(place, request, verify).await?;
    if answer.status().as_u16() >= 300 {
        return Err(io::Error::other(format!("the server answered {}", answer.status())));
    }
    Ok(())
}

/// A TCP server that reads bytes until the connection ends.
pub(super) struct Tcp {
    pub(super) host: String,
    pub(super) port: u16,
    /// The name in its certificate; `None` = no TLS.
    pub(super) tls: Option<String>,
}

impl Tcp {
    pub(super) async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let Some(name) = &self.tls else {
            stream.write_all(bytes).await?;
            return stream.shutdown().await;
        };
        let config = Arc::new(tls::client_config(false, None, None).map_err(io::Error::other)?);
        let name = ServerName::try_from(name.clone()).map_err(io::Error::other)?;
        let mut stream = TlsConnector::from(config).connect(name, stream).await?;
        stream.write_all(bytes).await?;
        stream.shutdown().await
    }
}

/// Sends each of these as a datagram.
pub(super) async fn datagrams<'a>(
    host: &str,
    port: u16,
    texts: impl Iterator<Item = &'a str>,
) -> io::Result<()> {
    let to = tokio::net::lookup_host((host, port)).await?.next().ok_or(io::ErrorKind::NotFound)?;
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 8], 0).into() };
    let socket = UdpSocket::bind(any).await?;
    for text in texts {
        socket.send_to(text.as_bytes(), to).await?;
    }
    Ok(())
}
