//! Responses on their way to the client.

use super::error_reply;
use super::record::Record;
use super::stored::{FILE_IDLE_MS, Stored};
use crate::buffer;
use crate::client::conn::{Phase, TunnelEnd};
use crate::client::tunnel;
use crate::plugins::exchange::{Given, UpstreamHead, Verdict};
use crate::plugins::filter::Filtered;
use crate::plugins::{Answer, BodyFilter, run};
use crate::upstream::h1::{H1Body, H1Reply};
use crate::upstream::h2::StreamGuard;
use crate::upstream::pool::PoolKey;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use towpath_types::ErrorCode;

/// The body of a response. No `dyn`: what it can be is known.
pub(crate) enum ReplyBody {
    /// None.
    Empty,
    /// One piece of the gateway's own, and the request that ends with it.
    Own(Bytes, Option<Box<Record>>),
    /// An instance's.
    Stream(Box<Stream>),
    /// One of these behind plugins.
    Filtered(Box<Filtered>),
    /// One from a file.
    File(Box<Stored>),
}

/// A response that streams from an instance.
pub(crate) struct Stream {
    source: Source,
    key: PoolKey,
    idle_ms: u64,
    /// How the body broke off; told one poll late, so that what came before it is written out.
    broken: Option<io::Error>,
    record: Record,
}

