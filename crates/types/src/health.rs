//! Health checks of instances, done by the cell.

use crate::Millis;
use serde::{Deserialize, Serialize};

/// What makes an instance healthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// It accepts TCP connections on its port.
    #[default]
    Port,
    /// It answers GET of this path with a status below 400.
    Http(String),
    /// Its process runs.
    Process,
}

/// How often, how long, and how many results change the verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HealthCheck {
    /// What is probed.
    pub probe: Probe,
    /// Pause between probes of a ready instance (a starting one is probed every few milliseconds).
    pub interval: Millis,
    /// Longest wait for one probe.
    pub timeout: Millis,
    /// Consecutive failures that make a ready instance unhealthy.
    pub failures: u32,
    /// Longest time from start to the first success; after it the start has failed.
    pub start_timeout: Millis,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            probe: Probe::Port,
            interval: Millis::secs(5),
            timeout: Millis::secs(2),
            failures: 3,
            start_timeout: Millis::secs(60),
        }
    }
}
