//! `upstreams`, by themselves and inside of routes and services.

use super::text::{Host, Labels};
use super::{Checks, KeepalivePool, ProxyProtocol};
use crate::certificate::{Wrong, check_chain, check_pair};
use crate::{Fault, Id};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

/// Where requests go.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = json!([
    {"required": ["nodes"]}, {"required": ["service_name", "discovery_type"]}, {"required": ["app"]}
])))]
pub struct Upstream {
    /// The id; the one of the address wins.
    pub id: Option<Id>,
    /// A name for people.
    #[schemars(length(min = 1, max = 256))]
    pub name: Option<String>,
    /// What it is for.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// Labels.
    pub labels: Option<Labels>,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was changed last, in seconds since 1970.
    pub update_time: Option<i64>,
    /// Nodes.
    pub nodes: Option<Nodes>,
    /// Ours: an app of this platform instead of nodes: `shop`, or `org/space/shop`. It brings its lanes and its load.
    #[schemars(length(min = 1, max = 256))]
    pub app: Option<String>,
    /// Ours: the lane of the app in which requests begin that have none.
    #[schemars(length(min = 1, max = 40))]
    pub lane: Option<String>,
    /// Further attempts after the first; absent = as many as there are other nodes.
    pub retries: Option<u32>,
    /// Seconds after which no further attempt begins; 0 = no limit.
    #[schemars(range(min = 0.0))]
    pub retry_timeout: Option<f64>,
    /// Limits in time.
    pub timeout: Option<Timeout>,
    /// TLS towards the nodes.
    pub tls: Option<UpstreamTls>,
    /// Connections that are kept.
    pub keepalive_pool: Option<KeepalivePool>,
    /// How a node is chosen.
    #[serde(default)]
    pub r#type: Balancer,
    /// Health checks.
    pub checks: Option<Checks>,
    /// For `chash`: where the key is taken from.
    #[serde(default)]
    pub hash_on: HashOn,
    /// For `chash`: name of the variable, header or cookie, or a combination of variables.
    pub key: Option<String>,
    /// Protocol towards the nodes.
    #[serde(default)]
    pub scheme: Scheme,
    /// Nodes are found by a service registry.
    pub discovery_type: Option<Discovery>,
    /// More for the registry.
    pub discovery_args: Option<DiscoveryArgs>,
    /// Which Host header nodes get.
    #[serde(default)]
    pub pass_host: PassHost,
    /// The Host header for `pass_host: rewrite`.
    pub upstream_host: Option<Host>,
    /// Name in the registry, with `:port` or on the scheme's usual one.
    #[schemars(length(min = 1, max = 256))]
    pub service_name: Option<String>,
    /// Ours: nodes are told first who the client is, by HAProxy's PROXY protocol. Connections then serve one request each.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Ours: seconds in which the share of a new node grows to the whole; 0 = at once.
    #[schemars(range(min = 0.0))]
    pub slow_start: Option<f64>,
    /// Ours: how near a node has to be to be preferred, for nodes whose `metadata` says where they are.
    #[serde(default)]
    pub locality: LocalityName,
}

/// Nodes: weights by address, or a list.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Nodes {
    /// `"host:port": weight`.
    Weights(BTreeMap<String, u32>),
    /// Each with more to say.
    List(Vec<Node>),
}

/// One node.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Name or address.
    pub host: Host,
    /// Port; absent = of the scheme.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Share of requests; 0 = none.
    pub weight: u32,
    /// Nodes of lower priority serve when none of higher does.
    #[serde(default)]
    pub priority: i32,
    /// Where it is.
    pub metadata: Option<NodeMetadata>,
}

/// Where a node is; other entries are kept for whoever wrote them.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
pub struct NodeMetadata {
    /// Region.
    pub region: Option<String>,
    /// Zone in the region.
    pub zone: Option<String>,
    /// Machine in the zone.
    pub node: Option<String>,
}

