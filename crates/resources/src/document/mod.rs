//! A document becomes typed, or every fault of it is told.

#[cfg(test)]
mod tests;

use crate::model::{
    Consumer, ConsumerGroup, Credential, GlobalRule, Listener, PluginConfig, Proto, RawPlugins, Route,
    Secret, Service, Ssl, StreamRoute, Upstream,
};
use crate::plugins::{self, PluginCredential, PluginMetadata};
use crate::resolved::PluginUse;
use crate::schema::{self, Checker};
use crate::{Fault, Id, Key, Kind};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

/// A resource that has been checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Which.
    pub key: Key,
    /// What it says; the configurations of plugins have been taken out of it.
    pub body: Body,
    /// Its plugins, in the order in which they run.
    pub plugins: Vec<PluginUse>,
    /// What proves who it is, of a consumer or a credential.
    pub credentials: Vec<PluginCredential>,
}

/// What a resource says.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the kinds")]
pub enum Body {
    Route(Arc<Route>),
    Service(Arc<Service>),
    Upstream(Arc<Upstream>),
    Consumer(Arc<Consumer>),
    ConsumerGroup(Arc<ConsumerGroup>),
    Credential(Arc<Credential>),
    PluginConfig(Arc<PluginConfig>),
    GlobalRule(Arc<GlobalRule>),
    Ssl(Arc<Ssl>),
    StreamRoute(Arc<StreamRoute>),
    PluginMetadata(PluginMetadata),
    Secret(Arc<Secret>),
    Proto(Arc<Proto>),
    Listener(Arc<Listener>),
}

struct Shape {
    schema: Value,
    checker: Checker,
}

impl Shape {
    fn of<T: JsonSchema>() -> Self {
        let schema = schema::of::<T>();
        Self { checker: Checker::new(&schema), schema }
    }
}

static SHAPES: LazyLock<[Shape; 14]> = LazyLock::new(|| {
    Kind::ALL.map(|kind| match kind {
        Kind::Route => Shape::of::<Route>(),
        Kind::Service => Shape::of::<Service>(),
        Kind::Upstream => Shape::of::<Upstream>(),
        Kind::Consumer => Shape::of::<Consumer>(),
        Kind::ConsumerGroup => Shape::of::<ConsumerGroup>(),
        Kind::Credential => Shape::of::<Credential>(),
        Kind::PluginConfig => Shape::of::<PluginConfig>(),
        Kind::GlobalRule => Shape::of::<GlobalRule>(),
        Kind::Ssl => Shape::of::<Ssl>(),
        Kind::StreamRoute => Shape::of::<StreamRoute>(),
        Kind::PluginMetadata => {
            Shape { schema: json!({"type": "object"}), checker: Checker::new(&json!({"type": "object"})) }
        }
        Kind::Secret => Shape::of::<Secret>(),
        Kind::Proto => Shape::of::<Proto>(),
        Kind::Listener => Shape::of::<Listener>(),
    })
});

fn shape(kind: Kind) -> Option<&'static Shape> {
    Kind::ALL.iter().position(|other| *other == kind).and_then(|index| SHAPES.get(index))
}

/// The published schema of `kind`. Plugins have schemas of their own, see [`crate::plugins::plugin`].
pub fn schema_of(kind: Kind) -> &'static Value {
    static NOTHING: Value = Value::Null;
    shape(kind).map_or(&NOTHING, |shape| &shape.schema)
}

/// Fields of APISIX that are not taken, and what to use instead.
const REFUSED_FIELDS: &[(Kind, &str, &str)] = &[
    (
        Kind::Route,
        "filter_func",
        "is Lua, which is not run here: use vars for conditions, e.g. [[\"arg_name\", \"==\", \"json\"]]",
    ),
    (Kind::Route, "script", "is Lua, which is not run here: use plugins, with _meta.filter for conditions"),
    (
        Kind::Route,
        "script_id",
        "is Lua, which is not run here: use plugins, with _meta.filter for conditions",
    ),
    (Kind::Service, "script", "is Lua, which is not run here: use plugins, with _meta.filter for conditions"),
    (Kind::StreamRoute, "protocol", "needs APISIX's xRPC, which is not supported"),
];

/// The fields of `kind` that APISIX has and that are not taken, each with why.
pub fn refused_fields(kind: Kind) -> impl Iterator<Item = (&'static str, &'static str)> {
    REFUSED_FIELDS.iter().filter(move |(of, _, _)| *of == kind).map(|(_, field, reason)| (*field, *reason))
}

/// Why APISIX's `field` of `kind` is not taken, and what to use instead.
pub fn refused_field(kind: Kind, field: &str) -> Option<&'static str> {
    refused_fields(kind).find(|(name, _)| *name == field).map(|(_, reason)| reason)
}

