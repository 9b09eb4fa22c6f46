//! One attempt of a request at one endpoint: a connection, the head and body out, the response head back.
//!
//! HTTP/1.1 and HTTP/2 differ in each of these steps: a connection of one's own or a stream of a shared one, a head
//! written as bytes or made as a message, a body pumped here or taken by hyper. So there are two paths, of the same shape.

use super::choice;
use super::extended_connect;
use super::head::{self, BodyLength, Outgoing};
use super::present::Of;
use super::record::Record;
use crate::upstream::h1::{self, Sending};
use crate::upstream::h2::H2RequestBody;
use crate::upstream::pool::{PoolKey, To};
use crate::upstream::request_body::{ClientBody, RequestBody};
use crate::upstream::{AttemptFault, BodyFault};
use http::header::{self, HeaderMap};
use http::{Method, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use towpath_types::upstream::Protocol;

/// A response head from an instance.
#[expect(
    clippy::large_enum_variant,
    reason = "lives for a moment; a box would cost the common case an allocation"
)]
pub(super) enum Answer {
    H1(h1::H1Reply, PoolKey),
    H2(Response<Incoming>, crate::upstream::h2::StreamGuard, PoolKey),
}

/// Makes one attempt at the endpoint that was chosen.
pub(super) async fn attempt(
    record: &mut Record,
    headers: &mut HeaderMap,
    body: &mut Option<ClientBody>,
) -> Result<Answer, AttemptFault> {
    match record.chosen.as_ref().map(|chosen| chosen.endpoint.protocol()) {
        Some(Protocol::H2c) if record.connect.is_some() => Err(AttemptFault::NoTunnel),
        Some(Protocol::H2c) => attempt_h2(record, headers, body).await,
        _ => attempt_h1(record, headers, body).await,
    }
}

async fn attempt_h1(
    record: &mut Record,
    headers: &mut HeaderMap,
    body: &mut Option<ClientBody>,
) -> Result<Answer, AttemptFault> {
    let worker = record.conn.worker.clone();
    let Some(chosen) = record.chosen.as_ref() else { return Err(AttemptFault::Timeout) };
    let tls = chosen.tls.as_ref();
    let first = record.proxy_header();
    let (key, mark) = (PoolKey::of(&chosen.endpoint, tls, !first.is_empty()), worker.pool.mark());
    let to = To { address: chosen.endpoint.address(), tls, first: &first };
    let upgrade = head::asks_upgrade(record, headers);
    let timeouts = chosen.timeouts;
    let length = length_of(body.as_ref());
    let safe = body.is_none() && is_idempotent(record.sent_method());
    let expects = record.present.has(Of::Expect)
        && headers.get(header::EXPECT).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let mut kept_may_serve = true;
    loop {
        let kept =
            if kept_may_serve { worker.pool.take_h1(key, safe, record.deadline.now_ms()) } else { None };
        let fresh = kept.is_none();
        let mut conn = match kept {
            Some(conn) => conn,
            None => {
                record.deadline.set_in(timeouts.connect.0);
                let conn = worker.pool.open_h1(key, mark, to, &record.deadline).await?;
                record.sends_now();
                conn
            }
        };
        let started = {
            let mut scratch = worker.scratch.borrow_mut();
            Outgoing { worker: &worker, record, chosen, headers, body: length, upgrade }
                .write_h1(&mut scratch);
            conn.start(&scratch)
        };
        match started {
            Ok(()) => {}
            Err(error) if fresh => return Err(AttemptFault::Connect(error)),
            // It had ended just before a byte was written: not an attempt.
            Err(_) => {
                worker.metrics.stale.add(1);
                worker.pool.doubt(key, record.deadline.now_ms());
                continue;
            }
        }
        let sending = Sending {
            method: record.sent_method(),
            expects_continue: expects,
            upgrades: upgrade,
            deadline: &record.deadline,
            expect_ms: worker.settings.timeouts.expect_ms,
            idle_ms: timeouts.idle.0,
            response_ms: timeouts.response.0,
            head_max: worker.settings.upstream.head,
        };
        match h1::exchange(conn, take_body(record, body), worker.take_map(), &sending).await {
            Ok(reply)
                if reply.status == StatusCode::SWITCHING_PROTOCOLS
                    && !head::may_switch_to(reply.upgrade.as_ref(), headers) =>
            {
                return Err(AttemptFault::Malformed("it switches to a protocol that was not offered"));
            }
            Ok(reply) => {
                return extended_connect::judge(record, reply.status).map(|()| Answer::H1(reply, key));
            }
            // The instance closed an idle connection while the request was on its way: that is not a failure of its,
            // and one more go on a connection of our own making tells the two apart.
            Err(AttemptFault::Silent(_)) if !fresh && safe => {
                worker.metrics.stale.add(1);
                worker.pool.doubt(key, record.deadline.now_ms());
                kept_may_serve = false;
            }
            Err(fault) => {
                if matches!(fault, AttemptFault::Silent(_) | AttemptFault::Broken(_)) {
                    worker.pool.doubt(key, record.deadline.now_ms());
                }
                return Err(fault);
            }
        }
    }
}

