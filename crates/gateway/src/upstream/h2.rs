//! HTTP/2 in clear text towards instances: one connection carries many requests.

use super::request_body::RequestBody;
use super::{AttemptFault, BodyFault};
use crate::deadline::Deadline;
use crate::local_exec::LocalExec;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use std::cell::Cell;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::net::TcpStream;

/// A request body for hyper.
pub(crate) enum H2RequestBody {
    Empty,
    Stream(RequestBody),
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
            Self::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream(body) => body.size_hint(),
        }
    }
}

/// A shared connection.
#[derive(Clone)]
pub(crate) struct H2Conn {
    send: http2::SendRequest<H2RequestBody>,
    streams: Rc<Cell<usize>>,
    used_ms: Rc<Cell<u64>>,
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
    pub(crate) async fn start(stream: TcpStream, now_ms: u64) -> Result<Self, AttemptFault> {
        let (send, conn) = http2::Builder::new(LocalExec)
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
        Ok(Self { send, streams: Rc::default(), used_ms: Rc::new(Cell::new(now_ms)) })
    }

    /// Whether it takes new streams.
    pub(crate) fn is_open(&self) -> bool {
        !self.send.is_closed()
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

    /// Sends a request and waits for the response head before the deadline.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<H2RequestBody>,
        deadline: &Deadline,
    ) -> Result<Response<Incoming>, AttemptFault> {
        let mut answer = pin!(self.send.try_send_request(request));
        poll_fn(|cx| match answer.as_mut().poll(cx) {
            Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
            Poll::Ready(Err(mut error)) => Poll::Ready(Err(if error.take_message().is_some() {
                AttemptFault::Refused
            } else {
                fault_of(error.into_error())
            })),
            Poll::Pending if deadline.is_over(cx) => Poll::Ready(Err(AttemptFault::Timeout)),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
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
            });
        }
        if let Some(h2) = inner.downcast_ref::<h2::Error>() {
            let refused = h2.reason() == Some(h2::Reason::REFUSED_STREAM);
            if refused || (h2.is_go_away() && h2.is_remote() && h2.reason() == Some(h2::Reason::NO_ERROR)) {
                return AttemptFault::Refused;
            }
        }
        source = inner.source();
    }
    AttemptFault::Broken(io::Error::other(error))
}
