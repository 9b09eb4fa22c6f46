//! The authorization code flow: off to the provider, back with a code, a session, out again.

use super::super::jwt_auth::Token;
use super::provider::Found;
use super::session::{self, Pending, Session, attributes};
use super::{Cookies, OpenidConnect, Person, encoded, now_s, query};
use crate::plugins::{Answer, Request, Resume, Step};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, LOCATION, SET_COOKIE};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use towpath_resources::plugins::openid_connect::{Session as Settings, UnauthAction};

/// What the redirect path is when none is configured.
const SUFFIX: &str = "/.apisix/redirect";
/// Seconds for which a login may be under way.
const PENDING_S: u64 = 600;

/// The request as far as the flow needs it.
#[derive(Clone)]
struct Visit {
    /// `https://host`.
    origin: String,
    secure: bool,
    /// Path of the redirect URI, and the URI.
    back_path: String,
    back: String,
    /// Path and query of the request.
    uri: String,
}

fn random(bytes: usize) -> String {
    let mut random = vec![0; bytes];
    // Without randomness nothing can be sealed either.
    let _ = SystemRandom::new().fill(&mut random);
    URL_SAFE_NO_PAD.encode(random)
}

/// Leads the browser elsewhere.
fn lead(to: &str, cookies: Vec<HeaderValue>) -> Answer {
    let mut answer = Answer { status: 302, headers: Vec::new(), body: Some(Bytes::new()) }
        .with_text(LOCATION, to)
        .with(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer.headers.extend(cookies.into_iter().map(|cookie| (SET_COOKIE, cookie)));
    answer
}

impl OpenidConnect {
    fn visit(&self, request: &Request<'_>) -> Visit {
        let record = &request.record;
        let origin = format!("{}://{}", record.scheme(), String::from_utf8_lossy(record.host()));
        let path = record.uri.path();
        let (back_path, back) = match &self.config.redirect_uri {
            Some(uri) if uri.starts_with('/') => (uri.clone(), format!("{origin}{uri}")),
            Some(uri) => {
                let path = uri.parse::<http::Uri>().map(|uri| uri.path().to_owned());
                (path.unwrap_or_default(), uri.clone())
            }
            None => {
                let path = path.strip_suffix(SUFFIX).unwrap_or(path);
                (format!("{path}{SUFFIX}"), format!("{origin}{path}{SUFFIX}"))
            }
        };
        let uri = record.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        Visit { secure: record.scheme() == "https", origin, back_path, back, uri }
    }

    /// The request of a browser.
    pub(super) fn by_session(self: &Arc<Self>, request: &mut Request<'_>) -> Step {
        let (Some(settings), Some(sealer)) = (&self.config.session, &self.sealer) else {
            return Step::answer(Answer::status(500));
        };
        let visit = self.visit(request);
        let name = &settings.cookie_name;
        let held = session::joined(request.headers, name);
        let known = held.and_then(|text| sealer.open::<Session>("session", &text));
        let now = now_s();
        let known = known.filter(|known| {
            now < known.begun.saturating_add(settings.absolute_timeout)
                && now < known.seen.saturating_add(settings.idling_timeout)
        });
        let path = request.record.uri.path();
        if path == visit.back_path && self.argument(request, "state").is_some() {
            return self.comes_back(request, visit, settings);
        }
        if path == self.config.logout_path {
            return self.leaves(known, visit);
        }
        session::hide(request.headers, name);
        match known {
            Some(known) if known.access_ends == 0 || now < known.access_ends => {
                self.greet(known, &visit, settings, request)
            }
            Some(known) if known.refresh.is_some() && self.config.renew_access_token_on_expiry => {
                self.renew(known, visit)
            }
            _ => self.stranger(visit),
        }
    }

    fn argument(&self, request: &Request<'_>, name: &str) -> Option<String> {
        request.vars().argument(name).map(std::borrow::Cow::into_owned)
    }

    /// Somebody who is known.
    fn greet(
        &self,
        mut known: Session,
        visit: &Visit,
        settings: &Settings,
        request: &mut Request<'_>,
    ) -> Step {
        let now = now_s();
        // Each request need not write the cookie anew.
        if now.saturating_sub(known.seen) >= settings.idling_timeout / 4 {
            known.seen = now;
            self.keep(&known, visit, settings, request);
        }
        let id = Some(known.id).filter(|id| !id.is_null());
        let Session { user, raw, access, refresh, .. } = known;
        self.attach(Person { user, id, raw, access, refresh }, request);
        Step::Next
    }

    /// The response carries the session.
    fn keep(&self, known: &Session, visit: &Visit, settings: &Settings, request: &mut Request<'_>) {
        let sealed = self.sealer.as_ref().and_then(|sealer| sealer.seal("session", known));
        if let Some(sealed) = sealed {
            let cookies = session::set(settings, visit.secure, Some(&sealed));
            request.running().note(self, Cookies(cookies));
        }
    }

    /// Somebody who is not known.
    fn stranger(self: &Arc<Self>, visit: Visit) -> Step {
        match self.config.unauth_action {
            UnauthAction::Pass => return Step::Next,
            UnauthAction::Deny => return Step::answer(self.refuse(401, "", "")),
            UnauthAction::Auth => {}
        }
        let this = self.clone();
        Step::Wait(Box::pin(async move {
            let answer = match this.provider.found(&this.asking()).await {
                Ok(found) => this.send_away(&found, &visit),
                Err(error) => this.fails("discovery", &error),
            };
            Box::new(move |_: &mut Request<'_>| Step::answer(answer)) as Resume
        }))
    }

    fn send_away(&self, found: &Found, visit: &Visit) -> Answer {
        let (Some(to), Some(settings), Some(sealer)) =
            (&found.authorization_endpoint, &self.config.session, &self.sealer)
        else {
            return self.fails("login", &std::io::Error::other("it has no authorization_endpoint"));
        };
        let pending = Pending {
            state: random(24),
            nonce: random(24),
            verifier: self.config.use_pkce.then(|| random(48)),
            // More than one slash at the front would name another host.
            uri: format!("/{}", visit.uri.trim_start_matches(['/', '\\'])),
            begun: now_s(),
        };
        let challenge =
            pending.verifier.as_ref().map(|verifier| URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)));
        let mut pairs = vec![
            ("response_type", "code"),
            ("client_id", self.config.client_id.as_str()),
            ("scope", self.config.scope.as_str()),
            ("redirect_uri", visit.back.as_str()),
            ("state", pending.state.as_str()),
            ("nonce", pending.nonce.as_str()),
        ];
        if let Some(challenge) = &challenge {
            pairs.extend([("code_challenge", challenge.as_str()), ("code_challenge_method", "S256")]);
        }
        let more = &self.config.authorization_params;
        pairs.extend(more.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let separator = if to.contains('?') { '&' } else { '?' };
        let Some(sealed) = sealer.seal("login", &pending) else { return Answer::status(500) };
        // Sent to the redirect path alone, one for each login under way.
        let cookie = format!(
            "{}={sealed}; Max-Age={PENDING_S}{}",
            pending_name(settings, &pending.state),
            attributes(settings, visit.secure, &visit.back_path)
        );
        lead(
            &format!("{to}{separator}{}", query(pairs)),
            HeaderValue::from_str(&cookie).into_iter().collect(),
        )
    }

    /// The provider has sent the browser back.
    fn comes_back(self: &Arc<Self>, request: &mut Request<'_>, visit: Visit, settings: &Settings) -> Step {
        let state = self.argument(request, "state").unwrap_or_default();
        let name = pending_name(settings, &state);
        let pending = session::cookie(request.headers, &name)
            .and_then(|text| self.sealer.as_ref()?.open::<Pending>("login", text))
            .filter(|pending| pending.state == state && now_s() < pending.begun + PENDING_S);
        let Some(pending) = pending else {
            return Step::answer(Answer::message(400, "this login was not begun here, or too long ago"));
        };
        if let Some(error) = self.argument(request, "error") {
            let why = format!("the identity provider refused the login: {error}");
            return Step::answer(Answer::message(401, &why));
        }
        let Some(code) = self.argument(request, "code") else {
            return Step::answer(Answer::message(400, "there is no code"));
        };
        let this = self.clone();
        Step::Wait(Box::pin(async move {
            let answer = match this.log_in(&code, &pending, &visit).await {
                Ok(cookies) => lead(&pending.uri, cookies),
                Err(answer) => answer,
            };
            Box::new(move |_: &mut Request<'_>| Step::answer(answer)) as Resume
        }))
    }

    async fn log_in(&self, code: &str, pending: &Pending, visit: &Visit) -> Result<Vec<HeaderValue>, Answer> {
        let asking = self.asking();
        let found = self.provider.found(&asking).await.map_err(|error| self.fails("discovery", &error))?;
        let mut form =
            vec![("grant_type", "authorization_code"), ("code", code), ("redirect_uri", &visit.back)];
        form.extend(pending.verifier.as_ref().map(|verifier| ("code_verifier", verifier.as_str())));
        let tokens = self.tokens(&found, &form).await?;
        let known = self.session_of(&tokens, &found, Some(&pending.nonce), None).await?;
        let (Some(settings), Some(sealer)) = (&self.config.session, &self.sealer) else {
            return Err(Answer::status(500));
        };
        let sealed = sealer.seal("session", &known).ok_or_else(|| Answer::status(500))?;
        let mut cookies = session::set(settings, visit.secure, Some(&sealed));
        let ended = format!(
            "{}=; Max-Age=0{}",
            pending_name(settings, &pending.state),
            attributes(settings, visit.secure, &visit.back_path)
        );
        cookies.extend(HeaderValue::from_str(&ended));
        Ok(cookies)
    }

    async fn tokens(&self, found: &Found, form: &[(&str, &str)]) -> Result<Value, Answer> {
        let missing = || self.fails("tokens", &std::io::Error::other("it has no token_endpoint"));
        let url = found.token_endpoint.as_deref().ok_or_else(missing)?;
        let tokens = self.asking().post(url, form, self.config.token_endpoint_auth_method).await;
        tokens.map_err(|error| {
            tracing::info!(provider = %self.config.discovery, %error, "no tokens for a code");
            Answer::message(401, "the identity provider gave no tokens")
        })
    }

    /// The session that tokens make; `before` = the one that they renew.
    async fn session_of(
        &self,
        tokens: &Value,
        found: &Found,
        nonce: Option<&str>,
        before: Option<Session>,
    ) -> Result<Session, Answer> {
        let text = |name: &str| tokens.get(name).and_then(Value::as_str).map(str::to_owned);
        let raw = text("id_token");
        let id = match (&raw, &before) {
            (Some(raw), _) => self.identity(raw, nonce).await.map_err(|why| {
                Answer::message(401, &format!("the identity provider's ID token is not good: {why}"))
            })?,
            (None, Some(before)) => before.id.clone(),
            (None, None) => return Err(Answer::message(401, "the identity provider gave no ID token")),
        };
        let access = text("access_token");
        // A JWT's own scopes, else what came with it.
        let own = access.as_deref().and_then(Token::read).map(|token| token.claims);
        let own = own.filter(|claims| claims.get("scope").is_some() || claims.get("scp").is_some());
        let scopes =
            own.unwrap_or_else(|| if tokens.get("scope").is_some() { tokens.clone() } else { id.clone() });
        if self.lacks_scope(&scopes) {
            return Err(self.refuse(403, "insufficient_scope", "required scopes are missing"));
        }
        let user = match (&found.userinfo_endpoint, &access) {
            (Some(url), Some(token)) if self.config.set_userinfo_header => {
                let user = self.asking().get(url, Some(token)).await;
                let user = user.map_err(|error| self.fails("userinfo", &error))?;
                // OpenID Connect Core 5.3.2: it has to be about the same person.
                if user.get("sub") != id.get("sub") {
                    return Err(Answer::message(401, "the identity provider speaks of somebody else"));
                }
                user
            }
            _ => Value::Null,
        };
        let now = now_s();
        let lasts = tokens.get("expires_in").and_then(Value::as_u64);
        Ok(Session {
            user,
            id,
            raw: raw.filter(|_| self.config.set_raw_id_token_header),
            access,
            refresh: text("refresh_token").or_else(|| before.as_ref()?.refresh.clone()),
            access_ends: lasts.map_or(0, |lasts| now.saturating_add(lasts)),
            begun: before.as_ref().map_or(now, |before| before.begun),
            seen: now,
        })
    }

    /// The claims of an ID token that is good.
    async fn identity(&self, raw: &str, nonce: Option<&str>) -> Result<Value, &'static str> {
        let token = Token::read(raw).ok_or("it is no JWT")?;
        self.check_algorithm(&token)?;
        match self.provider.has_signed(&token, &self.asking()).await {
            Ok(true) => {}
            Ok(false) => return Err("its signature is not good"),
            Err(_) => return Err("the provider's keys cannot be had"),
        }
        self.check_claims(&token.claims, true).await?;
        let shown = token.claims.get("nonce").and_then(Value::as_str);
        if nonce.is_some() && shown != nonce {
            return Err("its nonce is another");
        }
        Ok(token.claims)
    }

    /// An access token that is over is renewed; where that fails a login begins.
    fn renew(self: &Arc<Self>, known: Session, visit: Visit) -> Step {
        let this = self.clone();
        Step::Wait(Box::pin(async move {
            let renewed = this.renewed(known).await;
            Box::new(move |request: &mut Request<'_>| match (renewed, &this.config.session) {
                (Some(known), Some(settings)) => {
                    this.keep(&known, &visit, settings, request);
                    this.greet(known, &visit, settings, request)
                }
                _ => this.stranger(visit),
            }) as Resume
        }))
    }

    async fn renewed(&self, known: Session) -> Option<Session> {
        let found = self.provider.found(&self.asking()).await.ok()?;
        let refresh = known.refresh.clone()?;
        let form = [("grant_type", "refresh_token"), ("refresh_token", refresh.as_str())];
        let tokens = self.tokens(&found, &form).await.ok()?;
        self.session_of(&tokens, &found, None, Some(known)).await.ok()
    }

    /// The session ends.
    fn leaves(self: &Arc<Self>, known: Option<Session>, visit: Visit) -> Step {
        let this = self.clone();
        Step::Wait(Box::pin(async move {
            let found = this.provider.found(&this.asking()).await.ok();
            let end = found.and_then(|found| found.end_session_endpoint.clone());
            let cookies = match &this.config.session {
                Some(settings) => session::set(settings, visit.secure, None),
                None => Vec::new(),
            };
            let after =
                this.config.post_logout_redirect_uri.as_ref().map(|uri| {
                    if uri.starts_with('/') { format!("{}{uri}", visit.origin) } else { uri.clone() }
                });
            let answer = match (end, after) {
                (Some(end), after) => {
                    let mut pairs = vec![format!("client_id={}", encoded(&this.config.client_id))];
                    let raw = known.and_then(|known| known.raw);
                    pairs.extend(raw.map(|raw| format!("id_token_hint={}", encoded(&raw))));
                    pairs.extend(after.map(|uri| format!("post_logout_redirect_uri={}", encoded(&uri))));
                    let separator = if end.contains('?') { '&' } else { '?' };
                    lead(&format!("{end}{separator}{}", pairs.join("&")), cookies)
                }
                (None, Some(after)) => lead(&after, cookies),
                (None, None) => {
                    let mut answer = Answer::text(200, "Logged out\n");
                    answer.headers.extend(cookies.into_iter().map(|cookie| (SET_COOKIE, cookie)));
                    answer
                }
            };
            Box::new(move |_: &mut Request<'_>| Step::answer(answer)) as Resume
        }))
    }
}

fn pending_name(settings: &Settings, state: &str) -> String {
    let short: String = state.chars().filter(|c| c.is_ascii_alphanumeric()).take(8).collect();
    format!("{}_login_{short}", settings.cookie_name)
}
