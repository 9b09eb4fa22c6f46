//! Validated settings. Validation is pure and reports everything that is wrong, each with its field path.

use crate::config::{
    AccessLogConfig, CacheConfig, DnsConfig, GatewayConfig, LimitsConfig, ProxyProtocolConfig,
    TimeoutsConfig, TlsConfig, UpstreamPoolConfig,
};
use crate::hand_over::TakeOver;
use crate::resources::file::ResourceSource;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use towpath_types::NetBlock;
use towpath_types::{Millis, Place};

/// Validated settings of a gateway.
#[derive(Debug, Clone)]
pub struct GatewaySettings {
    /// Clear-text listeners.
    pub listen: Vec<SocketAddr>,
    /// TLS listeners.
    pub tls: Vec<TlsSettings>,
    /// Listeners that take the PROXY protocol.
    pub proxy_protocol: Vec<ProxyProtocolSettings>,
    /// Listeners for stream routes.
    pub stream: StreamSettings,
    /// Listener of `/metrics` and `/healthz`.
    pub admin: Option<SocketAddr>,
    /// Directory for id, snapshot, key and access log.
    pub data_dir: PathBuf,
    /// File with the key for sticky cookies; absent = one of its own in the data directory.
    pub sticky_key: Option<PathBuf>,
    /// File with a gateways' token, read whenever keys are asked for; absent = what is secret in resources cannot be opened.
    pub token_file: Option<PathBuf>,
    /// Where this gateway stands.
    pub place: Place,
    /// Worker threads, at least one.
    pub workers: usize,
    /// Peers whose forwarding headers are believed.
    pub trusted: Vec<NetBlock>,
    /// Access log.
    pub access_log: AccessLogConfig,
    /// What responses that are kept may take.
    pub cache: CacheConfig,
    /// Limits on clients.
    pub limits: LimitSettings,
    /// Limits in time.
    pub timeouts: TimeoutSettings,
    /// Connections to instances.
    pub upstream: UpstreamPoolSettings,
    /// How names of nodes are resolved.
    pub dns: DnsSettings,
    /// Where resources come from, for a gateway that runs alone.
    pub resources: Option<Resources>,
    /// What another process has handed over.
    pub take_over: Option<TakeOver>,
    /// Whether another process may take over, and what it gets with the listeners.
    pub hand_over: Option<Kept>,
}

/// Descriptors that are handed over with the listeners, by name. They are kept open as long as some process of the gateway runs.
#[derive(Debug, Clone, Default)]
pub struct Kept(pub Vec<(String, Arc<OwnedFd>)>);

/// Listeners for stream routes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamSettings {
    /// TCP.
    pub tcp: Vec<SocketAddr>,
    /// TLS with the certificates of resources.
    pub tls: Vec<SocketAddr>,
    /// TLS that is passed on as it is.
    pub passthrough: Vec<SocketAddr>,
    /// UDP.
    pub udp: Vec<SocketAddr>,
}

/// How names of nodes are resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsSettings {
    /// Servers; none = those of the machine, with its search domains.
    pub servers: Vec<SocketAddr>,
    /// Further search domains.
    pub search: Vec<String>,
    /// An answer holds no shorter.
    pub min_ttl: Duration,
    /// And no longer.
    pub max_ttl: Duration,
}

impl Default for DnsSettings {
    fn default() -> Self {
        validate_dns(&mut Findings::default(), &DnsConfig::default())
    }
}

/// Where resources come from.
#[derive(Clone)]
pub struct Resources(pub Arc<dyn ResourceSource>);

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resources")
    }
}

/// A TLS listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// Address.
    pub listen: SocketAddr,
    /// PEM files with a certificate chain and its key, for clients that name nothing, or what no resource has.
    pub own: Option<(PathBuf, PathBuf)>,
    /// Of the `ssls` resources those with all these labels are served here.
    pub labels: BTreeMap<String, String>,
    /// The name that counts for clients that name nothing.
    pub fallback_sni: Option<String>,
    /// Most handshakes under way.
    pub handshakes: usize,
}

impl TlsSettings {
    /// Serves all certificates of resources.
    pub fn at(listen: SocketAddr) -> Self {
        let config = TlsConfig::default();
        Self { listen, own: None, labels: config.labels, fallback_sni: None, handshakes: config.handshakes }
    }
}

/// A listener that takes the PROXY protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyProtocolSettings {
    /// The listener, by the address that it is asked to listen on.
    pub listen: SocketAddr,
    /// The proxies that are believed.
    pub from: Vec<NetBlock>,
}

