//! The client of the HTTP API: small, on hyper alone, a connection for each request.

mod address;
mod connect;
mod events;
mod problem;
mod tls;
mod token;
pub(crate) mod view;

pub(crate) use address::Address;
pub(crate) use events::{Event, Events};
pub(crate) use token::{Token, find_token};

use crate::exit::{Exit, Failure, Outcome};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{Method, Request, Response, StatusCode, body::Incoming};
use serde_json::Value;
use std::time::Duration;

/// A request body: in memory, or streamed.
pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Longest wait for a response head of an ordinary call.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest answer that is kept in memory.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// Where calls go, and as whom.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    address: Address,
    token: Token,
    org: Option<String>,
    space: Option<String>,
}

/// Org and space when none was chosen.
const DEFAULT: &str = "default";

impl Api {
    /// A client.
    pub(crate) fn new(address: Address, token: Token, org: Option<String>, space: Option<String>) -> Self {
        Self { address, token, org, space }
    }

    /// The base URL.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The same API, elsewhere in it.
    pub(crate) fn in_place(&self, org: &str, space: &str) -> Self {
        Self { org: Some(org.to_owned()), space: Some(space.to_owned()), ..self.clone() }
    }

    /// The same API, as whoever has this token.
    pub(crate) fn with_token(&self, token: Token) -> Self {
        Self { token, ..self.clone() }
    }

    /// The org.
    pub(crate) fn org(&self) -> &str {
        self.org.as_deref().unwrap_or(DEFAULT)
    }

    /// `org/space`.
    pub(crate) fn space(&self) -> String {
        format!("{}/{}", self.org(), self.space.as_deref().unwrap_or(DEFAULT))
    }

    /// GET of a JSON document.
    pub(crate) async fn get(&self, path: &str) -> Outcome<Value> {
        self.call(Method::GET, path, None).await
    }

