//! `limit-conn`: so many requests at the same time for each value of a key.

use super::Settings;
use super::limit_count::{Amount, Policy, check_shared};
use super::values::Quantity;
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = json!([
    {"required": ["conn", "burst", "default_conn_delay", "key"]}, {"required": ["default_conn_delay", "rules"]}
])))]
pub struct Config {
    /// Requests at the same time that pass at once.
    pub conn: Option<Amount>,
    /// Further ones that wait; what is beyond them is refused.
    pub burst: Option<Quantity>,
    /// Seconds that those of `burst` wait, for each `conn` that they are above.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub default_conn_delay: f64,
    /// The delay stays as given, instead of following how long requests take.
    #[serde(default)]
    pub only_use_default_delay: bool,
    /// What is counted by.
    #[schemars(length(min = 1))]
    pub key: Option<String>,
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
    /// Where is counted.
    #[serde(default)]
    pub policy: Policy,
    /// Whether requests pass when counting fails.
    #[serde(default)]
    pub allow_degradation: bool,
    /// Several limits, instead of conn, burst and key.
    #[schemars(length(min = 1))]
    pub rules: Option<Vec<Rule>>,
}

/// One of several limits.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Requests at the same time that pass at once.
    pub conn: Amount,
    /// Further ones that wait.
    pub burst: Quantity,
    /// What is counted by: text with variables.
    #[schemars(length(min = 1))]
    pub key: String,
}

/// What a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyType {
    /// The name of a variable.
    #[default]
    Var,
    /// Text with variables.
    VarCombination,
    /// Ours: itself, so that all requests of this resource count together.
    Constant,
    /// Ours: itself, so that all requests of all resources with this key count together.
    Global,
}

fn unavailable() -> u16 {
    503
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        check_shared(self.policy, self.rules.is_some(), faults);
        if self.policy == Policy::Shared && self.burst.as_ref().is_some_and(|burst| *burst != Quantity::Number(0)) {
            let message = "must be 0 with policy \"shared\": no gateway knows how far above a shared limit a request is, so none can wait";
            faults.push(Fault::new("burst", message));
        }
        let single = [("conn", self.conn.is_some()), ("burst", self.burst.is_some()), ("key", self.key.is_some())];
        for (field, given) in single {
            match (&self.rules, given) {
                (Some(_), true) => faults.push(Fault::new(field, "must not stand beside rules")),
                (None, false) => faults.push(Fault::new(field, "is missing")),
                _ => {}
            }
        }
    }
}
