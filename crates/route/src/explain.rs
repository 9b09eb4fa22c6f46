//! What would happen to a request, for people: the same decisions as in `pick`, with every reason.

use crate::balance::{Scope, capacity, chash_score, choose, latency_score, load_score};
use crate::hash::Rng;
use crate::lane::LaneChoice;
use crate::pick::{Draw, NoPick, SPILL, Stage, TriedSet, healthy, last_resort, spilled, stages};
use crate::pool::{Node, Pool, Tier};
use crate::request::RequestView;
use crate::table::{Match, Table};
use crate::{LaneSource, MS};
use std::collections::BTreeMap;
use towpath_types::explained::ExplainedEndpoint;
use towpath_types::upstream::{Balancer, Sticky};
use towpath_types::{AppRef, ErrorCode, InstanceId, LaneName};

/// What a gateway with this table would do with a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// Key of the route; `None` = none matches.
    pub route: Option<String>,
    /// Its app, unless it is an upstream.
    pub app: Option<AppRef>,
    /// Id of the upstream, unless it is an app.
    pub upstream: Option<String>,
    /// The lane that was asked for, and where it was read (`header towpath-lane`, …).
    pub asked_lane: Option<(String, String)>,
    /// The lane that serves.
    pub lane: LaneName,
    /// Why that lane.
    pub lane_reason: String,
    /// The balancer and what its score means.
    pub balancer: String,
    /// The tier that serves.
    pub tier: Option<u8>,
    /// Why that tier.
    pub tier_reason: String,
    /// Every endpoint of the app, best first.
    pub endpoints: Vec<ExplainedEndpoint>,
    /// The error that the client would get.
    pub error: Option<(ErrorCode, String)>,
}

impl Table {
    /// Explains a request without sending it anywhere. `sessions` says which instances its sticky cookies name.
    pub fn explain(
        &self,
        host: &[u8],
        path: &[u8],
        request: &impl RequestView,
        sessions: impl FnOnce(&AppRef, &Sticky) -> Vec<InstanceId>,
        now: u64,
    ) -> Explained {
        let mut out = Explained {
            route: None,
            app: None,
            upstream: None,
            asked_lane: None,
            lane: self.base().clone(),
            lane_reason: String::new(),
            balancer: String::new(),
            tier: None,
            tier_reason: String::new(),
            endpoints: Vec::new(),
            error: None,
        };
        let fail = |out: &mut Explained, why: NoPick| out.error = Some((why.code(), why.to_string()));
        let Some(matched) = self.find_for(host, path, request) else {
            fail(&mut out, NoPick::NoRoute);
            return out;
        };
        out.route = Some(matched.route().key.clone());
        match matched.app().upstream_id() {
            Some(id) => out.upstream = Some(id.to_owned()),
            None => out.app = Some(matched.app().clone()),
        }
        out.balancer = balancer_text(&matched.upstream().balancer).into();
        let lane = match self.lane(&matched, request) {
            Ok(lane) => lane,
            Err(why) => {
                fail(&mut out, why);
                return out;
            }
        };
        out.asked_lane = lane
            .asked
            .map(|asked| (asked.tag.as_str().to_owned(), source_text(asked.source, matched.policy())));
        out.lane_reason = lane.reason.as_str().into();
        let draw = Draw { now, rnd: 0, key: matched.affinity(request) };
        self.explain_endpoints(&matched, &lane, draw, &mut out);
        let named = sessions(matched.app(), &matched.upstream().sticky);
        if !named.is_empty() {
            self.explain_session(&matched, &lane, &named, now, &mut out);
        }
        if matched.stopped() || (out.tier.is_none() && matched.app.rare.base_stopped) {
            fail(&mut out, NoPick::Stopped);
        } else if out.tier.is_none() {
            fail(&mut out, NoPick::NoEndpoint);
        }
        out
    }

