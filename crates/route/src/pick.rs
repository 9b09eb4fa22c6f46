//! Which endpoint: stages (own lane, base, local), tiers inside a stage, spill, panic.

use crate::app::App;
use crate::balance::{Scope, choose, choose_short};
use crate::endpoint::Endpoint;
use crate::hash::Rng;
use crate::lane::LaneChoice;
use crate::pool::{Node, Pool, Tier};
use crate::table::{Match, Table};
use std::sync::Arc;
use towpath_types::{ErrorCode, InstanceId, LaneName};

/// Spilled share of a tier = missing share of health × this.
pub(crate) const SPILL: f64 = 1.4;

/// What a choice depends on besides table and request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Draw {
    /// Now.
    pub now: u64,
    /// A random number.
    pub rnd: u64,
    /// [`Match::affinity`] of the request.
    pub key: u64,
}

/// Most endpoints that one request may try.
const TRIED_MAX: usize = 16;

/// Endpoints that a request has tried already.
#[derive(Debug, Clone, Default)]
pub struct TriedSet {
    list: [Option<InstanceId>; TRIED_MAX],
    len: usize,
}

impl TriedSet {
    /// Remembers one; `false` when there is no room, and then the request should not go on trying.
    pub fn add(&mut self, instance: InstanceId) -> bool {
        match self.list.get_mut(self.len) {
            Some(slot) => {
                *slot = Some(instance);
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this one was tried.
    pub fn contains(&self, instance: InstanceId) -> bool {
        self.list.iter().take(self.len).any(|tried| *tried == Some(instance))
    }
}

/// Why a request gets no endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPick {
    /// No route has this host and path.
    #[error("no route has this host and path")]
    NoRoute,
    /// The app is stopped on purpose.
    #[error("the app is stopped")]
    Stopped,
    /// Strict lanes: the tag names no lane.
    #[error("the lane does not exist")]
    UnknownLane,
    /// The app has no endpoint that may get requests.
    #[error("the app has no instance that can serve")]
    NoEndpoint,
    /// All that could serve were tried by this request: its last error is the answer.
    #[error("all instances that could serve were tried")]
    AllTried,
}

impl NoPick {
    /// The error code for the client.
    pub fn code(self) -> ErrorCode {
        match self {
            NoPick::NoRoute => ErrorCode::NoRoute,
            NoPick::Stopped => ErrorCode::AppStopped,
            NoPick::UnknownLane => ErrorCode::UnknownLane,
            NoPick::NoEndpoint => ErrorCode::NoEndpoint,
            NoPick::AllTried => ErrorCode::ConnectFailed,
        }
    }
}

/// The endpoint for a request.
#[derive(Debug, Clone, Copy)]
pub struct Pick<'t> {
    /// It.
    pub endpoint: &'t Arc<Endpoint>,
    /// Its tier, 1..=9.
    pub tier: u8,
    /// The lane that serves.
    pub lane: &'t LaneName,
    /// Nothing is available, so that even an unavailable endpoint is used.
    pub panic: bool,
}

/// What a stage is in relation to the request's lane; the tier numbers follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The request's own lane: tiers 1 to 4.
    Own,
    /// Base, for a request in another lane: tiers 5 to 8.
    Base,
    /// A developer's own machine: tier 9.
    Local,
}

impl Stage {
    pub(crate) fn tier(self, number: u8) -> u8 {
        match self {
            Stage::Own => number,
            Stage::Base => number + 4,
            Stage::Local => 9,
        }
    }
}

impl Table {
    /// The endpoint for a request that matched and whose lane is known.
    pub fn pick<'t>(
        &'t self,
        matched: &Match<'t>,
        lane: &LaneChoice<'_>,
        draw: Draw,
        tried: &TriedSet,
    ) -> Result<Pick<'t>, NoPick> {
        if matched.app.stopped {
            return Err(NoPick::Stopped);
        }
        let mut rng = Rng::new(draw.rnd);
        if tried.is_empty()
            && self.0.calm.is(matched.slot(), draw.now)
            && let Some(pick) = self.short_pick(matched.app, lane.lane, draw, &mut rng)
        {
            return Ok(pick);
        }
        let stages = stages(matched, lane.lane);
        for (stage, pool) in stages.iter().flatten() {
            if let Some((tier, scope)) = available_tier(matched.app, pool, draw, tried, &mut rng)
                && let Some(node) = choose(&scope, matched.app, &mut rng)
            {
                return Ok(Pick {
                    endpoint: &node.endpoint,
                    tier: stage.tier(tier.number),
                    lane: &pool.lane,
                    panic: false,
                });
            }
        }
        panic_pick(matched.app, &stages, draw, tried, &mut rng).map_err(|why| match why {
            NoPick::NoEndpoint if matched.app.rare.base_stopped => NoPick::Stopped,
            why => why,
        })
    }
}

