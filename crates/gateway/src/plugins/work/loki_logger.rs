//! `loki-logger`: what is known of requests goes to Grafana Loki, entries with the same labels as one stream.

use super::delivery::{Delivery, Queue};
use super::logger::{self, Teller};
use super::outbound::Place;
use super::sinks::{self, Sink};
use crate::clock;
use crate::plugins::Plugin;
use crate::plugins::make::Scope;
use crate::plugins::vars::Vars;
use http::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::plugins::loki_logger::Config;
use towpath_route::vars::Template;

/// See the module.
pub(in crate::plugins) struct LokiLogger {
    teller: Teller,
    labels: Vec<(String, Template)>,
    queue: Option<Queue<Line>>,
}

/// A line of a stream.
pub(super) struct Line {
    labels: BTreeMap<String, String>,
    /// Nanoseconds since 1970.
    time: u64,
    text: String,
}

struct Loki {
    name: String,
    places: Vec<Place>,
    headers: Vec<(HeaderName, HeaderValue)>,
    verify: bool,
}

impl Sink for Loki {
    type Entry = Line;

    fn name(&self) -> &str {
        &self.name
    }

    async fn send(&mut self, batch: &[&Line]) -> io::Result<()> {
        let mut streams: BTreeMap<&BTreeMap<String, String>, Vec<Value>> = BTreeMap::new();
        for line in batch {
            streams.entry(&line.labels).or_default().push(json!([line.time.to_string(), line.text]));
        }
        let streams = streams.into_iter().map(|(stream, values)| json!({"stream": stream, "values": values}));
        let body = json!({"streams": streams.collect::<Vec<_>>()}).to_string();
        let place = self.places.get(fastrand::usize(..self.places.len())).ok_or(io::ErrorKind::NotFound)?;
        sinks::post(place, "application/json", &self.headers, self.verify, body).await
    }
}

fn headers(config: &Config) -> Vec<(HeaderName, HeaderValue)> {
    let own = config.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let all = own.chain([("x-scope-orgid", config.tenant_id.as_str())]);
    let header = |(name, value): (&str, &str)| Some((name.parse().ok()?, HeaderValue::from_str(value).ok()?));
    all.filter_map(header).collect()
}

impl LokiLogger {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let metadata = logger::metadata!(scope, "loki-logger", LokiLogger);
        let told = metadata.as_deref();
        let place = |address: &String| {
            Place::read(&format!("{}{}", address.trim_end_matches('/'), config.endpoint_uri))
        };
        let places: Vec<Place> = config.endpoint_addrs.iter().filter_map(place).collect();
        let timeout = Duration::from_millis(config.timeout);
        let batching =
            logger::batching(&config.batch, timeout, told.and_then(|told| told.max_pending_entries));
        let queue = (!places.is_empty()).then(|| {
            let name = format!("loki-logger of {}", scope.from);
            let sink = Loki { name, places, headers: headers(config), verify: config.ssl_verify };
            Delivery::of(&scope.plugins.states).queue(sink, batching)
        });
        let format = told.and_then(|told| told.log_format.as_ref());
        let extra = told.and_then(|told| told.log_format_extra.as_ref());
        Self {
            teller: Teller::new(&config.told, format, extra),
            labels: config
                .log_labels
                .iter()
                .map(|(name, text)| (name.clone(), Template::new(text)))
                .collect(),
            queue,
        }
    }
}

impl Plugin for LokiLogger {
    logger::watches!();

    fn log(&self, vars: &Vars<'_>) {
        let took_ms = clock::now_ns().saturating_sub(vars.record.started_ns()) / 1_000_000;
        let mut entry = self.teller.entry(vars);
        if let Some(fields) = entry.as_object_mut() {
            fields.entry("route_id").or_insert_with(|| "no-matched".into());
        }
        let line = Line {
            labels: self.labels.iter().map(|(name, text)| (name.clone(), vars.fill(text).0)).collect(),
            time: clock::unix_ms().saturating_sub(took_ms) * 1_000_000,
            text: entry.to_string(),
        };
        let bytes = line.text.len() + 64 * line.labels.len();
        if !self.queue.as_ref().is_some_and(|queue| queue.put(line, bytes)) {
            vars.record.conn.worker.metrics.plugin_log_dropped.add(1);
        }
    }
}
