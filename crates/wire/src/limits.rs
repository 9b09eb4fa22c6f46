//! Between gateways that share limits. Who owns a key and what an owner grants is arithmetic of `towpath-route`.

use crate::WireMessage;
use serde::{Deserialize, Serialize};
use towpath_types::GatewayId;

/// What a gateway says to the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsMessage {
    /// Who says it.
    pub gateway: GatewayId,
    /// What.
    pub said: Said,
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Said {
    /// To all: it is there.
    Alive {
        /// It has just come, and wants to know who else is there.
        new: bool,
    },
    /// To all: it goes, and needs nothing more.
    Leaving,
    /// To the owner of these keys.
    Ask {
        /// Grows with each message of the gateway.
        number: u64,
        /// What it has and wants.
        asks: Vec<LimitAsk>,
    },
    /// From the owner.
    Grant {
        /// That of the question.
        number: u64,
        /// What it may have.
        grants: Vec<LimitGrant>,
    },
}

/// What a gateway has and wants of one key, in totals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitAsk {
    /// 128 bits, hexadecimal.
    pub key: String,
    /// The whole limit.
    pub limit: u64,
    /// What it has.
    pub have: u64,
    /// What it wants.
    pub want: u64,
    /// Of what it wants more, so much at least.
    pub need: u64,
    /// Length of a window; absent = places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ms: Option<u64>,
    /// The window in which it has it; 0 = of its own.
    pub window: u64,
    /// What is left of it.
    pub left_ms: u64,
}

/// What it may have of one key, in total.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitGrant {
    /// 128 bits, hexadecimal.
    pub key: String,
    /// So much.
    pub total: u64,
    /// What nobody has.
    pub free: u64,
    /// The window; 0 for places.
    pub window: u64,
    /// How long this holds.
    pub left_ms: u64,
}

impl WireMessage for LimitsMessage {
    const NAME: &'static str = "gateway.limits";
}