/// Limits in time, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timeout {
    /// To connect.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub connect: f64,
    /// Between two writes.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub send: f64,
    /// Between two reads.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub read: f64,
}

/// TLS towards nodes.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpstreamTls {
    /// Certificate that is shown, by id of an `ssls` resource of type `client`.
    pub client_cert_id: Option<Id>,
    /// Certificate that is shown, PEM.
    #[schemars(length(min = 128, max = 65536))]
    pub client_cert: Option<String>,
    /// Its key, PEM.
    #[schemars(length(min = 64, max = 65536), extend("x-secret" = true))]
    pub client_key: Option<String>,
    /// Verify the node's certificate.
    #[serde(default)]
    pub verify: bool,
    /// Ours: certificates of the authorities that are trusted, PEM; absent = those of the system.
    #[schemars(length(min = 128, max = 65536))]
    pub ca: Option<String>,
}

/// How a node is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Balancer {
    /// By turns, in proportion to weight.
    #[default]
    Roundrobin,
    /// By a hash of `key`.
    Chash,
    /// The faster of two.
    Ewma,
    /// The one with the fewest requests in flight.
    LeastConn,
    /// Ours: by requests in flight, latency and reported load.
    Load,
    /// Ours: by weight and free capacity.
    Weighted,
    /// Ours: at random by weight.
    Random,
}

/// Where the key of `chash` is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HashOn {
    /// A variable.
    #[default]
    Vars,
    /// A header.
    Header,
    /// A cookie.
    Cookie,
    /// The consumer's name.
    Consumer,
    /// Text with several variables.
    VarsCombinations,
}

/// Protocol towards nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Scheme {
    #[default]
    Http,
    Https,
    Grpc,
    Grpcs,
    Tcp,
    Tls,
    Udp,
}

/// A registry that knows nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Discovery {
    /// DNS: SRV records, else A and AAAA.
    Dns,
}

/// More for a registry.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiscoveryArgs {}

/// Which Host header nodes get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PassHost {
    /// The client's.
    #[default]
    Pass,
    /// The node's.
    Node,
    /// `upstream_host`.
    Rewrite,
}

/// How near a node has to be to be preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LocalityName {
    /// Own zone, own region, others.
    #[default]
    Zone,
    /// Own machine before own zone.
    Node,
    /// Place plays no part.
    None,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream")
            .field("id", &self.id)
            .field("nodes", &self.nodes)
            .field("app", &self.app)
            .field("type", &self.r#type)
            .field("scheme", &self.scheme)
            .finish_non_exhaustive()
    }
}

impl Scheme {
    /// The port of nodes that have none.
    pub fn default_port(self) -> Option<u16> {
        match self {
            Scheme::Http | Scheme::Grpc => Some(80),
            Scheme::Https | Scheme::Grpcs => Some(443),
            Scheme::Tcp | Scheme::Tls | Scheme::Udp => None,
        }
    }

    /// Whether a stream route, or a route, can use it. `http`, being what an upstream has that says nothing, fits both: in a stream
    /// it stands for what the listener speaks.
    pub fn fits(self, stream: bool) -> bool {
        match self {
            Scheme::Http => true,
            Scheme::Https | Scheme::Grpc | Scheme::Grpcs => !stream,
            Scheme::Tcp | Scheme::Tls | Scheme::Udp => stream,
        }
    }

    /// What to say where it does not fit.
    pub(crate) fn misfit(self, stream: bool) -> &'static str {
        if stream {
            "scheme is for routes: in a stream route give tcp, tls or udp"
        } else {
            "scheme is for stream routes: in a route give http, https, grpc or grpcs"
        }
    }
}

impl Upstream {
    /// Every node, in one form; none where they come from a registry or an app. Faults of a map's keys are left out: `check` has told them.
    pub fn node_list(&self) -> Vec<Node> {
        match &self.nodes {
            None => Vec::new(),
            Some(Nodes::List(list)) => list.clone(),
            Some(Nodes::Weights(weights)) => {
                weights.iter().filter_map(|(address, weight)| node_of(address, *weight)).collect()
            }
        }
    }

