//! `limit-count`: so many requests in so many seconds for each value of a key.

use super::Settings;
use super::values::check_header;
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = json!([{"required": ["count", "time_window"]}, {"required": ["rules"]}])))]
pub struct Config {
    /// Requests that a window admits; text with variables is a number at run time.
    pub count: Option<Amount>,
    /// Length of a window in seconds.
    pub time_window: Option<Amount>,
    /// How windows follow each other.
    #[serde(default)]
    pub window_type: WindowType,
    /// Several limits, instead of count and time_window.
    #[schemars(length(min = 1))]
    pub rules: Option<Vec<Rule>>,
    /// Routes with the same group count together.
    #[schemars(length(min = 1))]
    pub group: Option<String>,
    /// What is counted by.
    #[serde(default = "remote_addr")]
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
    /// Where is counted.
    #[serde(default)]
    pub policy: Policy,
    /// Whether requests pass when counting fails.
    #[serde(default)]
    pub allow_degradation: bool,
    /// Whether responses tell limit and rest.
    #[serde(default = "yes")]
    pub show_limit_quota_header: bool,
}

/// A number, or text with variables that is a number at run time.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// At least 1.
    Number(u64),
    /// `$http_x_limit`, `${http_x_limit ?? 10}`.
    Text(String),
}

impl JsonSchema for Amount {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "string", "minLength": 1}]})
    }
}

/// One of several limits.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Requests that a window admits.
    pub count: Amount,
    /// Length of a window in seconds.
    pub time_window: Amount,
    /// What is counted by: text with variables.
    #[schemars(length(min = 1))]
    pub key: String,
    /// Stands in the names of this limit's headers.
    pub header_prefix: Option<String>,
}

/// How windows follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WindowType {
    /// One ends, the next begins.
    #[default]
    Fixed,
    /// The last window counts for the part of it that is not yet past.
    Sliding,
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
    /// Itself: all requests of this resource count together.
    Constant,
    /// Ours: itself, so that all requests of all resources with this key count together.
    Global,
}

/// Where is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// In each gateway.
    #[default]
    Local,
    /// Ours: in all gateways together, over their bus; a gateway without one is all there are.
    Shared,
}

/// Tells of a limit that cannot be shared.
pub(super) fn check_shared(policy: Policy, several: bool, faults: &mut Vec<Fault>) {
    if policy == Policy::Shared && several {
        let message = "must not stand beside policy \"shared\": one limit is shared at a time";
        faults.push(Fault::new("rules", message));
    }
}

/// Metadata.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Metadata {
    /// Header with the limit.
    pub limit_header: String,
    /// Header with the rest.
    pub remaining_header: String,
    /// Header with the seconds until the window ends.
    pub reset_header: String,
}

impl Default for Metadata {
    fn default() -> Self {
        Self {
            limit_header: "X-RateLimit-Limit".to_owned(),
            remaining_header: "X-RateLimit-Remaining".to_owned(),
            reset_header: "X-RateLimit-Reset".to_owned(),
        }
    }
}

fn remote_addr() -> String {
    "remote_addr".to_owned()
}

fn unavailable() -> u16 {
    503
}

fn yes() -> bool {
    true
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        match (&self.rules, self.count.is_some() || self.time_window.is_some()) {
            (Some(_), true) => faults.push(Fault::new("rules", "must not stand beside count and time_window")),
            (None, _) => {
                if self.count.is_none() {
                    faults.push(Fault::new("count", "is missing"));
                }
                if self.time_window.is_none() {
                    faults.push(Fault::new("time_window", "is missing"));
                }
            }
            (Some(_), false) => {}
        }
        if self.group.is_some() && self.rules.is_some() {
            faults.push(Fault::new("group", "must not stand beside rules"));
        }
        check_shared(self.policy, self.rules.is_some(), faults);
        if self.policy == Policy::Shared && self.window_type == WindowType::Sliding {
            let message = "must be \"fixed\" with policy \"shared\"";
            faults.push(Fault::new("window_type", message));
        }
        let mut keys = BTreeSet::new();
        for (index, rule) in self.rules.iter().flatten().enumerate() {
            if let Some(prefix) = &rule.header_prefix {
                check_header(&format!("rules[{index}].header_prefix"), prefix, &[], faults);
            }
            if !keys.insert(&rule.key) {
                faults.push(Fault::new(format!("rules[{index}].key"), format!("{:?} stands in two rules, which would count together", rule.key)));
            }
        }
    }
}

impl Settings for Metadata {
    fn check(&self, faults: &mut Vec<Fault>) {
        check_header("limit_header", &self.limit_header, &[], faults);
        check_header("remaining_header", &self.remaining_header, &[], faults);
        check_header("reset_header", &self.reset_header, &[], faults);
    }
}
