//! The attempts of a request, one after another until one gives a response or no further one is permitted.

use super::attempt::{Answer, attempt, body_limit, is_idempotent};
use super::choice;
use super::error_reply;
use super::record::Record;
use super::reply::{self, ReplyBody};
use crate::upstream::request_body::{BodyProgress, ClientBody};
use crate::upstream::{AttemptFault, BodyFault, Resend};
use http::Response;
use http::header::HeaderMap;
use http_body::Body;
use std::rc::Rc;
use towpath_route::health::Report;
use towpath_route::{NoPick, TriedSet};

/// Forwards a request and makes the response to it.
pub(crate) async fn forward(
    mut record: Record,
    mut headers: HeaderMap,
    mut body: Option<ClientBody>,
) -> Response<ReplyBody> {
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
        if let Some(touch) = record.running.as_ref().and_then(|running| running.last_touch.clone()) {
            touch(&record, &mut headers);
        }
        let fault = match attempt(&mut record, &mut headers, &mut body).await {
            Ok(Answer::H1(reply, key)) => {
                record.keep_headers(headers);
                return reply::from_h1(record, reply, key);
            }
            Ok(Answer::H2(reply, guard, key)) => {
                record.keep_headers(headers);
                return reply::from_h2(record, reply, guard, key);
            }
            Err(fault) => fault,
        };
        match &fault {
            AttemptFault::ConnectTimeout | AttemptFault::Timeout => record.seen(Report::TimedOut),
            fault if fault.is_endpoints() => record.seen(Report::Failed),
            _ => {}
        }
        if fault.is_refusal() {
            record.endpoint_refuses();
        }
        record.attempt_fails(fault.is_endpoints());
        let safe = !had_body && is_idempotent(record.sent_method());
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
fn begin(record: &mut Record, body: Option<&ClientBody>) -> Option<AttemptFault> {
    let chosen = record.chosen.as_ref()?;
    record.deadline.cap_in(chosen.timeouts.total.0);
    let incoming = body?;
    record.progress = Some(Rc::new(BodyProgress::default()));
    let limit = body_limit(record)?;
    incoming
        .size_hint()
        .exact()
        .filter(|&length| length > limit)
        .map(|_| AttemptFault::Client(BodyFault::TooLarge))
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
    if record.attempts > policy.retries || record.deadline.is_cap_over() || record.retries_too_long() {
        return false;
    }
    let granted = chosen.budget.try_retry(crate::clock::now_ns(), policy);
    if !granted {
        record.conn.worker.metrics.retries_denied.add(1);
    }
    granted
}

/// No attempt was made: the table has nobody.
fn refuse(record: Record, headers: &HeaderMap, none: NoPick) -> Response<ReplyBody> {
    let record = match reply::instead_of_error(record, headers) {
        Ok(response) => return response,
        Err(record) => *record,
    };
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
fn fail(mut record: Record, headers: &HeaderMap, fault: &AttemptFault) -> Response<ReplyBody> {
    let client = matches!(fault, AttemptFault::Client(_));
    if client {
        record.conn.linger.set(true);
    } else {
        record = match reply::instead_of_error(record, headers) {
            Ok(response) => return response,
            Err(record) => *record,
        };
    }
    let refusal = record.running.as_ref().and_then(|running| running.body_refusal.take());
    if let (Some(answer), AttemptFault::Client(BodyFault::Refused)) = (refusal, fault) {
        return reply::of_answer(record, headers.clone(), *answer);
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
        AttemptFault::Client(BodyFault::Refused) => "The request body is not what its head says.",
        fault if fault.is_shortage() => "The gateway has no room for another connection now.",
        AttemptFault::Connect(_) | AttemptFault::ConnectTimeout => {
            "No connection to the app's instance could be made."
        }
        AttemptFault::Refused => "The app's instance refused the request.",
        AttemptFault::Broken(_) | AttemptFault::Silent(_) => {
            "The app's instance ended the connection before it answered."
        }
        AttemptFault::Malformed(_) => "The app's instance sent a response that is not valid.",
        AttemptFault::NoTunnel => "The app's instances speak HTTP/2; they are not asked for a tunnel.",
        AttemptFault::Timeout | AttemptFault::OutOfTime => "The app's instance did not answer in time.",
    };
    tracing::debug!(error = %fault, "a request failed");
    error_reply::make(record, headers, fault.code(), detail, client)
}
