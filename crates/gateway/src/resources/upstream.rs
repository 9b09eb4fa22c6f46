//! A static upstream as requests need it, and as the routing table does.

use super::tls;
use crate::framing::proxy_protocol::Version;
use crate::upstream::stream::TlsPeer;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use towpath_resources::model::{Balancer, HashOn, LocalityName, PassHost, ProxyProtocol, Scheme, Timeout};
use towpath_resources::{ResolvedUpstream, Serves};
use towpath_route::{Endpoint, static_upstream};
use towpath_types::lane::HashBy;
use towpath_types::upstream::{
    Balancer as Balance, Ejection, Locality, Protocol, RetryPolicy, Timeouts, UpstreamSpec,
};
use towpath_types::{AppRef, InstanceId, Millis};

/// See the module. Hangs on the programs of the routes that go there.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// What it is in the table.
    pub(crate) app: AppRef,
    /// `http`, `https`, `grpc` or `grpcs`.
    pub(crate) scheme: &'static str,
    /// Retries begin only within this time.
    pub(crate) retry_ms: Option<u64>,
    /// Whether limits in time are its own, not the usual ones.
    pub(crate) own_timeouts: bool,
    pass_host: PassHost,
    host: Option<String>,
    /// What nodes are called, for `pass_host: node`.
    names: HashMap<InstanceId, String>,
    tls: Option<(Arc<ClientConfig>, u64)>,
    /// How connections are kept, where the upstream says it.
    pub(crate) keep: Option<Keep>,
    /// Nodes are told first who the client is.
    pub(crate) proxy_protocol: Option<Version>,
    /// Passive health, if it is watched.
    pub(crate) watch: Option<super::passive::Watch>,
}

/// How connections are kept for other requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    /// Most idle ones for each endpoint.
    pub(crate) idle: usize,
    /// Longest idle time.
    pub(crate) idle_ms: u64,
    /// Most requests of one.
    pub(crate) requests: u64,
}

impl Upstream {
    /// Of a resolved upstream; `Err` = its TLS settings cannot be used.
    pub(crate) fn new(
        resolved: &ResolvedUpstream,
        app: AppRef,
        names: HashMap<InstanceId, String>,
        watch: Option<super::passive::Watch>,
    ) -> Result<Self, String> {
        let spec = &resolved.spec;
        let secure = matches!(spec.scheme, Scheme::Https | Scheme::Grpcs | Scheme::Tls);
        let tls = if secure { Some(tls::config(resolved, protocol(spec.scheme))?) } else { None };
        Ok(Self {
            app,
            scheme: scheme(spec.scheme),
            retry_ms: spec.retry_timeout.filter(|seconds| *seconds > 0.0).map(|seconds| millis(seconds).0),
            own_timeouts: spec.timeout.is_some(),
            pass_host: spec.pass_host,
            keep: keep(spec),
            proxy_protocol: spec.proxy_protocol.map(version),
            host: spec.upstream_host.as_ref().map(|host| host.as_str().to_owned()),
            names,
            tls,
            watch,
        })
    }

    /// The Host header that the endpoint gets, if the upstream says which.
    pub(crate) fn host_for(&self, endpoint: &Endpoint) -> Option<String> {
        match self.pass_host {
            PassHost::Pass => None,
            PassHost::Rewrite => self.host.clone(),
            PassHost::Node => Some(
                self.names
                    .get(&endpoint.instance())
                    .cloned()
                    .unwrap_or_else(|| endpoint.address().to_string()),
            ),
        }
    }

    /// How TLS is spoken to the endpoint for requests to this host.
    pub(crate) fn peer_for(&self, endpoint: &Endpoint, host: &str) -> Option<TlsPeer> {
        let (config, key) = self.tls.as_ref()?;
        let bare = bare(host);
        let address = endpoint.address().to_string();
        let name = ServerName::try_from(bare.to_owned())
            .or_else(|_| ServerName::try_from(self::bare(&address).to_owned()))
            .ok()?;
        let mut hash = DefaultHasher::new();
        (key, bare).hash(&mut hash);
        Some(TlsPeer { config: config.clone(), name, key: hash.finish() })
    }
}

