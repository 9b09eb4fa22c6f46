//! Changes go to the manager that owns what they change; clients do not notice.
//!
//! Whoever got the request sends it on over the bus, with a key by which it is done once however often it is sent. When the
//! ring changes meanwhile it goes to the new owner; a manager that is not the owner says so and does nothing.

use super::ApiState;
use super::problem::{Outcome, Problem, REQUEST_ID};
use super::writing::SentBody;
use crate::core::Core;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use percent_encoding::percent_decode_str;
use std::time::Duration;
use tokio::time::Instant;
use towpath_bus::{BusError, BusState};
use towpath_types::{ErrorCode, ManagerId, SpaceRef};
use towpath_wire::manager::{ApiCall, ApiReply, MAX_HOPS};
use towpath_wire::{decode, encode_at, subject};

/// Name of the service in subjects.
pub(super) const SERVICE: &str = "api";
/// Bodies over this size are worked on where they arrived: they might not fit into a message.
const MOST_BYTES: usize = 400_000;
/// Time beyond an eviction that a request waits for an owner that answers.
const BEYOND_EVICTION: Duration = Duration::from_secs(4);
/// Longest wait for an answer to a request that waits for gateways itself.
const WAITING: Duration = Duration::from_secs(125);
/// Longest wait for the answer to a first try; further ones wait twice as long each.
const TRY: Duration = Duration::from_secs(3);
/// Pause before an owner that could not be reached is tried again, if the ring does not change before.
const AGAIN: Duration = Duration::from_millis(250);
/// Requests that one manager has on their way at a time, half of them of one org at the most; further ones are told to come
/// back.
pub(super) const MOST_FORWARDED: usize = 1024;

/// Headers that go with a request.
const SENT: [HeaderName; 6] = [
    header::AUTHORIZATION,
    header::CONTENT_TYPE,
    header::ACCEPT,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    REQUEST_ID,
];
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The client's address, for the audit log; believed of managers alone.
pub(super) const SOURCE: HeaderName = HeaderName::from_static("x-towpath-source");
/// The key of the request was made for it just now, and it is sent for the first time. Believed of managers alone.
pub(super) const FIRST_TRY: HeaderName = HeaderName::from_static("x-towpath-first-try");
/// A token that nobody has, for what makes one: so it is the same one however often the request is sent to owners. Believed of
/// managers alone.
pub(super) const SEED: HeaderName = HeaderName::from_static("x-towpath-seed");
/// W3C trace context.
pub(super) const TRACE: HeaderName = HeaderName::from_static("traceparent");

/// Marks a request that another manager has sent on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forwarded {
    /// How often it was sent on.
    pub(super) hops: u8,
    /// Nothing is begun after this.
    pub(super) until: Instant,
}

/// The token that a request made, if an owner to which it was sent has done it already.
#[derive(Debug, Clone)]
pub(super) struct Seed(pub(super) String);

/// Marks the answer that nothing was done, since somebody else owns it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NotMine;

/// What a try at an owner came to.
enum Try {
    Answer(Response),
    /// It could not be reached, or is not the owner; nothing is known to have been done.
    Elsewhere,
    /// No answer came in time; it may have been done.
    Silent,
    /// Work on it here.
    Here,
}