/// Limits on clients; `u64::MAX` or `usize::MAX` = none.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of LimitsConfig, in bytes and counts")]
pub struct LimitSettings {
    pub head: usize,
    pub headers: usize,
    pub body: u64,
    pub connections: usize,
    pub requests_per_connection: u64,
    pub h2_streams: u32,
    pub h2_resets: usize,
    pub h2_header_list: u32,
}

/// Limits in time, milliseconds; `u64::MAX` = none.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of TimeoutsConfig")]
pub struct TimeoutSettings {
    pub head_ms: u64,
    pub handshake_ms: u64,
    pub keep_alive_ms: u64,
    pub linger: Duration,
    pub expect_ms: u64,
}

/// Connections to instances, per worker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of UpstreamPoolConfig")]
pub struct UpstreamPoolSettings {
    pub idle_per_endpoint: usize,
    pub idle_ms: u64,
    pub idle_unsafe_ms: u64,
    pub head: usize,
    pub h2_streams: usize,
}

/// One thing that is wrong in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, for example `tls[0].listen`.
    pub field: String,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Everything that is wrong in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(pub Vec<FieldError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.0.iter().enumerate() {
            write!(f, "{}{}: {}", if n == 0 { "" } else { "; " }, error.field, error.message)?;
        }
        Ok(())
    }
}

/// Collects what is wrong.
#[derive(Default)]
struct Findings(Vec<FieldError>);

impl Findings {
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(FieldError { field: field.into(), message: message.into() });
    }

    fn address(&mut self, field: String, text: &str) -> Option<SocketAddr> {
        match text.parse() {
            Ok(address) => Some(address),
            Err(_) => {
                self.add(
                    field,
                    format!("{text:?} is not an address; write for example 127.0.0.1:8080 or [::]:8080"),
                );
                None
            }
        }
    }

    fn blocks(&mut self, field: &str, texts: &[String]) -> Vec<NetBlock> {
        let blocks = texts.iter().enumerate().filter_map(|(n, text)| match text.parse() {
            Ok(block) => Some(block),
            Err(_) => {
                let message = format!("{text:?} is not an address or a block; write for example 10.0.0.0/8");
                self.add(format!("{field}[{n}]"), message);
                None
            }
        });
        blocks.collect()
    }

    fn range(&mut self, field: &str, value: u64, least: u64, most: u64) {
        if !(least..=most).contains(&value) {
            self.add(field, format!("{value} is not between {least} and {most}"));
        }
    }
}

impl GatewayConfig {
    /// Checks everything and makes settings of it.
    pub fn validate(self) -> Result<GatewaySettings, ConfigErrors> {
        let mut findings = Findings::default();
        let listen = self
            .listen
            .iter()
            .enumerate()
            .filter_map(|(n, text)| findings.address(format!("listen[{n}]"), text))
            .collect::<Vec<_>>();
        let tls = validate_tls(&mut findings, self.tls);
        if self.listen.is_empty() && tls.is_empty() {
            findings.add("listen", "there is no listener; name at least one address here or in tls");
        }
        let proxy_protocol = validate_proxies(&mut findings, &self.proxy_protocol, &listen, &tls);
        let mut stream = StreamSettings::default();
        for (name, texts, addresses) in [
            ("tcp", &self.stream.tcp, &mut stream.tcp),
            ("tls", &self.stream.tls, &mut stream.tls),
            ("passthrough", &self.stream.passthrough, &mut stream.passthrough),
            ("udp", &self.stream.udp, &mut stream.udp),
        ] {
            addresses.extend(
                texts
                    .iter()
                    .enumerate()
                    .filter_map(|(n, text)| findings.address(format!("stream.{name}[{n}]"), text)),
            );
        }
        let admin = self.admin.as_deref().and_then(|text| findings.address("admin".into(), text));
        if self.data_dir.as_os_str().is_empty() {
            findings.add("data_dir", "it is empty; name a directory");
        }
        findings.range("workers", self.workers as u64, 0, 1024);
        let trusted = findings.blocks("trusted", &self.trusted);
        if self.access_log.rotate.0 < 64 * 1024 {
            findings.add("access_log.rotate", "it is below 64K");
        }
        let limits = validate_limits(&mut findings, &self.limits);
        let timeouts = validate_timeouts(&self.timeouts);
        let upstream = validate_upstream(&mut findings, &self.upstream);
        let dns = validate_dns(&mut findings, &self.dns);
        if !findings.0.is_empty() {
            return Err(ConfigErrors(findings.0));
        }
        Ok(GatewaySettings {
            listen,
            tls,
            proxy_protocol,
            stream,
            admin,
            data_dir: self.data_dir,
            sticky_key: self.sticky_key,
            token_file: self.token_file,
            place: self.place,
            workers: if self.workers == 0 { cores() } else { self.workers },
            trusted,
            access_log: self.access_log,
            cache: self.cache,
            limits,
            timeouts,
            upstream,
            dns,
            resources: None,
            take_over: None,
            hand_over: None,
        })
    }
}

