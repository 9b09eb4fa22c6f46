//! `upstream.checks`: health checks, active and passive.

use super::Host;
use super::route::Method;
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Health checks of an upstream's nodes.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checks {
    /// Nodes are asked.
    pub active: Option<Active>,
    /// Answers to requests are watched.
    pub passive: Option<Passive>,
}

impl Checks {
    pub(crate) fn check(&self, faults: &mut Vec<Fault>) {
        if self.active.is_none() {
            faults.push(Fault::new(
                "checks.active",
                "is missing: passive checks need active ones to bring nodes back",
            ));
        }
        let passive = self.passive.as_ref();
        let different = [
            (
                "checks.active.concurrency",
                self.active
                    .as_ref()
                    .is_some_and(|active| active.concurrency != Active::default().concurrency),
                "does nothing: each node is asked at its own time; leave it out",
            ),
            (
                "checks.passive.type",
                passive.is_some_and(|passive| passive.r#type != CheckKind::default()),
                "does nothing: requests are watched whatever their protocol; leave it out",
            ),
        ];
        for (field, _, why) in different.into_iter().filter(|(_, different, _)| *different) {
            faults.push(Fault::new(field, why));
        }
    }
}

/// How a node is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum CheckKind {
    #[default]
    Http,
    Https,
    Tcp,
}

/// Nodes are asked.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Active {
    /// How.
    pub r#type: CheckKind,
    /// Seconds to wait for an answer.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub timeout: f64,
    /// Nodes asked at the same time.
    #[schemars(range(min = 1))]
    pub concurrency: u32,
    /// Host header; the node's by default.
    #[serde(skip_serializing)]
    pub host: Option<Host>,
    /// Port; the node's by default.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Method of the request.
    pub http_method: Method,
    /// Path of the request.
    pub http_path: String,
    /// Body of the request.
    pub http_req_body: String,
    /// Verify the certificate.
    pub https_verify_certificate: bool,
    /// When a node counts as healthy.
    pub healthy: ActiveHealthy,
    /// When it counts as unhealthy.
    pub unhealthy: ActiveUnhealthy,
    /// More headers, each `Name: value`.
    #[schemars(length(min = 1))]
    pub req_headers: Option<Vec<String>>,
}

impl Default for Active {
    fn default() -> Self {
        Self {
            r#type: CheckKind::Http,
            timeout: 1.0,
            concurrency: 10,
            host: None,
            port: None,
            http_method: Method::Get,
            http_path: "/".to_owned(),
            http_req_body: String::new(),
            https_verify_certificate: true,
            healthy: ActiveHealthy::default(),
            unhealthy: ActiveUnhealthy::default(),
            req_headers: None,
        }
    }
}

/// When an asked node counts as healthy.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ActiveHealthy {
    /// Seconds between questions to a healthy node.
    #[schemars(range(min = 1))]
    pub interval: u32,
    /// Statuses that are good.
    #[schemars(length(min = 1), inner(range(min = 200, max = 599)), extend("uniqueItems" = true))]
    pub http_statuses: Vec<u16>,
    /// Good answers in a row.
    #[schemars(range(min = 1, max = 254))]
    pub successes: u8,
}

impl Default for ActiveHealthy {
    fn default() -> Self {
        Self { interval: 1, http_statuses: vec![200, 302], successes: 2 }
    }
}

/// When an asked node counts as unhealthy.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ActiveUnhealthy {
    /// Seconds between questions to an unhealthy node.
    #[schemars(range(min = 1))]
    pub interval: u32,
    /// Statuses that are bad.
    #[schemars(length(min = 1), inner(range(min = 200, max = 599)), extend("uniqueItems" = true))]
    pub http_statuses: Vec<u16>,
    /// Bad statuses in a row.
    #[schemars(range(min = 1, max = 254))]
    pub http_failures: u8,
    /// Failed connections in a row.
    #[schemars(range(min = 1, max = 254))]
    pub tcp_failures: u8,
    /// Timeouts in a row.
    #[schemars(range(min = 1, max = 254))]
    pub timeouts: u8,
}

impl Default for ActiveUnhealthy {
    fn default() -> Self {
        Self {
            interval: 1,
            http_statuses: vec![429, 404, 500, 501, 502, 503, 504, 505],
            http_failures: 5,
            tcp_failures: 2,
            timeouts: 3,
        }
    }
}

/// Answers to requests are watched.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Passive {
    /// What is watched.
    pub r#type: CheckKind,
    /// When a node counts as healthy.
    pub healthy: PassiveHealthy,
    /// When it counts as unhealthy.
    pub unhealthy: PassiveUnhealthy,
}

/// When a watched node counts as healthy.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PassiveHealthy {
    /// Statuses that are good.
    #[schemars(length(min = 1), inner(range(min = 200, max = 599)), extend("uniqueItems" = true))]
    pub http_statuses: Vec<u16>,
    /// Good answers in a row; 0 = never.
    #[schemars(range(min = 0, max = 254))]
    pub successes: u8,
}

impl Default for PassiveHealthy {
    fn default() -> Self {
        Self {
            http_statuses: vec![
                200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303, 304, 305, 306, 307, 308,
            ],
            successes: 5,
        }
    }
}

/// When a watched node counts as unhealthy.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PassiveUnhealthy {
    /// Statuses that are bad.
    #[schemars(length(min = 1), inner(range(min = 200, max = 599)), extend("uniqueItems" = true))]
    pub http_statuses: Vec<u16>,
    /// Failed connections in a row; 0 = never.
    #[schemars(range(min = 0, max = 254))]
    pub tcp_failures: u8,
    /// Timeouts in a row; 0 = never.
    #[schemars(range(min = 0, max = 254))]
    pub timeouts: u8,
    /// Bad statuses in a row; 0 = never.
    #[schemars(range(min = 0, max = 254))]
    pub http_failures: u8,
}

impl Default for PassiveUnhealthy {
    fn default() -> Self {
        Self { http_statuses: vec![429, 500, 503], tcp_failures: 2, timeouts: 7, http_failures: 5 }
    }
}
