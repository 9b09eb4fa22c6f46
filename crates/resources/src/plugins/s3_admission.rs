//! `s3-admission`: so many requests at a time, and GET first. Ours, not APISIX's.

use super::Settings;
use super::values::check_base_domains;
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Requests at the same time.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub concurrency: u32,
    /// What `key` is. Requests of the same value share slots and lines.
    #[serde(default)]
    pub key_type: KeyType,
    /// With `constant`: the name of the slots, which all routes of the gateway that name it share.
    #[serde(default = "key")]
    #[schemars(length(min = 1, max = 256))]
    pub key: String,
    /// GET and HEAD.
    #[serde(default = "read")]
    pub read: Share,
    /// PUT and POST.
    #[serde(default = "write")]
    pub write: Share,
    /// DELETE, and POST with lists of what is to be deleted.
    #[serde(default = "delete")]
    pub delete: Share,
    /// Lists of buckets, keys, versions, uploads.
    #[serde(default = "list")]
    pub list: Share,
    /// Seconds that clients are told to wait when there is no room.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 3600))]
    pub retry_after: u32,
    /// Domains under which buckets are host names.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub base_domains: Vec<String>,
}

/// What a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyType {
    /// Itself, so that all requests count together.
    #[default]
    Constant,
    /// The name of a variable.
    Var,
    /// Text with variables.
    VarCombination,
}

/// How a class of requests is treated.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Its share of slots while others wait too.
    #[schemars(range(min = 1, max = 10_000))]
    pub weight: u32,
    /// Most requests that wait.
    #[serde(default = "queue")]
    #[schemars(range(max = 100_000))]
    pub queue: u32,
    /// Longest wait in seconds; 503 after that.
    #[serde(default = "wait")]
    #[schemars(range(max = 300), extend("exclusiveMinimum" = 0))]
    pub max_wait: f64,
    /// Most slots that it has at a time, in percent of all.
    #[serde(default = "all")]
    #[schemars(range(min = 1, max = 100))]
    pub max_share: u32,
}

fn key() -> String {
    "s3".to_owned()
}

fn one() -> u32 {
    1
}

fn queue() -> u32 {
    1024
}

fn wait() -> f64 {
    5.0
}

fn all() -> u32 {
    100
}

fn share(weight: u32, max_share: u32) -> Share {
    Share { weight, queue: queue(), max_wait: wait(), max_share }
}

fn read() -> Share {
    share(8, 100)
}

fn write() -> Share {
    share(2, 80)
}

fn delete() -> Share {
    share(1, 50)
}

fn list() -> Share {
    share(1, 50)
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        check_base_domains("base_domains", &self.base_domains, faults);
    }
}
