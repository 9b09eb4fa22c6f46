//! `referer-restriction`: which pages may lead here.

use super::Settings;
use crate::Fault;
use crate::model::Host;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("oneOf" = json!([{"required": ["whitelist"]}, {"required": ["blacklist"]}])))]
pub struct Config {
    /// Whether requests without `Referer` pass.
    pub bypass_missing: bool,
    /// Hosts, with `*` in front for everything below: only their pages.
    #[schemars(length(min = 1))]
    pub whitelist: Option<Vec<Host>>,
    /// Hosts whose pages may not.
    #[schemars(length(min = 1))]
    pub blacklist: Option<Vec<Host>>,
    /// What the others are told.
    #[schemars(length(min = 1, max = 1024))]
    pub message: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bypass_missing: false,
            whitelist: None,
            blacklist: None,
            message: "Your referer host is not allowed".to_owned(),
        }
    }
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
