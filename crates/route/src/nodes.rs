//! Static nodes of upstreams as endpoints.

use crate::change::{Address, EndpointSpec};
use crate::hash::hash_bytes;
use towpath_types::upstream::{Balancer, Ejection, Protocol, RetryPolicy, Sticky, Timeouts, UpstreamSpec};
use towpath_types::{AppRef, InstanceId, LaneName, Millis, Place};

/// A node of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct StaticNode {
    /// Where it listens. A name that has several addresses is a node for each of them.
    pub address: Address,
    /// Balancing weight in relation to the other nodes; 0 takes no requests.
    pub weight: u32,
    /// Higher ones come first; lower ones serve while no higher one is available.
    pub priority: i32,
    /// Where it stands.
    pub place: Place,
    /// What it speaks.
    pub protocol: Protocol,
    /// Passes its health check, or has none.
    pub healthy: bool,
}

/// How an upstream of `nodes` nodes is used where it does not say otherwise, with APISIX's meanings: in turn by weight, each
/// failed connection is tried again at every other node without a budget, nothing is ejected but by checks, nothing spills
/// or ramps up, and a cookie means nothing.
pub fn static_upstream(nodes: usize) -> UpstreamSpec {
    UpstreamSpec {
        balancer: Balancer::Roundrobin,
        timeouts: Timeouts {
            connect: Millis::secs(60),
            response: Millis::secs(60),
            idle: Millis::secs(60),
            total: Millis(0),
        },
        retry: RetryPolicy {
            retries: u32::try_from(nodes.saturating_sub(1)).unwrap_or(u32::MAX),
            budget: 1.0,
            min_per_10s: u32::MAX,
        },
        ejection: Ejection { consecutive: 0, rate: 0.0, ..Ejection::default() },
        sticky: Sticky { session_cookies: Vec::new(), ..Sticky::default() },
        slow_start: Millis(0),
        spill_below: 0.0,
        ..UpstreamSpec::default()
    }
}

/// The instance id of a node: it follows from upstream and address, so that what is learned about a node survives every
/// edit of the upstream that keeps it.
pub fn node_id(upstream: &AppRef, address: &Address) -> InstanceId {
    let text = format!("{upstream} {address}");
    let half = |seed| u128::from(hash_bytes(seed, text.as_bytes()));
    InstanceId::derived(half(NODE_SEEDS.0) << 64 | half(NODE_SEEDS.1))
}

const NODE_SEEDS: (u64, u64) = (0x6e6f_6465_0001, 0x6e6f_6465_0002);

impl StaticNode {
    /// The node as an endpoint, in the base lane.
    pub fn endpoint(&self, upstream: &AppRef) -> EndpointSpec {
        EndpointSpec {
            instance: node_id(upstream, &self.address),
            start: 0,
            app: upstream.clone(),
            lane: LaneName::base(),
            address: self.address.clone(),
            place: self.place.clone(),
            protocol: self.protocol,
            weight: self.weight,
            priority: self.priority,
            draining: false,
            healthy: self.healthy,
            ready_ms: 0,
            load: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_follows_from_upstream_and_address_alone() {
        let upstream = AppRef::of_upstream("1");
        let id = |upstream: &AppRef, port| node_id(upstream, &Address::parse("10.0.0.1", port));
        assert_eq!(id(&upstream, 80), id(&upstream, 80));
        assert_ne!(id(&upstream, 80), id(&upstream, 81));
        assert_ne!(id(&upstream, 80), id(&AppRef::of_upstream("2"), 80));
        assert_eq!(
            node_id(&upstream, &Address::parse("::1", 1)),
            node_id(&upstream, &Address::parse("[::1]", 1))
        );
        assert_eq!(id(&upstream, 80).0.get_version_num(), 8);
    }
}