/// Sends changes to their owner, and does those that are this manager's own.
pub(super) async fn to_owner(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let core = &state.core;
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        return next.run(request).await;
    }
    let forwarded = request.extensions().get::<Forwarded>().copied();
    if forwarded.is_some_and(|forwarded| Instant::now() >= forwarded.until) {
        return not_mine();
    }
    // Without an owner, or too large for a message: it is this manager's own.
    let stays = !has_owner(&request) || is_large(request.headers());
    // What is sent again is compared with the first, whoever works on it.
    let keyed = request.headers().contains_key(IDEMPOTENCY_KEY) && !is_streamed(&request);
    let alone = stays || core.ownership.ring().members() == [core.manager];
    let early = find_resource(request.method(), request.uri(), None);
    let mine = alone || early.as_ref().is_some_and(|resource| core.ownership.is_mine(resource));
    if mine && !keyed {
        return run_here(core, request, next).await;
    }
    // The place first: what waits for one holds nothing in memory.
    let share = if mine { None } else { Some(state.forwards.take(&org_of_uri(request.uri()))) };
    if matches!(share, Some(None)) {
        return Problem::new(ErrorCode::Busy, "too many requests are on their way to other managers")
            .retry_after(Duration::from_secs(1))
            .into_response();
    }
    let (mut parts, body) = request.into_parts();
    let body = match read_body(body).await {
        Ok(body) => body,
        Err(problem) => return problem.into_response(),
    };
    if keyed {
        parts.extensions.insert(SentBody(body.clone()));
    }
    let resource = find_resource(&parts.method, &parts.uri, Some(&body));
    let here = |parts: Parts, body: Bytes| Request::from_parts(parts, Body::from(body));
    let (Some(resource), Ok(text)) = (resource, std::str::from_utf8(&body)) else {
        return run_here(core, here(parts, body), next).await;
    };
    if alone || core.ownership.is_mine(&resource) || text.len() > MOST_BYTES {
        drop(share);
        return run_here(core, here(parts, body), next).await;
    }
    if forwarded.is_some_and(|forwarded| forwarded.hops >= MAX_HOPS) {
        return not_mine();
    }
    let call = call_of(core, &parts, text, forwarded);
    let names = Names::of(&call);
    match deliver(core, &resource, call, forwarded, has_wait(&parts)).await {
        Ok(Some(response)) => response,
        Ok(None) => {
            drop(share);
            // An owner that was told may have done it before this manager became the owner.
            names.put(&mut parts, &body);
            run_here(core, here(parts, body), next).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// The whole body, which has to come in time.
async fn read_body(body: Body) -> Outcome<Bytes> {
    let limit = super::body::MAX_JSON;
    match tokio::time::timeout(super::body::PATIENCE, Limited::new(body, limit).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let detail = format!("a JSON body may have at most {limit} bytes");
            Err(Problem::new(ErrorCode::BodyTooLarge, detail))
        }
        Ok(Err(_)) => Err(Problem::new(ErrorCode::Malformed, "the body could not be read to its end")),
        Err(_) => Err(Problem::new(ErrorCode::ClientTimeout, "the body did not arrive in time")),
    }
}

/// The answer that nothing was done.
pub(super) fn not_mine() -> Response {
    let mut response = StatusCode::MISDIRECTED_REQUEST.into_response();
    response.extensions_mut().insert(NotMine);
    response
}

/// Runs the handler. What it writes counts only as long as this membership lasts.
async fn run_here(core: &Core, request: Request, next: Next) -> Response {
    match core.fence() {
        Some(fence) => core.acting(fence, next.run(request)).await,
        None => next.run(request).await,
    }
}

/// Tries owner after owner. `None` = it is to be worked on here.
///
/// A try whose answer does not come is made again, under the same key: the message may be lost, or its answer. Each waits
/// longer than the one before, so that an owner that is only slow is not flooded.
async fn deliver(
    core: &Core,
    resource: &str,
    mut call: ApiCall,
    forwarded: Option<Forwarded>,
    waits: bool,
) -> Outcome<Option<Response>> {
    let patience = Duration::from_millis(core.settings.evict_after_ms) + BEYOND_EVICTION;
    let longest = if waits { patience.max(WAITING) } else { patience };
    let started = Instant::now();
    let until = forwarded.map_or(started + longest, |forwarded| forwarded.until);
    let (mut ring, mut wait, mut silent) = (core.ownership.watch(), TRY, true);
    loop {
        ring.mark_unchanged();
        let owner = core.ownership.owner(resource);
        if owner == core.manager {
            return Ok(None);
        }
        // What an owner cannot read is done here: never sent in plain, nor read as something else.
        if call.sealed.is_some() && !core.reads_sealed(owner) {
            return Ok(None);
        }
        // An owner that was told and does not answer may be waiting for gateways; one that is not reached is not.
        let until = if silent { until } else { until.min(started + patience) };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(no_answer(owner));
        }
        call.deadline_ms = u64::try_from(left.as_millis()).unwrap_or_default();
        call.epoch = core.epoch();
        let tried = tokio::select! {
            tried = try_owner(core, owner, &call, wait.min(left)) => tried,
            // Who is no longer the owner will not, or must not, answer.
            _ = ring.wait_for(|ring| ring.owner(resource) != Some(owner)) => {
                forget_first(&mut call);
                continue;
            }
        };
        forget_first(&mut call);
        match tried {
            Try::Answer(response) => return Ok(Some(response)),
            Try::Here => return Ok(None),
            // The one that sent it here tries again when the ring has settled.
            Try::Elsewhere if forwarded.is_some() => return Ok(Some(not_mine())),
            Try::Silent => {
                wait *= 2;
                silent = true;
            }
            Try::Elsewhere => {
                silent = false;
                let pause = AGAIN.mul_f64(0.5 + fastrand::f64()).min(left);
                let changed = ring.wait_for(|ring| ring.owner(resource) != Some(owner));
                drop(tokio::time::timeout(pause, changed).await);
            }
        }
    }
}

