//! Raw start-up configuration, as it stands in a file. Everything has a default; unknown fields are refused.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use towpath_types::{ByteSize, Millis, Place};

/// Raw configuration of a gateway. [`GatewayConfig::validate`] makes settings of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// Addresses for clear-text HTTP/1.1 and HTTP/2 (prior knowledge), for example `127.0.0.1:8080`.
    pub listen: Vec<String>,
    /// TLS listeners.
    pub tls: Vec<TlsConfig>,
    /// Listeners whose clients come through proxies that say who they are by the PROXY protocol.
    pub proxy_protocol: Vec<ProxyProtocolConfig>,
    /// Listeners for stream routes.
    pub stream: StreamConfig,
    /// Address that serves `/metrics` and `/healthz`; absent = none.
    pub admin: Option<String>,
    /// Directory for the gateway's id, its snapshot, its key for sticky cookies and the access log.
    pub data_dir: PathBuf,
    /// File with the key for sticky cookies (32 bytes, or 64 hex digits) that all gateways of a cluster share; absent = one of its
    /// own, made at the first start.
    pub sticky_key: Option<PathBuf>,
    /// File with a gateways' token, with which the keys of what is secret in resources are asked for; absent = `gateway-token` in the data
    /// directory of the process.
    pub token_file: Option<PathBuf>,
    /// Where this gateway stands.
    pub place: Place,
    /// Worker threads; 0 = one a core.
    pub workers: usize,
    /// Addresses or CIDR blocks whose `X-Forwarded-*` headers and `baggage` are believed, besides the cells' own.
    pub trusted: Vec<String>,
    /// Access log.
    pub access_log: AccessLogConfig,
    /// What responses that are kept may take.
    pub cache: CacheConfig,
    /// Limits on clients.
    pub limits: LimitsConfig,
    /// Limits in time that are not an app's own.
    pub timeouts: TimeoutsConfig,
    /// Connections to instances.
    pub upstream: UpstreamPoolConfig,
    /// How names of nodes are resolved.
    pub dns: DnsConfig,
}

/// How names of nodes of upstreams are resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DnsConfig {
    /// Servers, for example `10.0.0.2` or `127.0.0.1:8600`; none = those in the machine's `/etc/resolv.conf`. `/etc/hosts` comes first
    /// either way.
    pub servers: Vec<String>,
    /// Search domains besides those of the machine (which count only where its servers are asked).
    pub search: Vec<String>,
    /// An answer counts for no shorter than this; 1ms to 1h.
    pub min_ttl: Millis,
    /// And for no longer; up to 24h.
    pub max_ttl: Millis,
}

/// A TLS listener. Its certificates are the `ssls` resources, and one of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// Address.
    pub listen: String,
    /// PEM file with a certificate chain for clients that name nothing, or what no resource has; absent = such clients are
    /// turned away.
    pub certificate: Option<PathBuf>,
    /// PEM file with its private key.
    pub key: Option<PathBuf>,
    /// Of the `ssls` resources those with all these labels are served here; none = all.
    pub labels: BTreeMap<String, String>,
    /// The name that counts for clients that name nothing.
    pub fallback_sni: Option<String>,
    /// Most handshakes under way, over all workers; further connections are closed.
    pub handshakes: usize,
}

/// A listener (of `listen` or `tls`) that takes the PROXY protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyProtocolConfig {
    /// The listener's address, as it stands there.
    pub listen: String,
    /// Addresses or CIDR blocks of the proxies. Their connections begin with a header; those of others are as they come.
    pub from: Vec<String>,
}

/// Listeners for stream routes: addresses, for example `0.0.0.0:6379`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamConfig {
    /// TCP.
    pub tcp: Vec<String>,
    /// TLS with the certificates of resources.
    pub tls: Vec<String>,
    /// TLS that is passed on as it is; routes see the server name.
    pub passthrough: Vec<String>,
    /// UDP.
    pub udp: Vec<String>,
}

/// The access log: one JSON object a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessLogConfig {
    /// Whether there is one.
    pub enabled: bool,
    /// File; absent = `access.log` in the data directory; `-` = standard output.
    pub file: Option<PathBuf>,
    /// Size at which the file is rotated.
    pub rotate: ByteSize,
    /// Rotated files that are kept.
    pub keep: u32,
    /// Fields of a line instead of the usual ones, each a text with `$variables`, a constant, or an object of such.
    pub format: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Responses that are kept, of all routes together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Memory for them.
    pub memory: ByteSize,
    /// Room on disk for them.
    pub disk: ByteSize,
    /// Directory; absent = `cache` in the data directory.
    pub dir: Option<PathBuf>,
}