fn length_of(body: Option<&ClientBody>) -> BodyLength {
    match body.map(|body| body.size_hint().exact()) {
        None => BodyLength::None,
        Some(Some(length)) => BodyLength::Known(length),
        Some(None) => BodyLength::Unknown,
    }
}

fn take_body(record: &Record, body: &mut Option<ClientBody>) -> Option<RequestBody> {
    let incoming = body.take()?;
    let limit = body_limit(record).unwrap_or(u64::MAX);
    let progress = record.progress.clone().unwrap_or_default();
    let may_have_trailers = record.version == Version::HTTP_2 || incoming.size_hint().exact().is_none();
    let ours = if may_have_trailers { choice::ours(record) } else { Vec::new() };
    Some(RequestBody::new(incoming, limit, record.conn.clone(), progress, ours))
}

async fn attempt_h2(
    record: &mut Record,
    headers: &mut HeaderMap,
    body: &mut Option<ClientBody>,
) -> Result<Answer, AttemptFault> {
    let worker = record.conn.worker.clone();
    let Some(chosen) = record.chosen.as_ref() else { return Err(AttemptFault::Timeout) };
    let tls = chosen.tls.as_ref();
    let key = PoolKey::of(&chosen.endpoint, tls, false);
    let to = To { address: chosen.endpoint.address(), tls, first: &[] };
    let timeouts = chosen.timeouts;
    let mut kept_may_serve = true;
    loop {
        let kept = if kept_may_serve { worker.pool.find_h2(key, record.deadline.now_ms()) } else { None };
        let fresh = kept.is_none();
        let mut conn = match kept {
            Some(conn) => conn,
            None => {
                record.deadline.set_in(timeouts.connect.0);
                let conn = worker.pool.open_h2(key, to, &record.deadline).await?;
                record.sends_now();
                conn
            }
        };
        let guard = conn.stream();
        let length = length_of(body.as_ref());
        let deadline = record.deadline.clone();
        deadline.set_in(if body.is_some() { timeouts.idle.0 } else { timeouts.response.0 });
        let request_body = match take_body(record, body) {
            None => H2RequestBody::Empty,
            Some(body) => H2RequestBody::stream(body, deadline, timeouts.idle.0, timeouts.response.0),
        };
        let outgoing = Outgoing { worker: &worker, record, chosen, headers, body: length, upgrade: false };
        let request =
            outgoing.make_h2(request_body).map_err(|_| AttemptFault::Client(BodyFault::Malformed))?;
        let fault = match conn.exchange(request, &record.deadline, record.progress.as_deref(), body).await {
            Ok(reply) => return Ok(Answer::H2(reply, guard, key)),
            Err(fault) => fault,
        };
        // A kept connection that had ended already, and nothing of the request is used up: not an attempt.
        let intact = length == BodyLength::None || body.is_some();
        if fresh || !intact || conn.is_open() || !matches!(fault, AttemptFault::Refused) {
            return Err(fault);
        }
        worker.metrics.stale.add(1);
        kept_may_serve = false;
    }
}

/// The smaller of the gateway's and the app's limit on bodies.
pub(super) fn body_limit(record: &Record) -> Option<u64> {
    let own = match record.chosen.as_ref()?.endpoint.upstream.max_body.0 {
        0 => u64::MAX,
        bytes => bytes,
    };
    let plugins = record.running.as_ref().and_then(|running| running.max_body);
    Some(own.min(plugins.unwrap_or(u64::MAX)).min(record.conn.worker.settings.limits.body))
}

pub(super) fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::PUT | Method::DELETE | Method::OPTIONS | Method::TRACE
    )
}