    fn explain_endpoints(&self, matched: &Match<'_>, lane: &LaneChoice<'_>, draw: Draw, out: &mut Explained) {
        let stages = stages(matched, lane.lane);
        let tried = TriedSet::default();
        let plan = plan(matched, &stages, draw, &tried);
        if let Some(plan) = &plan {
            out.tier = plan.tiers.first().map(|part| plan.stage.tier(part.number));
            out.tier_reason = plan.reason.clone();
            out.lane = plan.pool.lane.clone();
            if plan.pool.lane != *lane.lane {
                out.lane_reason =
                    format!("{}; lane {} has no available endpoint", lane.reason.as_str(), lane.lane);
            }
        }
        for pool in matched.app.pools() {
            let stage =
                stages.iter().flatten().find(|(_, other)| other.lane == pool.lane).map(|(stage, _)| *stage);
            for tier in pool.tiers() {
                for node in pool.range(tier.start, tier.end) {
                    let number = stage.map(|stage| stage.tier(tier.number));
                    out.endpoints.push(explain_node(node, number, plan.as_ref(), draw.now));
                }
            }
        }
        best_first(&mut out.endpoints);
    }

    /// A session goes before the balancer, if its instance is available.
    fn explain_session(
        &self,
        matched: &Match<'_>,
        lane: &LaneChoice<'_>,
        named: &[InstanceId],
        now: u64,
        out: &mut Explained,
    ) {
        let bound = named.iter().find_map(|instance| self.find_sticky(matched, lane, *instance, now));
        let Some(pick) = bound else {
            out.tier_reason = format!(
                "the sticky cookie names an instance that is not available here, so another is chosen: {}",
                out.tier_reason
            );
            return;
        };
        let instance = pick.endpoint.instance();
        out.tier = Some(pick.tier);
        out.lane = pick.lane.clone();
        out.tier_reason = format!("the sticky cookie names instance {instance}, which is available");
        for endpoint in &mut out.endpoints {
            let chosen = endpoint.instance == instance;
            endpoint.share = if chosen { 1.0 } else { 0.0 };
            if chosen {
                endpoint.why_not.clear();
            } else if endpoint.why_not.is_empty() {
                endpoint.why_not = "the session is at another instance".into();
            }
        }
        best_first(&mut out.endpoints);
    }
}

fn best_first(endpoints: &mut [ExplainedEndpoint]) {
    let rank = |tier: Option<u8>| tier.unwrap_or(u8::MAX);
    endpoints.sort_by(|a, b| {
        b.share.total_cmp(&a.share).then(rank(a.tier).cmp(&rank(b.tier))).then(a.instance.cmp(&b.instance))
    });
}

/// The part of a plan that one tier has.
struct Part {
    number: u8,
    nodes: BTreeMap<InstanceId, (f64, f64)>,
}

struct Plan<'t> {
    stage: Stage,
    pool: &'t Pool,
    tiers: Vec<Part>,
    reason: String,
}

fn plan<'t>(
    matched: &Match<'t>,
    stages: &[Option<(Stage, &'t Pool)>; 3],
    draw: Draw,
    tried: &TriedSet,
) -> Option<Plan<'t>> {
    for (stage, pool) in stages.iter().flatten() {
        let disturbed = pool.state.disturbed(draw.now);
        let open: Vec<(&Tier, Scope<'_, '_>)> = pool
            .tiers()
            .map(|tier| (tier, Scope::available(pool, tier, draw, disturbed, tried)))
            .filter(|(_, scope)| scope.len() > 0)
            .collect();
        let mut rest = 1.0;
        let mut parts = Vec::new();
        let mut reason = String::from("it is the first tier with an available endpoint");
        for (at, (tier, scope)) in open.iter().enumerate() {
            let last = at + 1 == open.len();
            let health = healthy(pool, tier, disturbed, draw.now);
            let spill =
                if last { 0.0 } else { spilled(tier, health, f64::from(matched.app.rare.spill_below)) };
            let share = rest * (1.0 - spill);
            if share > 0.0 {
                parts.push(Part { number: tier.number, nodes: shares(matched, scope, share) });
            }
            if spill > 0.0 {
                reason = format!(
                    "{reason}; {health} of its {} endpoints are available, so {:.0} % spill into the next (missing share × {SPILL})",
                    tier.usable(),
                    spill * 100.0
                );
            }
            rest *= spill;
        }
        if !parts.is_empty() {
            return Some(Plan { stage: *stage, pool, tiers: parts, reason });
        }
    }
    let (stage, pool) = last_resort(stages)?;
    let scope = Scope::usable(pool, draw, tried);
    let number = pool.tiers().find(|tier| tier.usable() > 0).map_or(4, |tier| tier.number);
    let nodes = shares(matched, &scope, 1.0);
    let reason = "no endpoint is available, so even unavailable ones are used (panic)".into();
    Some(Plan { stage, pool, tiers: vec![Part { number, nodes }], reason })
}