/// Why resources of `kind` are refused though their form is known.
pub fn unserved(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Secret => Some("secrets are not served by this gateway yet: give values themselves"),
        Kind::Proto => Some("protos are not served by this gateway yet: gRPC passes as it is"),
        _ => None,
    }
}

/// The resource `id` of `kind` that `value` is, or all that is wrong with it.
pub fn read(kind: Kind, id: &Id, value: &Value) -> Result<Document, Vec<Fault>> {
    let Some(fields) = value.as_object() else {
        return Err(vec![Fault::new("", format!("a {} must be an object", kind.noun()))]);
    };
    let mut faults = Vec::new();
    check_id(kind, id, fields.get("id"), &mut faults);
    if let Some(reason) = unserved(kind) {
        faults.push(Fault::new("", reason));
    }
    let mut rest = fields.clone();
    rest.retain(|field, _| match refused_field(kind, field) {
        Some(reason) => {
            faults.push(Fault::new(field.clone(), reason));
            false
        }
        None => true,
    });
    let key = Key::new(kind, id.clone());
    let mut document = None;
    let raw = match kind {
        Kind::PluginMetadata => None,
        _ => rest.get_mut("plugins").and_then(Value::as_object_mut).map(|plugins| {
            let taken = plugins.clone();
            if kind != Kind::Credential {
                plugins.clear();
            }
            taken
        }),
    };
    let (uses, credentials) = plugins_of(&key, raw.as_ref(), &mut faults);
    let rest = Value::Object(rest);
    if let Some(shape) = shape(kind) {
        shape.checker.check("", &rest, &mut faults);
    }
    if kind == Kind::PluginMetadata || !faults.iter().any(is_of_shape) {
        document = body(kind, id, rest, &mut faults);
    }
    match document {
        Some(body) if faults.is_empty() => Ok(Document { key, body, plugins: uses, credentials }),
        _ => Err(faults),
    }
}

/// Whether the document cannot become typed because of this fault. Those of plugins are apart.
fn is_of_shape(fault: &Fault) -> bool {
    !fault.path.starts_with("plugins.")
}

