//! Filters of response bodies. The client's demand drives them: a piece is taken from the upstream only when all that the
//! filters made of the ones before it has gone out.

use crate::request::record::Record;
use crate::request::reply::ReplyBody;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Pieces of a body that a filter has made.
pub(crate) type Pieces = VecDeque<Bytes>;

/// Changes a response body while it streams.
pub(crate) trait BodyFilter {
    /// A piece came.
    fn push(&mut self, piece: Bytes, out: &mut Pieces);
    /// No more comes.
    fn end(&mut self, out: &mut Pieces);
    /// Nothing comes at the moment: what is held back only for efficiency goes out.
    fn flush(&mut self, _out: &mut Pieces) {}
    /// Whether it comes after those that look into the body: it changes how that is written, not what it says.
    fn comes_last(&self) -> bool {
        false
    }
    /// Whether what comes out is as long as what goes in, so that the head may say so.
    fn keeps_length(&self) -> bool {
        false
    }
}

/// A body behind filters.
pub(crate) struct Filtered {
    inner: ReplyBody,
    filters: Vec<Box<dyn BodyFilter>>,
    ready: Pieces,
    trailers: Option<HeaderMap>,
    ended: bool,
    keeps_length: bool,
    /// The request, where the body does not have it: it ends when the filters have seen all of the body.
    record: Option<Box<Record>>,
}

impl Filtered {
    /// Puts filters, the first one nearest to the upstream, in front of a body.
    pub(crate) fn new(
        inner: ReplyBody,
        filters: Vec<Box<dyn BodyFilter>>,
        record: Option<Box<Record>>,
    ) -> Self {
        let keeps_length = filters.iter().all(|filter| filter.keeps_length());
        let mut filtered =
            Self { inner, filters, ready: Pieces::new(), trailers: None, ended: false, keeps_length, record };
        if matches!(filtered.inner, ReplyBody::Empty) {
            // Nobody may ask for a body that has no bytes.
            filtered.end();
        }
        filtered
    }

    fn end(&mut self) {
        self.ended = true;
        self.through(Pieces::new(), Last::End);
    }

    fn through(&mut self, mut pieces: Pieces, last: Last) {
        for filter in &mut self.filters {
            let mut made = Pieces::new();
            pieces.into_iter().for_each(|piece| filter.push(piece, &mut made));
            match last {
                Last::End => filter.end(&mut made),
                Last::Flush => filter.flush(&mut made),
                Last::None => {}
            }
            pieces = made;
        }
        if matches!(last, Last::End) {
            self.record = None;
        }
        self.ready.extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if self.ended {
                return Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            }
            match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    // Who knows the length asks for nothing after the last byte: the end is seen with it.
                    Ok(piece) if self.inner.is_end_stream() => {
                        self.ended = true;
                        self.through(Pieces::from([piece]), Last::End);
                    }
                    Ok(piece) => self.through(Pieces::from([piece]), Last::None),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => self.end(),
                Poll::Pending => {
                    self.through(Pieces::new(), Last::Flush);
                    if self.ready.is_empty() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.ended && self.ready.is_empty() && self.trailers.is_none()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.inner.size_hint().exact().filter(|_| self.keeps_length) {
            Some(left) => {
                let ready: usize = self.ready.iter().map(Bytes::len).sum();
                SizeHint::with_exact(left + ready as u64)
            }
            None => SizeHint::default(),
        }
    }
}

#[derive(Clone, Copy)]
enum Last {
    None,
    Flush,
    End,
}

/// Another body in the place of the one that comes.
pub(crate) struct Replace(pub(crate) Option<Bytes>);

impl BodyFilter for Replace {
    fn push(&mut self, _: Bytes, _: &mut Pieces) {}

    fn end(&mut self, out: &mut Pieces) {
        out.extend(self.0.take());
    }
}

/// Collects the whole body, up to a limit, and makes another one of it. What is longer passes as it is.
pub(crate) struct Whole<F> {
    held: Vec<u8>,
    most: usize,
    make: Option<F>,
}

impl<F: FnOnce(Vec<u8>) -> Vec<u8>> Whole<F> {
    /// At most `most` bytes are collected.
    pub(crate) fn new(most: usize, make: F) -> Self {
        Self { held: Vec::new(), most, make: Some(make) }
    }
}

impl<F: FnOnce(Vec<u8>) -> Vec<u8>> BodyFilter for Whole<F> {
    fn push(&mut self, piece: Bytes, out: &mut Pieces) {
        if self.make.is_none() {
            out.push_back(piece);
            return;
        }
        self.held.extend_from_slice(&piece);
        if self.held.len() > self.most {
            self.make = None;
            out.push_back(Bytes::from(std::mem::take(&mut self.held)));
        }
    }

    fn end(&mut self, out: &mut Pieces) {
        if let Some(make) = self.make.take() {
            out.push_back(Bytes::from(make(std::mem::take(&mut self.held))));
        }
    }
}