/// Score and share of each node of a scope that gets `whole` of the requests.
fn shares(matched: &Match<'_>, scope: &Scope<'_, '_>, whole: f64) -> BTreeMap<InstanceId, (f64, f64)> {
    let nodes: Vec<&Node> = scope.iter().collect();
    let now = scope.draw.now;
    let balancer = &matched.upstream().balancer;
    let scores: Vec<f64> = match balancer {
        Balancer::Load => {
            let (latency, mean) = (mean_latency(&nodes, now), scope.pool.mean_load());
            let own = |node: &Node| node.state.latency.seconds(now).unwrap_or(latency);
            nodes
                .iter()
                .map(|node| f64::from(load_score(&node.state, node.weight, own(node), || mean, now)))
                .collect()
        }
        Balancer::Ewma => {
            let latency = mean_latency(&nodes, now);
            let own = |node: &Node| node.state.latency.seconds(now).unwrap_or(latency);
            nodes.iter().map(|node| f64::from(latency_score(node.weight, own(node)))).collect()
        }
        Balancer::Weighted => {
            nodes.iter().map(|node| f64::from(capacity(node, scope, matched.app.rare.load_max))).collect()
        }
        Balancer::LeastConn => nodes.iter().map(|node| crate::balance::least_score(node, scope)).collect(),
        Balancer::Roundrobin | Balancer::Random => {
            nodes.iter().map(|node| f64::from(node.weight) * f64::from(scope.ramp(node))).collect()
        }
        Balancer::Chash(_) => nodes.iter().map(|node| chash_score(node, scope)).collect(),
    };
    let shares = match balancer {
        Balancer::Load | Balancer::Ewma => pair_shares(&nodes, &rates(&nodes, scope, balancer), scope),
        Balancer::Weighted | Balancer::Roundrobin | Balancer::Random => proportional(&scores),
        Balancer::LeastConn => proportional(&rates(&nodes, scope, balancer)),
        Balancer::Chash(_) => {
            let chosen = choose(scope, matched.app, &mut Rng::new(0)).map(|n| n.endpoint.instance());
            nodes.iter().map(|n| if Some(n.endpoint.instance()) == chosen { 1.0 } else { 0.0 }).collect()
        }
    };
    let both = scores.into_iter().zip(shares).map(|(score, share)| (score, share * whole));
    nodes.iter().map(|node| node.endpoint.instance()).zip(both).collect()
}

fn proportional(parts: &[f64]) -> Vec<f64> {
    let total: f64 = parts.iter().sum();
    parts.iter().map(|part| if total > 0.0 { part / total } else { 1.0 / parts.len() as f64 }).collect()
}

/// Rates at which endpoints take requests over time, up to a factor. A score holds for one choice only: each request in flight
/// and each answer moves it, so the lower one of two does not get everything. What settles is this:
///
/// - `load` evens out `in_flight × latency × (1 + load) / weight`, `least_conn` evens out `in_flight / weight`, and a rate is
///   requests in flight by latency;
/// - `ewma` lets the average of who loses fade until it wins, the sooner the less it is behind; this is an estimate.
fn rates(nodes: &[&Node], scope: &Scope<'_, '_>, balancer: &Balancer) -> Vec<f64> {
    let now = scope.draw.now;
    let (unknown, mean_load) = (mean_latency(nodes, now), scope.pool.mean_load());
    let rate = |node: &&Node| {
        let latency = f64::from(node.state.latency.seconds(now).unwrap_or(unknown)).max(1e-9);
        let load = f64::from(node.state.load(now).unwrap_or(mean_load));
        let weight = f64::from(node.weight.max(1));
        match balancer {
            Balancer::LeastConn => weight * f64::from(scope.ramp(node)) / latency,
            Balancer::Ewma => (weight / latency).powi(8),
            _ => weight / (latency * latency * (1.0 + load)),
        }
    };
    nodes.iter().map(rate).collect()
}