/// A connection that tells of one client is not kept for another.
fn keep(spec: &towpath_resources::model::Upstream) -> Option<Keep> {
    if spec.proxy_protocol.is_some() {
        return Some(Keep { idle: 0, idle_ms: 1, requests: 1 });
    }
    spec.keepalive_pool.map(|pool| Keep {
        idle: pool.size as usize,
        idle_ms: millis(pool.idle_timeout).0,
        requests: u64::from(pool.requests),
    })
}

/// The version as the framing of it knows it.
pub(crate) fn version(version: ProxyProtocol) -> Version {
    match version {
        ProxyProtocol::V1 => Version::V1,
        ProxyProtocol::V2 => Version::V2,
    }
}

/// The host without port and brackets.
fn bare(host: &str) -> &str {
    if let Some(inner) = host.strip_prefix('[') {
        return inner.split(']').next().unwrap_or(inner);
    }
    host.split(':').next().unwrap_or(host)
}

/// What the endpoints of an upstream speak.
pub(crate) fn protocol(scheme: Scheme) -> Protocol {
    match scheme {
        Scheme::Grpc | Scheme::Grpcs => Protocol::H2c,
        _ => Protocol::Http1,
    }
}

fn scheme(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Https => "https",
        Scheme::Grpc => "grpc",
        Scheme::Grpcs => "grpcs",
        Scheme::Tcp => "tcp",
        Scheme::Tls => "tls",
        Scheme::Udp => "udp",
        Scheme::Http => "http",
    }
}

/// Seconds with a fraction; never 0, which would mean no limit.
pub(crate) fn millis(seconds: f64) -> Millis {
    Millis(((seconds * 1000.0).round().clamp(1.0, 1e12)) as u64)
}

/// Limits in time.
pub(crate) fn timeouts(timeout: Option<Timeout>) -> Timeouts {
    let timeout = timeout.unwrap_or(Timeout { connect: 60.0, send: 60.0, read: 60.0 });
    let (send, read) = (millis(timeout.send), millis(timeout.read));
    Timeouts { connect: millis(timeout.connect), response: read, idle: send.max(read), total: Millis(0) }
}

/// How the table balances over it. `nodes` = how many there are.
pub(crate) fn spec_of(resolved: &ResolvedUpstream, nodes: usize) -> UpstreamSpec {
    let spec = &resolved.spec;
    let usual = static_upstream(nodes);
    UpstreamSpec {
        balancer: balancer(resolved),
        locality: match spec.locality {
            LocalityName::Zone => Locality::Zone,
            LocalityName::Node => Locality::Node,
            LocalityName::None => Locality::None,
        },
        timeouts: timeouts(spec.timeout),
        retry: RetryPolicy { retries: spec.retries.unwrap_or(usual.retry.retries), ..usual.retry },
        // What the gateway itself sees of dead nodes counts, with or without checks.
        ejection: Ejection::default(),
        slow_start: spec.slow_start.filter(|seconds| *seconds > 0.0).map_or(Millis(0), millis),
        ..usual
    }
}

fn balancer(resolved: &ResolvedUpstream) -> Balance {
    let spec = &resolved.spec;
    let key = || spec.key.clone().unwrap_or_default();
    match spec.r#type {
        Balancer::Roundrobin => Balance::Roundrobin,
        Balancer::Ewma => Balance::Ewma,
        Balancer::LeastConn => Balance::LeastConn,
        Balancer::Load => Balance::Load,
        Balancer::Weighted => Balance::Weighted,
        Balancer::Random => Balance::Random,
        Balancer::Chash => Balance::Chash(match spec.hash_on {
            HashOn::Vars => HashBy::Var(key()),
            HashOn::Header => HashBy::Header(key()),
            HashOn::Cookie => HashBy::Cookie(key()),
            HashOn::Consumer => HashBy::Var("consumer_name".into()),
            HashOn::VarsCombinations => HashBy::Vars(key()),
        }),
    }
}

/// Whether the upstream's requests go to nodes of its own.
pub(crate) fn has_nodes(resolved: &ResolvedUpstream) -> bool {
    !matches!(resolved.serves, Serves::App { .. })
}
