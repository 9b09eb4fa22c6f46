//! Smooth weighted round robin without a lock: each endpoint has its own virtual time, which its turns advance by
//! `1 / weight`; the one whose next turn is due first is next. Turns are due in the middle of their interval, so that
//! a heavy endpoint's turns lie between those of the others rather than in front of them.
//!
//! An endpoint that comes (or comes back) starts at the pool's present time, so it neither catches up nor waits.

use super::Scope;
use crate::pool::Node;
use std::sync::atomic::Ordering::Relaxed;

/// Virtual time between two turns of an endpoint of weight 1.
const LAP: u64 = 1 << 32;

/// Workers that choose at the same instant may see each other's turn taken; after so many times it does not matter.
const TRIES: usize = 8;

pub(crate) fn choose<'a>(scope: &Scope<'a, '_>) -> Option<&'a Node> {
    let mut chosen = None;
    for _ in 0..TRIES {
        let time = scope.pool.turn.load(Relaxed);
        let due = |node: &Node| {
            let step = step(scope, node);
            let last = node.state.turn.load(Relaxed);
            let turn = last.max(time.saturating_sub(step / 2));
            (turn + step / 2, turn + step, last)
        };
        let (node, (at, next, last)) =
            scope.iter().map(|node| (node, due(node))).min_by_key(|(_, (at, ..))| *at)?;
        chosen = Some(node);
        if node.state.turn.compare_exchange(last, next, Relaxed, Relaxed).is_ok() {
            scope.pool.turn.fetch_max(at, Relaxed);
            break;
        }
    }
    chosen
}

fn step(scope: &Scope<'_, '_>, node: &Node) -> u64 {
    let step = LAP / u64::from(node.weight.max(1));
    if scope.ramping { (step as f64 / f64::from(scope.ramp(node))) as u64 } else { step }
}
