//! What happens to every request before and after its handler: request id, log line, panics, the form of errors.

use super::apisix;
use super::problem::{PROBLEM_JSON, Problem, REQUEST_ID};
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use http::{HeaderName, HeaderValue, StatusCode, header};
use std::panic::AssertUnwindSafe;
use std::time::Instant;
use towpath_framing::Refusal;
use towpath_types::ErrorCode;
use tracing::Instrument;

/// Longest request id that is taken over from a client.
const MAX_REQUEST_ID: usize = 128;

/// The outermost layer.
pub(crate) async fn edge(mut request: Request, next: Next) -> Response {
    let id = request_id(&request);
    let text = id.to_str().unwrap_or_default().to_owned();
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let span = tracing::info_span!("request", id = text, %method, path, by = tracing::field::Empty);
    let started = Instant::now();
    let refused = request.extensions().get::<Refusal>().copied();
    let answer = async {
        match refused {
            // It stands for a head that was not let through.
            Some(refusal) => Problem::new(refusal.code(), refusal.detail()).into_response(),
            None => next.run(request).await,
        }
    };
    let answer = AssertUnwindSafe(answer.instrument(span.clone())).catch_unwind().await;
    let mut response = answer.unwrap_or_else(|panic| {
        let what = panic_text(panic.as_ref());
        span.in_scope(|| tracing::error!(what, "a handler panicked"));
        Problem::new(
            ErrorCode::Internal,
            "the request could not be finished; the manager's log has more under this id",
        )
        .into_response()
    });
    span.in_scope(|| {
        tracing::debug!(
            status = response.status().as_u16(),
            ms = started.elapsed().as_millis() as u64,
            "answered"
        );
    });
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = filled_in(response, &problem, &text, &path);
    } else if is_bare_error(&response) {
        let problem = bare(response.status(), method.as_str(), &path);
        response = filled_in(response, &problem, &text, &path);
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The client's id if it is usable, else a new one.
fn request_id(request: &Request) -> HeaderValue {
    let usable = |value: &&HeaderValue| {
        (1..=MAX_REQUEST_ID).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    request
        .headers()
        .get(REQUEST_ID)
        .filter(usable)
        .cloned()
        .or_else(|| HeaderValue::from_str(&uuid::Uuid::now_v7().to_string()).ok())
        .unwrap_or(HeaderValue::from_static("-"))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it is not known why".into())
}

/// Puts the problem's body in place of whatever the response has. Clients of APISIX's Admin API get it in their shape.
fn filled_in(response: Response, problem: &Problem, request_id: &str, path: &str) -> Response {
    let (mut parts, _) = response.into_parts();
    let body = problem.body(request_id);
    if path.starts_with(apisix::ROOT) {
        parts.headers.remove(header::CONTENT_LENGTH);
        parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        return Response::from_parts(parts, Body::from(apisix::body_of(&body).to_string()));
    }
    if body.status == parts.status.as_u16() {
        parts.headers.remove(header::CONTENT_LENGTH);
        parts.headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
    }
    let body = serde_json::to_vec(&body).unwrap_or_default();
    Response::from_parts(parts, Body::from(body))
}

/// An error of the router itself, which has no body of ours.
fn is_bare_error(response: &Response) -> bool {
    let ours = |value: &HeaderValue| value.as_bytes().starts_with(b"application/");
    response.status().as_u16() >= 400 && !response.headers().get(header::CONTENT_TYPE).is_some_and(ours)
}

fn bare(status: StatusCode, method: &str, path: &str) -> Problem {
    match status {
        StatusCode::NOT_FOUND => Problem::not_found(format!("endpoint {path}; see /docs")),
        StatusCode::METHOD_NOT_ALLOWED => Problem::new(
            ErrorCode::MethodNotAllowed,
            format!("{path} has no {method}; the Allow header names what it has"),
        ),
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(ErrorCode::BodyTooLarge, "the body is over the limit"),
        status if status.is_client_error() => {
            Problem::new(ErrorCode::Malformed, "the request could not be read")
        }
        _ => Problem::new(ErrorCode::Internal, "the request could not be finished"),
    }
}

/// Revision of the store, on answers to mutations.
pub(crate) const REVISION: HeaderName = HeaderName::from_static("towpath-revision");
/// Marks answers from memory while the store is gone.
pub(crate) const STALE: HeaderName = HeaderName::from_static("towpath-stale");
/// What `?wait=` came to.
pub(crate) const WAITED: HeaderName = HeaderName::from_static("towpath-wait");
/// What a gateway has against the change.
pub(crate) const REFUSED: HeaderName = HeaderName::from_static("towpath-refused");

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use http_body_util::BodyExt;
    use tower::Service;

    #[tokio::test]
    async fn a_panic_ends_its_own_request_alone() {
        async fn panics() {
            panic!("on purpose");
        }
        let mut router: Router = Router::new()
            .route("/panic", get(panics))
            .route("/fine", get(|| async { "fine" }))
            .layer(from_fn(edge));
        let request =
            |path: &str| Request::get(path).header("x-request-id", "r1").body(Body::empty()).unwrap();
        let answer = router.call(request("/panic")).await.unwrap();
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answer.headers()["x-request-id"], "r1");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&problem["code"], &problem["instance"]), (&"internal".into(), &"r1".into()));
        assert!(!problem.to_string().contains("on purpose"));
        assert_eq!(router.call(request("/fine")).await.unwrap().status(), StatusCode::OK);
    }
}
