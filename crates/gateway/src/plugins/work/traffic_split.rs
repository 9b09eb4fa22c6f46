//! `traffic-split`: shares of the traffic, or requests that meet conditions, go to other upstreams.

use crate::plugins::make::Scope;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use towpath_resources::plugins::traffic_split::{Config, Weighted};
use towpath_route::vars::Expr;

/// See the module.
pub(in crate::plugins) struct TrafficSplit {
    rules: Vec<Rule>,
}

struct Rule {
    /// One of them has to hold; `None` = always.
    when: Option<Vec<Option<Expr>>>,
    /// Keys of upstreams with their shares; no key = the route's own.
    shares: Vec<(Option<String>, u32)>,
    total: u64,
    /// Steps so far, and how far one goes: a step that shares no divisor with the total visits every place once before it
    /// comes again, and far enough to spread the shares.
    turn: AtomicU64,
    step: u64,
}

impl TrafficSplit {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let rules = config.rules.iter().enumerate().map(|(n, rule)| {
            let key = |m: usize, one: &Weighted| match (&one.upstream_id, &one.upstream) {
                (Some(id), _) => Some(id.as_str().to_owned()),
                (None, Some(_)) => Some(format!("{}/traffic-split/{n}.{m}", scope.from)),
                (None, None) => None,
            };
            let shares: Vec<_> = rule
                .weighted_upstreams
                .iter()
                .enumerate()
                .map(|(m, one)| (key(m, one), one.weight))
                .collect();
            let total = shares.iter().map(|(_, weight)| u64::from(*weight)).sum();
            let when = rule.r#match.as_ref().map(|all| {
                let parse =
                    |vars: &Vec<serde_json::Value>| Expr::parse(&serde_json::Value::Array(vars.clone())).ok();
                all.iter().map(|one| one.vars.as_ref().and_then(parse)).collect()
            });
            Rule { when, shares, total, turn: AtomicU64::new(0), step: step(total) }
        });
        Self { rules: rules.collect() }
    }
}

/// A step near the golden section that shares no divisor with the total.
fn step(total: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let near = (total as f64 * 0.618) as u64;
    (near.max(1)..=near + total).find(|step| divisor(*step, total) == 1).unwrap_or(1)
}

impl Rule {
    fn holds(&self, request: &Request<'_>) -> bool {
        let Some(when) = &self.when else { return true };
        let vars = request.vars();
        when.is_empty() || when.iter().any(|expr| expr.as_ref().is_none_or(|expr| expr.holds(&vars)))
    }

    /// The upstream whose turn it is. A share of 0 never has one.
    fn next(&self) -> Option<&str> {
        if self.total == 0 {
            return None;
        }
        let at = self.turn.fetch_add(1, Relaxed) % self.total;
        let mut place = (u128::from(at) * u128::from(self.step) % u128::from(self.total)) as u64;
        for (key, weight) in &self.shares {
            let weight = u64::from(*weight);
            if place < weight {
                return key.as_deref();
            }
            place -= weight;
        }
        None
    }
}

impl Plugin for TrafficSplit {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        let Some(key) = self.rules.iter().find(|rule| rule.holds(request)).and_then(Rule::next) else {
            return Step::Next;
        };
        let running = request.running();
        let upstream = running.plugins.as_ref().and_then(|plugins| plugins.upstreams.get(key)).cloned();
        let Some(upstream) = upstream else {
            let why = format!("failed to fetch upstream info by upstream id: {key}");
            return Step::answer(Answer::error_msg(500, &why));
        };
        running.aim = Some(upstream.app.clone());
        running.upstream = Some(upstream);
        Step::Next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_exact_and_spread() {
        for weights in [vec![1, 1], vec![1, 99], vec![0, 5], vec![2, 3, 5], vec![10_000, 1], vec![7]] {
            let shares: Vec<_> =
                weights.iter().enumerate().map(|(n, weight)| (Some(n.to_string()), *weight)).collect();
            let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            let rule = Rule { when: None, shares, total, turn: AtomicU64::new(0), step: step(total) };
            let mut seen = vec![0; weights.len()];
            for _ in 0..total {
                seen[rule.next().unwrap().parse::<usize>().unwrap()] += 1;
            }
            assert_eq!(seen, weights);
        }
        let rule = Rule {
            when: None,
            shares: vec![(Some("a".into()), 5), (None, 5)],
            total: 10,
            turn: AtomicU64::new(0),
            step: step(10),
        };
        let run: Vec<_> = (0..10).map(|_| rule.next().is_some()).collect();
        let longest = run.chunk_by(|a, b| a == b).map(<[bool]>::len).max().unwrap();
        assert!(longest <= 2, "{run:?}");
    }
}
