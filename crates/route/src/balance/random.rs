//! At random by weight.

use super::Scope;
use crate::hash::Rng;
use crate::pool::Node;

pub(crate) fn choose<'a>(scope: &Scope<'a, '_>, rng: &mut Rng) -> Option<&'a Node> {
    if scope.uniform {
        return scope.any(None, rng).1;
    }
    let mut last = None;
    for _ in 0..12 {
        let mut rest = rng.below_u64(scope.weight);
        for node in scope.iter() {
            last = Some(node);
            if rest < u64::from(node.weight) {
                break;
            }
            rest -= u64::from(node.weight);
        }
        if !scope.ramping || last.is_none_or(|node| rng.unit() < f64::from(scope.ramp(node))) {
            break;
        }
    }
    last
}
