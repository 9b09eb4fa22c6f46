//! What a route runs: its plugins compiled and in order, and where it goes.

use super::make::{self, Scope};
use super::states::States;
use super::{Answer, Phases, Plugin};
use crate::resources::by_key::ByKey;
use crate::resources::upstream::Upstream;
use crate::stream_proxy::Streams;
use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use std::collections::HashMap;
use std::sync::Arc;
use towpath_resources::PluginUse;
use towpath_resources::plugins::{ErrorResponse, PluginMetadata};
use towpath_route::Payload;
use towpath_route::vars::Expr;
use towpath_types::upstream::Timeouts;

/// What is known of the route itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct About {
    pub(crate) route: String,
    pub(crate) name: Option<String>,
    pub(crate) service: Option<String>,
    pub(crate) service_name: Option<String>,
    pub(crate) matched: Option<String>,
    /// The first of its hosts.
    pub(crate) host: Option<String>,
}

/// One plugin in a program.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) plugin: Arc<dyn Plugin>,
    pub(crate) phases: Phases,
    /// Its `_meta.filter`, and which one of the program's that is.
    pub(crate) filter: Option<(u32, Expr)>,
    error: Option<Answer>,
    /// It came with the consumer, and was not there when the request was rewritten.
    pub(crate) from_consumer: bool,
}

/// See the module.
pub(crate) struct Program {
    pub(crate) about: About,
    /// Highest priority first.
    pub(crate) entries: Vec<Entry>,
    /// Of all entries together.
    pub(crate) phases: Phases,
    /// Key of the upstream that it goes to.
    pub(crate) upstream: Option<Arc<str>>,
    /// Limits in time that are the route's own.
    pub(crate) timeouts: Option<Timeouts>,
    /// Connections may be upgraded.
    pub(crate) websocket: bool,
    /// What it was compiled of.
    pub(crate) uses: Vec<PluginUse>,
}

/// A consumer, found by what one of its credentials says.
#[derive(Debug, PartialEq)]
pub(crate) struct Consumer {
    pub(crate) name: String,
    pub(crate) group: Option<String>,
    /// Its label `custom_id`, which upstreams are told.
    pub(crate) custom_id: Option<String>,
    pub(crate) labels: std::collections::BTreeMap<String, String>,
    /// Its plugins merged over those of its group.
    pub(crate) plugins: Vec<PluginUse>,
}

/// A consumer and the credential by which it is known.
#[derive(Debug, Clone)]
pub(crate) struct Known<C> {
    pub(crate) consumer: Arc<Consumer>,
    /// Id of the credential, if it is a document of its own.
    pub(crate) id: Option<Arc<str>>,
    pub(crate) credential: Arc<C>,
}

/// Everything about plugins that is not one route's.
#[derive(Default)]
pub(crate) struct Plugins {
    /// The global rules as one program.
    pub(crate) global: Option<Arc<Program>>,
    pub(crate) consumers: Arc<Consumers>,
    pub(crate) states: Arc<States>,
    pub(crate) metadata: Arc<HashMap<String, PluginMetadata>>,
    /// Static upstreams by their keys, for plugins that choose among them.
    pub(crate) upstreams: ByKey<Upstream>,
    /// Stream routes.
    pub(crate) streams: Arc<Streams>,
}

/// The consumers by what authentication plugins look for.
#[derive(Default, Debug)]
pub(crate) struct Consumers {
    pub(crate) by_name: HashMap<String, Arc<Consumer>>,
    pub(crate) by_key: HashMap<String, Known<towpath_resources::plugins::key_auth::Credential>>,
    pub(crate) by_user: HashMap<String, Known<towpath_resources::plugins::basic_auth::Credential>>,
    pub(crate) by_token: HashMap<String, Known<towpath_resources::plugins::jwt_auth::Credential>>,
    pub(crate) by_access_key: HashMap<String, Known<towpath_resources::plugins::s3_auth::Credential>>,
    pub(crate) by_key_id: HashMap<String, Known<towpath_resources::plugins::hmac_auth::Credential>>,
}

impl Plugins {
    /// The same parts once more.
    pub(crate) fn share(&self) -> Self {
        Self {
            global: self.global.clone(),
            consumers: self.consumers.clone(),
            states: self.states.clone(),
            metadata: self.metadata.clone(),
            upstreams: self.upstreams.clone(),
            streams: self.streams.clone(),
        }
    }
}

impl Program {
    /// The program in a rule's payload.
    pub(crate) fn of(payload: &Payload) -> Option<Arc<Self>> {
        payload.0.clone().downcast().ok()
    }

    /// Compiles uses, which are in order.
    pub(crate) fn compile(uses: Vec<PluginUse>, about: About, plugins: &Plugins) -> Self {
        let mut entries = Vec::new();
        let mut filters = 0;
        for one in uses.iter().filter(|one| !one.meta.disable) {
            let plugin = make::make(&one.config, &Scope { from: one.from.to_string(), plugins });
            let filter = one.meta.filter.as_ref().map(|filter| {
                filters += 1;
                (filters - 1, filter.0.clone())
            });
            let phases = plugin.phases();
            let error = one.meta.error_response.as_ref().map(error_answer);
            entries.push(Entry { name: one.name, plugin, phases, filter, error, from_consumer: false });
        }
        let phases = entries.iter().fold(Phases::default(), |all, entry| all.and(entry.phases));
        Self { about, entries, phases, upstream: None, timeouts: None, websocket: false, uses }
    }

    /// The program with a consumer's plugins in it, which go over its own of the same name. Those that the route does not have
    /// have not run yet.
    pub(crate) fn merge(&self, consumer: &Consumer, plugins: &Plugins) -> Self {
        let own: Vec<&'static str> = self.uses.iter().map(|one| one.name).collect();
        let uses = towpath_resources::merge(&consumer.plugins, &self.uses);
        let mut merged = Self::compile(uses, self.about.clone(), plugins);
        for entry in &mut merged.entries {
            entry.from_consumer = !own.contains(&entry.name);
            // Its own stay the same objects, so that what they noted in the request is found.
            let is_consumers = consumer.plugins.iter().any(|one| one.name == entry.name);
            if let Some(before) =
                self.entries.iter().find(|before| before.name == entry.name && !is_consumers)
            {
                entry.plugin = before.plugin.clone();
            }
        }
        merged.upstream.clone_from(&self.upstream);
        merged.timeouts = self.timeouts;
        merged.websocket = self.websocket;
        merged
    }
}

impl Entry {
    /// The plugin's answer, or what `_meta.error_response` puts in its place.
    pub(crate) fn shaped(&self, answer: Answer) -> Answer {
        match &self.error {
            Some(error) if answer.status >= 400 => {
                let mut headers = answer.headers;
                headers.retain(|(name, _)| name != CONTENT_TYPE);
                headers.extend(error.headers.iter().cloned());
                Answer { status: answer.status, headers, body: error.body.clone() }
            }
            _ => answer,
        }
    }
}

fn error_answer(response: &ErrorResponse) -> Answer {
    let (kind, body) = match response {
        ErrorResponse::Text(text) => ("text/plain; charset=utf-8", text.clone()),
        ErrorResponse::Json(fields) => {
            ("application/json", format!("{}\n", serde_json::Value::Object(fields.clone())))
        }
    };
    Answer {
        status: 0,
        headers: vec![(CONTENT_TYPE, HeaderValue::from_static(kind))],
        body: Some(Bytes::from(body)),
    }
}