    /// All items of a paged list.
    pub(crate) async fn list(&self, path: &str) -> Outcome<Vec<Value>> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let separator = if path.contains('?') { '&' } else { '?' };
            let page = match &cursor {
                None => self.get(path).await?,
                Some(cursor) => self.get(&format!("{path}{separator}cursor={}", encode(cursor))).await?,
            };
            if let Some(Value::Array(found)) = page.get("items") {
                items.extend(found.iter().cloned());
            }
            match page.get("next").and_then(Value::as_str) {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok(items),
            }
        }
    }

    /// A call with a JSON body (or none) and a JSON answer ([`Value::Null`] for none).
    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Outcome<Value> {
        let bytes = match body {
            None => Bytes::new(),
            Some(value) => Bytes::from(value.to_string()),
        };
        let content = body.map(|_| "application/json");
        let response = self.send(method, path, content, in_memory(bytes), CALL_TIMEOUT).await?;
        read_json(response).await
    }

    /// PUT of a JSON document that makes something; a conflict when it is there already.
    pub(crate) async fn create(&self, path: &str, body: &Value) -> Outcome<Value> {
        let bytes = Bytes::from(body.to_string());
        let mut request = self.request(Method::PUT, path, Some("application/json"), in_memory(bytes))?;
        request.headers_mut().insert("if-none-match", http::HeaderValue::from_static("*"));
        read_json(self.answer(request, CALL_TIMEOUT).await?).await
    }

    /// Whether a resource is there, by HEAD.
    pub(crate) async fn exists(&self, path: &str) -> Outcome<bool> {
        let request = self.request(Method::HEAD, path, None, in_memory(Bytes::new()))?;
        let response = connect::send(&self.address, request, CALL_TIMEOUT).await?;
        match response.status() {
            StatusCode::NOT_FOUND => Ok(false),
            status if status.is_success() => Ok(true),
            // An answer to HEAD has no body that would say more; the same by GET of a plain resource does.
            _ => Err(problem::of_response(response, self.asked()).await),
        }
    }

    /// PUT of a streamed body.
    pub(crate) async fn upload(&self, path: &str, body: Body) -> Outcome<Value> {
        let timeout = Duration::from_secs(24 * 3600);
        let response = self.send(Method::PUT, path, Some("application/zstd"), body, timeout).await?;
        read_json(response).await
    }

    /// A stream of server-sent events. `after` continues behind an event.
    pub(crate) async fn events(&self, path: &str, after: Option<&str>) -> Outcome<Events> {
        let mut request = self.request(Method::GET, path, None, in_memory(Bytes::new()))?;
        let headers = request.headers_mut();
        headers.insert("accept", http::HeaderValue::from_static("text/event-stream"));
        if let Some(id) = after.and_then(|id| http::HeaderValue::from_str(id).ok()) {
            headers.insert("last-event-id", id);
        }
        let response = connect::send(&self.address, request, CALL_TIMEOUT).await?;
        if !response.status().is_success() {
            return Err(problem::of_response(response, self.asked()).await);
        }
        Ok(Events::new(response.into_body()))
    }

    /// What a failure has to know of the request.
    fn asked(&self) -> problem::Asked<'_> {
        problem::Asked { address: &self.address, token: &self.token }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content: Option<&'static str>,
        body: Body,
        timeout: Duration,
    ) -> Outcome<Response<Incoming>> {
        self.answer(self.request(method, path, content, body)?, timeout).await
    }

    /// The answer, if it is a good one.
    async fn answer(&self, request: Request<Body>, timeout: Duration) -> Outcome<Response<Incoming>> {
        let response = connect::send(&self.address, request, timeout).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(problem::of_response(response, self.asked()).await)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        content: Option<&'static str>,
        body: Body,
    ) -> Outcome<Request<Body>> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let scope = match &self.org {
            _ if in_space(path) => {
                let space = self.space.as_deref().unwrap_or(DEFAULT);
                format!("{separator}org={}&space={}", encode(self.org()), encode(space))
            }
            // Whose org was not chosen gets what the API gives by itself: operators get every org's.
            Some(org) if in_org(path) => format!("{separator}org={}", encode(org)),
            _ => String::new(),
        };
        let mut builder = Request::builder()
            .method(method)
            .uri(format!("{}{path}{scope}", self.address.path()))
            .header("host", self.address.authority())
            .header("user-agent", concat!("towpath/", env!("CARGO_PKG_VERSION")));
        if let Some(content) = content {
            builder = builder.header("content-type", content);
        }
        if let Some(token) = &self.token.text {
            builder = builder.header("authorization", format!("Bearer {token}"));
        }
        builder.body(body).map_err(|_| {
            Failure::hinted(
                Exit::Usage,
                "the token or a name in the request has characters that HTTP cannot carry",
                "check --token, TOWPATH_TOKEN or the token file",
            )
        })
    }
}

/// Whether a path's resource lies in a space. The API refuses the parameters elsewhere.
fn in_space(path: &str) -> bool {
    ["/v1/apps", "/v1/instances", "/v1/routes", "/v1/lanes", "/v1/space", "/v1/sources", "/v1/managers/owner"]
        .iter()
        .any(|top| path.starts_with(top))
}

/// Whether a path's resource lies in an org.
fn in_org(path: &str) -> bool {
    ["/v1/tokens", "/v1/audit"].iter().any(|top| path.starts_with(top))
}

/// A body in memory.
fn in_memory(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

async fn read_json(response: Response<Incoming>) -> Outcome<Value> {
    let bytes = read_all(response.into_body()).await?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(|_| {
        Failure::hinted(
            Exit::Failed,
            "the answer is not JSON",
            "is the address that of a Towpath API? see --api",
        )
    })
}

async fn read_all(body: Incoming) -> Outcome<Bytes> {
    let limited = http_body_util::Limited::new(body, MAX_ANSWER);
    match limited.collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) => Err(Failure::new(Exit::Unreachable, format!("the answer broke off: {error}"))),
    }
}

/// Text as it may stand in a path segment or a query value.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}
