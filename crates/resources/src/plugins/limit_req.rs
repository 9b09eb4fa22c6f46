//! `limit-req`: so many requests in a second for each value of a key, evenly (a leaky bucket).

use super::Settings;
use super::limit_conn::KeyType;
use super::limit_count::Policy;
use crate::Fault;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Requests a second.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub rate: f64,
    /// Requests above the rate that wait for their turn; what is beyond them is refused.
    #[schemars(range(min = 0.0))]
    pub burst: f64,
    /// What is counted by.
    #[schemars(length(min = 1))]
    pub key: String,
    /// What `key` is.
    #[serde(default)]
    pub key_type: KeyType,
    /// Status of a refusal.
    #[serde(default = "unavailable")]
    #[schemars(range(min = 200, max = 599))]
    pub rejected_code: u16,
    /// Body of a refusal.
    #[schemars(length(min = 1))]
    pub rejected_msg: Option<String>,
    /// Those of `burst` do not wait.
    #[serde(default)]
    pub nodelay: bool,
    /// Where is counted.
    #[serde(default)]
    pub policy: Policy,
    /// Whether requests pass when counting fails.
    #[serde(default)]
    pub allow_degradation: bool,
}

fn unavailable() -> u16 {
    503
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        if self.policy == Policy::Shared {
            let message = "must be \"local\": rates are kept in each gateway; limit-count can be shared";
            faults.push(Fault::new("policy", message));
        }
    }
}
