//! Power of two choices: of two endpoints at random, the one with the lower score.

use super::Scope;
use crate::endpoint::EndpointState;
use crate::hash::Rng;
use crate::pool::Node;
use std::sync::Arc;

/// What the score is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// `(in_flight + 1) × latency × (1 + load) / weight`.
    Load,
    /// `latency / weight`.
    Latency,
}

pub(crate) fn choose<'a>(scope: &Scope<'a, '_>, rng: &mut Rng, by: By) -> Option<&'a Node> {
    let (first, a) = scope.any(None, rng);
    let (_, b) = scope.any(Some(first), rng);
    let (Some(a), Some(b)) = (a, b) else { return a.or(b) };
    Some(if second_is_better(scope, by, a, b) { b } else { a })
}

/// The same among endpoints of equal weight of which none ramps up.
pub(crate) fn choose_of(
    states: &[Arc<EndpointState>],
    by: By,
    now: u64,
    rng: &mut Rng,
    mean_load: impl Fn() -> f32,
) -> Option<usize> {
    let first = rng.below(states.len());
    let second = rng.below(states.len().saturating_sub(1));
    let second = second + usize::from(second >= first);
    let Some(b) = states.get(second) else { return states.first().map(|_| 0) };
    let better = compare(by, (states.get(first)?, 1), (b, 1), now, mean_load);
    Some(if better { second } else { first })
}

/// Whether the second has the lower score.
fn second_is_better(scope: &Scope<'_, '_>, by: By, a: &Node, b: &Node) -> bool {
    let mean_load = || scope.pool.mean_load();
    compare(by, (&a.state, a.weight), (&b.state, b.weight), scope.draw.now, mean_load)
}

/// Where one has no latency yet it counts as equal to the other's.
fn compare(
    by: By,
    (a, weight_a): (&EndpointState, u32),
    (b, weight_b): (&EndpointState, u32),
    now: u64,
    mean_load: impl Fn() -> f32,
) -> bool {
    let (latency_a, latency_b) = match (a.latency.seconds(now), b.latency.seconds(now)) {
        (Some(a), Some(b)) => (a, b),
        (Some(one), None) | (None, Some(one)) => (one, one),
        (None, None) => (1.0, 1.0),
    };
    match by {
        By::Load => {
            load_score(b, weight_b, latency_b, &mean_load, now)
                < load_score(a, weight_a, latency_a, &mean_load, now)
        }
        By::Latency => latency_score(weight_b, latency_b) < latency_score(weight_a, latency_a),
    }
}

/// Score of the `load` balancer. An endpoint without a fresh report has the mean load of its peers, and one without any
/// latency has the other's (the caller sees to that).
pub(crate) fn load_score(
    state: &EndpointState,
    weight: u32,
    latency: f32,
    mean_load: impl Fn() -> f32,
    now: u64,
) -> f32 {
    let load = state.load(now).unwrap_or_else(mean_load);
    (state.in_flight() + 1) as f32 * latency * (1.0 + load) / weight.max(1) as f32
}

/// Score of the `ewma` balancer.
pub(crate) fn latency_score(weight: u32, latency: f32) -> f32 {
    latency / weight.max(1) as f32
}
