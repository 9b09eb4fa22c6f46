//! The admin listener: `/metrics` in Prometheus text form, `/healthz`.

use crate::metrics::{self, Registry};
use crate::table::SharedTable;
use crate::vital::Vital;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::TcpListener;

/// What the answers are made of.
#[derive(Clone)]
pub(crate) struct Answers {
    pub(crate) registry: Arc<Registry>,
    pub(crate) table: Arc<SharedTable>,
    pub(crate) vital: Vital,
}

/// Serves until its task is dropped.
pub(crate) async fn run(listener: TcpListener, answers: Answers) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let answers = answers.clone();
        tokio::task::spawn_local(async move {
            let service = service_fn(|request| {
                let answer = answers.answer(&request);
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

impl Answers {
    fn answer<B>(&self, request: &http::Request<B>) -> Response<Full<bytes::Bytes>> {
        let reading = matches!(*request.method(), Method::GET | Method::HEAD);
        let (status, text) = match request.uri().path() {
            "/metrics" if reading => {
                let view = self.table.view();
                (StatusCode::OK, metrics::render(&self.registry, &view.table, view.revision.0))
            }
            "/healthz" if reading => match self.vital.failed() {
                Some(what) => (StatusCode::SERVICE_UNAVAILABLE, format!("{what} has died\n")),
                None if !self.table.view().loaded => {
                    (StatusCode::SERVICE_UNAVAILABLE, "no routing table yet\n".to_owned())
                }
                None => (StatusCode::OK, "ok\n".to_owned()),
            },
            "/metrics" | "/healthz" => (StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned()),
            _ => (StatusCode::NOT_FOUND, "there are /metrics and /healthz here\n".to_owned()),
        };
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::View;
    use towpath_route::Table;
    use towpath_types::{Place, Revision};

    #[test]
    fn healthy_is_who_has_a_table_and_all_its_parts() {
        let view = |loaded| View {
            table: Table::new(Place::default()),
            inside: Vec::new(),
            revision: Revision(1),
            loaded,
        };
        let answers = Answers {
            registry: Arc::new(Registry::new(1)),
            table: SharedTable::new(view(false), 1),
            vital: Vital::default(),
        };
        let status = || answers.answer(&http::Request::get("/healthz").body(()).unwrap()).status();
        assert_eq!(status(), 503);
        answers.table.publish(view(true));
        assert_eq!(status(), 200);
        answers.vital.fails("a worker");
        assert_eq!(status(), 503);
    }
}
