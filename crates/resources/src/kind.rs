//! The kinds of resources and the rules of their ids.

use crate::Fault;
use std::fmt;
use std::str::FromStr;

/// What a resource is. The text form is the segment of its address in the Admin API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the kinds are APISIX's, but for listeners; the guide has a section on each")]
pub enum Kind {
    Route,
    Service,
    Upstream,
    Consumer,
    ConsumerGroup,
    Credential,
    PluginConfig,
    GlobalRule,
    Ssl,
    StreamRoute,
    PluginMetadata,
    Secret,
    Proto,
    Listener,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 14] = [
        Kind::Route,
        Kind::Service,
        Kind::Upstream,
        Kind::Consumer,
        Kind::ConsumerGroup,
        Kind::Credential,
        Kind::PluginConfig,
        Kind::GlobalRule,
        Kind::Ssl,
        Kind::StreamRoute,
        Kind::PluginMetadata,
        Kind::Secret,
        Kind::Proto,
        Kind::Listener,
    ];

    /// The segment of its address: `routes`, `consumer_groups`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Route => "routes",
            Kind::Service => "services",
            Kind::Upstream => "upstreams",
            Kind::Consumer => "consumers",
            Kind::ConsumerGroup => "consumer_groups",
            Kind::Credential => "credentials",
            Kind::PluginConfig => "plugin_configs",
            Kind::GlobalRule => "global_rules",
            Kind::Ssl => "ssls",
            Kind::StreamRoute => "stream_routes",
            Kind::PluginMetadata => "plugin_metadata",
            Kind::Secret => "secrets",
            Kind::Proto => "protos",
            Kind::Listener => "listeners",
        }
    }

    /// The kind in words, singular: `route`, `consumer group`.
    pub fn noun(self) -> &'static str {
        match self {
            Kind::Route => "route",
            Kind::Service => "service",
            Kind::Upstream => "upstream",
            Kind::Consumer => "consumer",
            Kind::ConsumerGroup => "consumer group",
            Kind::Credential => "credential",
            Kind::PluginConfig => "plugin configuration",
            Kind::GlobalRule => "global rule",
            Kind::Ssl => "certificate",
            Kind::StreamRoute => "stream route",
            Kind::PluginMetadata => "plugin metadata",
            Kind::Secret => "secret",
            Kind::Proto => "proto",
            Kind::Listener => "listener",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let known = Self::ALL.into_iter().map(Self::as_str);
            Fault::new("", crate::schema::unknown("kind of resource", text, known))
        })
    }
}

/// The id of a resource, unique in its kind: letters, digits, `-`, `_`, `.`, at most 64 of them. The id of a consumer is its user
/// name, of plugin metadata the plugin's name, of a credential `<consumer>/credentials/<id>`, of a secret `<store>/<id>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(Box<str>);

impl Id {
    /// The id `text` of a resource of `kind`.
    pub fn new(kind: Kind, text: &str) -> Result<Self, Fault> {
        let good = match kind {
            Kind::Credential => text
                .split_once("/credentials/")
                .is_some_and(|(consumer, id)| is_user_name(consumer) && is_plain(id)),
            Kind::Secret => text
                .split_once('/')
                .is_some_and(|(store, id)| matches!(store, "vault" | "aws" | "gcp") && is_plain(id)),
            Kind::Consumer => is_user_name(text),
            _ => is_plain(text),
        };
        if good { Ok(Self(text.into())) } else { Err(Fault::new("id", form_of_id(kind, text))) }
    }

    /// An id that stands in a field that refers to another resource.
    pub(crate) fn plain(text: &str) -> Option<Self> {
        is_plain(text).then(|| Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn form_of_id(kind: Kind, text: &str) -> String {
    match kind {
        Kind::Credential => {
            format!(
                "{text:?} is no id of a credential: give <consumer>/credentials/<id>, the id of at most 64 of a-z A-Z 0-9 - _ ."
            )
        }
        Kind::Secret => {
            format!(
                "{text:?} is no id of a secret: give vault/<id>, aws/<id> or gcp/<id>, the id of at most 64 of a-z A-Z 0-9 - _ ."
            )
        }
        Kind::Consumer => format!("{text:?} is no user name: give 1 to 256 of a-z A-Z 0-9 - _"),
        _ => format!("{text:?} is no id: give 1 to 64 of a-z A-Z 0-9 - _ ."),
    }
}

fn is_plain(text: &str) -> bool {
    matches!(text.len(), 1..=64)
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn is_user_name(text: &str) -> bool {
    matches!(text.len(), 1..=256)
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One resource among all.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Its kind.
    pub kind: Kind,
    /// Its id.
    pub id: Id,
}

impl Key {
    /// The resource `id` of `kind`.
    pub fn new(kind: Kind, id: Id) -> Self {
        Self { kind, id }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.id.as_str()) {
            (Kind::Credential, id) => write!(f, "consumers/{id}"),
            (kind, id) => write!(f, "{kind}/{id}"),
        }
    }
}
