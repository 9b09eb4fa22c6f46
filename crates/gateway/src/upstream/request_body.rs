//! The request body on its way to an instance: read from the client as fast as the instance takes it.

use super::BodyFault;
use super::checked_body::CheckedBody;
use super::h1::H1Conn;
use crate::client::conn::Conn;
use crate::clock;
use crate::deadline::Deadline;
use crate::request::head;
use bytes::{Buf, Bytes};
use http::header::{HeaderMap, HeaderName};
use http_body::Body;
use hyper::body::Incoming;
use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// What is known of a request body from outside while it streams.
#[derive(Default)]
pub(crate) struct BodyProgress {
    /// Bytes read from the client so far.
    pub(crate) bytes: Cell<u64>,
    /// When the last of it was sent to the instance; 0 = not yet.
    pub(crate) sent_ns: Cell<u64>,
    /// Nothing moves before the client sends more (HTTP/2 instances).
    pub(crate) awaited: Cell<bool>,
    /// How far its request is.
    pub(crate) stage: Cell<BodyStage>,
}

/// How far the request of a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum BodyStage {
    /// There is no response yet.
    #[default]
    Asking,
    /// The response streams.
    Answering,
    /// The request has ended, and its deadline may serve another one.
    Over,
}

impl BodyProgress {
    /// All of the body was sent.
    pub(crate) fn ends(&self) {
        if self.sent_ns.get() == 0 {
            self.sent_ns.set(clock::now_ns());
        }
    }
}

/// A client's body: as it comes, or read already by a plugin.
pub(crate) enum ClientBody {
    Live(Incoming),
    Held(Bytes),
    /// Somebody gets a copy of it.
    Copied(Box<ClientBody>, Option<Sender<Option<Bytes>>>),
    /// A plugin looks at it while it streams.
    Checked(Box<CheckedBody>),
    /// Its beginning is read already.
    Begun(Bytes, Box<ClientBody>),
    /// Somebody wants to know how it begins.
    Noted(Box<ClientBody>, NotedBody),
}

/// Why a client's body ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientBodyError {
    /// It could not be read.
    #[error("the client's body could not be read")]
    Read(#[source] hyper::Error),
    /// A plugin refuses it.
    #[error("the client's body is refused")]
    Refused,
}

/// How a body begins, as far as it has gone by.
#[derive(Clone)]
pub(crate) struct NotedBody {
    bytes: Rc<RefCell<Vec<u8>>>,
    most: usize,
}

impl NotedBody {
    fn note(&self, piece: &[u8]) {
        let mut bytes = self.bytes.borrow_mut();
        let room = self.most.saturating_sub(bytes.len());
        bytes.extend_from_slice(piece.get(..room).unwrap_or(piece));
    }

    /// Looks at it.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&self.bytes.borrow())
    }
}

/// Most pieces by which a copy may lag behind; one that lags more is given up.
const LAG: usize = 64;

impl ClientBody {
    /// The body, and a copy of it that goes along.
    pub(crate) fn copied(self) -> (Self, Copied) {
        let length = self.size_hint().exact();
        let (pieces, copy) = channel(LAG);
        (Self::Copied(Box::new(self), Some(pieces)), Copied { pieces: Some(copy), length })
    }

    /// The body, and how it begins, up to so many bytes.
    pub(crate) fn noted(self, most: usize) -> (Self, NotedBody) {
        let noted = NotedBody { bytes: Rc::default(), most };
        (Self::Noted(Box::new(self), noted.clone()), noted)
    }
}

/// A copy of a body.
pub(crate) struct Copied {
    /// `None` comes last; without it the body has ended early.
    pieces: Option<Receiver<Option<Bytes>>>,
    length: Option<u64>,
}

impl Copied {
    /// Of no body.
    pub(crate) fn empty() -> Self {
        Self { pieces: None, length: Some(0) }
    }
}