fn check_id(kind: Kind, id: &Id, given: Option<&Value>, faults: &mut Vec<Fault>) {
    let given = match given {
        None => return,
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let last = id.as_str().rsplit('/').next().unwrap_or_default();
    let same = given == id.as_str() || matches!(kind, Kind::Credential | Kind::Secret) && given == last;
    if !same {
        faults.push(Fault::new(
            "id",
            format!("is {given:?}, but the {} is stored as {:?}", kind.noun(), id.as_str()),
        ));
    }
}

fn plugins_of(
    key: &Key,
    raw: Option<&RawPlugins>,
    faults: &mut Vec<Fault>,
) -> (Vec<PluginUse>, Vec<PluginCredential>) {
    let Some(raw) = raw else { return (Vec::new(), Vec::new()) };
    match key.kind {
        Kind::Consumer => plugins::credentials_of(raw, key.clone(), faults),
        Kind::Credential => {
            let (uses, credentials) = plugins::credentials_of(raw, key.clone(), faults);
            for plugin in &uses {
                faults.push(Fault::new(
                    format!("plugins.{}", plugin.name),
                    "does not authenticate: a credential holds one plugin that does",
                ));
            }
            (Vec::new(), credentials)
        }
        Kind::StreamRoute => {
            let uses = plugins::plugins_of(raw, key.clone(), faults);
            faults.extend(uses.iter().filter_map(plugins::fault_in_stream));
            (uses, Vec::new())
        }
        _ => (plugins::plugins_of(raw, key.clone(), faults), Vec::new()),
    }
}

fn body(kind: Kind, id: &Id, value: Value, faults: &mut Vec<Fault>) -> Option<Body> {
    Some(match kind {
        Kind::Route => {
            let route: Route = typed(value, faults)?;
            route.check(faults);
            Body::Route(Arc::new(route))
        }
        Kind::Service => {
            let service: Service = typed(value, faults)?;
            service.check(faults);
            Body::Service(Arc::new(service))
        }
        Kind::Upstream => {
            let upstream: Upstream = typed(value, faults)?;
            upstream.check(faults);
            Body::Upstream(Arc::new(upstream))
        }
        Kind::Consumer => {
            let consumer: Consumer = typed(value, faults)?;
            if consumer.username != id.as_str() {
                faults.push(Fault::new(
                    "username",
                    format!("is {:?}, but the consumer is stored as {:?}", consumer.username, id.as_str()),
                ));
            }
            Body::Consumer(Arc::new(consumer))
        }
        Kind::ConsumerGroup => Body::ConsumerGroup(Arc::new(typed(value, faults)?)),
        Kind::Credential => {
            let mut credential: Credential = typed(value, faults)?;
            credential.plugins = None;
            Body::Credential(Arc::new(credential))
        }
        Kind::PluginConfig => Body::PluginConfig(Arc::new(typed(value, faults)?)),
        Kind::GlobalRule => Body::GlobalRule(Arc::new(typed(value, faults)?)),
        Kind::Ssl => {
            plugins::refuse_secrets("", &value, faults);
            let ssl: Ssl = typed(value, faults)?;
            ssl.check(faults);
            Body::Ssl(Arc::new(ssl))
        }
        Kind::StreamRoute => {
            let stream: StreamRoute = typed(value, faults)?;
            stream.check(faults);
            Body::StreamRoute(Arc::new(stream))
        }
        Kind::PluginMetadata => Body::PluginMetadata(plugins::metadata_of(id, &value, faults)?),
        Kind::Secret => Body::Secret(Arc::new(typed(value, faults)?)),
        Kind::Proto => Body::Proto(Arc::new(typed(value, faults)?)),
        Kind::Listener => {
            let listener: Listener = typed(value, faults)?;
            listener.check(faults);
            Body::Listener(Arc::new(listener))
        }
    })
}

fn typed<T: DeserializeOwned>(value: Value, faults: &mut Vec<Fault>) -> Option<T> {
    match serde_path_to_error::deserialize(value) {
        Ok(typed) => Some(typed),
        Err(error) => {
            let path = error.path().to_string();
            faults.push(Fault::new(
                if path == "." { String::new() } else { path },
                error.into_inner().to_string(),
            ));
            None
        }
    }
}

impl Document {
    /// The fault that a resource to which it refers is not there.
    pub fn no_such(&self, key: &Key) -> Fault {
        crate::set::no_such(self, key)
    }

    /// The resources that it refers to.
    pub fn references(&self) -> Vec<Key> {
        let mut found = Vec::new();
        let mut add =
            |kind: Kind, id: &Option<Id>| found.extend(id.iter().map(|id| Key::new(kind, id.clone())));
        let inner = |upstream: &Option<Upstream>| upstream.as_ref().and_then(client_certificate_of);
        match &self.body {
            Body::Route(route) => {
                add(Kind::Service, &route.service_id);
                add(Kind::PluginConfig, &route.plugin_config_id);
                add(Kind::Upstream, &route.upstream_id);
                add(Kind::Ssl, &inner(&route.upstream));
            }
            Body::Service(service) => {
                add(Kind::Upstream, &service.upstream_id);
                add(Kind::Ssl, &inner(&service.upstream));
            }
            Body::StreamRoute(stream) => {
                add(Kind::Service, &stream.service_id);
                add(Kind::Upstream, &stream.upstream_id);
                add(Kind::Ssl, &inner(&stream.upstream));
            }
            Body::Upstream(upstream) => add(Kind::Ssl, &client_certificate_of(upstream)),
            Body::Consumer(consumer) => add(Kind::ConsumerGroup, &consumer.group_id),
            Body::Credential(_) => {
                let consumer = self.key.id.as_str().split('/').next().unwrap_or_default();
                add(Kind::Consumer, &Id::new(Kind::Consumer, consumer).ok());
            }
            _ => {}
        }
        for plugin in &self.plugins {
            let settings = plugin.config.settings();
            found.extend(settings.references());
            for (_, upstream) in settings.upstreams() {
                found.extend(client_certificate_of(upstream).map(|id| Key::new(Kind::Ssl, id)));
            }
        }
        found.sort();
        found.dedup();
        found
    }
}

/// Whether a document, as it is stored, refers to `key`: in a field of its own or in the configuration of a plugin.
pub fn names(value: &Value, key: &Key) -> bool {
    let field = match key.kind {
        Kind::Upstream => "upstream_id",
        Kind::Service => "service_id",
        Kind::PluginConfig => "plugin_config_id",
        Kind::ConsumerGroup => "group_id",
        Kind::Ssl => "client_cert_id",
        _ => return false,
    };
    let is_it = |value: &Value| match value {
        Value::String(text) => text == key.id.as_str(),
        Value::Number(number) => number.to_string() == key.id.as_str(),
        _ => false,
    };
    match value {
        Value::Object(fields) => {
            fields.iter().any(|(name, inner)| name == field && is_it(inner) || names(inner, key))
        }
        Value::Array(items) => items.iter().any(|item| names(item, key)),
        _ => false,
    }
}

/// Whether texts match a regular expression, for lists that are searched.
pub fn finder(pattern: &str) -> Result<impl Fn(&str) -> bool + use<>, String> {
    let expression = towpath_route::vars::pattern(pattern, false)?;
    Ok(move |text: &str| expression.is_match(text.as_bytes()))
}

pub(crate) fn client_certificate_of(upstream: &Upstream) -> Option<Id> {
    upstream.tls.as_ref().and_then(|tls| tls.client_cert_id.clone())
}