    pub(crate) fn check(&self, faults: &mut Vec<Fault>) {
        self.check_source(faults);
        self.check_nodes(faults);
        if self.pass_host == PassHost::Rewrite && self.upstream_host.is_none() {
            faults.push(Fault::new("upstream_host", "is missing: pass_host is \"rewrite\""));
        }
        if self.r#type == Balancer::Chash {
            self.check_hash_key(faults);
        }
        if let Some(tls) = &self.tls {
            tls.check(faults);
        }
        if let Some(checks) = &self.checks {
            checks.check(faults);
        }
        let kept = self.keepalive_pool.is_some_and(|pool| pool != KeepalivePool::default());
        if kept && matches!(self.scheme, Scheme::Grpc | Scheme::Grpcs) {
            let message = "does nothing with scheme grpc or grpcs, whose connections carry many requests at once: leave it out";
            faults.push(Fault::new("keepalive_pool", message));
        }
        if self.proxy_protocol.is_some() && matches!(self.scheme, Scheme::Grpc | Scheme::Grpcs) {
            let message = "is not done with scheme grpc or grpcs, whose connections carry requests of many clients at once";
            faults.push(Fault::new("proxy_protocol", message));
        }
        if self.proxy_protocol.is_some() && self.keepalive_pool.is_some() {
            let message = "does nothing beside proxy_protocol: connections then serve one request each";
            faults.push(Fault::new("keepalive_pool", message));
        }
        if self.app.is_some() {
            self.check_beside_app(faults);
        }
    }

    /// An app brings its own settings. What has its default value is taken, since exports write it.
    fn check_beside_app(&self, faults: &mut Vec<Fault>) {
        let given = [
            ("type", self.r#type != Balancer::default()),
            ("hash_on", self.hash_on != HashOn::default()),
            ("key", self.key.is_some()),
            ("retries", self.retries.is_some()),
            ("retry_timeout", self.retry_timeout.is_some()),
            ("timeout", self.timeout.is_some()),
            ("checks", self.checks.is_some()),
            ("slow_start", self.slow_start.is_some()),
            ("proxy_protocol", self.proxy_protocol.is_some()),
            ("locality", self.locality != LocalityName::default()),
            ("scheme", matches!(self.scheme, Scheme::Grpc | Scheme::Grpcs)),
        ];
        for (field, _) in given.into_iter().filter(|(_, given)| *given) {
            faults.push(Fault::new(field, "does nothing beside app: it is a setting of the app itself"));
        }
    }

    fn check_source(&self, faults: &mut Vec<Fault>) {
        let sources = [
            self.nodes.is_some(),
            self.service_name.is_some() || self.discovery_type.is_some(),
            self.app.is_some(),
        ];
        match sources.iter().filter(|given| **given).count() {
            0 => faults.push(Fault::new(
                "nodes",
                "is missing: give nodes, or service_name with discovery_type, or app",
            )),
            1 => {}
            _ => faults.push(Fault::new("nodes", "only one of nodes, service_name and app can be given")),
        }
        match (&self.service_name, &self.discovery_type) {
            (Some(_), None) => faults.push(Fault::new("discovery_type", "is missing: service_name is given")),
            (None, Some(_)) => faults.push(Fault::new("service_name", "is missing: discovery_type is given")),
            _ => {}
        }
        if let Some(app) = &self.app
            && let Err(message) = crate::resolved::app_of(app)
        {
            faults.push(Fault::new("app", message));
        }
        match (&self.lane, &self.app) {
            (Some(_), None) => faults.push(Fault::new("lane", "is for upstreams with app only")),
            (Some(lane), _) if lane.parse::<towpath_types::LaneName>().is_err() => {
                faults.push(Fault::new("lane", format!("{lane:?} is no name of a lane")));
            }
            _ => {}
        }
    }

    fn check_nodes(&self, faults: &mut Vec<Fault>) {
        let nodes: Vec<(String, Option<Node>)> = match &self.nodes {
            None => return,
            Some(Nodes::Weights(weights)) => weights
                .iter()
                .map(|(address, weight)| (format!("nodes.{address}"), node_of(address, *weight)))
                .collect(),
            Some(Nodes::List(list)) => list
                .iter()
                .enumerate()
                .map(|(index, node)| (format!("nodes[{index}]"), Some(node.clone())))
                .collect(),
        };
        for (path, node) in nodes {
            match node {
                None => faults
                    .push(Fault::new(path, "is no address: give host:port, an IPv6 address in brackets")),
                Some(node) if node.host.wildcard().is_some() => {
                    faults.push(Fault::new(path, "a node cannot be a wildcard"));
                }
                Some(node) if !is_node_host(node.host.as_str()) => {
                    faults.push(Fault::new(
                        path,
                        format!(
                            "{:?} is no name and no address; an IPv6 address stands in brackets",
                            node.host.as_str()
                        ),
                    ));
                }
                Some(node) if node.port.is_none() && self.scheme.default_port().is_none() => {
                    faults.push(Fault::new(path, "has no port, and the scheme has no usual one"));
                }
                Some(_) => {}
            }
        }
    }

    fn check_hash_key(&self, faults: &mut Vec<Fault>) {
        let Some(key) = &self.key else {
            if self.hash_on != HashOn::Consumer {
                faults.push(Fault::new("key", "is missing: type is \"chash\""));
            }
            return;
        };
        let plain = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        match self.hash_on {
            HashOn::Vars if !plain(key) => {
                faults.push(Fault::new("key", format!("{key:?} is no name of a variable")))
            }
            HashOn::Header | HashOn::Cookie if !plain(key) => {
                faults.push(Fault::new("key", format!("{key:?} is no name: give a-z A-Z 0-9 - _")));
            }
            HashOn::VarsCombinations if !key.contains('$') => {
                faults.push(Fault::new("key", format!("{key:?} has no $variable in it")));
            }
            _ => {}
        }
    }
}

