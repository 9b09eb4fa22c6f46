//! Fewest requests in flight per weight; ties at random.

use super::Scope;
use crate::hash::Rng;
use crate::pool::Node;

pub(crate) fn choose<'a>(scope: &Scope<'a, '_>, rng: &mut Rng) -> Option<&'a Node> {
    let mut best: Option<(&Node, f64)> = None;
    let mut ties = 0;
    for node in scope.iter() {
        let score = score(node, scope);
        match best {
            Some((_, least)) if score > least => {}
            Some((_, least)) if score == least => {
                ties += 1;
                if rng.below(ties) == 0 {
                    best = Some((node, score));
                }
            }
            _ => {
                ties = 1;
                best = Some((node, score));
            }
        }
    }
    best.map(|(node, _)| node)
}

/// What is compared: the lower is better.
pub(crate) fn score(node: &Node, scope: &Scope<'_, '_>) -> f64 {
    f64::from(node.state.in_flight() + 1) / (f64::from(node.weight.max(1)) * f64::from(scope.ramp(node)))
}