impl GatewaySettings {
    /// The defaults, with this data directory.
    pub fn in_dir(data_dir: impl Into<PathBuf>) -> Self {
        let config = GatewayConfig::default();
        let mut nothing = Findings::default();
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 8080))],
            tls: Vec::new(),
            proxy_protocol: Vec::new(),
            stream: StreamSettings::default(),
            admin: None,
            data_dir: data_dir.into(),
            sticky_key: None,
            token_file: None,
            place: Place::default(),
            workers: cores(),
            trusted: Vec::new(),
            access_log: config.access_log,
            cache: config.cache,
            limits: validate_limits(&mut nothing, &config.limits),
            timeouts: validate_timeouts(&config.timeouts),
            upstream: validate_upstream(&mut nothing, &config.upstream),
            dns: DnsSettings::default(),
            resources: None,
            take_over: None,
            hand_over: None,
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn validate_tls(findings: &mut Findings, tls: Vec<TlsConfig>) -> Vec<TlsSettings> {
    let mut settings = Vec::new();
    for (n, one) in tls.into_iter().enumerate() {
        let files = [("certificate", &one.certificate), ("key", &one.key)];
        for (name, path) in files {
            if path.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
                findings.add(format!("tls[{n}].{name}"), "it is empty; name a PEM file");
            } else if path.is_none() && files.iter().any(|(_, path)| path.is_some()) {
                findings.add(format!("tls[{n}].{name}"), "it is missing; certificate and key stand together");
            }
        }
        if one.fallback_sni.as_ref().is_some_and(String::is_empty) {
            findings.add(format!("tls[{n}].fallback_sni"), "it is empty; name a host");
        }
        findings.range(&format!("tls[{n}].handshakes"), one.handshakes as u64, 1, 1_000_000);
        if let Some(listen) = findings.address(format!("tls[{n}].listen"), &one.listen) {
            settings.push(TlsSettings {
                listen,
                own: one.certificate.zip(one.key),
                labels: one.labels,
                fallback_sni: one.fallback_sni,
                handshakes: one.handshakes,
            });
        }
    }
    settings
}

fn validate_proxies(
    findings: &mut Findings,
    proxies: &[ProxyProtocolConfig],
    listen: &[SocketAddr],
    tls: &[TlsSettings],
) -> Vec<ProxyProtocolSettings> {
    let mut settings: Vec<ProxyProtocolSettings> = Vec::new();
    for (n, one) in proxies.iter().enumerate() {
        let field = |name: &str| format!("proxy_protocol[{n}].{name}");
        let from = findings.blocks(&field("from"), &one.from);
        if one.from.is_empty() {
            findings.add(
                field("from"),
                "it is empty; name the proxies that are believed, for example 10.0.0.0/8",
            );
        }
        let Some(address) = findings.address(field("listen"), &one.listen) else { continue };
        if !listen.contains(&address) && !tls.iter().any(|tls| tls.listen == address) {
            findings.add(field("listen"), format!("{address} is no listener; name one of listen or tls"));
        } else if settings.iter().any(|known| known.listen == address) {
            findings.add(field("listen"), format!("{address} stands here twice"));
        } else {
            settings.push(ProxyProtocolSettings { listen: address, from });
        }
    }
    settings
}

fn validate_limits(findings: &mut Findings, limits: &LimitsConfig) -> LimitSettings {
    findings.range("limits.head", limits.head.0, 1024, 1 << 20);
    findings.range("limits.headers", limits.headers as u64, 8, 1000);
    findings.range("limits.h2_streams", u64::from(limits.h2_streams), 1, 100_000);
    findings.range("limits.h2_resets", limits.h2_resets as u64, 1, 100_000);
    findings.range("limits.h2_header_list", limits.h2_header_list.0, 1024, 1 << 20);
    let none_if_zero = |n: u64| if n == 0 { u64::MAX } else { n };
    LimitSettings {
        head: usize::try_from(limits.head.0).unwrap_or(usize::MAX),
        headers: limits.headers,
        body: none_if_zero(limits.body.0),
        connections: if limits.connections == 0 { usize::MAX } else { limits.connections },
        requests_per_connection: none_if_zero(limits.requests_per_connection),
        h2_streams: limits.h2_streams,
        h2_resets: limits.h2_resets,
        h2_header_list: u32::try_from(limits.h2_header_list.0).unwrap_or(1 << 20),
    }
}

