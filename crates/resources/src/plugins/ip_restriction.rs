//! `ip-restriction`: which clients may come, by address.

use super::Settings;
use crate::Fault;
use crate::model::Address;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = json!([{"required": ["whitelist"]}, {"required": ["blacklist"]}])))]
pub struct Config {
    /// Only these may come.
    #[schemars(length(min = 1))]
    pub whitelist: Option<Vec<Address>>,
    /// These may not come.
    #[schemars(length(min = 1))]
    pub blacklist: Option<Vec<Address>>,
    /// What the others are told.
    #[serde(default = "message")]
    #[schemars(length(min = 1, max = 1024))]
    pub message: String,
    /// Status of the answer.
    #[serde(default = "forbidden")]
    #[schemars(range(min = 403, max = 404))]
    pub response_code: u16,
}

fn message() -> String {
    "Your IP address is not allowed".to_owned()
}

fn forbidden() -> u16 {
    403
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        match (&self.whitelist, &self.blacklist) {
            (None, None) => faults.push(Fault::new("whitelist", "is missing: give whitelist or blacklist")),
            (Some(_), Some(_)) => faults.push(Fault::new("blacklist", "must not stand beside whitelist")),
            _ => {}
        }
    }
}
