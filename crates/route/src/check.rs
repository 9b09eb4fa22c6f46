//! Checks of what people set that the types do not make by themselves. [`crate::Table`] refuses what does not pass them, and
//! so does whoever takes settings from people: what was taken is served.

use crate::header::can_name_lanes;
use crate::rule::RuleSpec;
use crate::rules::check_rule;
use std::fmt;
use towpath_types::lane::{EntryRule, LanePolicy};
use towpath_types::upstream::UpstreamSpec;

pub use crate::host::check_route_host as host;
pub use crate::path::check_route_path as path;

/// A field that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Its path from what was checked: `retry.budget`, `[2].percent`.
    pub field: String,
    /// What would be right.
    pub message: String,
}

impl Wrong {
    pub(crate) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wrong { field, message } = self;
        let dot = if field.starts_with('[') { "" } else { "." };
        write!(f, "{dot}{field} {message}")
    }
}

/// All that is wrong with an app's settings.
pub fn upstream(spec: &UpstreamSpec) -> Vec<Wrong> {
    let weights = &spec.load_weights;
    let shares = [
        ("load_weights.host_cpu", weights.host_cpu),
        ("load_weights.host_mem", weights.host_mem),
        ("load_weights.host_io", weights.host_io),
        ("load_weights.inst_cpu", weights.inst_cpu),
        ("load_weights.inst_mem", weights.inst_mem),
        ("load_weights.inst_io", weights.inst_io),
        ("load_weights.host_part", weights.host_part),
        ("retry.budget", spec.retry.budget),
        ("ejection.rate", spec.ejection.rate),
        ("ejection.max_share", spec.ejection.max_share),
        ("spill_below", spec.spill_below),
    ];
    let outside = shares.iter().filter(|(_, share)| !(0.0..=1.0).contains(share));
    outside.map(|(field, share)| Wrong::new(*field, format!("is {share}; it has to be 0 to 1"))).collect()
}

/// All that is wrong with a rule.
pub fn rule(spec: &RuleSpec) -> Vec<Wrong> {
    check_rule(spec)
}

/// All that is wrong with how a space reads lane tags.
pub fn policy(policy: &LanePolicy) -> Vec<Wrong> {
    let header = &policy.header;
    if header.is_empty() || can_name_lanes(header) {
        return Vec::new();
    }
    vec![Wrong::new("header", format!("is {header:?}, a header that gateways drop or write themselves"))]
}

/// All that is wrong with the rules by which requests enter lanes.
pub fn entry(rules: &[EntryRule]) -> Vec<Wrong> {
    let outside = rules.iter().enumerate().filter(|(_, rule)| !(0.0..=100.0).contains(&rule.percent));
    let wrong = |(at, rule): (usize, &EntryRule)| {
        Wrong::new(format!("[{at}].percent"), format!("is {}; it has to be 0 to 100", rule.percent))
    };
    outside.map(wrong).collect()
}

/// One line of what is wrong with `what`; `Ok` when nothing is.
pub(crate) fn none(what: &str, wrong: &[Wrong]) -> Result<(), String> {
    if wrong.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = wrong.iter().map(|wrong| format!("{what}{wrong}")).collect();
    Err(lines.join("; "))
}
