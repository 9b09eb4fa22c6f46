//! Requests that plugins make themselves: to authorization services, mirrors, collectors of logs.

use crate::local_exec::LocalExec;
use crate::resources::tls;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Where to.
#[derive(Debug, Clone)]
pub(super) struct Place {
    secure: bool,
    host: String,
    port: u16,
    /// `host:port`, without the port where it is the usual one.
    pub(super) authority: String,
    /// Path and query.
    pub(super) target: String,
}

impl Place {
    /// Reads an `http` or `https` URL.
    pub(super) fn read(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let secure = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let host = uri.host()?.trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let target = uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        Some(Self { secure, host, port, authority: uri.authority()?.to_string(), target })
    }
}

/// Sends a request over a connection of its own, and gives the answer's head. The connection lives as long as the answer.
pub(super) async fn send<B>(
    place: &Place,
    request: Request<B>,
    verify: bool,
) -> io::Result<Response<Incoming>>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let stream = TcpStream::connect((place.host.as_str(), place.port)).await?;
    stream.set_nodelay(true)?;
    if !place.secure {
        return exchange(stream, request).await;
    }
    let config = Arc::new(tls::client_config(verify, None, None).map_err(io::Error::other)?);
    let name = ServerName::try_from(place.host.clone()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(config).connect(name, stream).await?;
    exchange(stream, request).await
}

async fn exchange<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    request: Request<B>,
) -> io::Result<Response<Incoming>>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    hyper::rt::Executor::execute(&LocalExec, async move {
        let _ = connection.await;
    });
    sender.send_request(request).await.map_err(io::Error::other)
}

/// The whole body, if it is no longer than `most`.
pub(super) async fn read_up_to<B>(mut body: B, most: u64) -> io::Result<Option<Bytes>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let mut held = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
            if held.len() as u64 + data.len() as u64 > most {
                return Ok(None);
            }
            held.extend_from_slice(&data);
        }
    }
    Ok(Some(Bytes::from(held)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_from_urls() {
        let place = Place::read("https://[::1]:8443/a?b=1").unwrap();
        assert_eq!((place.secure, place.host.as_str(), place.port), (true, "::1", 8443));
        assert_eq!((place.authority.as_str(), place.target.as_str()), ("[::1]:8443", "/a?b=1"));
        let plain = Place::read("http://a.test").unwrap();
        assert_eq!((plain.port, plain.target.as_str()), (80, "/"));
        assert!(Place::read("ftp://a.test").is_none() && Place::read("/a").is_none());
    }
}
