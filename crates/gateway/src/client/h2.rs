//! An HTTP/2 client connection.

use super::conn::Conn;
use super::stream::ClientStream;
use crate::local_exec::LocalExec;
use crate::request;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// How often a quiet connection with open streams is asked whether it is there.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long the answer may take.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a connection that was told to go may take after its last stream.
const GOODBYE_MS: u64 = 5_000;

/// Serves the connection to its end. Streams are tasks of their own on this thread.
pub(crate) async fn serve(conn: Rc<Conn>, stream: ClientStream) {
    let limits = &conn.worker.settings.limits;
    let service = service_fn(|request| {
        let conn = conn.clone();
        async move { Ok::<_, Infallible>(request::serve(conn, request).await) }
    });
    let serving = http2::Builder::new(LocalExec)
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(limits.h2_streams)
        .max_header_list_size(limits.h2_header_list)
        .max_pending_accept_reset_streams(limits.h2_resets)
        .max_local_error_reset_streams(limits.h2_resets.max(64))
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1 << 20)
        .max_send_buf_size(256 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    let keep_alive_ms = conn.worker.settings.timeouts.keep_alive_ms;
    conn.deadline.set_in(keep_alive_ms);
    let (mut closing, mut requests) = (false, 0);
    poll_fn(|cx| {
        if conn.requests.get() != requests || conn.streams.get() > 0 {
            requests = conn.requests.get();
            conn.deadline.set_in(keep_alive_ms);
        }
        let late = conn.deadline.is_over(cx);
        if late && closing {
            return Poll::Ready(());
        }
        let worn = requests >= conn.worker.settings.limits.requests_per_connection;
        if (conn.worker.draining.get() || late || worn) && !closing {
            closing = true;
            conn.deadline.set_in(GOODBYE_MS);
            serving.as_mut().graceful_shutdown();
        }
        serving.as_mut().poll(cx).map(|result| {
            if let Err(error) = result {
                tracing::trace!(%error, "an HTTP/2 client connection ended");
            }
        })
    })
    .await;
}
