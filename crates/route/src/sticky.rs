//! Sticky sessions: the instance that a client is bound to, while it may serve this request.

use crate::lane::LaneChoice;
use crate::pick::{Pick, stages};
use crate::table::{Match, Table};
use towpath_types::InstanceId;

impl Table {
    /// The bound instance, in whatever tier, if it is available and in the lane that serves this request: a session that
    /// began in base moves into a feature lane as soon as that has an available endpoint, and back when it has none.
    pub fn find_sticky<'t>(
        &'t self,
        matched: &Match<'t>,
        lane: &LaneChoice<'_>,
        instance: InstanceId,
        now: u64,
    ) -> Option<Pick<'t>> {
        if matched.app.stopped {
            return None;
        }
        let stages = stages(matched, lane.lane);
        let (stage, pool) = stages.iter().flatten().find(|(_, pool)| {
            pool.nodes().iter().any(|node| node.endpoint.ready() && !node.state.ejected(now))
        })?;
        let (tier, _, node) = pool.find(instance)?;
        let available = node.endpoint.ready() && !node.state.ejected(now);
        available.then_some(Pick {
            endpoint: &node.endpoint,
            tier: stage.tier(tier.number),
            lane: &pool.lane,
            panic: false,
        })
    }
}
