//! A random world, and what a naive reader of the rules would do in it: lists, strings and loops.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use towpath_route::{Address, Change, EndpointSpec, RequestView, Source, route_key};
use towpath_types::lane::{EntryRule, HashBy, HeaderMatch, LaneMode, LanePolicy};
use towpath_types::spec::RouteSpec;
use towpath_types::upstream::{Balancer, Locality, Protocol, UpstreamSpec};
use towpath_types::{AppName, AppRef, CellId, InstanceId, LaneName, OrgName, Place, SpaceName, SpaceRef};

pub struct AppItem {
    pub upstream: UpstreamSpec,
    pub stopped: bool,
    pub lanes: Vec<LaneName>,
}

pub struct SpaceItem {
    pub policy: LanePolicy,
    pub names: Vec<LaneName>,
    pub local: Vec<LaneName>,
}

/// All items as they are wanted.
#[derive(Default)]
pub struct World {
    pub routes: BTreeMap<String, RouteSpec>,
    pub apps: BTreeMap<AppRef, AppItem>,
    pub spaces: BTreeMap<SpaceRef, SpaceItem>,
    pub sources: BTreeMap<Source, (bool, Vec<EndpointSpec>)>,
}

pub struct Request {
    pub host: String,
    pub path: String,
    pub query: Option<String>,
    pub headers: Vec<(String, String)>,
    pub inside: bool,
}

impl RequestView for Request {
    fn header(&self, name: &str, nth: usize) -> Option<&[u8]> {
        let mut all = self.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        all.nth(nth).map(|(_, value)| value.as_bytes())
    }
    fn path(&self) -> &str {
        &self.path
    }
    fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }
    fn client(&self) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, 1]))
    }
    fn inside(&self) -> bool {
        self.inside
    }
}

pub fn lane(name: &str) -> LaneName {
    LaneName::new(name).unwrap()
}

fn any<'a, T>(rng: &mut fastrand::Rng, list: &'a [T]) -> &'a T {
    &list[rng.usize(..list.len())]
}

const LANES: [&str; 4] = ["base", "new", "old", "mine"];
const HOSTS: [&str; 8] = [
    "shop.example.com",
    "*.example.com",
    "example.com",
    "cart.example.com",
    "xn--bcher-kva.de",
    "[::1]",
    "*.de",
    "new--cart.example.com",
];
const PATHS: [&str; 7] = ["/", "/api", "/api/v1", "/apis", "/a", "/a/b/c", "/caf%C3%A9"];

fn space(n: usize) -> SpaceRef {
    SpaceRef { org: OrgName::new("o").unwrap(), space: SpaceName::new(&format!("s{n}")).unwrap() }
}

pub fn app(n: usize) -> AppRef {
    AppRef::new(&space(n % 2), AppName::new(&format!("app{}", n / 2)).unwrap())
}

fn place(rng: &mut fastrand::Rng) -> Place {
    let text = |prefix: &str, n: u8| format!("{prefix}{n}");
    Place { region: text("r", rng.u8(..2)), zone: text("z", rng.u8(..2)), node: text("n", rng.u8(..2)) }
}

fn route(rng: &mut fastrand::Rng) -> RouteSpec {
    let rule = |rng: &mut fastrand::Rng| EntryRule {
        lane: lane(LANES[rng.usize(..LANES.len())]),
        headers: if rng.bool() {
            vec![HeaderMatch { name: "X-Beta".into(), value: rng.bool().then(|| "1".into()) }]
        } else {
            Vec::new()
        },
        percent: if rng.bool() { 100.0 } else { 0.0 },
        hash_by: HashBy::Address,
    };
    let entry = (0..rng.usize(..3)).map(|_| rule(rng)).collect();
    RouteSpec {
        host: (*any(rng, &HOSTS)).into(),
        path: (*any(rng, &PATHS)).into(),
        app: app(rng.usize(..4)),
        strip_path: rng.bool(),
        entry,
        automatic: false,
    }
}

fn endpoint(rng: &mut fastrand::Rng) -> EndpointSpec {
    EndpointSpec {
        instance: InstanceId::mint(rng.u64(..12), [0; 10]),
        start: rng.u32(..2),
        app: app(rng.usize(..4)),
        lane: lane(LANES[rng.usize(..LANES.len())]),
        address: Address::parse("10.0.0.1", rng.u16(1..4)),
        place: place(rng),
        protocol: Protocol::Http1,
        weight: *any(rng, &[100, 100, 50, 0]),
        priority: *any(rng, &[0, 0, 0, 1]),
        draining: rng.u8(..6) == 0,
        healthy: rng.u8(..4) != 0,
        ready_ms: 1_000_000,
        load: None,
    }
}

fn source(rng: &mut fastrand::Rng) -> Source {
    match rng.u64(..4) {
        3 => Source::Group(app(0), lane("new")),
        n => Source::Cell(CellId::mint(n, [0; 10])),
    }
}

