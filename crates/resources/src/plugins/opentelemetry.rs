//! `opentelemetry`: requests are spans of traces, sent to a collector.

use super::Settings;
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Which requests are traced.
    pub sampler: Sampler,
    /// Variables that are attributes of spans.
    #[schemars(inner(length(min = 1)))]
    pub additional_attributes: Option<Vec<String>>,
    /// Headers that are attributes of spans; `x-my-*` = all that begin so.
    #[schemars(inner(length(min = 1)))]
    pub additional_header_prefix_attributes: Option<Vec<String>>,
}

/// Which requests are traced.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sampler {
    /// How that is decided.
    pub name: SamplerName,
    /// Details.
    pub options: SamplerOptions,
}

/// How it is decided which requests are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SamplerName {
    /// All.
    AlwaysOn,
    /// None.
    #[default]
    AlwaysOff,
    /// A share, by the id of the trace.
    TraceIdRatio,
    /// As who asks says; `root` where nobody says.
    ParentBase,
}

/// Details of a sampler.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SamplerOptions {
    /// The share of `trace_id_ratio`.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub fraction: f64,
    /// For requests without a trace, with `parent_base`.
    pub root: RootSampler,
}

/// The sampler of requests without a trace.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RootSampler {
    /// How that is decided.
    pub name: RootName,
    /// Details.
    pub options: RootOptions,
}

/// How it is decided which requests without a trace are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RootName {
    /// All.
    AlwaysOn,
    /// None.
    #[default]
    AlwaysOff,
    /// A share, by the id of the trace.
    TraceIdRatio,
}

/// Details of the sampler of requests without a trace.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RootOptions {
    /// The share of `trace_id_ratio`.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub fraction: f64,
}

impl Settings for Config {}

/// Metadata: without it no request is traced.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Metadata {
    /// Where ids of new traces come from.
    pub trace_id_source: TraceIdSource,
    /// Attributes of all spans: texts, numbers, true or false.
    pub resource: Option<BTreeMap<String, Value>>,
    /// Where spans go.
    pub collector: Collector,
    /// How spans are sent together.
    pub batch_span_processor: Batch,
    /// Whether the variables `opentelemetry_trace_id`, `opentelemetry_span_id` and `opentelemetry_context_traceparent` are set.
    pub set_ngx_var: bool,
}

/// Where ids of new traces come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
pub enum TraceIdSource {
    /// The request's id, if it is one: 32 hex digits.
    #[serde(rename = "x-request-id")]
    RequestId,
    /// Chance.
    #[default]
    #[serde(rename = "random")]
    Random,
}

/// Where spans go: OTLP over HTTP.
#[derive(Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Collector {
    /// `host:port`, or a URL; without a path spans go to `/v1/traces`.
    #[schemars(regex(pattern = r"^(https?://)?[^/?#\s]+[^?#\s]*$"))]
    pub address: String,
    /// Seconds for an answer.
    #[schemars(range(min = 1, max = 3600))]
    pub request_timeout: u64,
    /// Further headers.
    #[schemars(extend("x-secret" = true))]
    pub request_headers: BTreeMap<String, Value>,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Default for Collector {
    fn default() -> Self {
        Self { address: "127.0.0.1:4318".to_owned(), request_timeout: 3, request_headers: BTreeMap::new() }
    }
}

/// How spans are sent together.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// Spans that find no room are dropped; nothing else can be chosen, since a collector must not slow requests.
    pub drop_on_queue_full: bool,
    /// Most spans that wait.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_queue_size: usize,
    /// Seconds after which a message goes out.
    #[schemars(range(min = 0.0, max = 3600.0))]
    pub batch_timeout: f64,
    /// Seconds without a new span after which a message goes out.
    #[schemars(range(min = 0.0, max = 3600.0))]
    pub inactive_timeout: f64,
    /// Most spans of one message.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_export_batch_size: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            drop_on_queue_full: true,
            max_queue_size: 2048,
            batch_timeout: 5.0,
            inactive_timeout: 2.0,
            max_export_batch_size: 256,
        }
    }
}

impl Settings for Metadata {
    fn check(&self, faults: &mut Vec<Fault>) {
        let plain = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
        for (path, values) in [
            ("resource", self.resource.as_ref()),
            ("collector.request_headers", Some(&self.collector.request_headers)),
        ] {
            for (name, _) in values.into_iter().flatten().filter(|(_, value)| !plain(value)) {
                faults.push(Fault::new(format!("{path}.{name}"), "is neither a text, a number, true nor false"));
            }
        }
        if !self.batch_span_processor.drop_on_queue_full {
            let why = "is always true here: a collector must not slow requests; leave it out";
            faults.push(Fault::new("batch_span_processor.drop_on_queue_full", why));
        }
    }
}
