//! Counters by route, service, consumer and node, under the names that APISIX documents.
//!
//! Each worker has series of its own, found without a lock by a hash of their labels. A scrape sums them up by their labels, on a
//! thread of its own: it takes no lock that a request waits for, but that of the list of all series, which a request takes when
//! it is the first of its labels. Their number is bounded: what is beyond is counted in one series without labels, and a series
//! that nothing was counted in for an hour goes.

use super::{Count, Registry};
use std::collections::{BTreeMap, HashMap};
use std::fmt::{Display, Write};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Most series of a worker.
const MOST: usize = 20_000;
/// A series in which nothing was counted for so long goes, milliseconds.
const IDLE_MS: u64 = 3_600_000;
/// Upper bounds of the buckets, milliseconds.
const BUCKETS: [u64; 15] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

/// What a request is counted by.
pub(crate) struct Labels<'a, N> {
    pub(crate) route: &'a str,
    pub(crate) matched_uri: &'a str,
    pub(crate) matched_host: &'a str,
    pub(crate) service: &'a str,
    pub(crate) consumer: &'a str,
    pub(crate) node: Option<N>,
    pub(crate) code: u16,
}

/// What is counted.
pub(crate) struct Sample {
    pub(crate) total_us: u64,
    pub(crate) upstream_us: Option<u64>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

/// One combination of labels.
#[derive(Debug)]
pub(crate) struct Series {
    /// `route="1",service="",consumer="",node="127.0.0.1"`.
    traffic: String,
    /// The same with code, path and host.
    status: String,
    requests: Count,
    latencies: [Latency; 3],
    bytes: [Count; 2],
    touched_ms: Count,
}

#[derive(Debug, Default)]
struct Latency {
    buckets: [Count; BUCKETS.len() + 1],
    sum_us: Count,
}

impl Latency {
    fn add(&self, us: u64) {
        let at = BUCKETS.iter().position(|&bound| us <= bound * 1000).unwrap_or(BUCKETS.len());
        if let Some(bucket) = self.buckets.get(at) {
            bucket.add(1);
        }
        self.sum_us.add(us);
    }
}

/// All series of the process.
#[derive(Debug, Default)]
pub(crate) struct AllSeries(Mutex<Vec<Arc<Series>>>);

/// Those of one worker.
pub(crate) struct WorkerSeries {
    all: Arc<AllSeries>,
    known: HashMap<u64, Arc<Series>>,
    keys: RandomState,
}

impl Series {
    fn add(&self, sample: &Sample, now_ms: u64) {
        let [request, upstream, own] = &self.latencies;
        self.requests.add(1);
        request.add(sample.total_us);
        if let Some(us) = sample.upstream_us {
            upstream.add(us);
        }
        own.add(sample.total_us.saturating_sub(sample.upstream_us.unwrap_or_default()));
        let [ingress, egress] = &self.bytes;
        ingress.add(sample.bytes_in);
        egress.add(sample.bytes_out);
        self.touched_ms.sub(self.touched_ms.get());
        self.touched_ms.add(now_ms);
    }
}

impl<N: Display> Labels<'_, N> {
    fn node(&self) -> String {
        let node = self.node.as_ref().map(ToString::to_string).unwrap_or_default();
        match node.parse::<SocketAddr>() {
            Ok(address) => address.ip().to_string(),
            Err(_) => node.rsplit_once(':').map_or(node.as_str(), |(host, _)| host).to_owned(),
        }
    }

    fn series(&self) -> Series {
        let mut traffic = String::new();
        put(&mut traffic, "route", self.route);
        put(&mut traffic, "service", self.service);
        put(&mut traffic, "consumer", self.consumer);
        put(&mut traffic, "node", &self.node());
        let mut status = String::new();
        put(&mut status, "code", &self.code.to_string());
        put(&mut status, "route", self.route);
        put(&mut status, "matched_uri", self.matched_uri);
        put(&mut status, "matched_host", self.matched_host);
        put(&mut status, "service", self.service);
        put(&mut status, "consumer", self.consumer);
        put(&mut status, "node", &self.node());
        Series {
            traffic,
            status,
            requests: Count::default(),
            latencies: Default::default(),
            bytes: Default::default(),
            touched_ms: Count::default(),
        }
    }
}

/// Adds a label.
fn put(out: &mut String, name: &str, value: &str) {
    let comma = if out.is_empty() { "" } else { "," };
    let _ = write!(out, "{comma}{name}=\"");
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
}

