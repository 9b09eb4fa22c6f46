//! The Prometheus text form of all counters.

use super::{BUCKETS_US, Count, OWN_CODES, Registry, RequestMetrics, WorkerMetrics};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use towpath_route::{Endpoint, Table};

/// Renders all counters, and the state of the table's endpoints.
pub(crate) fn render(registry: &Registry, table: &Table, revision: u64) -> String {
    let mut out = String::with_capacity(16 * 1024);
    totals(&mut out, &registry.workers);
    errors(&mut out, &registry.workers);
    super::streams::render(&mut out, &registry.workers);
    requests(&mut out, registry);
    let counts = table.counts();
    for (name, value) in [
        ("towpath_gateway_workers", registry.workers.len() as u64),
        ("towpath_gateway_table_revision", revision),
        ("towpath_gateway_table_routes", counts.routes as u64),
        ("towpath_gateway_table_apps", counts.apps as u64),
        ("towpath_gateway_table_endpoints", counts.endpoints as u64),
    ] {
        let _ = writeln!(out, "# TYPE {name} gauge\n{name} {value}");
    }
    if let Some(sources) = registry.sources() {
        sources.render(&mut out, crate::clock::now_ms());
    }
    endpoints(&mut out, table.endpoints());
    out
}

fn totals(out: &mut String, workers: &[Arc<WorkerMetrics>]) {
    type Field = fn(&WorkerMetrics) -> &Count;
    let fields: [(&str, &str, Field); 26] = [
        ("connections_accepted_total", "counter", |w| &w.accepted),
        ("connections", "gauge", |w| &w.connections),
        ("connections_dozing", "gauge", |w| &w.dozing),
        ("connections_turned_away_total", "counter", |w| &w.turned_away),
        ("proxy_headers_refused_total", "counter", |w| &w.proxy_headers_refused),
        ("tls_handshakes_total", "counter", |w| &w.handshakes),
        ("tls_handshake_failures_total", "counter", |w| &w.handshake_failures),
        ("tls_handshakes_refused_total", "counter", |w| &w.handshakes_refused),
        ("upstream_connects_total", "counter", |w| &w.connects),
        ("connect_failures_total", "counter", |w| &w.connect_failures),
        ("upstream_reuses_total", "counter", |w| &w.reuses),
        ("upstream_stale_total", "counter", |w| &w.stale),
        ("retries_total", "counter", |w| &w.retries),
        ("retries_denied_total", "counter", |w| &w.retries_denied),
        ("ejections_total", "counter", |w| &w.ejections),
        ("clients_gone_total", "counter", |w| &w.clients_gone),
        ("upgrades_total", "counter", |w| &w.upgrades),
        ("access_log_dropped_total", "counter", |w| &w.log_dropped),
        ("plugin_log_dropped_total", "counter", |w| &w.plugin_log_dropped),
        ("mirror_dropped_total", "counter", |w| &w.mirror_dropped),
        ("s3_waited_total", "counter", |w| &w.s3_waited),
        ("s3_turned_away_total", "counter", |w| &w.s3_turned_away),
        ("spans_dropped_total", "counter", |w| &w.spans_dropped),
        ("cache_hits_total", "counter", |w| &w.cache_hits),
        ("cache_misses_total", "counter", |w| &w.cache_misses),
        ("request_bytes_total", "counter", |w| &w.requests.bytes_in),
    ];
    for (name, kind, field) in fields {
        let sum: u64 = workers.iter().map(|worker| field(worker).get()).fold(0, u64::wrapping_add);
        let _ = writeln!(out, "# TYPE towpath_gateway_{name} {kind}\ntowpath_gateway_{name} {sum}");
    }
}

fn errors(out: &mut String, workers: &[Arc<WorkerMetrics>]) {
    let _ = writeln!(out, "# TYPE towpath_gateway_errors_total counter");
    for (at, code) in OWN_CODES.iter().enumerate() {
        let sum: u64 = workers.iter().filter_map(|w| w.errors.get(at)).map(Count::get).sum();
        let _ = writeln!(out, "towpath_gateway_errors_total{{code=\"{code}\"}} {sum}");
    }
}

/// Sums of the same counters over workers.
#[derive(Default)]
struct Sum {
    classes: [u64; 6],
    buckets: [u64; BUCKETS_US.len() + 1],
    sum_us: u64,
    bytes_out: u64,
}

impl Sum {
    fn add(&mut self, one: &RequestMetrics) {
        self.classes.iter_mut().zip(&one.classes).for_each(|(sum, n)| *sum += n.get());
        self.buckets.iter_mut().zip(&one.duration.buckets).for_each(|(sum, n)| *sum += n.get());
        self.sum_us += one.duration.sum_us.get();
        self.bytes_out += one.bytes_out.get();
    }