#[expect(clippy::large_enum_variant, reason = "the large case is the common one")]
enum Source {
    H1(H1Body),
    H2(Incoming, #[expect(dead_code, reason = "counts the stream until it is dropped")] StreamGuard),
}

/// Longest body that is handed on in one piece with its head.
const WHOLE_BYTES: usize = 16 * 1024;

static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static LANE_SERVED: HeaderName = HeaderName::from_static("towpath-lane-served");

/// Makes the client's response of an HTTP/1.1 instance's.
pub(crate) fn from_h1(mut record: Record, reply: H1Reply, key: PoolKey) -> Response<ReplyBody> {
    record.attempt_answers(reply.status.as_u16());
    let mut kept = None;
    match exchanged(&mut record, reply.status, &reply.headers) {
        Verdict::Pass => {}
        Verdict::Through(filter) => kept = Some(filter),
        Verdict::Instead(given) => {
            let mut body = reply.body;
            if body.is_done() {
                keep_connection(&record, &mut body, key);
            }
            return give(record, *given);
        }
    }
    let mut response = Response::new(ReplyBody::Empty);
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    add_headers(&record, response.headers_mut());
    if reply.status == StatusCode::SWITCHING_PROTOCOLS {
        return switch(record, response, reply.upgrade, reply.body);
    }
    let mut body = reply.body;
    let filters = plugins_see(&mut record, &mut response, kept);
    if body.is_done() {
        keep_connection(&record, &mut body, key);
        record.completes();
        *response.body_mut() = behind(filters, ReplyBody::Empty, Some(record));
        return response;
    }
    // A small body that is here already goes into the client's socket as it is: nothing needs to be kept for it. With HTTP/2
    // it may wait for the client's window.
    if record.watch.is_none()
        && let Some(whole) = body.take_whole(WHOLE_BYTES)
    {
        keep_connection(&record, &mut body, key);
        record.bytes_out = whole.len() as u64;
        record.completes();
        *response.body_mut() = behind(filters, ReplyBody::Own(whole, None), Some(record));
        return response;
    }
    *response.body_mut() = behind(filters, stream(record, Source::H1(body), key), None);
    response
}

/// The response phases of plugins, if there are any.
fn plugins_see(
    record: &mut Record,
    response: &mut Response<ReplyBody>,
    kept: Option<Box<dyn BodyFilter>>,
) -> Vec<Box<dyn BodyFilter>> {
    if record.running.is_none() {
        return Vec::new();
    }
    let mut status = response.status();
    let may_have_body = has_body(record, status);
    let mut filters = run::reply(record, &mut status, response.headers_mut(), may_have_body);
    *response.status_mut() = status;
    if let Some(kept) = kept {
        filters.insert(0, kept);
    }
    filters
}

fn has_body(record: &Record, status: StatusCode) -> bool {
    record.method != Method::HEAD && !matches!(status.as_u16(), 204 | 304)
}

/// What stands between the request and its upstream looks at the answer, if there is anything.
fn exchanged(record: &mut Record, status: StatusCode, headers: &HeaderMap) -> Verdict {
    let may_have_body = has_body(record, status);
    let Some(running) = &mut record.running else { return Verdict::Pass };
    let Some(exchange) = running.exchange.take() else { return Verdict::Pass };
    let request = std::mem::take(&mut running.headers);
    let head = UpstreamHead { status, headers, request: &request, may_have_body };
    let verdict = exchange.answered(&head, running);
    running.headers = request;
    verdict
}

/// The response that stands in for one of an upstream.
fn give(mut record: Record, given: Given) -> Response<ReplyBody> {
    let headers = match &mut record.running {
        Some(running) => {
            running.file = given.file;
            std::mem::take(&mut running.headers)
        }
        None => HeaderMap::new(),
    };
    of_answer(record, headers, given.answer)
}

/// The response that stands in for an error, if there is one.
pub(crate) fn instead_of_error(
    mut record: Record,
    headers: &HeaderMap,
) -> Result<Response<ReplyBody>, Box<Record>> {
    let given = record.running.as_mut().and_then(|running| running.exchange.take()?.failed(running));
    match given {
        Some(given) => {
            record.keep_headers(headers.clone());
            Ok(give(record, given))
        }
        None => Err(Box::new(record)),
    }
}

/// The body behind filters, if there are any. A request that ends here ends when they have seen all of it.
fn behind(filters: Vec<Box<dyn BodyFilter>>, body: ReplyBody, record: Option<Record>) -> ReplyBody {
    if filters.is_empty() {
        return body;
    }
    ReplyBody::Filtered(Box::new(Filtered::new(body, filters, record.map(Box::new))))
}

/// A response that plugins see before it goes out, with a body of the gateway's own.
pub(crate) fn own(
    mut record: Record,
    headers: &HeaderMap,
    mut response: Response<ReplyBody>,
    text: Bytes,
) -> Response<ReplyBody> {
    let may_have_body = record.method != Method::HEAD && !matches!(response.status().as_u16(), 204 | 304);
    let mut filters = Vec::new();
    if record.running.is_none() && record.conn.worker.access_form.is_some() && !headers.is_empty() {
        record.keep_headers(headers.clone());
    }
    if let Some(running) = &mut record.running {
        if running.headers.is_empty() {
            running.headers = headers.clone();
        }
        let mut status = response.status();
        filters = run::reply(&mut record, &mut status, response.headers_mut(), may_have_body);
        *response.status_mut() = status;
    }
    let file = record.running.as_mut().and_then(|running| running.file.take()).filter(|_| may_have_body);
    if let Some(file) = file {
        record.complete = false;
        streams(&record, FILE_IDLE_MS);
        *response.body_mut() =
            behind(filters, ReplyBody::File(Box::new(Stored { body: file, record })), None);
        return response;
    }
    if may_have_body && !(text.is_empty() && filters.is_empty()) {
        record.bytes_out = text.len() as u64;
        let body = match filters.is_empty() {
            true => ReplyBody::Own(text, Some(Box::new(record))),
            false => behind(filters, ReplyBody::Own(text, None), Some(record)),
        };
        *response.body_mut() = body;
    }
    response
}

/// Makes the response of a plugin's answer.
pub(crate) fn of_answer(mut record: Record, headers: HeaderMap, answer: Answer) -> Response<ReplyBody> {
    record.keep_headers(headers);
    let Some(text) = answer.body else {
        return error_reply::of_status(record, answer.status, answer.headers);
    };
    record.status = answer.status;
    record.complete = true;
    let mut response = Response::new(ReplyBody::Empty);
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let out = response.headers_mut();
    for (name, value) in answer.headers {
        out.append(name, value);
    }
    record.id.to_header().map(|id| out.insert(X_REQUEST_ID.clone(), id));
    if !matches!(answer.status, 204 | 304) {
        let file = record.running.as_ref().and_then(|running| running.file.as_ref());
        let length = file.map_or(text.len() as u64, |file| file.left());
        out.insert(header::CONTENT_LENGTH, length.into());
    }
    own(record, &HeaderMap::new(), response, text)
}

/// Makes the client's response of an HTTP/2 instance's.
pub(crate) fn from_h2(
    mut record: Record,
    reply: Response<Incoming>,
    guard: StreamGuard,
    key: PoolKey,
) -> Response<ReplyBody> {
    record.attempt_answers(reply.status().as_u16());
    let (parts, incoming) = reply.into_parts();
    let mut kept = None;
    match exchanged(&mut record, parts.status, &parts.headers) {
        Verdict::Pass => {}
        Verdict::Through(filter) => kept = Some(filter),
        Verdict::Instead(given) => return give(record, *given),
    }
    let mut response = Response::new(ReplyBody::Empty);
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    add_headers(&record, response.headers_mut());
    let filters = plugins_see(&mut record, &mut response, kept);
    if incoming.is_end_stream() {
        record.completes();
        *response.body_mut() = behind(filters, ReplyBody::Empty, Some(record));
    } else {
        *response.body_mut() = behind(filters, stream(record, Source::H2(incoming, guard), key), None);
    }
    response
}

fn stream(record: Record, source: Source, key: PoolKey) -> ReplyBody {
    let idle_ms = record.chosen.as_ref().map_or(0, |chosen| chosen.timeouts.idle.0);
    streams(&record, idle_ms);
    ReplyBody::Stream(Box::new(Stream { source, key, idle_ms, broken: None, record }))
}

/// From now on the deadline is that of a response that streams.
fn streams(record: &Record, idle_ms: u64) {
    record.deadline.clear();
    record.deadline.set_in(idle_ms);
    match &record.watch {
        Some(watch) => watch.streaming.set(true),
        None => {
            record.conn.idle_ms.set(idle_ms);
            record.conn.phase.set(Phase::Streaming);
        }
    }
}

/// What the gateway adds to every instance's response.
fn add_headers(record: &Record, headers: &mut HeaderMap) {
    if let Some(id) = record.id.to_header() {
        headers.insert(X_REQUEST_ID.clone(), id);
    }
    let Some(chosen) = &record.chosen else { return };
    if chosen.other_lane
        && let Ok(lane) = HeaderValue::from_str(chosen.lane.as_str())
    {
        headers.insert(LANE_SERVED.clone(), lane);
    }
    if chosen.rebind.is_some() || headers.contains_key(header::SET_COOKIE) {
        let (app, sticky) = (&chosen.route.spec.app, &chosen.endpoint.upstream.sticky);
        let instance = chosen.endpoint.instance();
        let cookie =
            record.conn.worker.sticky.follow(app, sticky, headers, instance, chosen.rebind.as_deref());
        cookie.map(|cookie| headers.append(header::SET_COOKIE, cookie));
    }
    if record.version != Version::HTTP_2
        && record.conn.requests.get() >= record.conn.worker.settings.limits.requests_per_connection
    {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// 101: the response goes out, and then the connection (or the HTTP/2 stream) is a tunnel.
fn switch(
    mut record: Record,
    mut response: Response<ReplyBody>,
    protocol: Option<HeaderValue>,
    body: H1Body,
) -> Response<ReplyBody> {
    let conn = record.conn.clone();
    conn.worker.metrics.upgrades.add(1);
    let idle_ms = record.chosen.as_ref().map_or(0, |chosen| chosen.timeouts.idle.0);
    let connect = record.connect.take();
    if connect.is_some() {
        *response.status_mut() = StatusCode::OK;
        response.headers_mut().remove(header::SEC_WEBSOCKET_ACCEPT);
        record.status = StatusCode::OK.as_u16();
    } else {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        protocol.map(|protocol| response.headers_mut().insert(header::UPGRADE, protocol));
        conn.switched.set(Some(true));
    }
    let Some((upstream, first)) = body.into_tunnel() else { return response };
    let deadline = record.deadline.clone();
    let end = TunnelEnd { stream: upstream.into_stream(), first, idle_ms, record };
    match connect {
        None => *conn.tunnel.borrow_mut() = Some(end),
        Some(connect) => drop(tokio::task::spawn_local(async move {
            if let Some(stream) = connect.stream().await {
                tunnel::run(&deadline, TokioIo::new(stream), Bytes::new(), end).await;
            }
        })),
    }
    response
}

/// Gives the connection back once its response has ended.
fn keep_connection(record: &Record, body: &mut H1Body, key: PoolKey) {
    let Some(mut conn) = body.take_conn() else { return };
    let upstream = record.running.as_ref().and_then(|running| running.upstream.as_ref());
    let most = match upstream.and_then(|upstream| upstream.keep) {
        Some(keep) if conn.served >= keep.requests => return,
        Some(keep) => {
            conn.idle_limit_ms = conn.idle_limit_ms.min(keep.idle_ms);
            keep.idle
        }
        None => usize::MAX,
    };
    record.conn.worker.pool.put_h1(key, conn, most, record.deadline.now_ms());
}

impl Stream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.record.complete {
            return Poll::Ready(None);
        }
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let deadline = &self.record.deadline;
        let frame = match &mut self.source {
            Source::H1(body) => body.poll_frame(cx, deadline, self.idle_ms),
            Source::H2(body, _) => Pin::new(body).poll_frame(cx).map(|frame| {
                deadline.set_in(self.idle_ms);
                frame.map(|frame| frame.map_err(io::Error::other))
            }),
        };
        if frame.is_pending() && deadline.is_over(cx) {
            // Who has announced more bytes and does not send them has failed. A stream without a length may have nothing
            // to say (server-sent events, long polls): that it is ended is the gateway's wish.
            let owed = self.size_left().is_some();
            return self.fail(cx, io::ErrorKind::TimedOut.into(), owed);
        }
        match ready!(frame) {
            Some(Ok(mut frame)) => {
                if self.record.watch.is_some() && matches!(self.source, Source::H1(_)) {
                    // It may wait for the client's window.
                    frame = frame.map_data(buffer::to_keep);
                }
                self.record.bytes_out += frame.data_ref().map_or(0, |data| data.len() as u64);
                if self.source_is_done() {
                    self.complete();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => self.fail(cx, error, true),
            None => {
                self.complete();
                Poll::Ready(None)
            }
        }
    }

    fn source_is_done(&self) -> bool {
        match &self.source {
            Source::H1(body) => body.is_done(),
            Source::H2(body, _) => body.is_end_stream(),
        }
    }

    fn complete(&mut self) {
        if let Source::H1(body) = &mut self.source {
            keep_connection(&self.record, body, self.key);
        }
        self.record.completes();
    }

    /// Bytes that are still to come, where that is known.
    fn size_left(&self) -> Option<u64> {
        match &self.source {
            Source::H1(body) => body.left(),
            Source::H2(body, _) => body.size_hint().exact(),
        }
    }

    /// The instance's side broke in the middle, or was silent for too long: the client sees a response that ends early.
    /// `blame` = by the endpoint's fault.
    fn fail(
        &mut self,
        cx: &Context<'_>,
        error: io::Error,
        blame: bool,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let timed_out = error.kind() == io::ErrorKind::TimedOut;
        self.record.error =
            Some(if timed_out { ErrorCode::UpstreamTimeout } else { ErrorCode::UpstreamFailed });
        self.record.attempt_fails(blame);
        self.record.deadline.set_in(self.idle_ms);
        self.broken = Some(error);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Own(bytes, record) => {
                if let Some(record) = record.take() {
                    drop(record);
                }
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Stream(stream) => stream.poll_frame(cx),
            Self::Filtered(filtered) => filtered.poll_frame(cx),
            Self::File(stored) => stored.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Own(bytes, _) => bytes.is_empty(),
            Self::Stream(stream) => stream.record.complete,
            Self::Filtered(filtered) => filtered.is_end_stream(),
            Self::File(stored) => stored.record.complete,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Own(bytes, _) => SizeHint::with_exact(bytes.len() as u64),
            Self::Filtered(filtered) => filtered.size_hint(),
            Self::File(stored) => SizeHint::with_exact(stored.body.left()),
            Self::Stream(stream) => stream.size_left().map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
