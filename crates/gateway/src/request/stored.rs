//! A response body from a file.

use super::record::Record;
use crate::cache::disk::FileBody;
use bytes::Bytes;
use http_body::Frame;
use std::io;
use std::task::{Context, Poll, ready};

/// Longest silence of a client that takes a response from a file, milliseconds.
pub(super) const FILE_IDLE_MS: u64 = 60_000;

/// A body from a file, and the request that ends with it.
pub(crate) struct Stored {
    pub(super) body: Box<FileBody>,
    pub(super) record: Record,
}

impl Stored {
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(piece) = ready!(self.body.poll_next(cx)) else { return Poll::Ready(None) };
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                tracing::warn!(%error, "a response in the cache is damaged");
                return Poll::Ready(Some(Err(error)));
            }
        };
        self.record.deadline.set_in(FILE_IDLE_MS);
        self.record.bytes_out += piece.len() as u64;
        if self.body.left() == 0 {
            self.record.completes();
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}