/// Power of two choices over time: each pair is drawn by chance (those that ramp up more rarely), and shares by its rates.
fn pair_shares(nodes: &[&Node], rates: &[f64], scope: &Scope<'_, '_>) -> Vec<f64> {
    if nodes.len() == 1 {
        return vec![1.0];
    }
    let ramps: Vec<f64> = nodes.iter().map(|node| f64::from(scope.ramp(node))).collect();
    let total: f64 = ramps.iter().sum();
    let all: Vec<(f64, f64)> = ramps.into_iter().zip(rates.iter().copied()).collect();
    let share = |at: usize, (ramp, rate): (f64, f64)| -> f64 {
        let others = all.iter().enumerate().filter(|(other, _)| *other != at);
        others
            .map(|(_, (other_ramp, other_rate))| {
                let drawn = ramp / total * (other_ramp / (total - ramp))
                    + other_ramp / total * (ramp / (total - other_ramp));
                drawn * rate / (rate + other_rate)
            })
            .sum()
    };
    all.iter().enumerate().map(|(at, one)| share(at, *one)).collect()
}

fn mean_latency(nodes: &[&Node], now: u64) -> f32 {
    let known: Vec<f32> = nodes.iter().filter_map(|node| node.state.latency.seconds(now)).collect();
    if known.is_empty() { 1.0 } else { known.iter().sum::<f32>() / known.len() as f32 }
}

fn explain_node(node: &Node, tier: Option<u8>, plan: Option<&Plan<'_>>, now: u64) -> ExplainedEndpoint {
    let endpoint = &node.endpoint;
    let part = plan
        .filter(|plan| plan.pool.lane == *endpoint.lane())
        .and_then(|plan| plan.tiers.iter().find_map(|part| part.nodes.get(&endpoint.instance())));
    let why_not = match part {
        Some((_, share)) if *share > 0.0 => String::new(),
        Some(_) => "the balancer prefers another".into(),
        None => why_not(node, tier, now),
    };
    ExplainedEndpoint {
        instance: endpoint.instance(),
        address: endpoint.address().to_string(),
        lane: endpoint.lane().clone(),
        place: endpoint.place().clone(),
        tier,
        score: part.map(|(score, _)| *score),
        share: part.map_or(0.0, |(_, share)| *share),
        in_flight: u64::from(node.state.in_flight()),
        latency_ms: node.state.latency.seconds(now).map_or(0.0, |seconds| f64::from(seconds) * 1e3),
        load: node.state.load(now).map(f64::from),
        why_not,
    }
}

fn why_not(node: &Node, tier: Option<u8>, now: u64) -> String {
    let endpoint = &node.endpoint;
    let left = node.state.ejected_until().saturating_sub(now) / MS;
    if tier.is_none() {
        format!("it is in lane {}, which may not serve this request", endpoint.lane())
    } else if endpoint.draining() {
        "it is draining".into()
    } else if endpoint.weight() == 0 {
        "its weight is 0".into()
    } else if !endpoint.healthy() {
        "it is unhealthy".into()
    } else if endpoint.stale {
        "its cell is silent".into()
    } else if left > 0 {
        format!("it is ejected for another {left} ms after failures")
    } else {
        "a better tier serves".into()
    }
}

fn source_text(source: LaneSource, policy: &towpath_types::lane::LanePolicy) -> String {
    match source {
        LaneSource::Header => format!("header {}", policy.header),
        LaneSource::Cookie => format!("cookie {}", policy.cookie),
        LaneSource::Query => format!("query parameter {}", policy.query),
        LaneSource::HostLabel => "host label".into(),
        LaneSource::Baggage => "baggage member towpath.lane".into(),
        LaneSource::Entry(number) => format!("entry rule {}", number + 1),
    }
}

fn balancer_text(balancer: &Balancer) -> &'static str {
    match balancer {
        Balancer::Load => "load: of two at random the lower (in flight + 1) × latency × (1 + load) / weight",
        Balancer::Weighted => "weighted: at random in proportion to weight × (1 − load / load_max)",
        Balancer::LeastConn => "least_conn: fewest in flight / weight",
        Balancer::Ewma => "ewma: of two at random the lower latency / weight",
        Balancer::Roundrobin => "roundrobin: in turn by weight",
        Balancer::Chash(_) => "chash: highest hash of request and instance, unless it is too busy",
        Balancer::Random => "random: at random by weight",
    }
}
