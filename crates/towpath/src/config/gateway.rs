//! The `[gateway]` table, as the gateway's own configuration.

use super::read::listen_text;
use crate::document::Value;
use crate::document::fields::Fields;
use std::collections::BTreeMap;
use std::path::PathBuf;
use towpath_gateway::{
    AccessLogConfig, CacheConfig, DnsConfig, GatewayConfig, LimitsConfig, ProxyProtocolConfig, StreamConfig,
    TimeoutsConfig, TlsConfig, UpstreamPoolConfig,
};

/// Reads the table, except for `url`, which is not the gateway's own.
pub(super) fn read(fields: &Fields<'_>) -> GatewayConfig {
    let default = GatewayConfig::default();
    let listen = fields.texts("listen").unwrap_or_default();
    let listen: Vec<String> = listen.iter().filter_map(|text| address(fields, "listen", text)).collect();
    GatewayConfig {
        listen: if listen.is_empty() { default.listen } else { listen },
        tls: tls(fields),
        proxy_protocol: proxy_protocol(fields),
        stream: fields.table("stream").map(stream).unwrap_or_default(),
        admin: fields.text("admin").and_then(|text| address(fields, "admin", &text)),
        workers: count(fields, "workers", 1..=1024, default.workers),
        trusted: fields.texts("trusted").unwrap_or_default(),
        sticky_key: fields.text("sticky_key").map(PathBuf::from),
        token_file: fields.text("token_file").map(PathBuf::from),
        access_log: fields.table("access_log").map(access_log).unwrap_or_default(),
        cache: fields.table("cache").map(cache).unwrap_or_default(),
        limits: fields.table("limits").map(limits).unwrap_or_default(),
        timeouts: fields.table("timeouts").map(timeouts).unwrap_or_default(),
        upstream: fields.table("upstream").map(upstream).unwrap_or_default(),
        dns: fields.table("dns").map(dns).unwrap_or_default(),
        ..default
    }
}

fn address(fields: &Fields<'_>, name: &str, text: &str) -> Option<String> {
    listen_text(text).map_err(|why| fields.wrong(name, why, "")).ok()
}

fn count<N: TryFrom<u64>>(
    fields: &Fields<'_>,
    name: &'static str,
    range: std::ops::RangeInclusive<u64>,
    default: N,
) -> N {
    fields.count(name, range).and_then(|n| N::try_from(n).ok()).unwrap_or(default)
}

fn tls(fields: &Fields<'_>) -> Vec<TlsConfig> {
    let items = fields.list("tls").unwrap_or_default();
    let mut found = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let path = format!("{}[{at}]", fields.path_of("tls"));
        let one = Fields::of(fields.source(), fields.problems(), &path, item);
        if one.node("listen").is_none() {
            one.wrong("listen", "it is missing", "listen = \"0.0.0.0:443\"");
        }
        let default = TlsConfig::default();
        let config = TlsConfig {
            listen: address(&one, "listen", &one.text("listen").unwrap_or_default()).unwrap_or_default(),
            certificate: one.text("certificate").map(PathBuf::from),
            key: one.text("key").map(PathBuf::from),
            labels: one.table("labels").map(labels).unwrap_or_default(),
            fallback_sni: one.text("fallback_sni"),
            handshakes: count(&one, "handshakes", 1..=1_000_000, default.handshakes),
        };
        one.finish();
        found.push(config);
    }
    found
}

fn proxy_protocol(fields: &Fields<'_>) -> Vec<ProxyProtocolConfig> {
    let items = fields.list("proxy_protocol").unwrap_or_default();
    let mut found = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let path = format!("{}[{at}]", fields.path_of("proxy_protocol"));
        let one = Fields::of(fields.source(), fields.problems(), &path, item);
        for (name, example) in [("listen", "listen = \"0.0.0.0:80\""), ("from", "from = [\"10.0.0.0/8\"]")] {
            if one.node(name).is_none() {
                one.wrong(name, "it is missing", example);
            }
        }
        found.push(ProxyProtocolConfig {
            listen: address(&one, "listen", &one.text("listen").unwrap_or_default()).unwrap_or_default(),
            from: one.texts("from").unwrap_or_default(),
        });
        one.finish();
    }
    found
}

/// Any names with texts.
fn labels(fields: Fields<'_>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for entry in fields.entries() {
        match &entry.node.value {
            Value::Text(text) => drop(labels.insert(entry.key.clone(), text.clone())),
            other => fields.wrong(&entry.key, format!("a text is expected, not {}", other.kind()), ""),
        }
    }
    labels
}