/// What is sent again may have been done.
fn forget_first(call: &mut ApiCall) {
    call.headers.retain(|(name, _)| name != FIRST_TRY.as_str());
}

fn no_answer(owner: ManagerId) -> Problem {
    let detail = format!(
        "the manager that owns this ({}) does not answer; it may have been done or not",
        owner.short()
    );
    Problem::new(ErrorCode::StoreUnavailable, detail).retry_after(Duration::from_secs(1))
}

async fn try_owner(core: &Core, owner: ManagerId, call: &ApiCall, longest: Duration) -> Try {
    let payload = encode_at(call, core.protocol()).into();
    let reply = core.bus.request(&subject::service(SERVICE, owner), payload, longest).await;
    match reply.map(|payload| decode::<ApiReply>(&payload)) {
        Ok(Ok(ApiReply::Answer { status, headers, body })) => Try::Answer(response_of(status, headers, body)),
        // Without a bus there is no owner to be reached; conditions and fences in the store keep order.
        Err(BusError::Unreachable(_)) if *core.bus.state().borrow() == BusState::Down => Try::Here,
        Err(BusError::TooLarge(_)) => Try::Here,
        Err(BusError::Timeout { .. }) => Try::Silent,
        Ok(Ok(ApiReply::NotMine { .. }) | Err(_)) | Err(_) => Try::Elsewhere,
    }
}

/// By what a call is known however often, and wherever, it is worked on.
struct Names {
    key: Option<HeaderValue>,
    seed: Option<Seed>,
}

impl Names {
    fn of(call: &ApiCall) -> Self {
        let find = |wanted: &HeaderName| {
            call.headers.iter().find(|(name, _)| name == wanted.as_str()).map(|(_, value)| value.clone())
        };
        let key = find(&IDEMPOTENCY_KEY).and_then(|key| HeaderValue::try_from(key).ok());
        Self { key, seed: find(&SEED).map(Seed) }
    }

    /// Makes the request that is worked on here the one that was sent.
    fn put(self, parts: &mut Parts, body: &Bytes) {
        if let Some(key) = self.key {
            parts.headers.insert(IDEMPOTENCY_KEY, key);
            parts.extensions.insert(SentBody(body.clone()));
        }
        if let Some(seed) = self.seed {
            parts.extensions.insert(seed);
        }
    }
}

fn call_of(core: &Core, parts: &Parts, body: &str, forwarded: Option<Forwarded>) -> ApiCall {
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let mut headers: Vec<(String, String)> = SENT
        .iter()
        .filter_map(|name| Some((name.as_str().to_owned(), text(parts.headers.get(name)?))))
        .collect();
    let correlation = parts.headers.get(REQUEST_ID).map(text).unwrap_or_default();
    // Sent again to a new owner it is the same request.
    let key = parts.headers.get(IDEMPOTENCY_KEY).map(text).unwrap_or_else(|| {
        headers.push((FIRST_TRY.as_str().to_owned(), "1".to_owned()));
        format!("forwarded-{}", uuid::Uuid::new_v4().simple())
    });
    headers.push((IDEMPOTENCY_KEY.as_str().to_owned(), key));
    let source = super::trail::source_of(&parts.extensions, &parts.headers);
    if parts.uri.path().starts_with("/v1/tokens") {
        let seed = forwarded.and_then(|_| parts.headers.get(SEED)).map(text);
        let seed = seed.or_else(|| super::auth::mint().ok());
        headers.extend(seed.map(|seed| (SEED.as_str().to_owned(), seed)));
    }
    headers.extend(source.map(|source| (SOURCE.as_str().to_owned(), source)));
    let target = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let (body, sealed) = core.sealed_body(&target, body);
    ApiCall {
        epoch: core.epoch(),
        correlation,
        trace: parts.headers.get(TRACE).map(text),
        deadline_ms: 0,
        hops: forwarded.map_or(0, |forwarded| forwarded.hops) + 1,
        from: Some(core.manager),
        method: parts.method.to_string(),
        target,
        headers,
        body,
        sealed,
    }
}

