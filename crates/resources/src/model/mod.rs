//! What each kind of resource may say: field names, defaults and limits are those of APISIX's public schemas. A field that is
//! not here is refused.
//!
//! `check` of a type says what a schema cannot say well: how fields relate to each other.

mod checks;
mod connections;
mod consumer;
mod listener;
mod plugin_sets;
mod rest;
mod route;
mod service;
mod ssl;
mod stream_route;
mod text;
mod upstream;

pub use checks::{
    Active, ActiveHealthy, ActiveUnhealthy, CheckKind, Checks, Passive, PassiveHealthy, PassiveUnhealthy,
};
pub use connections::{KeepalivePool, ProxyProtocol};
pub use consumer::{Consumer, ConsumerGroup, Credential};
pub use listener::{Listener, ListenerProtocol};
pub use plugin_sets::{GlobalRule, PluginConfig};
pub use rest::{Proto, Secret};
pub use route::{Method, Route};
pub use service::Service;
pub use ssl::{Ssl, SslClient, SslKind, TlsVersion};
pub use stream_route::StreamRoute;
pub use text::{Address, Condition, Host, Label, Labels, RegexText, Switch};
pub use upstream::{
    Balancer, Discovery, DiscoveryArgs, HashOn, LocalityName, Node, NodeMetadata, Nodes, PassHost, Scheme,
    Timeout, Upstream, UpstreamTls,
};

use serde_json::{Map, Value};

/// The configurations of plugins by name, as they stand in a document. They are read one by one, see [`crate::plugins`].
pub type RawPlugins = Map<String, Value>;
