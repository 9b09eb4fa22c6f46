//! An HTTP/2 client connection.

use super::conn::Conn;
use super::stream::ClientStream;
use crate::deadline::Deadline;
use crate::request;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::{Cell, RefCell};
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

/// How much of an upload may be on its way before the instance takes it.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The same for all streams of a connection: many stalled uploads must not stop the others.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// How much of a response waits for a client that does not read.
const SEND_BUFFER: usize = 64 * 1024;

/// What ends a stream whose client has stopped reading. hyper does not ask a body for more while it waits for the client's
/// window, so the body cannot see its own deadline pass; the stream's task can.
pub(crate) struct StreamWatch {
    /// The request's deadline; a response moves it with each piece.
    pub(crate) deadline: Rc<Deadline>,
    /// A response streams: from here on it ends with the deadline.
    pub(crate) streaming: Cell<bool>,
}

/// Spawns the tasks of streams, each with its watch. hyper makes a stream's task of the service's answer at once, so the
/// watch that was made last is that of the next task.
#[derive(Clone, Default)]
struct StreamExec {
    next: Rc<RefCell<Option<Rc<StreamWatch>>>>,
}

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for StreamExec {
    fn execute(&self, future: F) {
        let Some(watch) = self.next.take() else {
            tokio::task::spawn_local(future);
            return;
        };
        tokio::task::spawn_local(async move {
            let mut future = pin!(future);
            poll_fn(|cx| match future.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(()),
                // Dropping the task resets the stream.
                Poll::Pending if watch.streaming.get() && watch.deadline.is_over(cx) => Poll::Ready(()),
                Poll::Pending => Poll::Pending,
            })
            .await;
        });
    }
}

/// Serves the connection to its end. Streams are tasks of their own on this thread.
pub(crate) async fn serve(conn: Rc<Conn>, stream: ClientStream) {
    let limits = &conn.worker.settings.limits;
    let exec = StreamExec::default();
    let service = service_fn(|request| {
        let watch = Rc::new(StreamWatch {
            deadline: Rc::new(conn.worker.deadlines.add()),
            streaming: Cell::new(false),
        });
        exec.next.replace(Some(watch.clone()));
        let conn = conn.clone();
        async move { Ok::<_, Infallible>(request::serve(conn, Some(watch), request).await) }
    });
    let serving = http2::Builder::new(exec.clone())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .enable_connect_protocol()
        .max_concurrent_streams(limits.h2_streams)
        .max_header_list_size(limits.h2_header_list)
        .max_pending_accept_reset_streams(limits.h2_resets)
        .max_local_error_reset_streams(limits.h2_resets.max(64))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
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