    fn write(&self, out: &mut String, prefix: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        for (class, count) in self.classes.iter().enumerate().filter(|(_, count)| **count > 0) {
            let _ = writeln!(out, "{prefix}_requests_total{{{labels}{comma}class=\"{class}xx\"}} {count}");
        }
        let mut total = 0;
        for (bound, count) in
            BUCKETS_US.iter().map(|us| seconds(*us)).chain(["+Inf".into()]).zip(&self.buckets)
        {
            total += count;
            let _ = writeln!(out, "{prefix}_request_seconds_bucket{{{labels}{comma}le=\"{bound}\"}} {total}");
        }
        let _ = writeln!(out, "{prefix}_request_seconds_sum{{{labels}}} {}", seconds(self.sum_us));
        let _ = writeln!(out, "{prefix}_request_seconds_count{{{labels}}} {total}");
        let _ = writeln!(out, "{prefix}_response_bytes_total{{{labels}}} {}", self.bytes_out);
    }
}

/// Microseconds as seconds, exact and without trailing zeros.
pub(super) fn seconds(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn requests(out: &mut String, registry: &Registry) {
    let mut all = Sum::default();
    registry.workers.iter().for_each(|worker| all.add(&worker.requests));
    all.write(out, "towpath_gateway", "");
    let mut apps: BTreeMap<String, Sum> = BTreeMap::new();
    for one in registry.apps() {
        apps.entry(one.app.to_string()).or_default().add(&one.requests);
    }
    for (app, sum) in apps {
        sum.write(out, "towpath_app", &format!("app=\"{app}\""));
    }
}

/// Most endpoints that are listed; more would make a scrape grow with the platform.
const ENDPOINTS_MAX: usize = 2_000;

fn endpoints<'t>(out: &mut String, endpoints: impl Iterator<Item = &'t Arc<Endpoint>>) {
    let _ = writeln!(out, "# TYPE towpath_endpoint_in_flight gauge");
    for endpoint in endpoints.take(ENDPOINTS_MAX) {
        let _ = writeln!(
            out,
            "towpath_endpoint_in_flight{{app=\"{}\",lane=\"{}\",instance=\"{}\"}} {}",
            endpoint.app(),
            endpoint.lane(),
            endpoint.instance(),
            endpoint.state.in_flight()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_seen_in_class_bucket_sum_and_count() {
        let registry = Registry::new(2);
        registry.worker(0).requests.add(200, 700, 10, 1024);
        registry.worker(1).requests.add(503, 20_000_000, 0, 10);
        registry.worker(1).error(towpath_types::ErrorCode::NoEndpoint);
        let text = render(&registry, &Table::new(towpath_types::Place::default()), 7);
        for line in [
            "towpath_gateway_requests_total{class=\"2xx\"} 1",
            "towpath_gateway_requests_total{class=\"5xx\"} 1",
            "towpath_gateway_request_seconds_bucket{le=\"0.0005\"} 0",
            "towpath_gateway_request_seconds_bucket{le=\"0.001\"} 1",
            "towpath_gateway_request_seconds_bucket{le=\"10\"} 1",
            "towpath_gateway_request_seconds_bucket{le=\"+Inf\"} 2",
            "towpath_gateway_request_seconds_sum{} 20.0007",
            "towpath_gateway_request_seconds_count{} 2",
            "towpath_gateway_errors_total{code=\"no_endpoint\"} 1",
            "towpath_gateway_table_revision 7",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn every_name_is_in_the_guide() {
        let registry = Registry::new(1);
        let app = registry
            .add_app(towpath_types::AppRef::new(&towpath_types::SpaceRef::first(), "shop".parse().unwrap()));
        app.requests.add(200, 1, 1, 1);
        registry.worker(0).requests.add(200, 1, 1, 1);
        registry.note_sources(super::super::Sources {
            bus_up: true,
            bus_since_ms: 0,
            managers_ms: Some(0),
            announce_ms: Some(0),
            cells: 0,
            stale: 0,
            refused: 0,
        });
        let guide = include_str!("../../../../docs/guide/metrics.md");
        let text = render(&registry, &Table::new(towpath_types::Place::default()), 7);
        for line in text.lines() {
            let name = line.strip_prefix("# TYPE ").unwrap_or(line);
            let name = name.split([' ', '{']).next().unwrap();
            let family = ["_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let written = family.map_or_else(|| name.to_owned(), |family| format!("{family}_bucket"));
            assert!(guide.contains(&written), "{written} is not in docs/guide/metrics.md");
        }
    }
}
