//! An endpoint as explanations of routing describe it, from the routing table to the command line.

use crate::{InstanceId, LaneName, Place};
use serde::{Deserialize, Serialize};

/// One endpoint in an explanation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExplainedEndpoint {
    /// Instance.
    pub instance: InstanceId,
    /// Address.
    pub address: String,
    /// Lane.
    pub lane: LaneName,
    /// Where.
    pub place: Place,
    /// Tier that it is in for this request; `None` = in none.
    pub tier: Option<u8>,
    /// Score of the balancer; what it means depends on the balancer. `None` = not eligible.
    pub score: Option<f64>,
    /// Part of such requests that it gets over time, as scores are now, 0..=1.
    pub share: f64,
    /// Requests in flight from this gateway.
    pub in_flight: u64,
    /// Latency average of this gateway, milliseconds; 0 = none yet.
    pub latency_ms: f64,
    /// Load after the formula, 0..=1; `None` = unknown.
    pub load: Option<f64>,
    /// Why it is not eligible, or empty.
    pub why_not: String,
}
