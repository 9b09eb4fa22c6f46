//! `api-breaker`: an upstream that fails again and again is left alone for a while.

use super::Settings;
use super::values::check_header;
use crate::Fault;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Status of the answer meanwhile.
    #[schemars(range(min = 200, max = 599))]
    pub break_response_code: u16,
    /// Body of it.
    pub break_response_body: Option<String>,
    /// Headers of it, where there is a body; they may have variables.
    pub break_response_headers: Option<Vec<Header>>,
    /// Longest time in seconds; the first is 2, each further one twice as long.
    #[serde(default = "five_minutes")]
    #[schemars(range(min = 3))]
    pub max_breaker_sec: u64,
    /// What is a failure.
    #[serde(default)]
    pub unhealthy: Unhealthy,
    /// What ends it.
    #[serde(default)]
    pub healthy: Healthy,
}

/// A header.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Its name.
    #[schemars(length(min = 1))]
    pub key: String,
    /// Its value.
    #[schemars(length(min = 1))]
    pub value: String,
}

/// What is a failure.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Unhealthy {
    /// These statuses of the upstream.
    #[schemars(length(min = 1), inner(range(min = 500, max = 599)), extend("uniqueItems" = true))]
    pub http_statuses: Vec<u16>,
    /// So many of them.
    #[schemars(range(min = 1))]
    pub failures: u32,
}

impl Default for Unhealthy {
    fn default() -> Self {
        Self { http_statuses: vec![500], failures: 3 }
    }
}

/// What ends it.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Healthy {
    /// These statuses of the upstream.
    #[schemars(length(min = 1), inner(range(min = 200, max = 499)), extend("uniqueItems" = true))]
    pub http_statuses: Vec<u16>,
    /// So many of them.
    #[schemars(range(min = 1))]
    pub successes: u32,
}

impl Default for Healthy {
    fn default() -> Self {
        Self { http_statuses: vec![200], successes: 3 }
    }
}

fn five_minutes() -> u64 {
    300
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        for (n, header) in self.break_response_headers.iter().flatten().enumerate() {
            let path = format!("break_response_headers[{n}]");
            check_header(&path, &header.key, std::slice::from_ref(&header.value), faults);
        }
    }
}