impl WorkerSeries {
    /// None yet.
    pub(crate) fn new(all: Arc<AllSeries>) -> Self {
        Self { all, known: HashMap::new(), keys: RandomState::new() }
    }

    /// Counts a request. `node` tells nodes apart without making text of them.
    pub(crate) fn count<N: Display + std::hash::Hash>(&mut self, labels: &Labels<'_, N>, sample: &Sample) {
        let key = self.keys.hash_one((
            (labels.route, labels.matched_uri, labels.matched_host),
            (labels.service, labels.consumer, &labels.node, labels.code),
        ));
        let now_ms = crate::clock::now_ms();
        if let Some(series) = self.known.get(&key) {
            return series.add(sample, now_ms);
        }
        let full = self.known.len() >= MOST;
        let key = if full { 0 } else { key };
        if let Some(series) = self.known.get(&key) {
            return series.add(sample, now_ms);
        }
        let other = Labels {
            route: "",
            matched_uri: "",
            matched_host: "",
            service: "",
            consumer: "",
            node: None,
            code: labels.code,
        };
        let series = Arc::new(if full { Labels::<N>::series(&other) } else { labels.series() });
        series.add(sample, now_ms);
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).push(series.clone());
        self.known.insert(key, series);
    }

    /// Forgets what has been idle for long.
    pub(crate) fn sweep(&mut self, now_ms: u64) {
        let before = self.known.len();
        self.known.retain(|_, series| now_ms.saturating_sub(series.touched_ms.get()) < IDLE_MS);
        if self.known.len() < before {
            let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|series| Arc::strong_count(series) > 1);
        }
    }
}

/// Sums over workers.
#[derive(Default)]
struct Sum {
    counts: [[u64; BUCKETS.len() + 1]; 3],
    sums_us: [u64; 3],
    bytes: [u64; 2],
}

const TYPES: [&str; 3] = ["request", "upstream", "apisix"];

/// All of it in Prometheus text form.
pub(crate) fn render(registry: &Registry) -> String {
    let all = registry.series().0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut statuses: BTreeMap<&str, u64> = BTreeMap::new();
    let mut traffic: BTreeMap<&str, Sum> = BTreeMap::new();
    for series in &all {
        *statuses.entry(&series.status).or_default() += series.requests.get();
        let sum = traffic.entry(&series.traffic).or_default();
        for ((latency, counts), us) in series.latencies.iter().zip(&mut sum.counts).zip(&mut sum.sums_us) {
            latency.buckets.iter().zip(counts).for_each(|(bucket, count)| *count += bucket.get());
            *us += latency.sum_us.get();
        }
        series.bytes.iter().zip(&mut sum.bytes).for_each(|(count, sum)| *sum += count.get());
    }
    let mut out = String::with_capacity(4096 + traffic.len() * 8192);
    of_process(&mut out, registry);
    out.push_str("# HELP apisix_http_status HTTP status codes per service in APISIX\n# TYPE apisix_http_status counter\n");
    for (labels, count) in statuses {
        let _ = writeln!(out, "apisix_http_status{{{labels}}} {count}");
    }
    out.push_str("# HELP apisix_bandwidth Total bandwidth in bytes consumed per service in APISIX\n# TYPE apisix_bandwidth counter\n");
    for (labels, sum) in &traffic {
        for (kind, bytes) in ["ingress", "egress"].into_iter().zip(sum.bytes) {
            let _ = writeln!(out, "apisix_bandwidth{{type=\"{kind}\",{labels}}} {bytes}");
        }
    }
    out.push_str("# HELP apisix_http_latency HTTP request latency in milliseconds per service in APISIX\n# TYPE apisix_http_latency histogram\n");
    for (labels, sum) in &traffic {
        for ((kind, counts), us) in TYPES.into_iter().zip(&sum.counts).zip(sum.sums_us) {
            latency(&mut out, kind, labels, counts, us);
        }
    }
    out
}

fn latency(out: &mut String, kind: &str, labels: &str, counts: &[u64], sum_us: u64) {
    let name = "apisix_http_latency";
    let mut total = 0;
    let bounds = BUCKETS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    for (bound, count) in bounds.zip(counts) {
        total += count;
        let _ = writeln!(out, "{name}_bucket{{type=\"{kind}\",{labels},le=\"{bound}\"}} {total}");
    }
    let _ = writeln!(out, "{name}_count{{type=\"{kind}\",{labels}}} {total}");
    let _ = writeln!(out, "{name}_sum{{type=\"{kind}\",{labels}}} {}.{:03}", sum_us / 1000, sum_us % 1000);
}