pub fn change(rng: &mut fastrand::Rng) -> Change {
    match rng.u8(..16) {
        0..=3 => Change::PutRoute(route(rng)),
        4 => {
            let route = route(rng);
            Change::DeleteRoute(route_key(&route.host, &route.path))
        }
        5..=6 => Change::PutApp {
            app: app(rng.usize(..4)),
            upstream: UpstreamSpec {
                balancer: Balancer::Random,
                locality: *any(rng, &[Locality::Zone, Locality::Node, Locality::None]),
                spill_below: *any(rng, &[0.0, 0.7, 1.0]),
                ..UpstreamSpec::default()
            },
            stopped: rng.u8(..6) == 0,
            base_stopped: false,
            lanes: LANES.iter().filter(|_| rng.bool()).map(|name| lane(name)).collect(),
        },
        7 => Change::DeleteApp(app(rng.usize(..4))),
        8..=9 => Change::PutSpace {
            space: space(rng.usize(..2)),
            policy: LanePolicy {
                mode: if rng.bool() { LaneMode::Strict } else { LaneMode::Permissive },
                host_label: rng.u8(..4) != 0,
                trust_baggage: rng.bool(),
                ..LanePolicy::default()
            },
            names: LANES.iter().filter(|_| rng.bool()).map(|name| lane(name)).collect(),
            local: if rng.bool() { vec![lane("mine")] } else { Vec::new() },
        },
        10 => Change::DeleteSpace(space(rng.usize(..2))),
        11..=13 => {
            // a source names an instance once
            let list = (0..rng.usize(..9)).map(|_| endpoint(rng));
            let once: BTreeMap<_, _> = list.map(|endpoint| (endpoint.instance, endpoint)).collect();
            Change::Endpoints { source: source(rng), endpoints: once.into_values().collect() }
        }
        14 => Change::Stale { source: source(rng), stale: rng.bool() },
        _ => Change::DropSource(source(rng)),
    }
}

pub fn request(rng: &mut fastrand::Rng) -> Request {
    let tag = |rng: &mut fastrand::Rng| {
        (*any(rng, &["new", "old", "mine", "base", "nope", "Bad!", "", "new", "new"])).to_owned()
    };
    let mut headers = Vec::new();
    if rng.u8(..3) == 0 {
        headers.push(("Towpath-Lane".into(), format!(" {} ", tag(rng))));
    }
    for _ in 0..rng.usize(..3) {
        headers.push(("cookie".into(), format!("a=b; towpath_lane={}", tag(rng))));
    }
    if rng.u8(..4) == 0 {
        headers.push(("baggage".into(), format!("a=b,towpath.lane={};p=1", tag(rng))));
    }
    if rng.bool() {
        headers.push(("x-beta".into(), rng.u8(..3).to_string()));
    }
    let hosts = [
        "shop.example.com",
        "SHOP.example.com.:8080",
        "new--shop.example.com",
        "zzz.example.com",
        "a.b.example.com",
        "old--zzz.example.com",
        "example.com",
        "new--example.com",
        "xn--bcher-kva.de",
        "new--xn--bcher-kva.de",
        "[0:0::1]:80",
        "de",
        "other",
        "new--cart.example.com",
        "cart.example.com",
        "Bad host",
        "-x--cart.example.com",
    ];
    let paths = [
        "/",
        "/api",
        "/api/",
        "/api/v1/x",
        "/apis",
        "/apix",
        "//api//v1",
        "/x/../api",
        "/%61pi",
        "/api%2Fv1",
        "/a/b",
        "/a/b/c/d",
        "/a/b/c/../../..",
        "/caf%c3%a9/x",
        "*",
        "/./api/.",
    ];
    let query = (rng.u8(..3) == 0).then(|| format!("x=1&towpath_lane={}&y", tag(rng)));
    Request {
        host: (*any(rng, &hosts)).into(),
        path: (*any(rng, &paths)).into(),
        query,
        headers,
        inside: rng.bool(),
    }
}

impl World {
    pub fn apply(&mut self, change: &Change) {
        match change.clone() {
            Change::PutRoute(spec) => {
                self.routes.insert(format!("{}{}", spec.host, spec.path), spec);
            }
            Change::DeleteRoute(key) => {
                self.routes.remove(&key);
            }
            Change::PutRule(_) | Change::DeleteRule(_) => unreachable!("rules have an oracle of their own"),
            Change::PutApp { app, upstream, stopped, lanes, .. } => {
                self.apps.insert(app, AppItem { upstream, stopped, lanes });
            }
            Change::DeleteApp(app) => {
                self.apps.remove(&app);
            }
            Change::PutSpace { space, policy, names, local } => {
                self.spaces.insert(space, SpaceItem { policy, names, local });
            }
            Change::DeleteSpace(space) => {
                self.spaces.remove(&space);
            }
            Change::Endpoints { source, endpoints } => {
                self.sources.insert(source, (false, endpoints));
            }
            Change::Stale { source, stale } => {
                if let Some(entry) = self.sources.get_mut(&source) {
                    entry.0 = stale;
                }
            }
            Change::DropSource(source) => {
                self.sources.remove(&source);
            }
        }
    }

    /// Changes that make this world out of nothing.
    pub fn all(&self) -> Vec<Change> {
        let spaces = self.spaces.iter().map(|(space, item)| Change::PutSpace {
            space: space.clone(),
            policy: item.policy.clone(),
            names: item.names.clone(),
            local: item.local.clone(),
        });
        let apps = self.apps.iter().map(|(app, item)| Change::PutApp {
            app: app.clone(),
            upstream: item.upstream.clone(),
            stopped: item.stopped,
            base_stopped: false,
            lanes: item.lanes.clone(),
        });
        let sources = self.sources.iter().flat_map(|(source, (stale, endpoints))| {
            [
                Change::Endpoints { source: source.clone(), endpoints: endpoints.clone() },
                Change::Stale { source: source.clone(), stale: *stale },
            ]
        });
        sources.chain(self.routes.values().cloned().map(Change::PutRoute)).chain(apps).chain(spaces).collect()
    }

    /// The endpoints of an app, each instance once, with whether its source is stale.
    pub fn endpoints(&self, app: &AppRef) -> Vec<(bool, &EndpointSpec)> {
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        for (stale, endpoints) in self.sources.values() {
            for endpoint in endpoints.iter().filter(|endpoint| endpoint.app == *app) {
                if seen.insert(endpoint.instance) {
                    all.push((*stale, endpoint));
                }
            }
        }
        all
    }
}
