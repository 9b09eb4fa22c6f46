//! What a balancer may choose from.

use crate::hash::Rng;
use crate::pick::{Draw, TriedSet, usable};
use crate::pool::{Node, Pool, PoolState, Tier};

/// The endpoints of a tier that are available (or, in panic, all that are usable), without a list of them: usually a
/// slice as it is, while some are ejected or tried already a slice with a condition.
#[derive(Debug)]
pub(crate) struct Scope<'a, 'r> {
    nodes: &'a [Node],
    condition: Option<Condition<'r>>,
    len: usize,
    /// All weights are equal.
    pub(crate) uniform: bool,
    /// Sum of the weights.
    pub(crate) weight: u64,
    pub(crate) pool: &'a PoolState,
    pub(crate) draw: Draw,
    /// Somebody ramps up.
    pub(crate) ramping: bool,
}

#[derive(Debug, Clone, Copy)]
enum Condition<'r> {
    Available(u64, &'r TriedSet),
    Usable(&'r TriedSet),
}

impl Condition<'_> {
    fn holds(&self, node: &Node) -> bool {
        match self {
            Condition::Available(now, tried) => {
                !node.state.ejected(*now) && (tried.is_empty() || !tried.contains(node.endpoint.instance()))
            }
            Condition::Usable(tried) => usable(node) && !tried.contains(node.endpoint.instance()),
        }
    }
}

impl<'a, 'r> Scope<'a, 'r> {
    /// What is available in a tier. `disturbed` = some endpoint of the pool may be ejected.
    pub(crate) fn available(
        pool: &'a Pool,
        tier: &Tier,
        draw: Draw,
        disturbed: bool,
        tried: &'r TriedSet,
    ) -> Self {
        let nodes = pool.range(tier.start, tier.ready_end);
        let condition = (disturbed || !tried.is_empty()).then_some(Condition::Available(draw.now, tried));
        Self::new(nodes, condition, tier.uniform, tier.ready_weight, &pool.state, draw)
    }

    /// Whatever may be used at all, of every tier.
    pub(crate) fn usable(pool: &'a Pool, draw: Draw, tried: &'r TriedSet) -> Self {
        Self::new(pool.nodes(), Some(Condition::Usable(tried)), false, 0, &pool.state, draw)
    }

    fn new(
        nodes: &'a [Node],
        condition: Option<Condition<'r>>,
        uniform: bool,
        weight: u64,
        pool: &'a PoolState,
        draw: Draw,
    ) -> Self {
        let ramping = pool.ramping(draw.now);
        let mut scope = Self { nodes, condition, len: nodes.len(), uniform, weight, pool, draw, ramping };
        if condition.is_some() {
            let (len, weight) =
                scope.iter().fold((0, 0), |(len, weight), node| (len + 1, weight + u64::from(node.weight)));
            (scope.len, scope.weight) = (len, weight);
        }
        scope
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a Node> + use<'a, 'r> {
        let condition = self.condition;
        self.nodes.iter().filter(move |node| condition.is_none_or(|condition| condition.holds(node)))
    }

    pub(crate) fn nth(&self, n: usize) -> Option<&'a Node> {
        match self.condition {
            None => self.nodes.get(n),
            Some(_) => self.iter().nth(n),
        }
    }

    /// Share of its weight that a node gets while it ramps up.
    pub(crate) fn ramp(&self, node: &Node) -> f32 {
        if self.ramping { node.endpoint.ramp(self.draw.now) } else { 1.0 }
    }

    /// Any one but `not`, equally likely but for those that ramp up, which get their present share.
    pub(crate) fn any(&self, not: Option<usize>, rng: &mut Rng) -> (usize, Option<&'a Node>) {
        let mut last = (0, None);
        for _ in 0..RAMP_TRIES {
            let n = match not {
                None => rng.below(self.len),
                Some(not) => {
                    let n = rng.below(self.len.saturating_sub(1));
                    n + usize::from(n >= not)
                }
            };
            last = (n, self.nth(n));
            if !self.ramping || last.1.is_none_or(|node| rng.unit() < f64::from(self.ramp(node))) {
                break;
            }
        }
        last
    }
}

/// Draws in a row that may fall on endpoints that ramp up and be refused.
const RAMP_TRIES: usize = 12;
