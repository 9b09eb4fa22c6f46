//! The admin listener: `/metrics` in Prometheus text form, `/healthz`, and what APISIX's `prometheus`, `node-status` and
//! `server-info` tell, at the paths that it gives them. One request a connection, few connections at once,
//! and each for a short time: it shares its thread with what the gateway lives by, and its descriptors with the clients.

use crate::metrics::{self, Registry};
use crate::table::SharedTable;
use crate::tls::Certificates;
use crate::vital::Vital;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use towpath_types::GatewayId;

/// What connections may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// So many at once.
    pub(crate) connections: usize,
    /// From accepting one to its end: request, answer, and a peer that is slow at either.
    pub(crate) patience: Duration,
}

/// A scrape takes milliseconds, and few have reason to ask.
pub(crate) const BOUNDS: Bounds = Bounds { connections: 64, patience: Duration::from_secs(10) };

/// Pause after a failure to accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What one too many is told.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 31\r\n\
connection: close\r\n\r\ntoo many connections are open\r\n";

/// What the answers are made of.
#[derive(Clone)]
pub(crate) struct Answers {
    pub(crate) registry: Arc<Registry>,
    pub(crate) table: Arc<SharedTable>,
    pub(crate) vital: Vital,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) id: GatewayId,
    /// When the gateway began, seconds since 1970.
    pub(crate) begun_s: u64,
    /// Held while the counters of all routes are written: they may be many.
    pub(crate) rendering: Arc<Mutex<()>>,
}

/// Where APISIX has its metrics.
const EXPORT: &str = "/apisix/prometheus/metrics";

/// Serves until its task is dropped.
pub(crate) async fn run(listener: TcpListener, answers: Answers, bounds: Bounds) {
    let open = Rc::new(());
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        if Rc::strong_count(&open) > bounds.connections {
            // Into the empty buffer of a fresh socket it goes at once; nobody waits to see it read.
            let _ = stream.try_write(BUSY);
            continue;
        }
        let (answers, counted) = (answers.clone(), open.clone());
        tokio::task::spawn_local(async move {
            let _counted = counted;
            if tokio::time::timeout(bounds.patience, answers.serve(stream)).await.is_err() {
                tracing::debug!("an admin connection took too long");
            }
        });
    }
}

impl Answers {
    async fn serve(&self, stream: TcpStream) {
        let service = service_fn(|request| async move {
            if request.uri().path() == EXPORT && reads(&request) {
                return Ok::<_, Infallible>(self.export().await);
            }
            Ok(self.answer(&request))
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).keep_alive(false).half_close(true);
        if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%error, "an admin connection ended");
        }
    }

    /// It serves, so it is healthy; but with how fresh a knowledge is worth a word.
    fn word_of_health(&self) -> String {
        let now = crate::clock::now_ms();
        let complaints = self.registry.sources().map(|sources| sources.complaints(now)).unwrap_or_default();
        if complaints.is_empty() { "ok\n".to_owned() } else { format!("ok, but {}\n", complaints.join("; ")) }
    }

    /// The counters by route: on another thread, since there may be many, and one scrape at a time.
    async fn export(&self) -> Response<Full<bytes::Bytes>> {
        let _alone = self.rendering.lock().await;
        let registry = self.registry.clone();
        match tokio::task::spawn_blocking(move || metrics::series::render(&registry)).await {
            Ok(text) => response(StatusCode::OK, text, TEXT),
            Err(_) => response(StatusCode::INTERNAL_SERVER_ERROR, String::new(), TEXT),
        }
    }

    fn status(&self) -> String {
        let connections = metrics::series::Connections::of(&self.registry);
        let mut status = serde_json::Map::new();
        for (name, count) in connections.states().into_iter().chain([("total", connections.requests)]) {
            status.insert(name.to_owned(), count.to_string().into());
        }
        format!("{}\n", serde_json::json!({"id": self.id.to_string(), "status": status}))
    }

    fn server_info(&self) -> String {
        let info = serde_json::json!({
            "id": self.id.to_string(), "hostname": metrics::series::hostname(), "boot_time": self.begun_s,
            "version": env!("CARGO_PKG_VERSION"), "etcd_version": "unknown",
        });
        format!("{info}\n")
    }

    fn answer<B>(&self, request: &http::Request<B>) -> Response<Full<bytes::Bytes>> {
        let reading = reads(request);
        match request.uri().path() {
            "/apisix/status" if reading => return response(StatusCode::OK, self.status(), JSON),
            "/v1/server_info" if reading => return response(StatusCode::OK, self.server_info(), JSON),
            _ => {}
        }
        let (status, text) = match request.uri().path() {
            "/metrics" if reading => {
                let view = self.table.view();
                let mut text = metrics::render(&self.registry, &view.table, view.revision.0);
                self.certificates.render(&mut text);
                (StatusCode::OK, text)
            }
            "/healthz" if reading => match self.vital.failed() {
                Some(what) => (StatusCode::SERVICE_UNAVAILABLE, format!("{what} has died\n")),
                None if !self.table.view().loaded => {
                    (StatusCode::SERVICE_UNAVAILABLE, "no routing table yet\n".to_owned())
                }
                None => (StatusCode::OK, self.word_of_health()),
            },
            "/metrics" | "/healthz" | "/apisix/status" | "/v1/server_info" | EXPORT => {
                (StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned())
            }
            _ => (StatusCode::NOT_FOUND, "there are /metrics and /healthz here\n".to_owned()),
        };
        response(status, text, TEXT)
    }
}

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";

