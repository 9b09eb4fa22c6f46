//! How connections to nodes of upstreams begin, and how they are kept.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// Connections that are kept for the next request.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KeepalivePool {
    /// Most idle connections.
    #[schemars(range(min = 1))]
    pub size: u32,
    /// Seconds that one may be idle.
    #[schemars(range(min = 0.0))]
    pub idle_timeout: f64,
    /// Requests after which it is closed.
    #[schemars(range(min = 1))]
    pub requests: u32,
}

impl Default for KeepalivePool {
    fn default() -> Self {
        Self { size: 320, idle_timeout: 60.0, requests: 1000 }
    }
}
