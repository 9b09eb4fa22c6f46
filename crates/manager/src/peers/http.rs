//! One request to another manager, on a connection of its own.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::io;
use tokio::net::TcpStream;
use towpath_types::ManagerId;

/// What is asked.
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) token: String,
    /// Who asks, if the one that is asked is to look nowhere else.
    pub(super) peer: Option<ManagerId>,
}

/// Sends it; gives the answer's head, and its body as it comes.
pub(super) async fn send(address: &str, ask: Ask) -> io::Result<Response<Incoming>> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{address}: {why}"));
    let base: Uri = address.parse().map_err(|_| invalid("is no address"))?;
    if base.scheme_str() != Some("http") {
        return Err(invalid("managers reach each other by http:// alone"));
    }
    let host = base.host().ok_or_else(|| invalid("has no host"))?;
    let authority = base.authority().map(ToString::to_string).unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare, base.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends with the answer's body.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to another manager broke off");
        }
    });
    let path = format!("{}{}", base.path().trim_end_matches('/'), ask.path);
    let mut request = Request::builder()
        .method(ask.method)
        .uri(path)
        .header(header::HOST, authority)
        .header(header::AUTHORIZATION, format!("Bearer {}", ask.token));
    if let Some(peer) = ask.peer {
        request =
            request.header(super::PEER, HeaderValue::try_from(peer.to_string()).map_err(io::Error::other)?);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
    sender.send_request(request).await.map_err(io::Error::other)
}