fn response_of(status: u16, headers: Vec<(String, String)>, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

fn is_large(headers: &HeaderMap) -> bool {
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    length.is_some_and(|length| length > MOST_BYTES)
}

fn has_wait(parts: &Parts) -> bool {
    parts
        .uri
        .query()
        .is_some_and(|query| form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "wait"))
}

/// Uploads: their path says what is in them, and they do not fit into memory.
fn is_streamed(request: &Request) -> bool {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
    ["/v1/sources/", "/internal/"].iter().any(|start| path.starts_with(start))
}

/// Endpoints that change something which has an owner. Uploads, and what changes nothing, stay where they arrive.
fn has_owner(request: &Request) -> bool {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
    ["/v1/apps/", "/v1/lanes", "/v1/space", "/v1/routes", "/v1/tokens"]
        .iter()
        .any(|start| path.starts_with(start))
}

/// The name on the ring of what a request changes: the app, the space, the route's host, or the tokens. Names are decoded, as
/// handlers read them, so that every way to write one has the same owner. Without a body: if that can be told without.
fn find_resource(method: &Method, uri: &Uri, body: Option<&[u8]>) -> Option<String> {
    let first = SpaceRef::first();
    let org = find_query(uri, "org").unwrap_or_else(|| first.org.to_string());
    let space = find_query(uri, "space").unwrap_or_else(|| first.space.to_string());
    let mut segments = uri.path().split('/').skip(2).map(|segment| percent_decode_str(segment).decode_utf8());
    match &*segments.next()?.ok()? {
        "apps" => Some(format!("{org}/{space}/{}", segments.next()?.ok().filter(|app| !app.is_empty())?)),
        "lanes" | "space" => Some(format!("{org}/{space}")),
        "routes" => {
            let named = || {
                let read = serde_json::from_slice::<serde_json::Value>(body?).ok()?;
                Some(read.get("host")?.as_str()?.to_owned())
            };
            let host =
                if *method == Method::DELETE { find_query(uri, "host").or_else(named) } else { named() };
            Some(host?.trim_end_matches('.').to_ascii_lowercase())
        }
        "tokens" => Some("tokens".to_owned()),
        _ => None,
    }
}

fn find_query(uri: &Uri, wanted: &str) -> Option<String> {
    let mut query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    query.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
}

/// The org for whose sake a request comes.
fn org_of_uri(uri: &Uri) -> String {
    find_query(uri, "org").unwrap_or_else(|| SpaceRef::first().org.to_string())
}

/// Likewise, of a call.
pub(super) fn org_of(target: &str) -> String {
    target.parse().as_ref().map(org_of_uri).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(target: &str, body: &str) -> Option<String> {
        let (parts, ()) = http::Request::post(target).body(()).unwrap().into_parts();
        find_resource(&parts.method, &parts.uri, Some(body.as_bytes()))
    }

    #[test]
    fn a_route_that_goes_is_named_in_the_query() {
        let (parts, ()) = http::Request::delete("/v1/routes?host=A.%65xample").body(()).unwrap().into_parts();
        assert_eq!(find_resource(&parts.method, &parts.uri, None).as_deref(), Some("a.example"));
        let (parts, ()) = http::Request::put("/v1/routes").body(()).unwrap().into_parts();
        assert_eq!(find_resource(&parts.method, &parts.uri, None), None, "its body has to be read first");
    }

    #[test]
    fn changes_belong_to_the_owner_of_what_they_change() {
        for (target, body, expected) in [
            ("/v1/apps/shop/releases", "{}", Some("default/default/shop")),
            ("/v1/apps/shop?org=o&space=s", "", Some("o/s/shop")),
            ("/v1/apps/s%68op/env?org=%6f", "", Some("o/default/shop")),
            ("/v1/%61pps/shop", "", Some("default/default/shop")),
            ("/v1/apps/%ff", "", None),
            ("/v1/apps/shop/groups/base/restart", "", Some("default/default/shop")),
            ("/v1/lanes/x?space=s", "", Some("default/s")),
            ("/v1/space", "{}", Some("default/default")),
            ("/v1/routes", r#"{"host":"A.Example","path":"/"}"#, Some("a.example")),
            ("/v1/routes", r#"{"host":"a.example."}"#, Some("a.example")),
            ("/v1/routes", "no json", None),
            ("/v1/tokens/x", "", Some("tokens")),
            ("/v1/explain", "{}", None),
        ] {
            assert_eq!(resource(target, body).as_deref(), expected, "{target}");
        }
    }
}
