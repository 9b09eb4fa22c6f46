//! An app of the table: settings, and its endpoints in one pool a lane.

use crate::budget::RetryBudget;
use crate::change::Source;
use crate::endpoint::{Endpoint, EndpointState};
use crate::load::formula_max;
use crate::pool::Pool;
use crate::space;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use towpath_types::upstream::UpstreamSpec;
use towpath_types::{AppRef, InstanceId, LaneName, Place};

/// One endpoint of an app with the source that names it.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) source: Arc<Source>,
    pub(crate) spec: Arc<crate::EndpointSpec>,
    pub(crate) state: Arc<EndpointState>,
    pub(crate) stale: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct App {
    pub(crate) app: AppRef,
    pub(crate) space_hash: u64,
    /// Put by a change; else only routes or endpoints speak of it.
    pub(crate) known: bool,
    pub(crate) stopped: bool,
    pub(crate) upstream: Arc<UpstreamSpec>,
    pub(crate) load_max: f32,
    /// Lanes in which it has a group or an endpoint, sorted.
    pub(crate) lanes: Box<[LaneName]>,
    groups: Box<[LaneName]>,
    /// One a lane, base first, then by name.
    pub(crate) pools: Box<[Pool]>,
    pub(crate) members: Arc<Vec<Member>>,
    pub(crate) budget: Arc<RetryBudget>,
}

impl App {
    pub(crate) fn unknown(app: AppRef) -> Self {
        let upstream = Arc::new(UpstreamSpec::default());
        Self {
            space_hash: space::hash(&app.space_ref()),
            app,
            known: false,
            stopped: false,
            load_max: formula_max(&upstream.load_weights),
            upstream,
            lanes: Box::default(),
            groups: Box::default(),
            pools: Box::default(),
            members: Arc::default(),
            budget: Arc::default(),
        }
    }

    /// With other settings; `None` = forget them.
    pub(crate) fn with_settings(
        &self,
        settings: Option<(UpstreamSpec, bool, Vec<LaneName>)>,
        place: &Place,
        now: u64,
    ) -> Self {
        let known = settings.is_some();
        let (upstream, stopped, groups) = settings.unwrap_or_default();
        let mut app = self.clone();
        app.known = known;
        app.stopped = stopped;
        app.groups = space::sorted(groups);
        app.load_max = formula_max(&upstream.load_weights);
        app.upstream = Arc::new(upstream);
        app.compile(place, now);
        app
    }

    /// With other members.
    pub(crate) fn with_members(&self, members: Vec<Member>, place: &Place, now: u64) -> Self {
        let mut app = self.clone();
        app.members = Arc::new(members);
        app.compile(place, now);
        app
    }

    fn compile(&mut self, place: &Place, now: u64) {
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
        let names = lanes.keys().map(|lane| LaneName::clone(lane)).chain(self.groups.iter().cloned());
        let all = space::sorted(names.collect());
        let mut pools: Vec<Pool> = lanes
            .into_iter()
            .map(|(lane, endpoints)| {
                let state = self.pool(lane.as_str()).map(|pool| Arc::clone(&pool.state)).unwrap_or_default();
                Pool::compile(lane.clone(), state, endpoints, place, self.upstream.locality)
            })
            .collect();
        pools.sort_by_key(|pool| !pool.lane.is_base());
        let slow_start = self.upstream.slow_start.0.saturating_mul(crate::MS);
        for pool in &pools {
            let starts = pool.nodes.iter().map(|node| node.state.ramp_start().saturating_add(slow_start));
            pool.state.ramp_until.store(starts.max().unwrap_or(0), Relaxed);
            pool.refresh_mean(now);
        }
        self.pools = pools.into();
        self.lanes = all;
    }

    pub(crate) fn pool(&self, lane: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.lane.as_str() == lane)
    }

    pub(crate) fn base(&self) -> Option<&Pool> {
        self.pools.first().filter(|pool| pool.lane.is_base())
    }

    pub(crate) fn lane(&self, name: &str) -> Option<&LaneName> {
        let at = self.lanes.binary_search_by(|lane| lane.as_str().cmp(name)).ok()?;
        self.lanes.get(at)
    }

    /// The learned state of a start of an instance, whoever named it before.
    pub(crate) fn state_of(&self, instance: InstanceId, start: u32) -> Option<&Arc<EndpointState>> {
        let mut members = self.members.iter();
        members
            .find(|member| member.spec.instance == instance && member.spec.start == start)
            .map(|member| &member.state)
    }
}
