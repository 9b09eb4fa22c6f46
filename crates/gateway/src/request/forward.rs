//! The attempts of a request, one after another until one gives a response or no further one is permitted.

use super::choice;
use super::error_reply;
use super::head::{self, BodyLength, Outgoing};
use super::present::Of;
use super::record::Record;
use super::reply::{self, ReplyBody};
use crate::upstream::h1::{self, H1Conn, Sending};
use crate::upstream::h2::{H2Conn, H2RequestBody};
use crate::upstream::pool::PoolKey;
use crate::upstream::request_body::{BodyProgress, RequestBody};
use crate::upstream::{AttemptFault, BodyFault, Resend};
use http::header::{self, HeaderMap};
use http::{Method, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use std::rc::Rc;
use towpath_route::{NoPick, TriedSet};
use towpath_types::upstream::Protocol;

/// Forwards a request and makes the response to it.
pub(crate) async fn forward(
    mut record: Record,
    mut headers: HeaderMap,
    incoming: Incoming,
) -> Response<ReplyBody> {
    let mut body = (!incoming.is_end_stream()).then_some(incoming);
    let had_body = body.is_some();
    let mut tried = TriedSet::default();
    let mut last: Option<AttemptFault> = None;
    loop {
        let choice = choice::choose(&record.conn.worker, &record, &headers, &tried);
        let (chosen, flight) = match (choice, last.take()) {
            (Ok(choice), _) => choice,
            (Err(NoPick::AllTried), Some(fault)) => return fail(record, &headers, &fault),
            (Err(none), _) => return refuse(record, &headers, none),
        };
        record.attempt_begins(chosen, flight);
        if tried.is_empty()
            && let Some(fault) = begin(&mut record, body.as_ref())
        {
            record.attempt_fails(false);
            return fail(record, &headers, &fault);
        }
        let fault = match attempt(&mut record, &mut headers, &mut body).await {
            Ok(Answer::H1(reply, key)) => {
                record.conn.worker.put_map(headers);
                return reply::from_h1(record, reply, key);
            }
            Ok(Answer::H2(reply, guard, key)) => return reply::from_h2(record, reply, guard, key),
            Err(fault) => fault,
        };
        record.attempt_fails(fault.is_endpoints());
        let safe = !had_body && is_idempotent(&record.method);
        let intact = !had_body || body.is_some();
        if !may_resend(&record, &fault, safe, intact) || !tried.add(instance(&record)) {
            return fail(record, &headers, &fault);
        }
        record.conn.worker.metrics.retries.add(1);
        last = Some(fault);
    }
}

fn instance(record: &Record) -> towpath_types::InstanceId {
    record
        .chosen
        .as_ref()
        .map_or(towpath_types::InstanceId(uuid::Uuid::nil()), |chosen| chosen.endpoint.instance())
}

/// Before the first attempt: what holds for all of them.
fn begin(record: &mut Record, body: Option<&Incoming>) -> Option<AttemptFault> {
    let upstream = &record.chosen.as_ref()?.endpoint.upstream;
    record.deadline.cap_in(upstream.timeouts.total.0);
    let incoming = body?;
    record.progress = Some(Rc::new(BodyProgress::default()));
    let limit = body_limit(record)?;
    incoming
        .size_hint()
        .exact()
        .filter(|&length| length > limit)
        .map(|_| AttemptFault::Client(BodyFault::TooLarge))
}

/// The smaller of the gateway's and the app's limit on bodies.
fn body_limit(record: &Record) -> Option<u64> {
    let own = match record.chosen.as_ref()?.endpoint.upstream.max_body.0 {
        0 => u64::MAX,
        bytes => bytes,
    };
    Some(own.min(record.conn.worker.settings.limits.body))
}

fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::PUT | Method::DELETE | Method::OPTIONS | Method::TRACE
    )
}

/// Whether another attempt is permitted after this fault. `safe` = sending twice does no harm; `intact` = nothing of the
/// body is used up.
fn may_resend(record: &Record, fault: &AttemptFault, safe: bool, intact: bool) -> bool {
    let permitted = match fault.resend() {
        Resend::Always => intact,
        Resend::IfSafe => safe,
        Resend::Never => false,
    };
    let Some(chosen) = record.chosen.as_ref().filter(|_| permitted) else { return false };
    let policy = &chosen.endpoint.upstream.retry;
    if record.attempts > policy.retries || record.deadline.is_cap_over() {
        return false;
    }
    let granted = chosen.budget.try_retry(crate::clock::now_ns(), policy);
    if !granted {
        record.conn.worker.metrics.retries_denied.add(1);
    }
    granted
}

/// A response head from an instance.
#[expect(
    clippy::large_enum_variant,
    reason = "lives for a moment; a box would cost the common case an allocation"
)]
enum Answer {
    H1(h1::H1Reply, PoolKey),
    H2(Response<Incoming>, crate::upstream::h2::StreamGuard, PoolKey),
}

async fn attempt(
    record: &mut Record,
    headers: &mut HeaderMap,
    body: &mut Option<Incoming>,
) -> Result<Answer, AttemptFault> {
    match record.chosen.as_ref().map(|chosen| chosen.endpoint.protocol()) {
        Some(Protocol::H2c) => attempt_h2(record, headers, body).await,
        _ => attempt_h1(record, headers, body).await,
    }
}

