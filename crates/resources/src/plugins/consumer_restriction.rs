//! `consumer-restriction`: which consumers may come, and with which methods.

use super::Settings;
use crate::Fault;
use crate::model::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("anyOf" = json!([
    {"required": ["blacklist"]}, {"required": ["whitelist"]}, {"required": ["allowed_by_methods"]}
])))]
pub struct Config {
    /// What the lists name.
    #[serde(default)]
    pub r#type: By,
    /// These may not come.
    #[schemars(length(min = 1))]
    pub blacklist: Option<Vec<String>>,
    /// Only these may come.
    #[schemars(length(min = 1))]
    pub whitelist: Option<Vec<String>>,
    /// Which methods some of them may use.
    pub allowed_by_methods: Option<Vec<Methods>>,
    /// Status of a refusal.
    #[serde(default = "forbidden")]
    #[schemars(range(min = 200, max = 599))]
    pub rejected_code: u16,
    /// Body of a refusal.
    pub rejected_msg: Option<String>,
}

/// What the lists name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Consumers.
    #[default]
    ConsumerName,
    /// Services.
    ServiceId,
    /// Routes.
    RouteId,
    /// Consumer groups.
    ConsumerGroupId,
}

impl By {
    /// As it is written, which is the name of the variable.
    pub fn as_str(self) -> &'static str {
        match self {
            By::ConsumerName => "consumer_name",
            By::ServiceId => "service_id",
            By::RouteId => "route_id",
            By::ConsumerGroupId => "consumer_group_id",
        }
    }
}

/// Methods that one of them may use.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Methods {
    /// Who.
    pub user: String,
    /// Which.
    #[schemars(length(min = 1))]
    pub methods: Vec<Method>,
}

fn forbidden() -> u16 {
    403
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        if self.blacklist.is_none() && self.whitelist.is_none() && self.allowed_by_methods.is_none() {
            faults.push(Fault::new("whitelist", "is missing: give whitelist, blacklist or allowed_by_methods"));
        }
    }
}
