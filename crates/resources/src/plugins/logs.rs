//! What all loggers among the plugins can be told.

use super::Settings;
use crate::Fault;
use crate::model::Condition;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Fields of an entry: texts with variables, constants, or objects of such.
pub type Format = Map<String, Value>;

/// Deepest nesting of a format.
const DEEPEST: u32 = 5;

/// What is told of a request.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Told {
    /// Fields of an entry, each a text with variables; absent = all that is known.
    pub log_format: Option<Format>,
    /// Fields beside all that is known.
    pub log_format_extra: Option<Format>,
    /// Whether the request's body is told.
    pub include_req_body: bool,
    /// Only for requests that meet these conditions.
    pub include_req_body_expr: Option<Condition>,
    /// Whether the response's body is told.
    pub include_resp_body: bool,
    /// Only for responses that meet these conditions.
    pub include_resp_body_expr: Option<Condition>,
    /// Longest part of a request's body that is told, bytes.
    #[schemars(range(min = 1, max = 67_108_864))]
    pub max_req_body_bytes: usize,
    /// Longest part of a response's body that is told, bytes.
    #[schemars(range(min = 1, max = 67_108_864))]
    pub max_resp_body_bytes: usize,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            log_format: None,
            log_format_extra: None,
            include_req_body: false,
            include_req_body_expr: None,
            include_resp_body: false,
            include_resp_body_expr: None,
            max_req_body_bytes: 512 * 1024,
            max_resp_body_bytes: 512 * 1024,
        }
    }
}

impl Told {
    /// Adds what its schema cannot say.
    pub fn check(&self, faults: &mut Vec<Fault>) {
        check_format("log_format", self.log_format.as_ref(), faults);
        check_format("log_format_extra", self.log_format_extra.as_ref(), faults);
    }
}

fn check_format(path: &str, format: Option<&Format>, faults: &mut Vec<Fault>) {
    fn depth(value: &Value) -> u32 {
        match value {
            Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
            _ => 0,
        }
    }
    let deepest = format.map_or(0, |format| 1 + format.values().map(depth).max().unwrap_or_default());
    if deepest > DEEPEST {
        faults.push(Fault::new(path, format!("is nested more than {DEEPEST} deep")));
    }
}

/// How entries are sent together.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Batch {
    /// Name of the log, for people.
    pub name: Option<String>,
    /// Most entries of one message.
    #[schemars(range(min = 1, max = 100_000))]
    pub batch_max_size: usize,
    /// Seconds without a new entry after which a message goes out.
    #[schemars(range(min = 1, max = 3600))]
    pub inactive_timeout: u64,
    /// Most seconds that an entry waits.
    #[schemars(range(min = 1, max = 86_400))]
    pub buffer_duration: u64,
    /// Further attempts for a message.
    #[schemars(range(max = 1000))]
    pub max_retry_count: u32,
    /// Seconds between attempts.
    #[schemars(range(max = 3600))]
    pub retry_delay: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            name: None,
            batch_max_size: 1000,
            inactive_timeout: 5,
            buffer_duration: 60,
            max_retry_count: 0,
            retry_delay: 1,
        }
    }
}

/// Metadata of a logger.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Metadata {
    /// Fields of an entry, where the plugin's use does not say.
    pub log_format: Option<Format>,
    /// Fields beside all that is known, where the plugin's use does not say.
    pub log_format_extra: Option<Format>,
    /// Most entries that wait.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_pending_entries: Option<usize>,
}

impl Settings for Metadata {
    fn check(&self, faults: &mut Vec<Fault>) {
        check_format("log_format", self.log_format.as_ref(), faults);
        check_format("log_format_extra", self.log_format_extra.as_ref(), faults);
    }
}
