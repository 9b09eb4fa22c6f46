//! HTTP/2 in clear text towards instances: one connection carries many requests.

use super::request_body::{BodyProgress, BodyStage, ClientBody, RequestBody};
use super::stream::UpstreamStream;
use super::{AttemptFault, BodyFault};
use crate::deadline::Deadline;
use crate::local_exec::LocalExec;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::Cell;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How often a quiet connection is asked whether it is there.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// How long the answer may take. After that the connection is closed, and what it carries fails.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// A request body for hyper.
pub(crate) enum H2RequestBody {
    Empty,
    Stream(WatchedBody),
}

/// A client's body whose progress moves the request's deadline.
pub(crate) struct WatchedBody {
    body: RequestBody,
    deadline: Rc<Deadline>,
    idle_ms: u64,
    response_ms: u64,
}

impl H2RequestBody {
    /// A body to stream: each piece gives it `idle_ms` more, its end `response_ms` for the response.
    pub(crate) fn stream(body: RequestBody, deadline: Rc<Deadline>, idle_ms: u64, response_ms: u64) -> Self {
        Self::Stream(WatchedBody { body, deadline, idle_ms, response_ms })
    }

    /// The client's body, if nothing of it was read.
    fn into_unread(self) -> Option<ClientBody> {
        match self {
            Self::Empty => None,
            Self::Stream(watched) => watched.body.into_unread(),
        }
    }
}

impl WatchedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let progress = self.body.progress();
        progress.awaited.set(polled.is_pending());
        let ended = match &polled {
            Poll::Pending | Poll::Ready(Some(Err(_))) => return polled,
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(frame))) => frame.is_trailers() || self.body.is_end_stream(),
        };
        if ended {
            progress.ends();
        }
        match progress.stage.get() {
            BodyStage::Asking if ended => self.deadline.set_in(self.response_ms),
            BodyStage::Asking | BodyStage::Answering => self.deadline.set_in(self.idle_ms),
            BodyStage::Over => {}
        }
        polled
    }
}

impl Body for H2RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Stream(watched) => watched.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Stream(watched) => watched.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream(watched) => watched.body.size_hint(),
        }
    }
}

/// A shared connection.
#[derive(Clone)]
pub(crate) struct H2Conn {
    send: http2::SendRequest<H2RequestBody>,
    streams: Rc<Cell<usize>>,
    used_ms: Rc<Cell<u64>>,
    retired: Rc<Cell<bool>>,
}

/// Counts a stream for as long as it lives.
pub(crate) struct StreamGuard(Rc<Cell<usize>>);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

impl H2Conn {
    /// Speaks HTTP/2 over a fresh connection. The connection's own work is a task on this thread.
    pub(crate) async fn start(stream: UpstreamStream, now_ms: u64) -> Result<Self, AttemptFault> {
        let (send, conn) = http2::Builder::new(LocalExec)
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20)
            .max_header_list_size(64 * 1024)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| AttemptFault::Connect(io::Error::other(error)))?;
        tokio::task::spawn_local(async move {
            if let Err(error) = conn.await {
                tracing::debug!(%error, "an HTTP/2 connection to an instance ended");
            }
        });
        Ok(Self { send, streams: Rc::default(), used_ms: Rc::new(Cell::new(now_ms)), retired: Rc::default() })
    }

    /// Whether it takes new streams.
    pub(crate) fn is_open(&self) -> bool {
        !self.retired.get() && !self.send.is_closed()
    }

    /// Streams now.
    pub(crate) fn streams(&self) -> usize {
        self.streams.get()
    }

    /// Notes that it is used.
    pub(crate) fn touch(&self, now_ms: u64) {
        self.used_ms.set(now_ms);
    }

    /// How long ago it was used.
    pub(crate) fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.used_ms.get())
    }

    /// Counts a stream.
    pub(crate) fn stream(&self) -> StreamGuard {
        self.streams.set(self.streams.get() + 1);
        StreamGuard(self.streams.clone())
    }

    /// Takes no new streams from now on.
    fn retire(&self) {
        self.retired.set(true);
    }

    /// Sends a request and waits for the response head before the deadline. What turns out not to have been sent at all
    /// is put back into `body`.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<H2RequestBody>,
        deadline: &Deadline,
        progress: Option<&BodyProgress>,
        body: &mut Option<ClientBody>,
    ) -> Result<Response<Incoming>, AttemptFault> {
        let answer = {
            let mut answer = pin!(self.send.try_send_request(request));
            poll_fn(|cx| match answer.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if deadline.is_over(cx) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            })
            .await
        };
        let mut error = match answer {
            Some(Ok(response)) => return Ok(response),
            Some(Err(error)) => error,
            None if progress.is_some_and(|progress| progress.awaited.get()) => {
                return Err(AttemptFault::Client(BodyFault::Slow));
            }
            None => return Err(AttemptFault::Timeout),
        };
        if let Some(request) = error.take_message() {
            self.retire();
            *body = request.into_body().into_unread();
            return Err(AttemptFault::Refused);
        }
        let error = error.into_error();
        if is_goodbye(&error) {
            self.retire();
        }
        Err(fault_of(error))
    }
}

fn h2_error(error: &hyper::Error) -> Option<&h2::Error> {
    let mut source: Option<&(dyn Error + 'static)> = error.source();
    while let Some(inner) = source {
        if let Some(h2) = inner.downcast_ref::<h2::Error>() {
            return Some(h2);
        }
        source = inner.source();
    }
    None
}

/// Whether the instance ended the connection in an orderly way, before it had processed the stream.
fn is_goodbye(error: &hyper::Error) -> bool {
    h2_error(error)
        .is_some_and(|h2| h2.is_go_away() && h2.is_remote() && h2.reason() == Some(h2::Reason::NO_ERROR))
}

/// Tells apart: the client's body failed, the stream was refused unprocessed, anything else.
fn fault_of(error: hyper::Error) -> AttemptFault {
    let mut source: Option<&(dyn Error + 'static)> = error.source();
    while let Some(inner) = source {
        if let Some(fault) = inner.downcast_ref::<BodyFault>() {
            return AttemptFault::Client(match fault {
                BodyFault::TooLarge => BodyFault::TooLarge,
                BodyFault::Malformed => BodyFault::Malformed,
                BodyFault::Slow => BodyFault::Slow,
                BodyFault::Gone => BodyFault::Gone,
                BodyFault::Refused => BodyFault::Refused,
            });
        }
        source = inner.source();
    }
    let refused = h2_error(&error).is_some_and(|h2| h2.reason() == Some(h2::Reason::REFUSED_STREAM));
    if refused || is_goodbye(&error) {
        return AttemptFault::Refused;
    }
    AttemptFault::Broken(io::Error::other(error))
}
