//! Consistent hash with bounded load, by weighted rendezvous: each endpoint has a score from the hash of request and
//! instance, the highest wins. It needs no ring, so weights of any size cost nothing, and when an endpoint comes or
//! goes only its own share of keys moves.
//!
//! One that ramps up has a smaller weight at first: it takes over its keys one after another, and no other key moves.
//!
//! An endpoint of an app that has more than [`BOUND`] times its fair share of the requests in flight is passed over. Those of
//! upstreams are not: there a key has one node as long as that is available, as nginx and APISIX have it.

use super::Scope;
use crate::hash::{mix, unit};
use crate::pool::Node;

/// How much more than its fair share an endpoint may have in flight.
const BOUND: f64 = 1.25;

pub(crate) fn choose<'a>(scope: &Scope<'a, '_>, bounded: bool) -> Option<&'a Node> {
    let in_flight =
        scope.iter().filter(|_| bounded).map(|node| u64::from(node.state.in_flight())).sum::<u64>();
    let fair = (in_flight + 1) as f64 / scope.weight.max(1) as f64 * BOUND;
    let mut best: Option<(&Node, f64)> = None;
    for node in scope.iter() {
        if bounded && f64::from(node.state.in_flight()) + 1.0 > (fair * f64::from(node.weight)).ceil() {
            continue;
        }
        let score = score(node, scope);
        if best.is_none_or(|(_, highest)| score > highest) {
            best = Some((node, score));
        }
    }
    best.map(|(node, _)| node).or_else(|| scope.nth(0))
}

/// `−weight / ln(u)` with `u` uniform in (0, 1): the highest of several is each one's with probability in proportion
/// to its weight.
pub(crate) fn score(node: &Node, scope: &Scope<'_, '_>) -> f64 {
    let key = scope.draw.key;
    let (high, low) = node.endpoint.instance().0.as_u64_pair();
    let u = unit(mix(key ^ mix(high) ^ mix(low.rotate_left(32)))).max(f64::MIN_POSITIVE);
    -f64::from(node.weight) * f64::from(scope.ramp(node)) / u.ln()
}