impl Body for Copied {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<http_body::Frame<Bytes>>>> {
        let this = self.get_mut();
        let Some(pieces) = &mut this.pieces else { return Poll::Ready(None) };
        let piece = ready!(pieces.poll_recv(cx));
        match piece {
            Some(Some(piece)) => Poll::Ready(Some(Ok(http_body::Frame::data(piece)))),
            Some(None) => {
                this.pieces = None;
                Poll::Ready(None)
            }
            None => Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_none()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.length.map_or_else(http_body::SizeHint::default, http_body::SizeHint::with_exact)
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ClientBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, ClientBodyError>>> {
        match self.get_mut() {
            Self::Live(incoming) => {
                Pin::new(incoming).poll_frame(cx).map(|frame| Some(frame?.map_err(ClientBodyError::Read)))
            }
            Self::Checked(checked) => checked.poll_frame(cx),
            Self::Held(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Held(bytes) => Poll::Ready(Some(Ok(http_body::Frame::data(std::mem::take(bytes))))),
            Self::Copied(body, copy) => {
                let frame = ready!(Pin::new(&mut **body).poll_frame(cx));
                let data = match &frame {
                    Some(Ok(frame)) => frame.data_ref().cloned(),
                    Some(Err(_)) => {
                        *copy = None;
                        None
                    }
                    None => None,
                };
                let is_last = frame.is_none() || body.is_end_stream();
                let sent = |copy: &Sender<_>| {
                    data.is_none_or(|data| copy.try_send(Some(data)).is_ok())
                        && (!is_last || copy.try_send(None).is_ok())
                };
                if copy.as_ref().is_some_and(|copy| !sent(copy)) || is_last {
                    *copy = None;
                }
                Poll::Ready(frame)
            }
            Self::Begun(bytes, body) if bytes.is_empty() => Pin::new(&mut **body).poll_frame(cx),
            Self::Begun(bytes, _) => Poll::Ready(Some(Ok(http_body::Frame::data(std::mem::take(bytes))))),
            Self::Noted(body, noted) => {
                let frame = ready!(Pin::new(&mut **body).poll_frame(cx));
                if let Some(Ok(frame)) = &frame {
                    frame.data_ref().into_iter().for_each(|data| noted.note(data));
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Live(incoming) => incoming.is_end_stream(),
            Self::Held(bytes) => bytes.is_empty(),
            Self::Checked(checked) => checked.is_end_stream(),
            Self::Begun(bytes, body) => bytes.is_empty() && body.is_end_stream(),
            Self::Copied(body, _) | Self::Noted(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Live(incoming) => incoming.size_hint(),
            Self::Held(bytes) => http_body::SizeHint::with_exact(bytes.len() as u64),
            Self::Checked(checked) => checked.size_hint(),
            Self::Begun(bytes, body) => match body.size_hint().exact() {
                Some(left) => http_body::SizeHint::with_exact(left + bytes.len() as u64),
                None => http_body::SizeHint::default(),
            },
            Self::Copied(body, _) | Self::Noted(body, _) => body.size_hint(),
        }
    }
}

/// A client's body, with its limit.
pub(crate) struct RequestBody {
    incoming: ClientBody,
    limit: u64,
    conn: Rc<Conn>,
    progress: Rc<BodyProgress>,
    /// Headers that no trailer may imitate.
    ours: Vec<HeaderName>,
}

impl RequestBody {
    /// Wraps a client's body.
    pub(crate) fn new(
        incoming: ClientBody,
        limit: u64,
        conn: Rc<Conn>,
        progress: Rc<BodyProgress>,
        ours: Vec<HeaderName>,
    ) -> Self {
        Self { incoming, limit, conn, progress, ours }
    }

    /// What is known of it from outside.
    pub(crate) fn progress(&self) -> &BodyProgress {
        &self.progress
    }

    /// The client's body, if nothing of it was read.
    pub(crate) fn into_unread(self) -> Option<ClientBody> {
        (self.progress.bytes.get() == 0).then_some(self.incoming)
    }

    /// The length, if it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.incoming.size_hint().exact()
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<http_body::Frame<Bytes>>, BodyFault>> {
        match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
            None => Poll::Ready(Ok(None)),
            Some(Ok(mut frame)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    head::filter_trailers(trailers, &self.ours);
                }
                let bytes = self.progress.bytes.get() + frame.data_ref().map_or(0, |data| data.len() as u64);
                self.progress.bytes.set(bytes);
                Poll::Ready(if bytes > self.limit { Err(BodyFault::TooLarge) } else { Ok(Some(frame)) })
            }
            Some(Err(ClientBodyError::Refused)) => Poll::Ready(Err(BodyFault::Refused)),
            Some(Err(_)) if self.conn.body_refused.get().is_some() => Poll::Ready(Err(BodyFault::Malformed)),
            Some(Err(_)) => Poll::Ready(Err(BodyFault::Gone)),
        }
    }
}

/// For hyper's HTTP/2 client.
impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BodyFault>>> {
        self.poll_next(cx).map(Result::transpose)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.incoming.size_hint()
    }
}

/// Why a body could not be sent on.
pub(crate) enum PumpFault {
    /// The client's side failed.
    Client(BodyFault),
    /// The instance's side failed; it may have answered before it closed.
    Upstream(io::Error),
}

/// Writes a body to an HTTP/1.1 connection.
pub(crate) struct BodyPump {
    body: RequestBody,
    chunked: bool,
    prefix: Vec<u8>,
    data: Bytes,
    suffix: &'static [u8],
    ended: bool,
}

impl BodyPump {
    /// A pump for this body. It sends chunks unless the length is known.
    pub(crate) fn new(body: RequestBody) -> Self {
        let chunked = body.length().is_none();
        Self { body, chunked, prefix: Vec::new(), data: Bytes::new(), suffix: b"", ended: false }
    }

    /// Sends as much as both sides permit; `Ready(Ok)` = all is sent. Each piece moves the deadline to `idle_ms` from now.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        conn: &mut H1Conn,
        deadline: &Deadline,
        idle_ms: u64,
    ) -> Poll<Result<(), PumpFault>> {
        loop {
            while self.has_pending() {
                let written = ready!(self.poll_write(cx, conn)).map_err(PumpFault::Upstream)?;
                deadline.set_in(idle_ms);
                self.advance(written);
            }
            if self.ended {
                ready!(conn.poll_flush(cx)).map_err(PumpFault::Upstream)?;
                self.body.progress.ends();
                return Poll::Ready(Ok(()));
            }
            let Poll::Ready(next) = self.body.poll_next(cx) else {
                if let Poll::Ready(Err(error)) = conn.poll_flush(cx) {
                    return Poll::Ready(Err(PumpFault::Upstream(error)));
                }
                return Poll::Pending;
            };
            match next.map_err(PumpFault::Client)? {
                Some(frame) => match frame.into_data() {
                    Ok(data) => self.queue(data),
                    Err(frame) => self.end(frame.into_trailers().ok()),
                },
                None => self.end(None),
            }
            deadline.set_in(idle_ms);
        }
    }

    /// Whether the instance, not the client, has to move next.
    pub(crate) fn waits_for_instance(&self) -> bool {
        self.has_pending()
    }

    fn has_pending(&self) -> bool {
        !self.prefix.is_empty() || !self.data.is_empty() || !self.suffix.is_empty()
    }

    fn poll_write(&self, cx: &mut Context<'_>, conn: &mut H1Conn) -> Poll<io::Result<usize>> {
        let slices =
            [io::IoSlice::new(&self.prefix), io::IoSlice::new(&self.data), io::IoSlice::new(self.suffix)];
        match ready!(conn.poll_write(cx, &slices))? {
            0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => Poll::Ready(Ok(written)),
        }
    }

    fn advance(&mut self, mut written: usize) {
        let prefix = written.min(self.prefix.len());
        self.prefix.drain(..prefix);
        written -= prefix;
        let data = written.min(self.data.len());
        self.data.advance(data);
        written -= data;
        self.suffix = self.suffix.get(written..).unwrap_or_default();
    }

    fn queue(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        if self.chunked {
            use std::io::Write;
            let _ = write!(self.prefix, "{:x}\r\n", data.len());
            self.suffix = b"\r\n";
        }
        self.data = data;
    }

    fn end(&mut self, trailers: Option<HeaderMap>) {
        self.ended = true;
        if !self.chunked {
            return;
        }
        self.prefix.extend_from_slice(b"0\r\n");
        for (name, value) in trailers.iter().flatten() {
            self.prefix.extend_from_slice(name.as_str().as_bytes());
            self.prefix.extend_from_slice(b": ");
            self.prefix.extend_from_slice(value.as_bytes());
            self.prefix.extend_from_slice(b"\r\n");
        }
        self.prefix.extend_from_slice(b"\r\n");
    }
}
