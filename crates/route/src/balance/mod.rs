//! The balancers: which of the available endpoints of one tier.

mod chash;
mod least;
mod random;
mod roundrobin;
mod scope;
mod two_choices;
mod weighted;

pub(crate) use chash::score as chash_score;
pub(crate) use least::score as least_score;
pub(crate) use scope::Scope;
pub(crate) use two_choices::{latency_score, load_score};
pub(crate) use weighted::capacity;

use crate::app::{App, Rule};
use crate::endpoint::EndpointState;
use crate::hash::Rng;
use crate::pool::Node;
use std::sync::Arc;
use two_choices::By;

/// One of the scope's endpoints; `None` only when it has none.
pub(crate) fn choose<'a>(scope: &Scope<'a, '_>, app: &App, rng: &mut Rng) -> Option<&'a Node> {
    if scope.len() <= 1 {
        return scope.nth(0);
    }
    match app.balancer {
        Rule::Load => two_choices::choose(scope, rng, By::Load),
        Rule::Ewma => two_choices::choose(scope, rng, By::Latency),
        Rule::Weighted => weighted::choose(scope, app.rare.load_max, rng),
        Rule::LeastConn => least::choose(scope, rng),
        Rule::Roundrobin => roundrobin::choose(scope),
        Rule::Chash => chash::choose(scope, app.rare.bounded),
        Rule::Random => random::choose(scope, rng),
    }
}

/// The same for endpoints of equal weight of which none ramps up, for the balancers that compare two; else `None`.
pub(crate) fn choose_short(
    states: &[Arc<EndpointState>],
    rule: Rule,
    now: u64,
    rng: &mut Rng,
    mean_load: impl Fn() -> f32,
) -> Option<usize> {
    let by = match rule {
        Rule::Load => By::Load,
        Rule::Ewma => By::Latency,
        _ => return None,
    };
    two_choices::choose_of(states, by, now, rng, mean_load)
}
