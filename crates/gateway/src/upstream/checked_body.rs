//! A client's body that a plugin looks at, and perhaps changes, while it streams.

use super::request_body::{ClientBody, ClientBodyError};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Looks at a body. What it refuses breaks the request off: the upstream never gets the whole of it.
pub(crate) trait BodyCheck {
    /// A piece came; what goes on is put into `out`. `false` = the body is refused.
    fn push(&mut self, piece: Bytes, out: &mut VecDeque<Bytes>) -> bool;
    /// No more comes; the last that goes on is put into `out`. `false` = the body is refused.
    fn end(&mut self, out: &mut VecDeque<Bytes>) -> bool;
}

/// See the module.
pub(crate) struct CheckedBody {
    inner: ClientBody,
    check: Box<dyn BodyCheck>,
    ready: VecDeque<Bytes>,
    /// How long it is when it goes on; `None` = as long as it came.
    length: Option<u64>,
    ended: bool,
}

impl CheckedBody {
    /// A body with its check. `length` = how long it is when it goes on, if that is another length.
    pub(crate) fn new(inner: ClientBody, check: Box<dyn BodyCheck>, length: Option<u64>) -> Self {
        Self { inner, check, ready: VecDeque::new(), length, ended: false }
    }

    /// As of a body.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            let passed = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                // Trailers of HTTP itself say nothing in bodies that are checked, and end with the check.
                Some(Ok(frame)) => {
                    frame.into_data().map_or(true, |piece| self.check.push(piece, &mut self.ready))
                }
                None => {
                    self.ended = true;
                    self.check.end(&mut self.ready)
                }
            };
            if !passed {
                self.ready.clear();
                self.ended = true;
                return Poll::Ready(Some(Err(ClientBodyError::Refused)));
            }
        }
    }

    /// As of a body.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    /// As of a body.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(|| self.inner.size_hint(), SizeHint::with_exact)
    }
}
