//! Power of two choices: of two endpoints at random, the one with the lower score.

use super::Scope;
use crate::hash::Rng;
use crate::pool::Node;

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

/// Compares two. Where one has no latency yet it counts as equal to the other's.
pub(crate) fn second_is_better(scope: &Scope<'_, '_>, by: By, a: &Node, b: &Node) -> bool {
    let now = scope.draw.now;
    let (latency_a, latency_b) = match (a.state.latency.seconds(now), b.state.latency.seconds(now)) {
        (Some(a), Some(b)) => (a, b),
        (Some(one), None) | (None, Some(one)) => (one, one),
        (None, None) => (1.0, 1.0),
    };
    match by {
        By::Load => {
            let mean = scope.pool.mean_load();
            load_score(b, latency_b, mean, now) < load_score(a, latency_a, mean, now)
        }
        By::Latency => latency_score(b, latency_b) < latency_score(a, latency_a),
    }
}

/// Score of the `load` balancer. An endpoint without a fresh report has the mean load of its peers, and one without any
/// latency has the other's (the caller sees to that).
pub(crate) fn load_score(node: &Node, latency: f32, mean_load: f32, now: u64) -> f32 {
    let load = node.state.load(now).unwrap_or(mean_load);
    (node.state.in_flight() + 1) as f32 * latency * (1.0 + load) / node.weight.max(1) as f32
}

/// Score of the `ewma` balancer.
pub(crate) fn latency_score(node: &Node, latency: f32) -> f32 {
    latency / node.weight.max(1) as f32
}
