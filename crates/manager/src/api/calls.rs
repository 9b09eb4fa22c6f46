//! Requests that come over the bus: sent on by other managers, or by clients of `towpath.api`.

use super::forward::{Forwarded, NotMine, SERVICE, TRACE, org_of};
use crate::core::Core;
use crate::core::shares::Shares;
use crate::vitals;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt, Limited};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tower::Service;
use towpath_bus::{BusError, Message, Subscription};
use towpath_telemetry::SeldomHere;
use towpath_types::ErrorCode;
use towpath_wire::manager::{ApiCall, ApiReply};
use towpath_wire::{decode_at, encode, subject};

/// Calls that are worked on at the same time, half of them of one org at the most; further ones are told to come back.
const AT_ONCE: usize = 1024;
/// Largest answer in bytes.
const MOST_BYTES: usize = 450_000;
/// Longest work on a call.
const LONGEST: Duration = Duration::from_secs(125);

/// Subscribes, and starts working on calls.
pub(super) async fn spawn(core: &Arc<Core>, router: Router) -> Result<JoinHandle<()>, BusError> {
    let own = core.bus.subscribe(&subject::service(SERVICE, core.manager)).await?;
    let shared = core.bus.subscribe_queue(subject::API, subject::MANAGERS).await?;
    let core = core.clone();
    Ok(vitals::spawn(&core.clone(), async move {
        let calls = take(&core, &router, own, shared);
        tokio::select! {
            biased;
            () = core.stopped() => {}
            // Others would send to this manager what it does not hear.
            () = calls => core.vitals.broke("a subscription to calls has ended".into()),
        }
    }))
}

/// Until one of the subscriptions has ended.
async fn take(core: &Arc<Core>, router: &Router, mut own: Subscription, mut shared: Subscription) {
    let mut working = JoinSet::new();
    let shares = Shares::new(AT_ONCE);
    loop {
        let (message, from_manager) = tokio::select! {
            message = own.next() => match message {
                Some(message) => (message, true),
                None => return,
            },
            message = shared.next() => match message {
                Some(message) => (message, false),
                None => return,
            },
            Some(_) = working.join_next() => continue,
        };
        let Some((reply, call)) = read(core, &message) else { continue };
        let Some(share) = shares.take(&org_of(&call.target)) else {
            send(core, &reply, &busy()).await;
            continue;
        };
        let (core, router) = (core.clone(), router.clone());
        working.spawn(async move {
            let answer = work(&core, router, &call, from_manager).await;
            drop(share);
            send(&core, &reply, &answer).await;
        });
    }
}

/// A call that can be read, and where its answer goes.
fn read(core: &Core, message: &Message) -> Option<(String, ApiCall)> {
    let reply = message.reply.clone()?;
    let call = decode_at(&message.payload, core.settings.protocol).inspect_err(|error| {
        static TOLD: SeldomHere = SeldomHere::new();
        if let Some(more) = TOLD.now() {
            tracing::warn!(subject = message.subject, %error, "ignored a call{more}");
        }
    });
    Some((reply, call.ok()?))
}

/// Works on one call.
async fn work(core: &Core, mut router: Router, call: &ApiCall, from_manager: bool) -> ApiReply {
    // Sent to an earlier membership of this manager: its owner may be another one by now.
    let is_late = from_manager && call.epoch < core.joined_epoch.load(Ordering::Relaxed);
    if from_manager && (is_late || core.fence().is_none() || !*core.cache_loaded().borrow()) {
        return ApiReply::NotMine { epoch: core.epoch() };
    }
    if let Some(from) = call.from.filter(|_| from_manager) {
        tracing::debug!(%from, correlation = call.correlation, target = call.target, "works on a call that was sent on");
    }
    let until = Instant::now() + Duration::from_millis(call.deadline_ms).min(LONGEST);
    let body = match core.opened_body(call) {
        Ok(body) => body,
        Err(error) => return problem(error.code(), &error.to_string()),
    };
    let request = match request_of(call, body, from_manager.then_some(Forwarded { hops: call.hops, until })) {
        Ok(request) => request,
        Err(why) => return problem(ErrorCode::Malformed, &why.to_string()),
    };
    let answer = tokio::time::timeout(LONGEST, async {
        let response = router.call(request).await.unwrap_or_else(|never| match never {});
        reply_of(core, response).await
    });
    answer.await.unwrap_or_else(|_| problem(ErrorCode::Internal, "the request took too long"))
}

fn request_of(
    call: &ApiCall,
    body: String,
    forwarded: Option<Forwarded>,
) -> Result<Request<Body>, http::Error> {
    let mut request = Request::builder().method(call.method.as_str()).uri(call.target.as_str());
    for (name, value) in &call.headers {
        request = request.header(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
    }
    if let Some(trace) = &call.trace {
        request = request.header(TRACE, HeaderValue::try_from(trace)?);
    }
    let mut request = request.body(Body::from(body))?;
    if let Some(forwarded) = forwarded {
        request.extensions_mut().insert(forwarded);
    }
    Ok(request)
}

async fn reply_of(core: &Core, response: Response) -> ApiReply {
    if response.extensions().get::<NotMine>().is_some() {
        return ApiReply::NotMine { epoch: core.epoch() };
    }
    let (parts, body) = response.into_parts();
    let body = match Limited::new(body, MOST_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => {
            return problem(ErrorCode::Internal, "the answer does not fit into a message; ask over HTTP");
        }
    };
    let Ok(body) = String::from_utf8(body.into()) else {
        return problem(ErrorCode::Internal, "the answer is no text; ask over HTTP");
    };
    let kept = |(name, value): (&HeaderName, &HeaderValue)| {
        let text = value.to_str().ok()?.to_owned();
        (*name != http::header::CONTENT_LENGTH).then(|| (name.as_str().to_owned(), text))
    };
    ApiReply::Answer {
        status: parts.status.as_u16(),
        headers: parts.headers.iter().filter_map(kept).collect(),
        body,
    }
}

fn busy() -> ApiReply {
    problem(ErrorCode::Busy, "too many calls are worked on at the moment")
}

/// A problem as an answer.
fn problem(code: ErrorCode, detail: &str) -> ApiReply {
    let problem = super::problem::Problem::new(code, detail);
    let body = serde_json::to_string(&problem.body("-")).unwrap_or_default();
    let mut headers = vec![("content-type".to_owned(), "application/problem+json".to_owned())];
    if code == ErrorCode::Busy {
        headers.push(("retry-after".to_owned(), "1".to_owned()));
    }
    ApiReply::Answer { status: code.status(), headers, body }
}

async fn send(core: &Core, reply: &str, answer: &ApiReply) {
    if let Err(error) = core.bus.publish(reply, encode(answer).into()).await {
        tracing::debug!(%error, "an answer to a call was not sent");
    }
}
