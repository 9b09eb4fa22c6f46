//! One request over one connection.

use super::{Address, Body, tls};
use crate::exit::{Exit, Failure, Outcome, reason};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends a request and waits for the response's head. Bodies stream in both directions.
pub(super) async fn send(
    address: &Address,
    request: Request<Body>,
    timeout: Duration,
) -> Outcome<Response<Incoming>> {
    let stream = connect(address).await?;
    let mut sender = if address.tls() {
        handshake(address, tls::wrap(address, stream).await?).await?
    } else {
        handshake(address, stream).await?
    };
    match tokio::time::timeout(timeout, sender.send_request(request)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(broken(address, &error)),
        Err(_) => {
            Err(Failure::new(Exit::Unreachable, format!("no answer from {address} within {timeout:?}")))
        }
    }
}

async fn connect(address: &Address) -> Outcome<TcpStream> {
    let target = (address.host(), address.port());
    let stream = match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(target)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            let hint = "start one with `towpath up`, or set TOWPATH_API";
            let what = format!("no Towpath API at {address} ({})", reason(&error).to_lowercase());
            return Err(Failure::hinted(Exit::Unreachable, what, hint));
        }
        Err(_) => {
            let what = format!("no Towpath API at {address}: no connection within {CONNECT_TIMEOUT:?}");
            return Err(Failure::hinted(Exit::Unreachable, what, "check TOWPATH_API"));
        }
    };
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

async fn handshake<S>(address: &Address, stream: S) -> Outcome<hyper::client::conn::http1::SendRequest<Body>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(address, &error))?;
    tokio::spawn(connection);
    Ok(sender)
}

fn broken(address: &Address, error: &hyper::Error) -> Failure {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    Failure::new(Exit::Unreachable, format!("the connection to {address} broke: {text}"))
}