fn reads<B>(request: &http::Request<B>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

fn response(status: StatusCode, text: String, kind: &'static str) -> Response<Full<bytes::Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::View;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use towpath_route::Table;
    use towpath_types::{Place, Revision};

    fn answers(loaded: bool) -> (Answers, impl Fn(bool) -> View) {
        let view = |loaded| View {
            table: Table::new(Place::default()),
            inside: Vec::new(),
            revision: Revision(1),
            plugins: None,
            loaded,
        };
        let keys = crate::tls::TicketKeys::random().unwrap();
        let answers = Answers {
            certificates: Certificates::new(keys),
            registry: Arc::new(Registry::new(1)),
            table: SharedTable::new(view(loaded), 1),
            vital: Vital::default(),
            id: GatewayId(uuid::Uuid::nil()),
            begun_s: 0,
            rendering: Arc::default(),
        };
        (answers, view)
    }

    #[test]
    fn healthy_is_who_has_a_table_and_all_its_parts() {
        let (answers, view) = answers(false);
        let status = || answers.answer(&http::Request::get("/healthz").body(()).unwrap()).status();
        assert_eq!(status(), 503);
        answers.table.publish(view(true));
        assert_eq!(status(), 200);
        answers.vital.fails("a worker");
        assert_eq!(status(), 503);
    }

    /// Asks for health, and reads to the end of the connection.
    async fn ask(address: std::net::SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let mut said = Vec::new();
        // One that is turned away may be reset with its request unread.
        let _ = stream.read_to_end(&mut said).await;
        String::from_utf8(said).unwrap()
    }

    async fn serve(bounds: Bounds) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::task::spawn_local(run(listener, answers(true).0, bounds));
        address
    }

    #[tokio::test]
    async fn one_connection_too_many_is_turned_away_and_the_next_is_served() {
        let bounds = Bounds { connections: 2, patience: Duration::from_secs(600) };
        tokio::task::LocalSet::new()
            .run_until(async {
                let address = serve(bounds).await;
                let mut silent = Vec::new();
                for _ in 0..2 {
                    silent.push(TcpStream::connect(address).await.unwrap());
                }
                let mut third = TcpStream::connect(address).await.unwrap();
                let mut said = String::new();
                third.read_to_string(&mut said).await.unwrap();
                assert!(said.starts_with("HTTP/1.1 503 ") && said.ends_with("are open\r\n"), "{said:?}");
                silent.clear();
                // It takes a moment until their ends are seen.
                while !ask(address).await.starts_with("HTTP/1.1 200 ") {
                    tokio::task::yield_now().await;
                }
            })
            .await;
    }

    #[tokio::test]
    async fn who_says_nothing_or_goes_on_saying_is_cut_off() {
        let bounds = Bounds { connections: 2, patience: Duration::from_millis(50) };
        tokio::task::LocalSet::new()
            .run_until(async {
                let address = serve(bounds).await;
                for begun in ["", "GET /metrics HTTP/1.1\r\nhost:"] {
                    let mut slow = TcpStream::connect(address).await.unwrap();
                    slow.write_all(begun.as_bytes()).await.unwrap();
                    let ended = tokio::time::timeout(Duration::from_secs(20), slow.read(&mut [0])).await;
                    assert!(ended.is_ok(), "{begun:?}");
                }
            })
            .await;
    }
}
