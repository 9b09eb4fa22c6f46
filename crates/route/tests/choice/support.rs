//! A small world with one app, and means to look at it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use towpath_route::{
    Address, Change, Draw, Endpoint, EndpointSpec, Finished, LaneChoice, Match, NoPick, Outcome, Pick,
    ReportedLoad, RequestView, Source, Table, TriedSet,
};
use towpath_types::lane::LanePolicy;
use towpath_types::load::{HostLoad, InstanceLoad};
use towpath_types::spec::RouteSpec;
use towpath_types::upstream::{Balancer, Protocol, UpstreamSpec};
use towpath_types::{AppName, AppRef, CellId, InstanceId, LaneName, Place, SpaceRef};

pub const S: u64 = 1_000_000_000;
/// When the tests begin: nothing ramps up any more.
pub const START: u64 = 1_000 * S;

/// A request with one header at most.
#[derive(Default)]
pub struct Request {
    pub lane: Option<&'static str>,
    pub user: Option<String>,
}

impl RequestView for Request {
    fn header(&self, name: &str, nth: usize) -> Option<&[u8]> {
        let value = match name.to_ascii_lowercase().as_str() {
            "towpath-lane" => self.lane,
            "user" => self.user.as_deref(),
            _ => None,
        };
        value.filter(|_| nth == 0).map(str::as_bytes)
    }
    fn path(&self) -> &str {
        "/"
    }
    fn query(&self) -> Option<&str> {
        None
    }
    fn client(&self) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, 1]))
    }
    fn inside(&self) -> bool {
        false
    }
}

pub fn id(n: u64) -> InstanceId {
    InstanceId::mint(n, [0; 10])
}

pub fn app() -> AppRef {
    AppRef::new(&SpaceRef::first(), AppName::new("shop").unwrap())
}

pub fn endpoint(n: u64) -> EndpointSpec {
    EndpointSpec {
        instance: id(n),
        start: 0,
        app: app(),
        lane: LaneName::base(),
        address: Address::parse("10.0.0.1", 1000 + n as u16),
        place: zone("a"),
        protocol: Protocol::Http1,
        weight: 100,
        priority: 0,
        draining: false,
        healthy: true,
        ready_ms: 1_000_000,
        load: None,
    }
}

pub fn zone(name: &str) -> Place {
    Place { region: "r".into(), zone: name.into(), node: String::new() }
}

/// The same load of host and instance, in CPU and memory.
pub fn load(share: f32) -> Option<ReportedLoad> {
    Some(ReportedLoad {
        host: HostLoad { cpu: share, mem: share, io: 0.0 },
        instance: InstanceLoad { cpu: share, mem: share, io: 0.0 },
    })
}

pub fn upstream(balancer: Balancer) -> UpstreamSpec {
    UpstreamSpec { balancer, ..UpstreamSpec::default() }
}

/// A table in zone a with the app `shop`, lanes `new` and `old`, and these endpoints.
pub struct World {
    pub table: Table,
    pub now: u64,
    draws: fastrand::Rng,
}

impl World {
    pub fn new(upstream: UpstreamSpec, endpoints: Vec<EndpointSpec>) -> Self {
        let lanes = ["base", "new", "old", "mine"].map(|name| LaneName::new(name).unwrap());
        let route = RouteSpec {
            host: "shop".into(),
            path: "/".into(),
            app: app(),
            strip_path: false,
            entry: Vec::new(),
            automatic: true,
        };
        let mut world = Self { table: Table::new(zone("a")), now: START, draws: fastrand::Rng::with_seed(7) };
        world.change(Change::PutSpace {
            space: SpaceRef::first(),
            policy: LanePolicy::default(),
            names: lanes.to_vec(),
            local: vec![LaneName::new("mine").unwrap()],
        });
        world.change(Change::PutRoute(route));
        world.change(Change::PutApp {
            app: app(),
            upstream,
            stopped: false,
            base_stopped: false,
            lanes: Vec::new(),
        });
        world.announce(endpoints);
        world
    }

    pub fn change(&mut self, change: Change) {
        let (table, refused) = self.table.apply(&[change], self.now);
        assert_eq!(refused, vec![]);
        self.table = table;
    }

    pub fn announce(&mut self, endpoints: Vec<EndpointSpec>) {
        self.change(Change::Endpoints { source: source(), endpoints });
    }

    pub fn matched(&self, request: &Request) -> (Match<'_>, LaneChoice<'_>) {
        let matched = self.table.find(b"shop", b"/").unwrap();
        let lane = self.table.lane(&matched, request).unwrap();
        (matched, lane)
    }

    pub fn try_pick(&mut self, request: &Request, tried: &TriedSet) -> Result<Pick<'_>, NoPick> {
        let rnd = self.draws.u64(..);
        let (matched, lane) = self.matched(request);
        let draw = Draw { now: self.now, rnd, key: matched.affinity(request) };
        self.table.pick(&matched, &lane, draw, tried)
    }

    pub fn pick(&mut self, request: &Request) -> Arc<Endpoint> {
        Arc::clone(self.try_pick(request, &TriedSet::default()).unwrap().endpoint)
    }

    /// Shares of the endpoints in `count` picks of untagged requests.
    pub fn shares(&mut self, count: u32) -> BTreeMap<InstanceId, f64> {
        self.shares_of(&Request::default(), count)
    }

    pub fn shares_of(&mut self, request: &Request, count: u32) -> BTreeMap<InstanceId, f64> {
        let mut shares = BTreeMap::new();
        for _ in 0..count {
            *shares.entry(self.pick(request).instance()).or_default() += 1.0 / f64::from(count);
        }
        shares
    }

    pub fn endpoint(&self, n: u64) -> Arc<Endpoint> {
        Arc::clone(self.table.endpoints().find(|endpoint| endpoint.instance() == id(n)).unwrap())
    }

    /// One request to an endpoint, begun and ended now.
    pub fn outcome(&self, n: u64, outcome: Outcome) -> Finished {
        Endpoint::begin(&self.endpoint(n)).finish(self.now, outcome)
    }

    /// Fails and, when that is due, ejects.
    pub fn fail(&self, n: u64) -> bool {
        let endpoint = self.endpoint(n);
        let finished = Endpoint::begin(&endpoint).finish(self.now, Outcome::Failure { latency_ns: 1000 });
        finished.eject && self.table.eject(&endpoint, self.now)
    }

    pub fn explained_shares(&self, request: &Request) -> BTreeMap<InstanceId, f64> {
        let explained = self.table.explain(b"shop", b"/", request, |_, _| Vec::new(), self.now);
        explained.endpoints.iter().map(|endpoint| (endpoint.instance, endpoint.share)).collect()
    }
}

pub fn source() -> Source {
    Source::Cell(CellId::mint(0, [0; 10]))
}

#[track_caller]
pub fn near(got: f64, want: f64, by: f64) {
    assert!((got - want).abs() <= by, "{got} is not within {by} of {want}");
}
