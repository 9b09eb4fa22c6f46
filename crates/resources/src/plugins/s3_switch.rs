//! `s3-switch`: operations of S3 that are switched off. Ours, not APISIX's.

use super::Settings;
use super::values::check_base_domains;
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use towpath_s3::Group;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Domains under which buckets are host names (`photos.s3.example.com`); without them, buckets stand in the path.
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub base_domains: Vec<String>,
    /// What is switched off.
    #[schemars(length(max = 256))]
    pub rules: Vec<Rule>,
    /// What becomes of lists that have to be in the order of keys.
    pub ordered_list: OrderedList,
}

impl Default for Config {
    fn default() -> Self {
        Self { base_domains: Vec::new(), rules: Vec::new(), ordered_list: OrderedList::Allow }
    }
}

/// What is switched off, for whom.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Names of operations (`PutObject`) or groups: `all`, `read`, `list`, `write`, `delete`, `multipart`, `settings`.
    #[schemars(length(min = 1, max = 256))]
    pub operations: Vec<String>,
    /// Of those, what stays on.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub except: Vec<String>,
    /// Only in buckets whose names fit one of these (`*` and `?`); absent = in all, and on the service itself.
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 256)))]
    pub buckets: Option<Vec<String>>,
    /// Only for access keys that fit one of these; absent = for all.
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 256)))]
    pub access_keys: Option<Vec<String>>,
    /// The error that clients get.
    #[serde(default)]
    pub code: Code,
    /// Its message.
    #[schemars(length(min = 1, max = 1024))]
    pub message: Option<String>,
}

/// An error of S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
pub enum Code {
    /// 403.
    #[default]
    AccessDenied,
    /// 405.
    MethodNotAllowed,
    /// 501.
    NotImplemented,
    /// 503; clients try again.
    ServiceUnavailable,
}

/// What becomes of lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OrderedList {
    /// They go to the upstream.
    #[default]
    Allow,
    /// Those that do not depend on the order (no `delimiter`, `marker` or `start-after`) go to the upstream with
    /// `allow-unordered=true`; the others are answered with 501.
    Relax,
    /// All that do not say `allow-unordered=true` are answered with 501.
    Refuse,
}

/// Tells of names that are no operation and no group.
fn check_operations(path: &str, names: &[String], faults: &mut Vec<Fault>) {
    for (n, name) in names.iter().enumerate() {
        if name.parse::<Group>().is_err() {
            let groups = Group::NAMES.join(", ");
            faults.push(Fault::new(
                format!("{path}[{n}]"),
                format!("{name:?} is no operation of S3 (like PutObject) and no group ({groups})"),
            ));
        }
    }
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        check_base_domains("base_domains", &self.base_domains, faults);
        for (n, rule) in self.rules.iter().enumerate() {
            check_operations(&format!("rules[{n}].operations"), &rule.operations, faults);
            check_operations(&format!("rules[{n}].except"), &rule.except, faults);
        }
    }
}