/// Connections and requests now and so far, as nginx counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Connections {
    pub(crate) active: u64,
    pub(crate) accepted: u64,
    /// Connections with a request under way are not told apart from others; HTTP/2 has many on one.
    pub(crate) writing: u64,
    pub(crate) requests: u64,
}

impl Connections {
    /// Of all workers.
    pub(crate) fn of(registry: &Registry) -> Self {
        let mut all = Self::default();
        for worker in registry.workers() {
            all.active += worker.connections.get();
            all.accepted += worker.accepted.get();
            all.writing += worker.under_way.get();
            all.requests += worker.begun.get();
        }
        all
    }

    /// By nginx's names for them.
    pub(crate) fn states(&self) -> [(&'static str, u64); 6] {
        [
            ("active", self.active),
            ("accepted", self.accepted),
            ("handled", self.accepted),
            ("reading", 0),
            ("writing", self.writing.min(self.active)),
            ("waiting", self.active.saturating_sub(self.writing)),
        ]
    }
}

fn of_process(out: &mut String, registry: &Registry) {
    let connections = Connections::of(registry);
    out.push_str("# HELP apisix_nginx_http_current_connections Number of HTTP connections\n# TYPE apisix_nginx_http_current_connections gauge\n");
    for (state, count) in connections.states() {
        let _ = writeln!(out, "apisix_nginx_http_current_connections{{state=\"{state}\"}} {count}");
    }
    let _ = writeln!(
        out,
        "# HELP apisix_http_requests_total The total number of client requests since APISIX started\n# TYPE apisix_http_requests_total gauge\napisix_http_requests_total {}",
        connections.requests
    );
    let mut labels = String::new();
    put(&mut labels, "hostname", &hostname());
    put(&mut labels, "version", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(
        out,
        "# HELP apisix_node_info Info of APISIX node\n# TYPE apisix_node_info gauge\napisix_node_info{{{labels}}} 1"
    );
}

/// What this machine is called.
pub(crate) fn hostname() -> String {
    nix::sys::utsname::uname().map(|name| name.nodename().to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels<'a>(route: &'a str, code: u16) -> Labels<'a, &'a str> {
        Labels {
            route,
            matched_uri: "/*",
            matched_host: "",
            service: "",
            consumer: "",
            node: Some("127.0.0.1:80"),
            code,
        }
    }

    const SAMPLE: Sample = Sample { total_us: 3000, upstream_us: Some(1000), bytes_in: 5, bytes_out: 7 };

    #[test]
    fn workers_are_summed_under_the_documented_names() {
        let registry = Registry::new(2);
        for _ in 0..2 {
            let mut worker = WorkerSeries::new(registry.series().clone());
            worker.count(&labels("a\"b", 200), &SAMPLE);
            worker.count(&labels("a\"b", 404), &SAMPLE);
            std::mem::forget(worker);
        }
        let text = render(&registry);
        for line in [
            r#"apisix_http_status{code="200",route="a\"b",matched_uri="/*",matched_host="",service="",consumer="",node="127.0.0.1"} 2"#,
            r#"apisix_bandwidth{type="ingress",route="a\"b",service="",consumer="",node="127.0.0.1"} 20"#,
            r#"apisix_http_latency_bucket{type="upstream",route="a\"b",service="",consumer="",node="127.0.0.1",le="1"} 4"#,
            r#"apisix_http_latency_bucket{type="request",route="a\"b",service="",consumer="",node="127.0.0.1",le="2"} 0"#,
            r#"apisix_http_latency_sum{type="apisix",route="a\"b",service="",consumer="",node="127.0.0.1"} 8.000"#,
            r#"apisix_nginx_http_current_connections{state="active"} 0"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn there_are_only_so_many_and_idle_ones_go() {
        let registry = Registry::new(1);
        let mut worker = WorkerSeries::new(registry.series().clone());
        for n in 0..MOST + 100 {
            worker.count(&labels(&n.to_string(), 200), &SAMPLE);
        }
        assert_eq!(worker.known.len(), MOST + 1);
        let others = r#"apisix_http_status{code="200",route="",matched_uri="",matched_host="",service="",consumer="",node=""} 100"#;
        assert!(render(&registry).contains(others));
        worker.sweep(crate::clock::now_ms() + IDLE_MS);
        assert_eq!((worker.known.len(), registry.series().0.lock().unwrap().len()), (0, 0));
    }
}
