//! An app of the table: settings, and its endpoints in one pool a lane.

use crate::affinity::Affinity;
use crate::budget::RetryBudget;
use crate::calm::Calm;
use crate::change::{EndpointSpec, Source};
use crate::endpoint::{Endpoint, EndpointState};
use crate::index::Keyed;
use crate::load::formula_max;
use crate::pool::{Pool, Short};
use crate::space;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use towpath_types::upstream::{Balancer, UpstreamSpec};
use towpath_types::{AppRef, InstanceId, LaneName, Place};

/// One endpoint of an app with the source that names it.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) source: Arc<Source>,
    pub(crate) spec: Arc<EndpointSpec>,
    pub(crate) state: Arc<EndpointState>,
    pub(crate) stale: bool,
}

/// An app: one cache line in the list of apps, which is all that a plain request needs of it. The rest is behind `rare`.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(crate) struct App {
    /// The short way to an endpoint of base.
    short: Option<Short>,
    /// Pools of other lanes than base, by name.
    others: Arc<[Pool]>,
    pub(crate) rare: Arc<Rare>,
    /// Slot of its space.
    pub(crate) space: u32,
    pub(crate) balancer: Rule,
    pub(crate) stopped: bool,
    /// It has groups or endpoints in no lane but base.
    base_only: bool,
    /// Number of the tier of the short way.
    short_number: u8,
}

/// What is needed less often of an app.
#[derive(Debug, Clone)]
pub(crate) struct Rare {
    /// The pool of base.
    base: Option<Pool>,
    pub(crate) spill_below: f32,
    /// Stopped on purpose in base.
    pub(crate) base_stopped: bool,
    pub(crate) load_max: f32,
    /// What a consistent hash goes by.
    pub(crate) affinity: Affinity,
    /// A consistent hash passes over endpoints with more than their fair share. Not those of upstreams: there one key means
    /// one node.
    pub(crate) bounded: bool,
    /// Routes to it.
    pub(crate) routes: u32,
    /// Put by a change; else only routes or endpoints speak of it.
    pub(crate) known: bool,
    /// Lanes in which it has a group.
    groups: Arc<[LaneName]>,
    /// Lanes in which it has a group or an endpoint, sorted.
    lanes: Arc<[LaneName]>,
    pub(crate) upstream: Arc<UpstreamSpec>,
    pub(crate) budget: Arc<RetryBudget>,
    pub(crate) members: Arc<Vec<Member>>,
    pub(crate) app: AppRef,
}

/// The balancer without its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Load,
    Weighted,
    LeastConn,
    Ewma,
    Roundrobin,
    Chash,
    Random,
}

impl Rule {
    fn of(balancer: &Balancer) -> Self {
        match balancer {
            Balancer::Load => Rule::Load,
            Balancer::Weighted => Rule::Weighted,
            Balancer::LeastConn => Rule::LeastConn,
            Balancer::Ewma => Rule::Ewma,
            Balancer::Roundrobin => Rule::Roundrobin,
            Balancer::Chash(_) => Rule::Chash,
            Balancer::Random => Rule::Random,
        }
    }
}

/// What compiling an app needs to know besides the app.
pub(crate) struct About<'a> {
    pub(crate) place: &'a Place,
    pub(crate) calm: &'a Calm,
    /// Its own slot.
    pub(crate) slot: u32,
    pub(crate) now: u64,
}

/// Settings of an app as a change puts them.
pub(crate) type Settings = (UpstreamSpec, Stopped, Vec<LaneName>);

/// Where an app is stopped on purpose.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stopped {
    pub(crate) everywhere: bool,
    pub(crate) in_base: bool,
}

impl App {
    /// One of which only routes or endpoints speak.
    pub(crate) fn unknown(app: AppRef, space: u32) -> Self {
        let upstream = Arc::new(UpstreamSpec::default());
        Self {
            short: None,
            others: Arc::from(Vec::new()),
            space,
            balancer: Rule::of(&upstream.balancer),
            stopped: false,
            base_only: true,
            short_number: 0,
            rare: Arc::new(Rare {
                base: None,
                spill_below: upstream.spill_below,
                load_max: formula_max(&upstream.load_weights),
                affinity: Affinity::of(&upstream.balancer),
                bounded: app.upstream_id().is_none(),
                routes: 0,
                known: false,
                base_stopped: false,
                groups: Arc::from(Vec::new()),
                lanes: Arc::from(Vec::new()),
                upstream,
                budget: Arc::default(),
                members: Arc::default(),
                app,
            }),
        }
    }

    /// Takes other settings; `None` = forget them.
    pub(crate) fn set(&mut self, settings: Option<Settings>, about: &About<'_>) {
        let known = settings.is_some();
        let (upstream, stopped, groups) = settings.unwrap_or_default();
        self.stopped = stopped.everywhere;
        self.balancer = Rule::of(&upstream.balancer);
        let rare = Arc::make_mut(&mut self.rare);
        rare.known = known;
        rare.base_stopped = stopped.in_base;
        rare.spill_below = upstream.spill_below;
        rare.load_max = formula_max(&upstream.load_weights);
        rare.affinity = Affinity::of(&upstream.balancer);
        rare.groups = space::sorted(groups).into();
        rare.upstream = Arc::new(upstream);
        self.compile(about);
    }

