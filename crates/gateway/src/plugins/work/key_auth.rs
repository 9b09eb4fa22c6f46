//! `key-auth`: a key in a header or the query tells who the consumer is.

use super::auth;
use crate::plugins::{Phase, Phases, Plugin, Request, Step};
use http::header::HeaderName;
use std::sync::Arc;
use towpath_resources::plugins::key_auth::Config;

/// See the module.
pub(in crate::plugins) struct KeyAuth {
    config: Arc<Config>,
    header: Option<HeaderName>,
}

impl KeyAuth {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self { header: HeaderName::from_bytes(config.header.as_bytes()).ok(), config: config.clone() }
    }

    fn key(&self, request: &Request<'_>) -> Option<String> {
        let header = self.header.as_ref().and_then(|name| request.headers.get(name));
        match header {
            Some(value) => Some(String::from_utf8_lossy(value.as_bytes()).into_owned()),
            None => request.vars().argument(&self.config.query).map(std::borrow::Cow::into_owned),
        }
    }

    /// The upstream does not get the key.
    fn hide(&self, request: &mut Request<'_>) {
        if let Some(name) = &self.header {
            request.headers.remove(name);
        }
        if request.vars().argument(&self.config.query).is_some() {
            request.record.hide_argument(|query| auth::without_argument(query, &self.config.query));
        }
    }
}

impl Plugin for KeyAuth {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Rewrite])
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        let key = self.key(request);
        let plugins = request.running().plugins.clone();
        let known = key.as_ref().and_then(|key| plugins.as_ref()?.consumers.by_key.get(key).cloned());
        if let Some(known) = known {
            if self.config.hide_credentials {
                self.hide(request);
            }
            auth::attach(request, known.consumer, known.id);
            return Step::Next;
        }
        let challenge = format!("apikey realm=\"{}\"", self.config.realm);
        let anonymous = self.config.anonymous_consumer.as_deref();
        if anonymous.is_none() {
            let why = if key.is_none() { "Missing API key in request" } else { "Invalid API key in request" };
            return Step::answer(auth::refuse(why, &challenge));
        }
        if self.config.hide_credentials {
            self.hide(request);
        }
        match auth::anonymous(request, anonymous) {
            Some(consumer) => {
                auth::attach(request, consumer, None);
                Step::Next
            }
            None => Step::answer(auth::refuse("Invalid user authorization", &challenge)),
        }
    }
}
