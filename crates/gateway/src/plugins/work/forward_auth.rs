//! `forward-auth`: a service of yours is asked whether the request may pass.

use super::headers::value;
use super::outbound::{self, Place};
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Resume, Step};
use crate::upstream::request_body::ClientBody;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName};
use http_body_util::Full;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::plugins::forward_auth::{Config, Method};
use towpath_route::vars::Template;

/// See the module.
pub(in crate::plugins) struct ForwardAuth {
    config: Arc<Config>,
    place: Option<Place>,
    extra: Vec<(HeaderName, Template)>,
    asked: Vec<HeaderName>,
    to_upstream: Vec<HeaderName>,
    to_client: Vec<HeaderName>,
}

/// Longest answer of the service that is passed on.
const LONGEST: u64 = 1 << 20;
/// Longest wait for a body that is sent along.
const BODY_TIME: Duration = Duration::from_secs(60);

/// What came of asking.
enum Asked {
    Answered { status: u16, headers: HeaderMap, body: Bytes },
    TooLarge,
    Failed(io::Error),
}

impl ForwardAuth {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        let name = |text: &String| HeaderName::from_bytes(text.as_bytes()).ok();
        let names = |texts: &[String]| texts.iter().filter_map(name).collect();
        let extra = config.extra_headers.iter().flatten();
        Self {
            place: Place::read(&config.uri),
            extra: extra.filter_map(|(key, text)| Some((name(key)?, Template::new(text)))).collect(),
            asked: names(&config.request_headers),
            to_upstream: names(&config.upstream_headers),
            to_client: names(&config.client_headers),
            config: config.clone(),
        }
    }

    fn headers(&self, request: &Request<'_>) -> HeaderMap {
        let (vars, record) = (request.vars(), &request.record);
        let uri = record.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let host = String::from_utf8_lossy(record.host()).into_owned();
        let client = record.client().to_string();
        let told = [
            ("x-forwarded-proto", record.scheme()),
            ("x-forwarded-method", record.method.as_str()),
            ("x-forwarded-host", host.as_str()),
            ("x-forwarded-uri", uri),
            ("x-forwarded-for", client.as_str()),
        ];
        let mut headers = HeaderMap::new();
        for (name, text) in told {
            value(text).map(|value| headers.insert(HeaderName::from_static(name), value));
        }
        for (name, template) in &self.extra {
            value(&vars.fill(template).0).map(|value| headers.insert(name.clone(), value));
        }
        let body = self.config.request_method == Method::Post;
        let along = [CONTENT_ENCODING, CONTENT_TYPE];
        for name in self.asked.iter().chain(along.iter().filter(|_| body)) {
            if let Some(value) = request.headers.get(name).filter(|_| !headers.contains_key(name)) {
                headers.insert(name.clone(), value.clone());
            }
        }
        headers
    }

    /// What the service has said goes on to the upstream; what the client says in its place does not.
    fn tell(&self, request: &mut Request<'_>, headers: &HeaderMap) {
        request.running().written.extend(self.to_upstream.iter().cloned());
        for name in &self.to_upstream {
            request.headers.remove(name);
            for value in headers.get_all(name) {
                request.headers.append(name.clone(), value.clone());
            }
        }
    }

    fn judge(&self, asked: Asked, request: &mut Request<'_>) -> Step {
        match asked {
            Asked::TooLarge => Step::answer(Answer::status(413)),
            Asked::Failed(error) => {
                tracing::warn!(uri = %self.config.uri, %error, "an authorization service cannot be asked");
                if self.config.allow_degradation {
                    // Nobody has said what stands in these, the client least of all.
                    self.tell(request, &HeaderMap::new());
                    return Step::Next;
                }
                Step::answer(Answer::status(self.config.status_on_error))
            }
            Asked::Answered { status, headers, body } if status >= 300 => {
                let mut answer = Answer { status, headers: Vec::new(), body: Some(body) };
                for name in self.to_client.iter().chain([&CONTENT_TYPE]) {
                    let values = headers.get_all(name).iter().map(|value| (name.clone(), value.clone()));
                    if answer.headers.iter().all(|(known, _)| known != name) {
                        answer.headers.extend(values);
                    }
                }
                Step::answer(answer)
            }
            Asked::Answered { headers, .. } => {
                self.tell(request, &headers);
                Step::Next
            }
        }
    }
}

async fn ask(place: &Place, headers: HeaderMap, config: &Config, body: Bytes) -> io::Result<Asked> {
    let method = if config.request_method == Method::Post { "POST" } else { "GET" };
    let mut request = http::Request::builder()
        .method(method)
        .uri(place.target.as_str())
        .body(Full::new(body))
        .map_err(io::Error::other)?;
    *request.headers_mut() = headers;
    value(&place.authority).map(|host| request.headers_mut().insert(HOST, host));
    let answer = outbound::send(place, request, config.ssl_verify).await?;
    let (head, body) = answer.into_parts();
    let body = outbound::read_up_to(body, LONGEST).await?.unwrap_or_default();
    Ok(Asked::Answered { status: head.status.as_u16(), headers: head.headers, body })
}

impl Plugin for Arc<ForwardAuth> {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        let Some(place) = self.place.clone() else { return Step::answer(Answer::status(500)) };
        let (headers, plugin) = (self.headers(request), self.clone());
        let sends = self.config.request_method == Method::Post;
        let body = if sends { request.body.take() } else { None };
        Step::Wait(Box::pin(async move {
            let mut kept = None;
            if let Some(body) = body {
                let read = outbound::read_up_to(body, plugin.config.max_req_body_size);
                kept = match tokio::time::timeout(BODY_TIME, read).await {
                    Ok(Ok(Some(body))) => Some(body),
                    Ok(Ok(None)) => {
                        return Box::new(move |request: &mut Request<'_>| {
                            plugin.judge(Asked::TooLarge, request)
                        }) as Resume;
                    }
                    _ => return Box::new(|_: &mut Request<'_>| Step::answer(Answer::status(400))) as Resume,
                };
            }
            let time = Duration::from_millis(plugin.config.timeout);
            let asking = ask(&place, headers, &plugin.config, kept.clone().unwrap_or_default());
            let asked = match tokio::time::timeout(time, asking).await {
                Ok(asked) => asked.unwrap_or_else(Asked::Failed),
                Err(_) => Asked::Failed(io::ErrorKind::TimedOut.into()),
            };
            Box::new(move |request: &mut Request<'_>| {
                if let Some(kept) = kept {
                    *request.body = Some(ClientBody::Held(kept));
                }
                plugin.judge(asked, request)
            }) as Resume
        }))
    }
}
