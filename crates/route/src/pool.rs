//! The endpoints of one app in one lane, in tiers, compiled for the place of this gateway.

use crate::endpoint::{Endpoint, EndpointState};
use crate::pick::spilled;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use towpath_types::place::Distance;
use towpath_types::upstream::Locality;
use towpath_types::{InstanceId, LaneName, Place};

/// What is shared by all endpoints of a pool and outlives versions of the table.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct PoolState {
    /// No endpoint is ejected after this.
    pub(crate) ejected_until: AtomicU64,
    /// No endpoint ramps up after this.
    pub(crate) ramp_until: AtomicU64,
    /// Mean of the loads that are known, f32 bits.
    mean_load: AtomicU32,
    /// Virtual time of round robin.
    pub(crate) turn: AtomicU64,
    /// Somebody is deciding on an ejection.
    pub(crate) ejecting: AtomicBool,
}

impl PoolState {
    pub(crate) fn mean_load(&self) -> f32 {
        f32::from_bits(self.mean_load.load(Relaxed))
    }

    pub(crate) fn ramping(&self, now: u64) -> bool {
        self.ramp_until.load(Relaxed) > now
    }

    /// Whether some endpoint may be ejected now.
    pub(crate) fn disturbed(&self, now: u64) -> bool {
        self.ejected_until.load(Relaxed) > now
    }
}

/// An endpoint in its tier; what choosing needs without touching the endpoint itself.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) state: Arc<EndpointState>,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) weight: u32,
}

/// Equally preferred endpoints: a range of the pool's nodes. First come the ready ones, then those that are only a last
/// resort, then those that get nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tier {
    /// 1..=4 by distance.
    pub(crate) number: u8,
    pub(crate) start: u32,
    pub(crate) ready_end: u32,
    pub(crate) usable_end: u32,
    pub(crate) end: u32,
    /// Weight of all ready ones together.
    pub(crate) ready_weight: u64,
    /// All ready ones have the same weight.
    pub(crate) uniform: bool,
    priority: i32,
}

impl Tier {
    pub(crate) fn ready(&self) -> usize {
        (self.ready_end - self.start) as usize
    }

    pub(crate) fn usable(&self) -> usize {
        (self.usable_end - self.start) as usize
    }
}

/// The first tier stands in the pool itself, since it nearly always serves.
#[derive(Debug, Clone)]
#[repr(C)]
pub(crate) struct Pool {
    pub(crate) lane: LaneName,
    pub(crate) short: Option<Short>,
    pub(crate) first: Tier,
    nodes: Arc<[Node]>,
    pub(crate) state: Arc<PoolState>,
    more: Arc<[Tier]>,
}

/// The ready endpoints of a pool's first tier, for the two balancers that compare two of them, while none of the app is
/// ejected or ramps up. Their states alone, side by side, so that there is little to read.
#[derive(Debug, Clone)]
pub(crate) struct Short {
    pub(crate) states: Arc<[Arc<EndpointState>]>,
    /// The same ones, first of these.
    pub(crate) nodes: Arc<[Node]>,
}

impl Pool {
    /// Compiles the endpoints of one lane, in any order but at least one, for a gateway at `place`.
    pub(crate) fn compile(
        lane: LaneName,
        state: Arc<PoolState>,
        endpoints: Vec<Arc<Endpoint>>,
        place: &Place,
        locality: Locality,
    ) -> Option<Self> {
        let mut keyed: Vec<_> = endpoints
            .into_iter()
            .map(|endpoint| {
                let number = number(place.distance(endpoint.place()), locality);
                let standing = if endpoint.ready() {
                    0_u8
                } else if endpoint.usable() {
                    1
                } else {
                    2
                };
                let key = (std::cmp::Reverse(endpoint.spec.priority), number, standing, endpoint.instance());
                (key, endpoint)
            })
            .collect();
        keyed.sort_by_key(|(key, _)| *key);
        let mut tiers: Vec<Tier> = Vec::new();
        for (at, (key, endpoint)) in keyed.iter().enumerate() {
            let (at, priority, number, standing) = (at as u32, key.0.0, key.1, key.2);
            let weight = endpoint.weight();
            if tiers.last().is_none_or(|tier| (tier.priority, tier.number) != (priority, number)) {
                tiers.push(Tier {
                    number,
                    priority,
                    start: at,
                    ready_end: at,
                    usable_end: at,
                    end: at,
                    ready_weight: 0,
                    uniform: true,
                });
            }
            let first = tiers.last().and_then(|tier| keyed.get(tier.start as usize));
            let same = first.is_some_and(|(_, first)| first.weight() == weight);
            let Some(tier) = tiers.last_mut() else { continue };
            if standing == 0 {
                tier.ready_end = at + 1;
                tier.ready_weight += u64::from(weight);
                tier.uniform &= same;
            }
            if standing <= 1 {
                tier.usable_end = at + 1;
            }
            tier.end = at + 1;
        }
        let nodes = keyed.into_iter().map(|(_, endpoint)| Node {
            state: Arc::clone(&endpoint.state),
            weight: endpoint.weight(),
            endpoint,
        });
        let (first, more) = tiers.split_first()?;
        Some(Self { lane, state, short: None, first: *first, more: more.into(), nodes: nodes.collect() })
    }

    /// Opens the short way, if that is right: the first tier serves and spills nothing, and weights are equal.
    pub(crate) fn make_short(&mut self, spill_below: f32) {
        let tier = &self.first;
        let whole = tier.ready() > 0 && spilled(tier, tier.ready(), f64::from(spill_below)) <= 0.0;
        self.short = (whole && tier.uniform).then(|| Short {
            states: self.nodes.iter().take(tier.ready()).map(|node| Arc::clone(&node.state)).collect(),
            nodes: Arc::clone(&self.nodes),
        });
    }

    /// The tiers in their order.
    pub(crate) fn tiers(&self) -> impl Iterator<Item = &Tier> {
        std::iter::once(&self.first).chain(self.more.iter())
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(crate) fn range(&self, start: u32, end: u32) -> &[Node] {
        self.nodes.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Whether some endpoint may get requests if need be.
    pub(crate) fn has_usable(&self) -> bool {
        self.tiers().any(|tier| tier.usable() > 0)
    }

    /// The tier and the place of an instance.
    pub(crate) fn find(&self, instance: InstanceId) -> Option<(&Tier, usize, &Node)> {
        let at = self.nodes.iter().position(|node| node.endpoint.instance() == instance)?;
        let tier = self.tiers().find(|tier| (tier.start as usize..tier.end as usize).contains(&at))?;
        Some((tier, at, self.nodes.get(at)?))
    }

    /// Takes the mean of the known loads anew.
    pub(crate) fn refresh_mean(&self, now: u64) {
        let known = self.nodes.iter().filter_map(|node| node.state.load(now));
        let (sum, count) = known.fold((0.0_f32, 0.0_f32), |(sum, count), load| (sum + load, count + 1.0));
        if count > 0.0 {
            self.state.mean_load.store((sum / count).to_bits(), Relaxed);
        }
    }
}

/// Number of the tier for a distance: 1 same node, 2 same zone, 3 same region, 4 other region. Unless nodes play a
/// part, the same node is just the same zone; if place plays none, all are 4.
fn number(distance: Distance, locality: Locality) -> u8 {
    match (locality, distance) {
        (Locality::None, _) | (_, Distance::OtherRegion) => 4,
        (_, Distance::SameRegion) => 3,
        (Locality::Node, Distance::SameNode) => 1,
        (_, Distance::SameZone | Distance::SameNode) => 2,
    }
}
