//! How a gateway balances over an app's endpoints.

use crate::Millis;
use crate::lane::HashBy;
use serde::{Deserialize, Serialize};

/// How one endpoint of a tier is chosen. See `routing` in the user guide for the formulas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum Balancer {
    /// Power of two choices by requests in flight, latency and reported load.
    #[default]
    Load,
    /// Probability proportional to weight and free capacity (JAE's formula).
    Weighted,
    /// Fewest requests in flight per weight.
    LeastConn,
    /// Power of two choices by peak-sensitive latency average.
    Ewma,
    /// Smooth weighted round robin.
    Roundrobin,
    /// Consistent hash with bounded load.
    Chash(HashBy),
    /// Uniformly at random by weight.
    Random,
}

/// Weights of JAE's formula: `host = host_cpu·cpu + host_mem·mem + host_io·io`, `inst` likewise,
/// `load = host·host_part + inst·(1 − host_part)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the formula above names them all")]
pub struct LoadWeights {
    pub host_cpu: f32,
    pub host_mem: f32,
    pub host_io: f32,
    pub inst_cpu: f32,
    pub inst_mem: f32,
    pub inst_io: f32,
    pub host_part: f32,
}

impl Default for LoadWeights {
    fn default() -> Self {
        Self {
            host_cpu: 0.3,
            host_mem: 0.3,
            host_io: 0.0,
            inst_cpu: 0.3,
            inst_mem: 0.3,
            inst_io: 0.0,
            host_part: 0.3,
        }
    }
}

/// How near an endpoint must be to be preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum Locality {
    /// Own zone, own region, other regions.
    #[default]
    Zone,
    /// Own node before own zone.
    Node,
    /// Place plays no part.
    None,
}

/// Protocol towards an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2 in clear text with prior knowledge (what gRPC needs).
    H2c,
}

/// Limits on one request through the gateway. `0s` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// Longest wait for a connection to an instance.
    pub connect: Millis,
    /// Longest wait for the response head after the request was sent.
    pub response: Millis,
    /// Longest silence in either direction while bodies stream (upgraded connections too).
    pub idle: Millis,
    /// Longest life of a request, retries included; upgraded connections and streams are exempt once a response head came.
    pub total: Millis,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Millis::secs(2),
            response: Millis::secs(60),
            idle: Millis::secs(300),
            total: Millis(0),
        }
    }
}

/// When and how often a request is sent again to another endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// Further attempts after the first; 0 = exactly one attempt.
    pub retries: u32,
    /// Retries as a share of requests in the last 10 s, 0..=1.
    pub budget: f32,
    /// Retries per 10 s that are permitted whatever the budget says.
    pub min_per_10s: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { retries: 2, budget: 0.2, min_per_10s: 10 }
    }
}

/// When an endpoint is left alone for a while because requests to it fail.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ejection {
    /// Consecutive failures (connect, reset, timeout, 502/503/504) that eject; 0 = off.
    pub consecutive: u32,
    /// Failed share in the window that ejects, 0..=1; 0 = off.
    pub rate: f32,
    /// Requests in the window below which the rate is not judged.
    pub min_requests: u32,
    /// Length of the window.
    pub window: Millis,
    /// First ejection time; the n-th in a row lasts n times as long.
    pub base: Millis,
    /// Longest ejection time.
    pub max: Millis,
    /// Largest share of a tier that may be ejected at once (of all tiers' endpoints, where another tier can serve), 0..=1.
    pub max_share: f32,
}

impl Default for Ejection {
    fn default() -> Self {
        Self {
            consecutive: 5,
            rate: 0.5,
            min_requests: 20,
            window: Millis::secs(10),
            base: Millis::secs(5),
            max: Millis::secs(120),
            max_share: 0.5,
        }
    }
}

/// Sticky sessions: the gateway's cookie follows the app's own session cookie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sticky {
    /// Session cookies that bind a client to an instance; empty = off.
    pub session_cookies: Vec<String>,
    /// Name of the gateway's cookie.
    pub cookie: String,
}

impl Default for Sticky {
    fn default() -> Self {
        Self { session_cookies: vec!["JSESSIONID".into()], cookie: "towpath_sticky".into() }
    }
}

/// All that a gateway needs to know of an app besides its endpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamSpec {
    /// How an endpoint is chosen.
    pub balancer: Balancer,
    /// Weights of the load formula.
    pub load_weights: LoadWeights,
    /// How near an endpoint must be.
    pub locality: Locality,
    /// Limits in time.
    pub timeouts: Timeouts,
    /// Retries.
    pub retry: RetryPolicy,
    /// Passive health.
    pub ejection: Ejection,
    /// Sticky sessions.
    pub sticky: Sticky,
    /// Time in which a new endpoint's share grows from a tenth to the whole; 0s = off.
    pub slow_start: Millis,
    /// Largest request body; larger ones get 413; 0 = no limit.
    pub max_body: crate::ByteSize,
    /// Share of healthy endpoints in a tier below which traffic spills into the next, 0..=1.
    pub spill_below: f32,
}

impl Default for UpstreamSpec {
    fn default() -> Self {
        Self {
            balancer: Balancer::Load,
            load_weights: LoadWeights::default(),
            locality: Locality::Zone,
            timeouts: Timeouts::default(),
            retry: RetryPolicy::default(),
            ejection: Ejection::default(),
            sticky: Sticky::default(),
            slow_start: Millis::secs(10),
            max_body: crate::ByteSize(0),
            spill_below: 0.7,
        }
    }
}
