//! Hosts, paths and lane tags of clients: matching ends, and an endpoint of another feature lane is never chosen.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;
use towpath_route::{Address, Change, Draw, EndpointSpec, RequestView, Source, Table, TriedSet};
use towpath_types::lane::LanePolicy;
use towpath_types::spec::RouteSpec;
use towpath_types::upstream::{Protocol, UpstreamSpec};
use towpath_types::{AppName, AppRef, CellId, InstanceId, LaneName, Place, SpaceRef};

struct Request<'a> {
    header: &'a [u8],
    path: &'a str,
    query: Option<&'a str>,
}

impl RequestView for Request<'_> {
    fn header(&self, _: &str, nth: usize) -> Option<&[u8]> {
        (nth == 0).then_some(self.header)
    }
    fn path(&self) -> &str {
        self.path
    }
    fn query(&self) -> Option<&str> {
        self.query
    }
    fn client(&self) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }
    fn inside(&self) -> bool {
        true
    }
}

fn endpoint(app: &AppRef, lane: &LaneName, number: u64) -> EndpointSpec {
    EndpointSpec {
        instance: InstanceId::mint(number, [0; 10]),
        start: 0,
        app: app.clone(),
        lane: lane.clone(),
        address: Address::parse("127.0.0.1", 4000),
        place: Place::default(),
        protocol: Protocol::Http1,
        weight: 100,
        priority: 0,
        draining: false,
        healthy: true,
        ready_ms: 60_000,
        load: None,
    }
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let space = SpaceRef::first();
        let app = AppRef::new(&space, AppName::new("shop").unwrap());
        let lanes: Vec<LaneName> =
            ["base", "blue", "green"].iter().map(|name| name.parse().unwrap()).collect();
        let route = |host: &str, path: &str| {
            Change::PutRoute(RouteSpec {
                host: host.into(),
                path: path.into(),
                app: app.clone(),
                strip_path: false,
                entry: vec![],
                automatic: false,
            })
        };
        let endpoints = lanes.iter().zip(1..).map(|(lane, number)| endpoint(&app, lane, number)).collect();
        let changes = [
            Change::PutSpace { space, policy: LanePolicy::default(), names: lanes.clone(), local: vec![] },
            Change::PutApp {
                app: app.clone(),
                upstream: UpstreamSpec::default(),
                stopped: false,
                base_stopped: false,
                lanes: lanes.clone(),
            },
            route("a.test", "/"),
            route("a.test", "/api"),
            route("*.b.test", "/x/y"),
            Change::Endpoints { source: Source::Cell(CellId::mint(1, [0; 10])), endpoints },
        ];
        let (table, refused) = Table::new(Place::default()).apply(&changes, 0);
        assert!(refused.is_empty(), "{refused:?}");
        table
    })
}

fuzz_target!(|input: (&[u8], &str, Option<&str>, &[u8])| {
    let (host, path, query, header) = input;
    let request = Request { header, path, query };
    let table = table();
    for host in [host, b"a.test", b"blue--a.test"] {
        let Some(matched) = table.find(host, path.as_bytes()) else { continue };
        let _ = matched.stripped(path);
        let Ok(lane) = table.lane(&matched, &request) else { continue };
        let draw = Draw { now: 1, rnd: 7, key: matched.affinity(&request) };
        if let Ok(pick) = table.pick(&matched, &lane, draw, &TriedSet::default()) {
            assert!(pick.endpoint.lane().is_base() || pick.endpoint.lane() == lane.lane);
        }
    }
});
