//! `cors`: which pages of other origins may use the responses.

use super::headers::value;
use super::substitute;
use crate::plugins::make::Scope;
use crate::plugins::{Answer, Phase, Phases, Plugin, Reply, Request, Step};
use http::Method;
use http::header::{self, HeaderName, HeaderValue, ORIGIN, VARY};
use regex::bytes::Regex;
use std::sync::Arc;
use towpath_resources::plugins::PluginMetadata;
use towpath_resources::plugins::cors::Config;

/// See the module.
pub(in crate::plugins) struct Cors {
    config: Arc<Config>,
    by_regex: Option<Vec<Regex>>,
    timing_by_regex: Option<Vec<Regex>>,
    /// Lists of origins from the metadata.
    by_metadata: Vec<String>,
}

/// The request's own `Origin`, and the headers that it asks for.
struct Asked {
    origin: Option<String>,
    headers: Option<HeaderValue>,
}

/// Every method that there is.
const ALL_METHODS: &str = "GET,POST,PUT,DELETE,PATCH,HEAD,OPTIONS,CONNECT,TRACE";

impl Cors {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let by_metadata = match scope.plugins.metadata.get("cors") {
            Some(PluginMetadata::Cors(metadata)) => {
                let names = config.allow_origins_by_metadata.iter().flatten();
                names.filter_map(|name| metadata.allow_origins.get(name).cloned()).collect()
            }
            _ => Vec::new(),
        };
        let regexes =
            |texts: &Option<Vec<String>>| texts.as_ref().map(|texts| substitute::patterns(texts, false));
        Self {
            by_regex: regexes(&config.allow_origins_by_regex),
            timing_by_regex: regexes(&config.timing_allow_origins_by_regex),
            by_metadata,
            config: config.clone(),
        }
    }

    /// What is allowed to a request of this origin.
    fn allowed(&self, origin: Option<&str>) -> Option<String> {
        let from_metadata = self.by_metadata.iter().find_map(|list| {
            let allowed = of_list(list, origin)?;
            matches(origin, &allowed).then(|| origin.unwrap_or("*").to_owned())
        });
        if from_metadata.is_some() {
            return from_metadata;
        }
        if self.config.allow_origins_by_metadata.is_some() && self.config.allow_origins == "*" {
            return None;
        }
        match &self.by_regex {
            Some(regexes) => of_regexes(regexes, origin),
            None => of_list(&self.config.allow_origins, origin),
        }
    }
}

fn matches(origin: Option<&str>, allowed: &str) -> bool {
    allowed == "*" || origin == Some(allowed)
}

fn of_list(list: &str, origin: Option<&str>) -> Option<String> {
    match list {
        "**" => Some(origin.unwrap_or("*").to_owned()),
        list if list.contains(',') => {
            origin.filter(|origin| list.split(',').any(|one| one == *origin)).map(str::to_owned)
        }
        list => Some(list.to_owned()),
    }
}

fn of_regexes(regexes: &[Regex], origin: Option<&str>) -> Option<String> {
    origin.filter(|origin| regexes.iter().any(|regex| regex.is_match(origin.as_bytes()))).map(str::to_owned)
}

impl Plugin for Cors {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Rewrite, Phase::ResponseHead])
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        let origin = request.headers.get(ORIGIN).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let headers = request.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        request.running().note(self, Asked { origin, headers });
        if request.record.method == Method::OPTIONS { Step::answer(Answer::status(200)) } else { Step::Next }
    }

    fn response_head(&self, reply: &mut Reply<'_>) {
        let running = reply.record.running.get_or_insert_default();
        let (origin, asked) = match running.noted::<Self, Asked>(self) {
            Some(asked) => (asked.origin.clone(), asked.headers.clone()),
            None => (None, None),
        };
        let origin = origin.as_deref();
        let config = &self.config;
        if config.allow_origins != "*" || self.by_regex.is_some() {
            reply.headers.append(VARY, HeaderValue::from_static("Origin"));
        }
        let mut set = |name: HeaderName, text: &str| {
            if let Some(value) = value(text) {
                reply.headers.insert(name, value);
            }
        };
        if let Some(allowed) = self.allowed(origin) {
            let methods = if config.allow_methods == "**" { ALL_METHODS } else { &config.allow_methods };
            set(header::ACCESS_CONTROL_ALLOW_ORIGIN, &allowed);
            set(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
            set(header::ACCESS_CONTROL_MAX_AGE, &config.max_age.to_string());
            if let Some(exposed) = config.expose_headers.as_deref().filter(|text| !text.is_empty()) {
                set(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
            }
            if config.allow_credential {
                set(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
            }
            if config.allow_headers != "**" {
                set(header::ACCESS_CONTROL_ALLOW_HEADERS, &config.allow_headers);
            } else if let Some(asked) = asked {
                reply.headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked);
            }
        }
        let timing = match (&self.timing_by_regex, &config.timing_allow_origins) {
            (Some(regexes), _) => of_regexes(regexes, origin),
            (None, Some(list)) => of_list(list, origin),
            (None, None) => None,
        };
        if let Some(timing) = timing.filter(|timing| matches(origin, timing)).as_deref().and_then(value) {
            reply.headers.insert(HeaderName::from_static("timing-allow-origin"), timing);
        }
    }
}
