//! `traffic-split`: shares of the traffic, or requests that meet conditions, go to other upstreams.

use super::Settings;
use super::values::check_vars;
use crate::model::Upstream;
use crate::{Fault, Id, Key, Kind};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The first rule that matches counts.
    pub rules: Vec<Rule>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Requests that meet one of these; absent = all.
    pub r#match: Option<Vec<Match>>,
    /// Where they go.
    #[serde(default = "own")]
    #[schemars(length(min = 1, max = 20))]
    pub weighted_upstreams: Vec<Weighted>,
}

/// Conditions.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// Expressions that all hold.
    pub vars: Option<Vec<Value>>,
}

/// An upstream with its share; without upstream it is the route's own.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Weighted {
    /// An upstream by id.
    pub upstream_id: Option<Id>,
    /// An upstream that stands here.
    pub upstream: Option<Upstream>,
    /// Its share; 0 = nothing.
    #[serde(default = "one")]
    pub weight: u32,
}

fn one() -> u32 {
    1
}

fn own() -> Vec<Weighted> {
    vec![Weighted { upstream_id: None, upstream: None, weight: 1 }]
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        for (n, rule) in self.rules.iter().enumerate() {
            for (m, one) in rule.r#match.iter().flatten().enumerate() {
                if let Some(vars) = &one.vars {
                    check_vars(&format!("rules[{n}].match[{m}].vars"), vars, faults);
                }
            }
            for (m, one) in rule.weighted_upstreams.iter().enumerate() {
                let path = format!("rules[{n}].weighted_upstreams[{m}]");
                if one.upstream_id.is_some() && one.upstream.is_some() {
                    faults.push(Fault::new(path.clone(), "has both upstream_id and upstream: give one of them"));
                }
                if let Some(upstream) = &one.upstream {
                    let mut inner = Vec::new();
                    upstream.check(&mut inner);
                    if upstream.lane.is_some() {
                        inner.push(Fault::new("lane", "does nothing in traffic-split: put it into the route's upstream"));
                    }
                    let below = format!("{path}.upstream");
                    faults.extend(inner.into_iter().map(|fault| fault.below(&below)));
                }
            }
        }
    }

    fn references(&self) -> Vec<Key> {
        let all = self.rules.iter().flat_map(|rule| &rule.weighted_upstreams);
        all.filter_map(|one| Some(Key::new(Kind::Upstream, one.upstream_id.clone()?))).collect()
    }

    fn upstreams(&self) -> Vec<(String, &Upstream)> {
        let mut all = Vec::new();
        for (n, rule) in self.rules.iter().enumerate() {
            for (m, one) in rule.weighted_upstreams.iter().enumerate() {
                all.extend(one.upstream.as_ref().map(|upstream| (format!("{n}.{m}"), upstream)));
            }
        }
        all
    }
}
