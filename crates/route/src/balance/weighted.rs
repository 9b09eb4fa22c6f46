//! JAE's balancer: probability in proportion to `weight × (1 − load / load_max)`.
//!
//! `load_max` is what the formula gives when everything is at its limit, so that the factor is the free share of the
//! endpoint. It has a floor, so that an endpoint at its limit does not starve.

use super::Scope;
use crate::hash::Rng;
use crate::pool::Node;

/// Least factor of a ready endpoint.
const FLOOR: f32 = 0.05;

pub(crate) fn choose<'a>(scope: &Scope<'a, '_>, load_max: f32, rng: &mut Rng) -> Option<&'a Node> {
    let part = |node: &Node| f64::from(capacity(node, scope, load_max));
    let total: f64 = scope.iter().map(part).sum();
    let mut rest = rng.unit() * total;
    let mut last = None;
    for node in scope.iter() {
        last = Some(node);
        rest -= part(node);
        if rest < 0.0 {
            break;
        }
    }
    last
}

/// What the probability of a node is proportional to.
pub(crate) fn capacity(node: &Node, scope: &Scope<'_, '_>, load_max: f32) -> f32 {
    let load = node.state.load(scope.draw.now).unwrap_or_else(|| scope.pool.mean_load());
    let free = if load_max > 0.0 { 1.0 - load / load_max } else { 1.0 };
    node.weight as f32 * free.clamp(FLOOR, 1.0) * scope.ramp(node)
}