    /// Takes other members.
    pub(crate) fn set_members(&mut self, members: Vec<Member>, about: &About<'_>) {
        Arc::make_mut(&mut self.rare).members = Arc::new(members);
        self.compile(about);
    }

    /// Counts routes to it up or down.
    pub(crate) fn count_route(&mut self, by: i32) {
        let routes = &mut Arc::make_mut(&mut self.rare).routes;
        *routes = routes.saturating_add_signed(by);
    }

    fn compile(&mut self, about: &About<'_>) {
        let rare = Arc::make_mut(&mut self.rare);
        let pools = rare.compile_pools(&self.others, self.balancer, about);
        let names = pools.iter().map(|pool| pool.lane.clone()).chain(rare.groups.iter().cloned());
        rare.lanes = space::sorted(names.collect()).into();
        let (base, others): (Vec<_>, Vec<_>) = pools.into_iter().partition(|pool| pool.lane.is_base());
        rare.base = base.into_iter().next();
        self.others = others.into();
        self.base_only = rare.lanes.iter().all(LaneName::is_base);
        self.short = rare.base.as_ref().and_then(|base| base.short.clone());
        self.short_number = rare.base.as_ref().map_or(0, |base| base.first.number);
    }

    /// The short way for a request in `lane`: with the number of its tier, and the pool if that is not base.
    pub(crate) fn short(&self, lane: &LaneName) -> Option<(&Short, u8, Option<&Pool>)> {
        let own = if lane.is_base() || self.base_only { None } else { self.other(lane.as_str()) };
        match own {
            Some(pool) => Some((pool.short.as_ref()?, pool.first.number, Some(pool))),
            None => Some((self.short.as_ref()?, self.short_number, None)),
        }
    }

    /// All pools, base first.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.rare.base.iter().chain(self.others.iter())
    }

    pub(crate) fn pool(&self, lane: &str) -> Option<&Pool> {
        self.pools().find(|pool| pool.lane.as_str() == lane)
    }

    /// The pool of a lane other than base.
    pub(crate) fn other(&self, lane: &str) -> Option<&Pool> {
        self.others.iter().find(|pool| pool.lane.as_str() == lane)
    }

    pub(crate) fn base(&self) -> Option<&Pool> {
        self.rare.base.as_ref()
    }

    /// The lane, if the app has a group or an endpoint in it.
    pub(crate) fn lane(&self, name: &str) -> Option<&LaneName> {
        if self.base_only {
            return None;
        }
        if let Some(pool) = self.other(name) {
            return Some(&pool.lane);
        }
        let at = self.rare.lanes.binary_search_by(|lane| lane.as_str().cmp(name)).ok()?;
        self.rare.lanes.get(at)
    }

    /// The learned state of a start of an instance, whoever named it before.
    pub(crate) fn state_of(&self, instance: InstanceId, start: u32) -> Option<&Arc<EndpointState>> {
        let mut members = self.rare.members.iter();
        members
            .find(|member| member.spec.instance == instance && member.spec.start == start)
            .map(|member| &member.state)
    }
}

impl Rare {
    fn compile_pools(&self, others: &[Pool], rule: Rule, about: &About<'_>) -> Vec<Pool> {
        let mut members: Vec<&Member> = self.members.iter().collect();
        members.sort_by(|a, b| (a.spec.instance, &a.source).cmp(&(b.spec.instance, &b.source)));
        members.dedup_by_key(|member| member.spec.instance);
        let mut lanes: BTreeMap<&LaneName, Vec<Arc<Endpoint>>> = BTreeMap::new();
        for member in members {
            let endpoint = Endpoint {
                spec: Arc::clone(&member.spec),
                upstream: Arc::clone(&self.upstream),
                state: Arc::clone(&member.state),
                stale: member.stale,
            };
            lanes.entry(&member.spec.lane).or_default().push(Arc::new(endpoint));
        }
        let slow_start = self.upstream.slow_start.0.saturating_mul(crate::MS);
        let pools = lanes.into_iter().filter_map(|(lane, endpoints)| {
            let mut before = self.base.iter().chain(others.iter());
            let state = before.find(|pool| pool.lane == *lane).map(|pool| Arc::clone(&pool.state));
            let locality = self.upstream.locality;
            let mut pool =
                Pool::compile(lane.clone(), state.unwrap_or_default(), endpoints, about.place, locality)?;
            if matches!(rule, Rule::Load | Rule::Ewma) {
                pool.make_short(self.spill_below);
            }
            let ramps = pool.nodes().iter().map(|node| node.state.ramp_end(slow_start));
            let ramp_until = ramps.max().unwrap_or(0);
            pool.state.ramp_until.store(ramp_until, Relaxed);
            about.calm.disturb(about.slot, ramp_until.max(pool.state.ejected_until.load(Relaxed)));
            pool.refresh_mean(about.now);
            Some(pool)
        });
        pools.collect()
    }
}

const _: () = assert!(size_of::<Option<App>>() == 64, "an app is one cache line");

/// Where an app stands in the list of apps.
#[derive(Debug, Clone)]
pub(crate) struct AppSlot {
    pub(crate) hash: u64,
    pub(crate) app: AppRef,
    pub(crate) slot: u32,
}

impl Keyed for AppSlot {
    fn hash(&self) -> u64 {
        self.hash
    }
}