/// Limits on clients. 0 = no limit, where that makes sense.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Longest request head; 1K to 1M.
    pub head: ByteSize,
    /// Most header lines; 8 to 1000.
    pub headers: usize,
    /// Largest request body of any app; 0 = no limit. An app's own limit counts when it is smaller.
    pub body: ByteSize,
    /// Most client connections over all workers; further ones get 503.
    pub connections: usize,
    /// Requests after which a connection is closed; 0 = no limit.
    pub requests_per_connection: u64,
    /// Concurrent streams of an HTTP/2 connection.
    pub h2_streams: u32,
    /// Streams that a client may reset before they are taken up, after which its connection ends (rapid reset).
    pub h2_resets: usize,
    /// Longest HTTP/2 header list; at most 1M.
    pub h2_header_list: ByteSize,
}

/// Limits in time. `0s` = no limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutsConfig {
    /// Longest time for a request head to arrive.
    pub head: Millis,
    /// Longest time for a TLS handshake.
    pub handshake: Millis,
    /// Longest idle time of a client connection between requests.
    pub keep_alive: Millis,
    /// Longest time that a closing connection is read on, so that its client sees the last answer.
    pub linger: Millis,
    /// How long a request that asked for `100-continue` waits for the instance's word before its body is sent anyway.
    pub expect: Millis,
}

/// Connections to instances, per worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamPoolConfig {
    /// Idle connections kept per endpoint.
    pub idle_per_endpoint: usize,
    /// Longest idle time of a kept connection.
    pub idle: Millis,
    /// Longest idle time of a kept connection that still carries a request that must not be sent twice (POST): shorter
    /// than what application servers grant idle connections.
    pub idle_unsafe: Millis,
    /// Longest response head.
    pub head: ByteSize,
    /// Streams on one HTTP/2 connection before another is opened.
    pub h2_streams: usize,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            listen: vec!["127.0.0.1:8080".into()],
            tls: Vec::new(),
            proxy_protocol: Vec::new(),
            stream: StreamConfig::default(),
            admin: None,
            data_dir: PathBuf::from("gateway"),
            sticky_key: None,
            token_file: None,
            place: Place::default(),
            workers: 0,
            trusted: Vec::new(),
            access_log: AccessLogConfig::default(),
            cache: CacheConfig::default(),
            limits: LimitsConfig::default(),
            timeouts: TimeoutsConfig::default(),
            upstream: UpstreamPoolConfig::default(),
            dns: DnsConfig::default(),
        }
    }
}

impl Default for DnsConfig {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            search: Vec::new(),
            min_ttl: Millis::secs(1),
            max_ttl: Millis::secs(3600),
        }
    }
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            listen: String::new(),
            certificate: None,
            key: None,
            labels: BTreeMap::new(),
            fallback_sni: None,
            handshakes: 10_000,
        }
    }
}

impl Default for AccessLogConfig {
    fn default() -> Self {
        Self { enabled: true, file: None, rotate: ByteSize::mib(64), keep: 3, format: None }
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { memory: ByteSize::mib(64), disk: ByteSize::mib(1024), dir: None }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            head: ByteSize(32 * 1024),
            headers: 100,
            body: ByteSize(0),
            connections: 20_000,
            requests_per_connection: 0,
            h2_streams: 200,
            h2_resets: 20,
            h2_header_list: ByteSize(64 * 1024),
        }
    }
}

impl Default for TimeoutsConfig {
    fn default() -> Self {
        Self {
            head: Millis::secs(20),
            handshake: Millis::secs(10),
            keep_alive: Millis::secs(75),
            linger: Millis::secs(2),
            expect: Millis::secs(1),
        }
    }
}

impl Default for UpstreamPoolConfig {
    fn default() -> Self {
        Self {
            idle_per_endpoint: 512,
            idle: Millis::secs(30),
            idle_unsafe: Millis::secs(1),
            head: ByteSize(64 * 1024),
            h2_streams: 100,
        }
    }
}
