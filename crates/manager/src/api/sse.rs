//! Server-sent events.

use super::ApiState;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, header};
use serde::Serialize;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;

/// Pause after which a comment shows that the stream is alive.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Frames that wait for a slow client.
const QUEUE: usize = 64;

/// One event on the wire.
#[derive(Debug, Clone)]
pub(crate) struct Frame(Bytes);

impl Frame {
    /// An event with a JSON body (which has no line break in it).
    pub(crate) fn json<T: Serialize>(event: &str, id: Option<u64>, body: &T) -> Self {
        let body = serde_json::to_string(body).unwrap_or_default();
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        Self(format!("{id}event: {event}\ndata: {body}\n\n").into())
    }

    fn heartbeat() -> Self {
        Self(Bytes::from_static(b": \n\n"))
    }
}

/// The event behind which a returning client goes on.
pub(crate) fn last_event_id(headers: &HeaderMap) -> u64 {
    headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// Answers with what `tell` sends. It ends when `tell` ends, the client goes, or the API stops.
pub(crate) fn stream<F, Fut>(state: &ApiState, tell: F) -> Response
where
    F: FnOnce(mpsc::Sender<Frame>) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let (out, frames) = mpsc::channel(QUEUE);
    let (work, closed, mut ending) = (tell(out.clone()), out, state.ending.clone());
    tokio::spawn(async move {
        let beats = async {
            loop {
                tokio::time::sleep(HEARTBEAT).await;
                // A full queue shows life by itself.
                let _ = closed.try_send(Frame::heartbeat());
            }
        };
        tokio::select! {
            () = work => {}
            () = beats => {}
            () = closed.closed() => {}
            _ = ending.wait_for(|ending| *ending) => {}
        }
    });
    let frames = futures::stream::unfold(frames, |mut frames| async {
        frames.recv().await.map(|Frame(bytes)| (Ok::<_, Infallible>(bytes), frames))
    });
    let mut response = Response::new(Body::from_stream(frames.boxed()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
