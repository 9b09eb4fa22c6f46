//! Spans on their way to a collector: OTLP over HTTP, as JSON.

use super::context::text;
use crate::metrics::series::hostname;
use crate::plugins::work::delivery::{Batching, Delivery, Queue};
use crate::plugins::work::outbound::Place;
use crate::plugins::work::sinks::{self, Sink};
use http::header::{HeaderName, HeaderValue};
use serde_json::{Value as Json, json};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::plugins::opentelemetry::Metadata;

/// A finished span.
pub(super) struct Span {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) parent: Option<[u8; 8]>,
    pub(super) name: String,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) attributes: Vec<(String, Value)>,
    pub(super) failed: bool,
}

/// The value of an attribute.
pub(super) enum Value {
    Text(String),
    Number(i64),
}

/// The way to a collector.
pub(in crate::plugins) struct Exporter {
    pub(super) metadata: Arc<Metadata>,
    queue: Option<Queue<Span>>,
}

impl Exporter {
    pub(super) fn new(delivery: &Arc<Delivery>, metadata: Arc<Metadata>) -> Self {
        let batch = &metadata.batch_span_processor;
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let batching = Batching {
            most: batch.max_export_batch_size,
            quiet: seconds(batch.inactive_timeout),
            longest: seconds(batch.batch_timeout),
            retries: 0,
            retry_delay: Duration::ZERO,
            timeout: Duration::from_secs(metadata.collector.request_timeout),
            waiting: batch.max_queue_size,
        };
        let queue = place(&metadata.collector.address).map(|place| {
            let headers = metadata.collector.request_headers.iter().filter_map(|(name, value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                Some((name.parse().ok()?, HeaderValue::from_str(&value).ok()?))
            });
            let name = format!("a collector of traces, {}", place.authority);
            let sink = Collector { name, place, headers: headers.collect(), resource: resource(&metadata) };
            delivery.queue(sink, batching)
        });
        Self { metadata, queue }
    }

    /// Hands a span over; whether there was room.
    pub(super) fn put(&self, span: Span) -> bool {
        let text = |value: &Value| match value {
            Value::Text(text) => text.len(),
            Value::Number(_) => 8,
        };
        let bytes = span.attributes.iter().map(|(name, value)| name.len() + text(value) + 48).sum::<usize>();
        self.queue.as_ref().is_some_and(|queue| queue.put(span, bytes + 256))
    }
}

/// `host:port`, or a URL; without a path it is that of OTLP.
fn place(address: &str) -> Option<Place> {
    let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let mut place = Place::read(&url)?;
    if place.target == "/" {
        "/v1/traces".clone_into(&mut place.target);
    }
    Some(place)
}

/// Attributes of all spans.
fn resource(metadata: &Metadata) -> Json {
    let mut all = vec![json!({"key": "hostname", "value": {"stringValue": hostname()}})];
    let own = metadata.resource.as_ref();
    if own.is_none_or(|own| !own.contains_key("service.name")) {
        all.push(json!({"key": "service.name", "value": {"stringValue": "APISIX"}}));
    }
    for (name, value) in own.into_iter().flatten() {
        let value = match value {
            Json::String(text) => json!({"stringValue": text}),
            Json::Bool(yes) => json!({"boolValue": yes}),
            number => json!({"doubleValue": number}),
        };
        all.push(json!({"key": name, "value": value}));
    }
    json!({"attributes": all})
}

struct Collector {
    name: String,
    place: Place,
    headers: Vec<(HeaderName, HeaderValue)>,
    resource: Json,
}

fn as_json(span: &Span) -> Json {
    let attributes = span.attributes.iter().map(|(key, value)| {
        let value = match value {
            Value::Text(text) => json!({"stringValue": text}),
            Value::Number(number) => json!({"intValue": number.to_string()}),
        };
        json!({"key": key, "value": value})
    });
    let mut json = json!({
        "traceId": text(&span.trace), "spanId": text(&span.span), "name": span.name, "kind": 2,
        "startTimeUnixNano": span.start_ns.to_string(), "endTimeUnixNano": span.end_ns.to_string(),
        "attributes": attributes.collect::<Vec<_>>(), "status": {"code": if span.failed { 2 } else { 0 }},
    });
    if let (Some(parent), Some(fields)) = (&span.parent, json.as_object_mut()) {
        fields.insert("parentSpanId".to_owned(), text(parent).into());
    }
    json
}

impl Sink for Collector {
    type Entry = Span;

    fn name(&self) -> &str {
        &self.name
    }

    async fn send(&mut self, batch: &[&Span]) -> io::Result<()> {
        let spans: Vec<Json> = batch.iter().map(|span| as_json(span)).collect();
        let scope = json!({"name": "towpath", "version": env!("CARGO_PKG_VERSION")});
        let body = json!({"resourceSpans": [
            {"resource": self.resource, "scopeSpans": [{"scope": scope, "spans": spans}]},
        ]});
        sinks::post(&self.place, "application/json", &self.headers, true, body.to_string()).await
    }
}