fn stream(fields: Fields<'_>) -> StreamConfig {
    let addresses = |name| {
        let texts: Vec<String> = fields.texts(name).unwrap_or_default();
        texts.iter().filter_map(|text| address(&fields, name, text)).collect()
    };
    let config = StreamConfig {
        tcp: addresses("tcp"),
        tls: addresses("tls"),
        passthrough: addresses("passthrough"),
        udp: addresses("udp"),
    };
    fields.finish();
    config
}

fn access_log(fields: Fields<'_>) -> AccessLogConfig {
    let default = AccessLogConfig::default();
    let config = AccessLogConfig {
        enabled: fields.boolean("enabled").unwrap_or(default.enabled),
        file: fields.text("file").map(PathBuf::from),
        rotate: fields.parsed("rotate").unwrap_or(default.rotate),
        keep: count(&fields, "keep", 0..=1000, default.keep),
        format: format(&fields),
    };
    fields.finish();
    config
}

/// A JSON object in a text: its fields are those of a line.
fn format(fields: &Fields<'_>) -> Option<serde_json::Map<String, serde_json::Value>> {
    match serde_json::from_str(&fields.text("format")?) {
        Ok(format) => Some(format),
        Err(error) => {
            let example = r#"format = '{"client": "$remote_addr", "status": "$status"}'"#;
            fields.wrong("format", format!("it is no JSON object: {error}"), example);
            None
        }
    }
}

fn cache(fields: Fields<'_>) -> CacheConfig {
    let default = CacheConfig::default();
    let config = CacheConfig {
        memory: fields.parsed("memory").unwrap_or(default.memory),
        disk: fields.parsed("disk").unwrap_or(default.disk),
        dir: fields.text("dir").map(PathBuf::from),
    };
    fields.finish();
    config
}

fn limits(fields: Fields<'_>) -> LimitsConfig {
    let default = LimitsConfig::default();
    let many = 0..=1_000_000_000;
    let config = LimitsConfig {
        head: fields.parsed("head").unwrap_or(default.head),
        headers: count(&fields, "headers", 8..=1000, default.headers),
        body: fields.parsed("body").unwrap_or(default.body),
        connections: count(&fields, "connections", many.clone(), default.connections),
        requests_per_connection: count(
            &fields,
            "requests_per_connection",
            many,
            default.requests_per_connection,
        ),
        h2_streams: count(&fields, "h2_streams", 1..=100_000, default.h2_streams),
        h2_resets: count(&fields, "h2_resets", 1..=100_000, default.h2_resets),
        h2_header_list: fields.parsed("h2_header_list").unwrap_or(default.h2_header_list),
    };
    fields.finish();
    config
}

fn timeouts(fields: Fields<'_>) -> TimeoutsConfig {
    let default = TimeoutsConfig::default();
    let config = TimeoutsConfig {
        head: fields.parsed("head").unwrap_or(default.head),
        handshake: fields.parsed("handshake").unwrap_or(default.handshake),
        keep_alive: fields.parsed("keep_alive").unwrap_or(default.keep_alive),
        linger: fields.parsed("linger").unwrap_or(default.linger),
        expect: fields.parsed("expect").unwrap_or(default.expect),
    };
    fields.finish();
    config
}

fn dns(fields: Fields<'_>) -> DnsConfig {
    let default = DnsConfig::default();
    let config = DnsConfig {
        servers: fields.texts("servers").unwrap_or_default(),
        search: fields.texts("search").unwrap_or_default(),
        min_ttl: fields.parsed("min_ttl").unwrap_or(default.min_ttl),
        max_ttl: fields.parsed("max_ttl").unwrap_or(default.max_ttl),
    };
    fields.finish();
    config
}

fn upstream(fields: Fields<'_>) -> UpstreamPoolConfig {
    let default = UpstreamPoolConfig::default();
    let config = UpstreamPoolConfig {
        idle_per_endpoint: count(&fields, "idle_per_endpoint", 0..=100_000, default.idle_per_endpoint),
        idle: fields.parsed("idle").unwrap_or(default.idle),
        idle_unsafe: fields.parsed("idle_unsafe").unwrap_or(default.idle_unsafe),
        head: fields.parsed("head").unwrap_or(default.head),
        h2_streams: count(&fields, "h2_streams", 1..=10_000, default.h2_streams),
    };
    fields.finish();
    config
}
