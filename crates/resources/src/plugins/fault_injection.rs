//! `fault-injection`: requests are answered with an error, or delayed, on purpose.

use super::Settings;
use super::values::{Scalar, check_headers, check_vars};
use crate::Fault;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Requests are answered.
    pub abort: Option<Abort>,
    /// Requests wait.
    pub delay: Option<Delay>,
}

/// Requests are answered.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Abort {
    /// With this status.
    #[schemars(range(min = 200, max = 599))]
    pub http_status: u16,
    /// With this body; it may have variables.
    pub body: Option<String>,
    /// With these headers; they may have variables.
    pub headers: Option<BTreeMap<String, Scalar>>,
    /// Share of requests; absent = all.
    #[schemars(range(min = 0, max = 100))]
    pub percentage: Option<u8>,
    /// Only requests that meet one of these expressions.
    #[schemars(length(max = 20))]
    pub vars: Option<Vec<Vec<Value>>>,
}

/// Requests wait.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// So many seconds.
    #[schemars(range(min = 0.0))]
    pub duration: f64,
    /// Share of requests; absent = all.
    #[schemars(range(min = 0, max = 100))]
    pub percentage: Option<u8>,
    /// Only requests that meet one of these expressions.
    #[schemars(length(max = 20))]
    pub vars: Option<Vec<Vec<Value>>>,
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        if self.abort.is_none() && self.delay.is_none() {
            faults.push(Fault::new("abort", "is missing: give abort or delay"));
        }
        let mut check = |path: &str, vars: Option<&Vec<Vec<Value>>>| {
            for (n, expression) in vars.into_iter().flatten().enumerate() {
                check_vars(&format!("{path}.vars[{n}]"), expression, faults);
            }
        };
        check("abort", self.abort.as_ref().and_then(|abort| abort.vars.as_ref()));
        check("delay", self.delay.as_ref().and_then(|delay| delay.vars.as_ref()));
        if let Some(headers) = self.abort.as_ref().and_then(|abort| abort.headers.as_ref()) {
            check_headers("abort.headers", headers, faults);
        }
    }
}
