//! `loki-logger`: what is known of requests goes to Grafana Loki.

use super::Settings;
use super::logs::{Batch, Told};
use crate::Fault;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

pub use super::logs::Metadata;

/// Configuration.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct Config {
    /// Servers; one of them is taken for each message.
    #[schemars(length(min = 1), inner(regex(pattern = r"^https?://[^/?#\s]+[^?#\s]*$")))]
    pub endpoint_addrs: Vec<String>,
    /// Path at the servers.
    #[serde(default = "push")]
    #[schemars(length(min = 1))]
    pub endpoint_uri: String,
    /// Tenant (`X-Scope-OrgID`).
    #[serde(default = "fake")]
    pub tenant_id: String,
    /// Further headers.
    #[serde(default)]
    #[schemars(extend("x-secret" = true))]
    pub headers: BTreeMap<String, String>,
    /// Labels of the stream; texts with variables.
    #[serde(default = "labels")]
    pub log_labels: BTreeMap<String, String>,
    /// Verify the server's certificate.
    #[serde(default)]
    pub ssl_verify: bool,
    /// Milliseconds for an answer.
    #[serde(default = "three_thousand")]
    #[schemars(range(min = 1, max = 60_000))]
    pub timeout: u64,
    /// Whether connections are used again. Each message has one of its own here.
    #[serde(default = "yes")]
    pub keepalive: bool,
    /// Milliseconds for which an unused connection stays.
    #[serde(default = "minute")]
    #[schemars(range(min = 1000))]
    pub keepalive_timeout: u64,
    /// Most unused connections.
    #[serde(default = "five")]
    #[schemars(range(min = 1))]
    pub keepalive_pool: u32,
    /// What is told.
    #[serde(flatten)]
    pub told: Told,
    /// How it is sent.
    #[serde(flatten)]
    pub batch: Batch,
}

fn push() -> String {
    "/loki/api/v1/push".to_owned()
}

fn fake() -> String {
    "fake".to_owned()
}

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("job".to_owned(), "apisix".to_owned())])
}

fn three_thousand() -> u64 {
    3000
}

fn yes() -> bool {
    true
}

fn minute() -> u64 {
    60_000
}

fn five() -> u32 {
    5
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("endpoint_addrs", &self.endpoint_addrs).finish_non_exhaustive()
    }
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        self.told.check(faults);
        for (name, value) in &self.headers {
            super::values::check_header(&format!("headers.{name}"), name, std::slice::from_ref(value), faults);
        }
    }
}