impl UpstreamTls {
    fn check(&self, faults: &mut Vec<Fault>) {
        match (&self.client_cert, &self.client_key) {
            (Some(_), None) => faults.push(Fault::new("tls.client_key", "is missing: client_cert is given")),
            (None, Some(_)) => faults.push(Fault::new("tls.client_cert", "is missing: client_key is given")),
            _ => {}
        }
        if let (Some(cert), Some(key)) = (&self.client_cert, &self.client_key) {
            match check_pair(cert, key) {
                Ok(()) => {}
                Err(Wrong::Certificate(message)) => faults.push(Fault::new("tls.client_cert", message)),
                Err(Wrong::Key(message)) => faults.push(Fault::new("tls.client_key", message)),
            }
        }
        if let Some(Err(message)) = self.ca.as_deref().map(check_chain) {
            faults.push(Fault::new("tls.ca", message));
        }
        if self.client_cert_id.is_some() && (self.client_cert.is_some() || self.client_key.is_some()) {
            faults.push(Fault::new("tls.client_cert_id", "must not stand beside client_cert"));
        }
    }
}

/// `host:port`, `host`, `[::1]:80`.
fn node_of(address: &str, weight: u32) -> Option<Node> {
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port))
            if !host.is_empty() && !port.ends_with(']') && (!host.contains(':') || host.ends_with(']')) =>
        {
            (host, Some(port.parse::<u16>().ok().filter(|port| *port > 0)?))
        }
        _ => (address, None),
    };
    Some(Node { host: Host::parse(host)?, port, weight, priority: 0, metadata: None })
}

fn is_node_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.parse::<std::net::IpAddr>().is_ok() || !host.contains(['[', ']', ':', '*']),
    }
}
