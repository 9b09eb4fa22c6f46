//! `ua-restriction`: which programs may come, by what they say of themselves.

use super::Settings;
use super::values::check_patterns;
use crate::Fault;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("oneOf" = json!([{"required": ["allowlist"]}, {"required": ["denylist"]}])))]
pub struct Config {
    /// Whether requests without `User-Agent` pass.
    pub bypass_missing: bool,
    /// Regular expressions: only these may come.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    pub allowlist: Option<Vec<String>>,
    /// Regular expressions: these may not come.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    pub denylist: Option<Vec<String>>,
    /// What the others are told.
    #[schemars(length(min = 1, max = 1024))]
    pub message: String,
}

impl Default for Config {
    fn default() -> Self {
        Self { bypass_missing: false, allowlist: None, denylist: None, message: "Not allowed".to_owned() }
    }
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        match (&self.allowlist, &self.denylist) {
            (None, None) => faults.push(Fault::new("allowlist", "is missing: give allowlist or denylist")),
            (Some(_), Some(_)) => faults.push(Fault::new("denylist", "must not stand beside allowlist")),
            _ => {}
        }
        check_patterns("allowlist", self.allowlist.iter().flatten(), faults);
        check_patterns("denylist", self.denylist.iter().flatten(), faults);
    }
}
