//! `uri-blocker`: requests whose URI matches an expression are refused.

use super::Settings;
use crate::Fault;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Regular expressions on path and query.
    #[schemars(inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    pub block_rules: Vec<String>,
    /// Status of a refusal.
    #[serde(default = "forbidden")]
    #[schemars(range(min = 200, max = 599))]
    pub rejected_code: u16,
    /// Body of a refusal.
    #[schemars(length(min = 1))]
    pub rejected_msg: Option<String>,
    /// Whether letters match in any case.
    #[serde(default)]
    pub case_insensitive: bool,
}

fn forbidden() -> u16 {
    403
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        for (n, text) in self.block_rules.iter().enumerate() {
            if let Err(why) = towpath_route::vars::pattern(text, self.case_insensitive) {
                faults.push(Fault::new(format!("block_rules[{n}]"), why));
            }
        }
    }
}
