//! One look at an instance.

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use towpath_types::health::Probe;
use towpath_types::upstream::Protocol;

/// So much of an answer's body is read before the connection is dropped.
const BODY: usize = 64 << 10;

/// Why a probe failed; its text goes into reasons.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProbeFailure {
    /// Nobody listens.
    #[error("nothing accepts connections on port {0}")]
    NoConnection(u16),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    TooSlow(Duration),
    /// Not a good answer.
    #[error("{path} answers with status {status}")]
    Status {
        /// What was asked for.
        path: String,
        /// The answer.
        status: StatusCode,
    },
    /// Not HTTP, or cut off.
    #[error("{path} gives no HTTP answer")]
    Broken {
        /// What was asked for.
        path: String,
    },
}

/// Probes once. [`Probe::Process`] holds as long as the caller's process runs.
pub(crate) async fn probe(
    probe: &Probe,
    protocol: Protocol,
    at: SocketAddr,
    timeout: Duration,
) -> Result<(), ProbeFailure> {
    let look = async {
        match probe {
            Probe::Process => Ok(()),
            Probe::Port => connect(at).await.map(drop),
            Probe::Http(path) => get(path, protocol, at).await,
        }
    };
    tokio::time::timeout(timeout, look).await.map_err(|_| ProbeFailure::TooSlow(timeout))?
}

async fn connect(at: SocketAddr) -> Result<TcpStream, ProbeFailure> {
    TcpStream::connect(at).await.map_err(|_| ProbeFailure::NoConnection(at.port()))
}

async fn get(path: &str, protocol: Protocol, at: SocketAddr) -> Result<(), ProbeFailure> {
    let broken = || ProbeFailure::Broken { path: path.to_owned() };
    let stream = TokioIo::new(connect(at).await?);
    let request = Request::get(match protocol {
        Protocol::Http1 => path.to_owned(),
        Protocol::H2c => format!("http://{at}{path}"),
    })
    .header(header::USER_AGENT, "towpath-health/1");
    let response = match protocol {
        Protocol::Http1 => {
            let request = request
                .header(header::HOST, at.to_string())
                .header(header::CONNECTION, "close")
                .body(Empty::<Bytes>::new())
                .map_err(|_| broken())?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(stream).await.map_err(|_| broken())?;
            let _task = AbortOnDrop(tokio::spawn(async move {
                let _ = connection.await;
            }));
            let response = sender.send_request(request).await.map_err(|_| broken())?;
            read_some(response).await
        }
        Protocol::H2c => {
            let request = request.body(Empty::<Bytes>::new()).map_err(|_| broken())?;
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
                    .await
                    .map_err(|_| broken())?;
            let _task = AbortOnDrop(tokio::spawn(async move {
                let _ = connection.await;
            }));
            let response = sender.send_request(request).await.map_err(|_| broken())?;
            read_some(response).await
        }
    };
    if response.as_u16() < 400 {
        Ok(())
    } else {
        Err(ProbeFailure::Status { path: path.to_owned(), status: response })
    }
}

/// The status; the body is read a little, so that a well-behaved app sees no reset.
async fn read_some(response: http::Response<hyper::body::Incoming>) -> StatusCode {
    let status = response.status();
    let mut body = response.into_body();
    let mut read = 0;
    while read < BODY
        && let Ok(Some(Ok(frame))) = tokio::time::timeout(Duration::from_millis(250), body.frame()).await
    {
        read += frame.data_ref().map_or(0, Bytes::len);
    }
    status
}

/// A probe that is given up must not leave its connection behind.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn server(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = [0; 1024];
                let _ = stream.read(&mut buffer).await;
                let _ = stream.write_all(answer).await;
                if answer.is_empty() {
                    std::future::pending::<()>().await;
                }
            }
        });
        address
    }

    async fn look(probe_: Probe, at: SocketAddr) -> Result<(), ProbeFailure> {
        probe(&probe_, Protocol::Http1, at, Duration::from_millis(500)).await
    }

    #[tokio::test]
    async fn answers_are_judged() {
        let path = || Probe::Http("/up".into());
        let good = server(b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(look(path(), good).await, Ok(()));
        let bad = server(b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno").await;
        let error = look(path(), bad).await.unwrap_err();
        assert_eq!(error.to_string(), "/up answers with status 503 Service Unavailable");
        assert_eq!(look(Probe::Port, bad).await, Ok(()));
        let odd = server(b"hello\r\n\r\n").await;
        assert_eq!(look(path(), odd).await, Err(ProbeFailure::Broken { path: "/up".into() }));
        let endless = server(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\nx").await;
        assert_eq!(look(path(), endless).await, Ok(()));
        let mute = server(b"").await;
        assert!(matches!(look(path(), mute).await, Err(ProbeFailure::TooSlow(_))));
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        assert_eq!(look(Probe::Port, nobody).await, Err(ProbeFailure::NoConnection(nobody.port())));
        assert_eq!(look(Probe::Process, nobody).await, Ok(()));
    }
}
