//! `openid-connect`: who asks is known to an OpenID provider, by a session of the browser (authorization code flow) or by a
//! bearer token (introspection, or a signature of the provider's keys).

mod bearer;
mod keys;
mod login;
mod provider;
mod session;

use super::headers::value;
use crate::clock;
use crate::plugins::make::Scope;
use crate::plugins::{Answer, Phase, Phases, Plugin, Reply, Request, Resume, Step};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue, SET_COOKIE, WWW_AUTHENTICATE};
use keys::PublicKey;
use provider::{Asking, Provider};
use serde_json::Value;
use session::Sealer;
use std::sync::Arc;
use towpath_resources::plugins::openid_connect::{Config, UnauthAction};

const ACCESS: HeaderName = HeaderName::from_static("x-access-token");
const ID: HeaderName = HeaderName::from_static("x-id-token");
const RAW_ID: HeaderName = HeaderName::from_static("x-raw-id-token");
const USER: HeaderName = HeaderName::from_static("x-userinfo");
const REFRESH: HeaderName = HeaderName::from_static("x-refresh-token");

/// See the module.
pub(in crate::plugins) struct OpenidConnect {
    config: Arc<Config>,
    provider: Arc<Provider>,
    sealer: Option<Sealer>,
    public_key: Option<PublicKey>,
    introspected: Arc<bearer::Introspected>,
}

/// Who was found to ask, for the upstream's headers.
#[derive(Default)]
struct Person {
    user: Value,
    id: Option<Value>,
    raw: Option<String>,
    access: Option<String>,
    refresh: Option<String>,
}

impl OpenidConnect {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let states = &scope.plugins.states;
        let now = clock::now_ns();
        let name = format!("openid {} {}", config.discovery, config.ssl_verify);
        let own = format!("{}/openid-connect/{}", scope.from, config.client_id);
        Self {
            provider: states.kept(&name, now, Provider::default),
            introspected: states.kept(&own, now, bearer::Introspected::default),
            sealer: config.session.as_ref().and_then(|session| Sealer::new(&session.secret, &whose(config))),
            public_key: config.public_key.as_deref().and_then(PublicKey::of_pem),
            config: config.clone(),
        }
    }

    fn asking(&self) -> Asking<'_> {
        Asking(&self.config)
    }

    /// The request is this person's, and the upstream is told so.
    fn attach(&self, person: Person, request: &mut Request<'_>) {
        let config = &self.config;
        let json = |value: &Value| STANDARD.encode(value.to_string());
        let access = person.access.as_deref().filter(|_| config.set_access_token_header);
        let in_authorization = config.access_token_in_authorization_header;
        let told = [
            (ACCESS, access.filter(|_| !in_authorization).map(str::to_owned)),
            (AUTHORIZATION, access.filter(|_| in_authorization).map(|token| format!("Bearer {token}"))),
            (ID, person.id.as_ref().filter(|_| config.set_id_token_header).map(json)),
            (RAW_ID, person.raw.filter(|_| config.set_raw_id_token_header)),
            (USER, (config.set_userinfo_header && !person.user.is_null()).then(|| json(&person.user))),
            (REFRESH, person.refresh.filter(|_| config.set_refresh_token_header)),
        ];
        for (name, text) in told {
            if let Some(value) = text.as_deref().and_then(value) {
                request.headers.insert(name, value);
            }
        }
        let mut user = person.user;
        if let (Value::Object(user), Some(Value::Object(id))) = (&mut user, person.id) {
            for (name, value) in id {
                user.entry(name).or_insert(value);
            }
        }
        request.running().user = Some(user);
    }

    /// A refusal that says what is wrong with a token (RFC 6750, 3).
    fn refuse(&self, status: u16, error: &str, why: &str) -> Answer {
        let realm = &self.config.realm;
        let challenge = match error {
            "" => format!("Bearer realm=\"{realm}\""),
            _ => format!("Bearer realm=\"{realm}\", error=\"{error}\", error_description=\"{why}\""),
        };
        let message = if why.is_empty() { "Missing authentication." } else { why };
        Answer::message(status, message).with_text(WWW_AUTHENTICATE, &challenge)
    }

    /// The scopes that are required and not there.
    fn lacks_scope(&self, claims: &Value) -> bool {
        let granted: Vec<&str> = match claims.get("scope").or_else(|| claims.get("scp")) {
            Some(Value::String(text)) => text.split_ascii_whitespace().collect(),
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        self.config.required_scopes.iter().flatten().any(|wanted| !granted.contains(&wanted.as_str()))
    }

    /// Something cannot be asked of the provider.
    fn fails(&self, what: &str, error: &std::io::Error) -> Answer {
        tracing::warn!(provider = %self.config.discovery, what, %error, "an OpenID provider cannot be asked");
        Answer::message(503, "the identity provider cannot be asked")
    }
}

/// What routes have to have in common for a session of one to be good for the other.
fn whose(config: &Config) -> Vec<u8> {
    let mut scopes: Vec<&String> = config.required_scopes.iter().flatten().collect();
    scopes.sort_unstable();
    scopes.dedup();
    serde_json::json!([config.discovery, config.client_id, scopes]).to_string().into_bytes()
}

/// Seconds since 1970.
fn now_s() -> u64 {
    clock::unix_ms() / 1000
}

/// As a part of a query or a form.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A query or a form.
fn query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let pairs: Vec<String> =
        pairs.into_iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    pairs.join("&")
}

/// Cookies that the response gets.
struct Cookies(Vec<HeaderValue>);

impl Plugin for Arc<OpenidConnect> {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Rewrite, Phase::ResponseHead])
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        let token = bearer::token(request.headers);
        for name in [ACCESS, ID, RAW_ID, USER, REFRESH] {
            request.headers.remove(&name);
            request.running().written.push(name);
        }
        let config = &self.config;
        let takes_tokens = config.bearer_only
            || config.introspection_endpoint.is_some()
            || self.public_key.is_some()
            || config.use_jwks;
        if let Some(token) = token.filter(|_| takes_tokens) {
            let this = self.clone();
            return Step::Wait(Box::pin(async move {
                let judged = this.judge(&token).await;
                Box::new(move |request: &mut Request<'_>| match judged {
                    Ok(claims) => {
                        let person = Person { user: claims, access: Some(token), ..Person::default() };
                        this.attach(person, request);
                        Step::Next
                    }
                    Err(_) if this.config.unauth_action == UnauthAction::Pass => Step::Next,
                    Err(answer) => Step::answer(answer),
                }) as Resume
            }));
        }
        match (config.bearer_only, config.unauth_action) {
            (true, UnauthAction::Pass) => Step::Next,
            (true, _) => Step::answer(self.refuse(401, "", "")),
            (false, _) => self.by_session(request),
        }
    }

    fn response_head(&self, reply: &mut Reply<'_>) {
        let cookies =
            reply.record.running.as_mut().and_then(|running| running.noted::<OpenidConnect, Cookies>(self));
        for cookie in cookies.map(|cookies| std::mem::take(&mut cookies.0)).unwrap_or_default() {
            reply.headers.append(SET_COOKIE, cookie);
        }
    }
}