impl Table {
    /// The same as the long way below, for the common case: nothing of the app is ejected or ramps up, nothing was tried,
    /// the first tier serves, and its endpoints have the same weight.
    fn short_pick<'t>(
        &'t self,
        app: &'t App,
        lane: &LaneName,
        draw: Draw,
        rng: &mut Rng,
    ) -> Option<Pick<'t>> {
        let (short, number, own) = app.short(lane)?;
        let mean = || own.or(app.base()).map_or(0.0, |pool| pool.state.mean_load());
        let at = choose_short(&short.states, app.balancer, draw.now, rng, mean)?;
        let stage = if own.is_some() || lane.is_base() { Stage::Own } else { Stage::Base };
        Some(Pick {
            endpoint: &short.nodes.get(at)?.endpoint,
            tier: stage.tier(number),
            lane: own.map_or(self.base(), |pool| &pool.lane),
            panic: false,
        })
    }
}

/// The pools of a request in their order. A local lane comes in only where base has nothing at all.
pub(crate) fn stages<'t>(matched: &Match<'t>, lane: &LaneName) -> [Option<(Stage, &'t Pool)>; 3] {
    let app = matched.app;
    let own = if lane.is_base() { app.base() } else { app.other(lane.as_str()) };
    let base = if lane.is_base() { None } else { app.base() };
    let has_base = app.base().is_some_and(Pool::has_usable);
    let local = if has_base {
        None
    } else {
        let space = matched.space;
        app.pools().find(|pool| pool.lane != *lane && pool.has_usable() && space.is_local(pool.lane.as_str()))
    };
    [
        own.map(|pool| (Stage::Own, pool)),
        base.map(|pool| (Stage::Base, pool)),
        local.map(|pool| (Stage::Local, pool)),
    ]
}

/// The tier that serves, with what is available in it: the first one, unless its health makes this request spill.
fn available_tier<'t, 'r>(
    app: &App,
    pool: &'t Pool,
    draw: Draw,
    tried: &'r TriedSet,
    rng: &mut Rng,
) -> Option<(&'t Tier, Scope<'t, 'r>)> {
    let disturbed = pool.state.disturbed(draw.now);
    let mut found = None;
    for tier in pool.tiers() {
        let scope = Scope::available(pool, tier, draw, disturbed, tried);
        if scope.len() == 0 {
            continue;
        }
        found = Some((tier, scope));
        let share = spilled(tier, healthy(pool, tier, disturbed, draw.now), f64::from(app.rare.spill_below));
        if share <= 0.0 || rng.unit() >= share {
            break;
        }
    }
    found
}

/// How many of a tier are available.
pub(crate) fn healthy(pool: &Pool, tier: &Tier, disturbed: bool, now: u64) -> usize {
    if !disturbed {
        return tier.ready();
    }
    pool.range(tier.start, tier.ready_end).iter().filter(|node| !node.state.ejected(now)).count()
}

/// Share of a tier's requests that goes to the next one.
pub(crate) fn spilled(tier: &Tier, healthy: usize, below: f64) -> f64 {
    if healthy == tier.usable() {
        return 0.0;
    }
    let health = healthy as f64 / tier.usable().max(1) as f64;
    if health < below { ((1.0 - health) * SPILL).min(1.0) } else { 0.0 }
}

/// The pool of last resort: base, else the request's own lane, else a local one.
pub(crate) fn last_resort<'t>(stages: &[Option<(Stage, &'t Pool)>; 3]) -> Option<(Stage, &'t Pool)> {
    let [own, base, local] = stages;
    let usable = |stage: &Option<(Stage, &'t Pool)>| stage.filter(|(_, pool)| pool.has_usable());
    usable(base).or_else(|| usable(own)).or_else(|| usable(local))
}

fn panic_pick<'t>(
    app: &'t App,
    stages: &[Option<(Stage, &'t Pool)>; 3],
    draw: Draw,
    tried: &TriedSet,
    rng: &mut Rng,
) -> Result<Pick<'t>, NoPick> {
    let (stage, pool) = last_resort(stages).ok_or(NoPick::NoEndpoint)?;
    let scope = Scope::usable(pool, draw, tried);
    let node = choose(&scope, app, rng).ok_or(NoPick::AllTried)?;
    let number = pool.find(node.endpoint.instance()).map_or(4, |(tier, ..)| tier.number);
    Ok(Pick { endpoint: &node.endpoint, tier: stage.tier(number), lane: &pool.lane, panic: true })
}

/// Whether a node may be used although it is not available.
pub(crate) fn usable(node: &Node) -> bool {
    node.endpoint.usable()
}
