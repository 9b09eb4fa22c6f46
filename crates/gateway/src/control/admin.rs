//! The admin listener: `/metrics` in Prometheus text form, `/healthz`.

use crate::metrics::{self, Registry};
use crate::table::SharedTable;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Serves until its task is dropped.
pub(crate) async fn run(listener: TcpListener, registry: Arc<Registry>, table: Arc<SharedTable>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let (registry, table) = (registry.clone(), table.clone());
        tokio::task::spawn_local(async move {
            let service = service_fn(|request| {
                let answer = answer(&request, &registry, &table);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            let serving = builder.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
            if let Err(error) = serving.await {
                tracing::debug!(%error, "an admin connection ended");
            }
        });
    }
}

fn answer<B>(
    request: &http::Request<B>,
    registry: &Registry,
    table: &SharedTable,
) -> Response<Full<bytes::Bytes>> {
    let reading = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, text) = match request.uri().path() {
        "/metrics" if reading => {
            let view = table.view();
            (StatusCode::OK, metrics::render(registry, &view.table, view.revision.0))
        }
        "/healthz" if reading && !table.view().loaded => {
            (StatusCode::SERVICE_UNAVAILABLE, "no routing table yet\n".to_owned())
        }
        "/healthz" if reading => (StatusCode::OK, "ok\n".to_owned()),
        "/metrics" | "/healthz" => (StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "there are /metrics and /healthz here\n".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
