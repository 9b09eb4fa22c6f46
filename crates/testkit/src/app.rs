//! An app that behaves as told: HTTP/1.1 and HTTP/2 (prior knowledge) on one port, in a thread of its own.
//!
//! | path | answer |
//! |---|---|
//! | `/status/<code>` | that status |
//! | `/delay/<ms>` | 200 after that long |
//! | `/bytes/<n>` | n bytes |
//! | `/body` | the request's body, streamed back |
//! | `/close` | none: the connection is closed |
//! | `/partial` | ten bytes of a promised hundred, then the connection is closed |
//! | `/sse/<n>/<ms>` | n server-sent events, that long apart |
//! | `/upgrade` | 101 to the asked protocol, then every byte is sent back |
//! | anything else | JSON of what arrived: `app`, `method`, `path`, `version`, `headers` (list of pairs), `body` (text) |
//!
//! Every answer has a header `x-app` with the app's name.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

type Body = BoxBody<Bytes, std::io::Error>;

/// A running app; stops with this guard.
pub struct HttpApp {
    address: SocketAddr,
    behaviour: Arc<Behaviour>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Behaviour {
    name: String,
    requests: AtomicU64,
    in_flight: AtomicU64,
    connections: AtomicU64,
    delay_ms: AtomicU64,
    status: AtomicU16,
    refuse: AtomicBool,
}

impl HttpApp {
    /// An app on a free port of 127.0.0.1.
    pub fn start(name: &str) -> Self {
        Self::start_on(name, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// An app on an address.
    pub fn start_on(name: &str, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("a port to listen on");
        listener.set_nonblocking(true).expect("a listener can be set non-blocking");
        let address = listener.local_addr().expect("a listener has an address");
        let behaviour = Arc::new(Behaviour { name: name.to_owned(), ..Behaviour::default() });
        let (stop, stopped) = oneshot::channel();
        let shared = behaviour.clone();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, shared) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, behaviour, stop: Some(stop), thread: Some(thread) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests that came so far.
    pub fn requests(&self) -> u64 {
        self.behaviour.requests.load(Ordering::SeqCst)
    }

    /// Requests being answered.
    pub fn in_flight(&self) -> u64 {
        self.behaviour.in_flight.load(Ordering::SeqCst)
    }

    /// Connections that were accepted so far.
    pub fn connections(&self) -> u64 {
        self.behaviour.connections.load(Ordering::SeqCst)
    }

    /// Waits that long before each answer.
    pub fn set_delay(&self, delay: Duration) {
        let ms = u64::try_from(delay.as_millis()).expect("a sane duration");
        self.behaviour.delay_ms.store(ms, Ordering::SeqCst);
    }

    /// Answers everything with this status; 0 = as the path says.
    pub fn set_status(&self, status: u16) {
        self.behaviour.status.store(status, Ordering::SeqCst);
    }

    /// Closes each connection instead of answering.
    pub fn set_refusing(&self, refusing: bool) {
        self.behaviour.refuse.store(refusing, Ordering::SeqCst);
    }
}

impl Drop for HttpApp {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, behaviour: Arc<Behaviour>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        behaviour.connections.fetch_add(1, Ordering::SeqCst);
        let behaviour = behaviour.clone();
        let service = hyper::service::service_fn(move |request| {
            let behaviour = behaviour.clone();
            async move { behaviour.answer(request).await }
        });
        tokio::spawn(async move {
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            // How a connection ends is the client's to judge.
            let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
        });
    }
}

/// Counts a request while it lives.
struct InFlight<'a>(&'a Behaviour);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Behaviour {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, std::io::Error> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let _in_flight = InFlight(self);
        let delay = self.delay_ms.load(Ordering::SeqCst);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if self.refuse.load(Ordering::SeqCst) {
            return Err(std::io::Error::other("told to refuse"));
        }
        let forced = self.status.load(Ordering::SeqCst);
        let mut response = match forced {
            0 => self.by_path(request).await?,
            code => status(code),
        };
        response.headers_mut().insert("x-app", HeaderValue::from_str(&self.name).expect("a plain name"));
        Ok(response)
    }

    async fn by_path(&self, request: Request<Incoming>) -> Result<Response<Body>, std::io::Error> {
        let path = request.uri().path().to_owned();
        let mut parts = path.split('/').skip(1);
        let first = parts.next().unwrap_or_default();
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok()).unwrap_or_default();
        match first {
            "status" => Ok(status(u16::try_from(number()).unwrap_or(500))),
            "delay" => {
                tokio::time::sleep(Duration::from_millis(number())).await;
                Ok(status(200))
            }
            "bytes" => Ok(Response::new(full(vec![b'x'; usize::try_from(number()).unwrap_or(0)]))),
            "body" => Ok(Response::new(request.into_body().map_err(std::io::Error::other).boxed())),
            "close" => Err(std::io::Error::other("told to close")),
            "partial" => Ok(partial()),
            "sse" => Ok(events(number(), Duration::from_millis(number()))),
            "upgrade" => Ok(upgrade(request)),
            _ => Ok(self.describe(request).await),
        }
    }

    async fn describe(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let headers: Vec<_> = head
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        let what = serde_json::json!({
            "app": self.name,
            "method": head.method.as_str(),
            "path": head.uri.path_and_query().map_or("", |path| path.as_str()),
            "version": format!("{:?}", head.version),
            "headers": headers,
            "body": String::from_utf8_lossy(&body),
        });
        let mut response =
            Response::new(full(if head.method == Method::HEAD { String::new() } else { what.to_string() }));
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
        response
    }
}

fn full(content: impl Into<Bytes>) -> Body {
    Full::new(content.into()).map_err(|never: Infallible| match never {}).boxed()
}

fn status(code: u16) -> Response<Body> {
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// A body of what is sent on the channel.
fn streamed() -> (mpsc::Sender<Result<Frame<Bytes>, std::io::Error>>, Body) {
    let (sender, receiver) = mpsc::channel(1);
    let body = StreamBody::new(Receiving(receiver));
    (sender, BodyExt::boxed(body))
}

struct Receiving(mpsc::Receiver<Result<Frame<Bytes>, std::io::Error>>);

impl futures_core::Stream for Receiving {
    type Item = Result<Frame<Bytes>, std::io::Error>;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

fn partial() -> Response<Body> {
    let (sender, body) = streamed();
    tokio::spawn(async move {
        let _ = sender.send(Ok(Frame::data(Bytes::from_static(b"0123456789")))).await;
        let _ = sender.send(Err(std::io::Error::other("told to break off"))).await;
    });
    let mut response = Response::new(body);
    response.headers_mut().insert("content-length", HeaderValue::from_static("100"));
    response
}

fn events(count: u64, apart: Duration) -> Response<Body> {
    let (sender, body) = streamed();
    tokio::spawn(async move {
        for number in 0..count {
            let event = Bytes::from(format!("id: {number}\ndata: event {number}\n\n"));
            if sender.send(Ok(Frame::data(event))).await.is_err() {
                return;
            }
            tokio::time::sleep(apart).await;
        }
    });
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", HeaderValue::from_static("text/event-stream"));
    response
}

fn upgrade(request: Request<Incoming>) -> Response<Body> {
    let protocol = request.headers().get("upgrade").cloned().unwrap_or(HeaderValue::from_static("echo"));
    tokio::spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
        let _ = tokio::io::copy(&mut read, &mut write).await;
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut write).await;
    });
    let mut response = status(101);
    response.headers_mut().insert("connection", HeaderValue::from_static("upgrade"));
    response.headers_mut().insert("upgrade", protocol);
    response
}
