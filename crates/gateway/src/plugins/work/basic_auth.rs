//! `basic-auth`: user name and password tell who the consumer is.

use super::auth;
use crate::plugins::program::Known;
use crate::plugins::{Phase, Phases, Plugin, Request, Step};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use std::sync::Arc;
use towpath_resources::plugins::basic_auth::{Config, Credential};

/// See the module.
pub(in crate::plugins) struct BasicAuth(Arc<Config>);

impl BasicAuth {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self(config.clone())
    }
}

/// Who asks, if the password is right; else why not.
fn find(request: &mut Request<'_>) -> Result<Known<Credential>, &'static str> {
    let value = request.headers.get(AUTHORIZATION).ok_or("Missing authorization in request")?;
    let invalid = "Invalid authorization in request";
    let (scheme, code) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(invalid)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(invalid);
    }
    let decoded = STANDARD.decode(code.trim()).map_err(|_| invalid)?;
    let text = String::from_utf8(decoded).map_err(|_| invalid)?;
    let (user, password) = text.split_once(':').ok_or(invalid)?;
    let plugins = request.running().plugins.clone();
    let known = plugins.and_then(|plugins| plugins.consumers.by_user.get(user).cloned());
    known
        .filter(|known| auth::same(known.credential.password.as_bytes(), password.as_bytes()))
        .ok_or("Invalid user authorization")
}

impl Plugin for BasicAuth {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Rewrite])
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        let challenge = format!("Basic realm=\"{}\"", self.0.realm);
        let (consumer, credential) = match (find(request), self.0.anonymous_consumer.as_deref()) {
            (Ok(known), _) => (known.consumer, known.id),
            (Err(why), None) => return Step::answer(auth::refuse(why, &challenge)),
            (Err(_), anonymous) => match auth::anonymous(request, anonymous) {
                Some(consumer) => (consumer, None),
                None => return Step::answer(auth::refuse("Invalid user authorization", &challenge)),
            },
        };
        if self.0.hide_credentials {
            request.headers.remove(AUTHORIZATION);
        }
        auth::attach(request, consumer, credential);
        Step::Next
    }
}
