//! An HTTP/2 client with many streams on one connection. What a server has said that it will not process (GOAWAY, a
//! connection that ended before the request was on it) is sent again over a new connection; anything else is a failure.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// Longest silence of a server.
const SILENCE: Duration = Duration::from_secs(60);

type Sender = SendRequest<Full<Bytes>>;

/// One connection at a time, for all who hold a copy.
#[derive(Clone)]
pub struct Streams {
    address: SocketAddr,
    host: String,
    open: Arc<Mutex<Option<Sender>>>,
}

impl Streams {
    pub fn new(address: SocketAddr, host: &str) -> Self {
        Self { address, host: host.to_owned(), open: Arc::default() }
    }

    pub fn get(&self, target: &str) -> Request<Full<Bytes>> {
        Request::get(format!("http://{}{target}", self.host)).body(Full::default()).unwrap()
    }

    pub fn post(&self, target: &str, body: Bytes) -> Request<Full<Bytes>> {
        Request::post(format!("http://{}{target}", self.host)).body(Full::new(body)).unwrap()
    }

    /// The connection, a new one if the last takes no more requests.
    async fn sender(&self) -> std::io::Result<Sender> {
        let mut open = self.open.lock().await;
        if let Some(sender) = &mut *open
            && sender.ready().await.is_ok()
        {
            return Ok(sender.clone());
        }
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        *open = Some(sender.clone());
        Ok(sender)
    }

    /// The answer, whole; `Err` = what was lost, and how.
    pub async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), String> {
        let exchange = async {
            loop {
                let mut sender = self.sender().await.map_err(|error| format!("no connection: {error}"))?;
                match sender.try_send_request(request).await {
                    Ok(response) => {
                        let status = response.status();
                        let body = response.into_body().collect().await;
                        let body = body.map_err(|error| format!("{status}, and then: {error:?}"))?;
                        return Ok((status, body.to_bytes()));
                    }
                    Err(mut error) => match error.take_message() {
                        Some(unsent) => request = unsent,
                        None => return Err(format!("{:?}", error.into_error())),
                    },
                }
            }
        };
        tokio::time::timeout(SILENCE, exchange).await.unwrap_or_else(|_| Err("silence".to_owned()))
    }

    /// Whether the connection that is open still takes requests: a server that says goodbye lets those that are under way
    /// end, and takes no other.
    pub async fn is_taking(&self) -> bool {
        let mut sender = self.open.lock().await.clone().expect("a connection is open");
        sender.try_send_request(self.get("/")).await.is_ok()
    }
}