async fn attempt_h1(
    record: &mut Record,
    headers: &mut HeaderMap,
    body: &mut Option<Incoming>,
) -> Result<Answer, AttemptFault> {
    let worker = record.conn.worker.clone();
    let Some(chosen) = record.chosen.as_ref() else { return Err(AttemptFault::Timeout) };
    let key = PoolKey::of(&chosen.endpoint);
    let upgrade = record.asks_upgrade && head::asks_upgrade(record.version, headers);
    let timeouts = chosen.endpoint.upstream.timeouts;
    let length = length_of(body.as_ref());
    let safe = body.is_none() && is_idempotent(&record.method);
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
                let stream = worker.pool.connect(chosen.endpoint.address(), &record.deadline).await?;
                record.sends_now();
                H1Conn::new(stream)
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
            // Closed before a byte was written: not an attempt.
            Err(_) => {
                worker.metrics.stale.add(1);
                continue;
            }
        }
        let sending = Sending {
            method: &record.method,
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
            Ok(reply) => return Ok(Answer::H1(reply, key)),
            // The instance closed an idle connection while the request was on its way: that is not a failure of its,
            // and one more go on a connection of our own making tells the two apart.
            Err(AttemptFault::Silent(_)) if !fresh && safe => {
                worker.metrics.stale.add(1);
                kept_may_serve = false;
            }
            Err(fault) => return Err(fault),
        }
    }
}

fn length_of(body: Option<&Incoming>) -> BodyLength {
    match body.map(|body| body.size_hint().exact()) {
        None => BodyLength::None,
        Some(Some(length)) => BodyLength::Known(length),
        Some(None) => BodyLength::Unknown,
    }
}

fn take_body(record: &Record, body: &mut Option<Incoming>) -> Option<RequestBody> {
    let incoming = body.take()?;
    let limit = body_limit(record).unwrap_or(u64::MAX);
    let progress = record.progress.clone().unwrap_or_default();
    let may_have_trailers = record.version == Version::HTTP_2 || incoming.size_hint().exact().is_none();
    let lane_header = if may_have_trailers { choice::lane_header(record) } else { String::new() };
    Some(RequestBody::new(incoming, limit, record.conn.clone(), progress, lane_header))
}

async fn attempt_h2(
    record: &mut Record,
    headers: &mut HeaderMap,
    body: &mut Option<Incoming>,
) -> Result<Answer, AttemptFault> {
    let worker = record.conn.worker.clone();
    let Some(chosen) = record.chosen.as_ref() else { return Err(AttemptFault::Timeout) };
    let key = PoolKey::of(&chosen.endpoint);
    let timeouts = chosen.endpoint.upstream.timeouts;
    let mut kept_may_serve = true;
    loop {
        let now_ms = record.deadline.now_ms();
        let kept = if kept_may_serve { worker.pool.find_h2(key, now_ms) } else { None };
        let fresh = kept.is_none();
        let mut conn = match kept {
            Some(conn) => conn,
            None => {
                record.deadline.set_in(timeouts.connect.0);
                let stream = worker.pool.connect(chosen.endpoint.address(), &record.deadline).await?;
                let conn = H2Conn::start(stream, now_ms).await?;
                worker.pool.put_h2(key, conn.clone());
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

/// No attempt was made: the table has nobody.
fn refuse(record: Record, headers: &HeaderMap, none: NoPick) -> Response<ReplyBody> {
    let host = String::from_utf8_lossy(record.host()).into_owned();
    let detail = match none {
        NoPick::NoRoute => format!("No app has a route for {host}{}.", record.uri.path()),
        NoPick::Stopped => "The app was stopped on purpose; start it again to use it.".to_owned(),
        NoPick::UnknownLane => "The lane that the request names does not exist here.".to_owned(),
        NoPick::NoEndpoint | NoPick::AllTried => {
            "The app has no instance that can take the request now; it may be starting.".to_owned()
        }
    };
    error_reply::make(record, headers, none.code(), &detail, false)
}

/// Attempts were made, and the last one ended like this.
fn fail(record: Record, headers: &HeaderMap, fault: &AttemptFault) -> Response<ReplyBody> {
    let client = matches!(fault, AttemptFault::Client(_));
    if client {
        record.conn.linger.set(true);
    }
    let detail = match fault {
        AttemptFault::Client(BodyFault::Malformed) => record
            .conn
            .body_refused
            .get()
            .map_or("The request body is malformed.", |refusal| refusal.detail()),
        AttemptFault::Client(BodyFault::TooLarge) => "The request body is larger than the app permits.",
        AttemptFault::Client(BodyFault::Slow) => "The request body arrived too slowly.",
        AttemptFault::Client(BodyFault::Gone) => "The request body ended early.",
        AttemptFault::Connect(_) | AttemptFault::ConnectTimeout => {
            "No connection to the app's instance could be made."
        }
        AttemptFault::Refused => "The app's instance refused the request.",
        AttemptFault::Broken(_) | AttemptFault::Silent(_) => {
            "The app's instance ended the connection before it answered."
        }
        AttemptFault::Malformed(_) => "The app's instance sent a response that is not valid.",
        AttemptFault::Timeout | AttemptFault::OutOfTime => "The app's instance did not answer in time.",
    };
    tracing::debug!(error = %fault, "a request failed");
    error_reply::make(record, headers, fault.code(), detail, client)
}