fn validate_timeouts(timeouts: &TimeoutsConfig) -> TimeoutSettings {
    let none_if_zero = |t: Millis| if t.0 == 0 { u64::MAX } else { t.0 };
    TimeoutSettings {
        head_ms: none_if_zero(timeouts.head),
        handshake_ms: none_if_zero(timeouts.handshake),
        keep_alive_ms: none_if_zero(timeouts.keep_alive),
        linger: timeouts.linger.duration(),
        expect_ms: timeouts.expect.0,
    }
}

fn validate_upstream(findings: &mut Findings, upstream: &UpstreamPoolConfig) -> UpstreamPoolSettings {
    findings.range("upstream.idle_per_endpoint", upstream.idle_per_endpoint as u64, 0, 100_000);
    findings.range("upstream.head", upstream.head.0, 1024, 64 << 10);
    findings.range("upstream.h2_streams", upstream.h2_streams as u64, 1, 10_000);
    UpstreamPoolSettings {
        idle_per_endpoint: upstream.idle_per_endpoint,
        idle_ms: upstream.idle.0,
        idle_unsafe_ms: upstream.idle_unsafe.0,
        head: usize::try_from(upstream.head.0).unwrap_or(usize::MAX),
        h2_streams: upstream.h2_streams,
    }
}

fn validate_dns(findings: &mut Findings, dns: &DnsConfig) -> DnsSettings {
    findings.range("dns.min_ttl", dns.min_ttl.0, 1, 3_600_000);
    findings.range("dns.max_ttl", dns.max_ttl.0, dns.min_ttl.0, 86_400_000);
    let mut servers = Vec::new();
    for (n, text) in dns.servers.iter().enumerate() {
        let with_port = text.parse().or_else(|_| text.parse().map(|ip: IpAddr| SocketAddr::from((ip, 53))));
        match with_port {
            Ok(address) => servers.push(address),
            Err(_) => findings.add(
                format!("dns.servers[{n}]"),
                format!("{text:?} is not an address; write for example 10.0.0.2 or 127.0.0.1:8600"),
            ),
        }
    }
    for (n, domain) in dns.search.iter().enumerate() {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if domain.is_empty() || domain.len() > 253 || !domain.bytes().all(is_name) {
            findings.add(format!("dns.search[{n}]"), format!("{domain:?} is no name of a domain"));
        }
    }
    DnsSettings {
        servers,
        search: dns.search.clone(),
        min_ttl: dns.min_ttl.duration(),
        max_ttl: dns.max_ttl.duration().max(dns.min_ttl.duration()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_equal_in_both_ways_of_making_them() {
        let settings = GatewayConfig::default().validate().unwrap();
        let direct = GatewaySettings::in_dir("gateway");
        assert_eq!(format!("{settings:?}"), format!("{direct:?}"));
    }

    #[test]
    fn everything_that_is_wrong_is_reported_by_field() {
        let config: GatewayConfig = serde_json::from_value(serde_json::json!({
            "listen": ["127.0.0.1", "[::1]:80"], "tls": [{"listen": "x", "certificate": "", "key": "k"}, {"listen": "[::1]:1", "key": "k"}],
            "proxy_protocol": [{"listen": "[::1]:80", "from": []}, {"listen": "[::1]:81", "from": ["x"]}],
            "admin": "nowhere", "data_dir": "", "workers": 5000, "trusted": ["10.0.0.0/8", "10.0.0.0/99"],
            "limits": {"head": 10, "headers": 1}, "upstream": {"head": "1G"}, "dns": {"servers": ["1.1.1.1", "dns.test"], "search": ["a b"]}, "access_log": {"rotate": 1}
        }))
        .unwrap();
        let fields: Vec<_> = config.validate().unwrap_err().0.into_iter().map(|e| e.field).collect();
        let expected = [
            "listen[0]",
            "tls[0].certificate",
            "tls[0].listen",
            "tls[1].certificate",
            "proxy_protocol[0].from",
            "proxy_protocol[1].from[0]",
            "proxy_protocol[1].listen",
            "admin",
            "data_dir",
            "workers",
            "trusted[1]",
            "access_log.rotate",
            "limits.head",
            "limits.headers",
            "upstream.head",
            "dns.servers[1]",
            "dns.search[0]",
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(serde_json::from_str::<GatewayConfig>(r#"{"listn": []}"#).is_err());
        assert!(serde_json::from_str::<GatewayConfig>(r#"{"limits": {"heads": 1}}"#).is_err());
    }
}
