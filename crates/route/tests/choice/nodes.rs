//! Upstreams of static nodes.

use crate::support::{START, near};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use towpath_route::vars::Value;
use towpath_route::{
    Address, Change, Draw, Endpoint, NoPick, Outcome, RequestView, RuleSpec, Source, StaticNode, Table,
    TriedSet, node_id, static_upstream,
};
use towpath_types::lane::HashBy;
use towpath_types::upstream::{Balancer, Protocol, UpstreamSpec};
use towpath_types::{AppRef, InstanceId, LaneName, Place};

#[derive(Default)]
struct Request {
    header: Option<String>,
    query: Option<String>,
    consumer: Option<String>,
}

impl RequestView for Request {
    fn header(&self, name: &str, nth: usize) -> Option<&[u8]> {
        self.header.as_deref().filter(|_| nth == 0 && name == "x-user").map(str::as_bytes)
    }
    fn path(&self) -> &str {
        "/"
    }
    fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }
    fn client(&self) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, 1]))
    }
    fn inside(&self) -> bool {
        false
    }
    fn variable(&self, name: &str) -> Option<Value<'_>> {
        self.consumer.as_ref().filter(|_| name == "consumer_name").map(Value::text)
    }
}

fn app() -> AppRef {
    AppRef::of_upstream("1")
}

fn id(n: u16) -> InstanceId {
    node_id(&app(), &Address::parse("10.0.0.1", n))
}

fn node(n: u16, weight: u32) -> StaticNode {
    StaticNode {
        address: Address::parse("10.0.0.1", n),
        weight,
        priority: 0,
        place: Place::default(),
        protocol: Protocol::Http1,
        healthy: true,
    }
}

/// Nodes 1, 2, … with these weights.
fn nodes(weights: &[u32]) -> Vec<StaticNode> {
    (1..).zip(weights).map(|(n, weight)| node(n, *weight)).collect()
}

struct World {
    table: Table,
    rnd: u64,
}

impl World {
    fn new(balancer: Balancer, nodes: &[StaticNode]) -> Self {
        let mut world = Self { table: Table::new(Place::default()), rnd: 0 };
        world.change(Change::PutRule(Box::new(RuleSpec::new("1", &["/*"], app()))));
        let upstream = UpstreamSpec { balancer, ..static_upstream(nodes.len()) };
        world.change(Change::PutApp {
            app: app(),
            upstream,
            stopped: false,
            base_stopped: false,
            lanes: Vec::new(),
        });
        world.set(nodes);
        world
    }

    fn change(&mut self, change: Change) {
        let (table, refused) = self.table.apply(&[change], START);
        assert_eq!(refused, vec![]);
        self.table = table;
    }

    fn set(&mut self, nodes: &[StaticNode]) {
        let endpoints = nodes.iter().map(|node| node.endpoint(&app())).collect();
        self.change(Change::Endpoints { source: Source::Group(app(), LaneName::base()), endpoints });
    }

    fn try_pick(&mut self, request: &Request, tried: &TriedSet) -> Result<Arc<Endpoint>, NoPick> {
        self.rnd += 1;
        let matched = self.table.find_for(b"any.host", b"/x", request).unwrap();
        let lane = self.table.lane(&matched, request).unwrap();
        let draw = Draw { now: START, rnd: self.rnd, key: matched.affinity(request) };
        self.table.pick(&matched, &lane, draw, tried).map(|pick| Arc::clone(pick.endpoint))
    }

    fn pick(&mut self, request: &Request) -> Arc<Endpoint> {
        self.try_pick(request, &TriedSet::default()).unwrap()
    }

    fn counts(&mut self, picks: usize) -> BTreeMap<InstanceId, usize> {
        let mut counts = BTreeMap::new();
        (0..picks).for_each(|_| *counts.entry(self.pick(&Request::default()).instance()).or_default() += 1);
        counts
    }

    fn endpoint(&self, n: u16) -> Arc<Endpoint> {
        Arc::clone(self.table.endpoints().find(|endpoint| endpoint.instance() == id(n)).unwrap())
    }
}

#[test]
fn turns_are_exact_and_smooth_whatever_the_weights() {
    for weights in [&[5, 1, 1][..], &[3, 2], &[1, 1, 1], &[5000, 1, 2], &[7, 0, 3]] {
        let mut world = World::new(Balancer::Roundrobin, &nodes(weights));
        let total: u32 = weights.iter().sum();
        let mut counts = vec![0_u32; weights.len()];
        for n in 1..=3 * total {
            let instance = world.pick(&Request::default()).instance();
            let at = (1..).zip(weights).position(|(n, _)| id(n) == instance).unwrap();
            counts[at] += 1;
            for (count, weight) in counts.iter().zip(weights) {
                let due = f64::from(n) * f64::from(*weight) / f64::from(total);
                assert!((f64::from(*count) - due).abs() < 1.01, "{weights:?} {n}: {counts:?}");
            }
        }
        assert_eq!(counts, weights.iter().map(|weight| 3 * weight).collect::<Vec<_>>());
    }
}

#[test]
fn a_weight_of_zero_is_obeyed_at_once_and_in_need_too() {
    for balancer in
        [Balancer::Roundrobin, Balancer::LeastConn, Balancer::Ewma, Balancer::Chash(HashBy::Address)]
    {
        let mut world = World::new(balancer, &nodes(&[1, 1]));
        world.set(&nodes(&[0, 1]));
        assert_eq!(world.counts(50), BTreeMap::from([(id(2), 50)]));
        let mut sick = nodes(&[0, 1]);
        sick[1].healthy = false;
        world.set(&sick);
        assert_eq!(world.counts(50), BTreeMap::from([(id(2), 50)]), "all are sick: what has weight serves");
        world.set(&nodes(&[0, 0]));
        assert_eq!(
            world.try_pick(&Request::default(), &TriedSet::default()).unwrap_err(),
            NoPick::NoEndpoint
        );
    }
}

#[test]
fn lower_priorities_serve_while_no_higher_one_is_available() {
    let mut all = nodes(&[1, 1, 1, 1]);
    (all[2].priority, all[3].priority) = (-1, -2);
    let mut world = World::new(Balancer::Roundrobin, &all);
    assert_eq!(world.counts(10), BTreeMap::from([(id(1), 5), (id(2), 5)]));
    all[0].healthy = false;
    world.set(&all);
    assert_eq!(world.counts(10), BTreeMap::from([(id(2), 10)]), "half of the first level is enough");
    all[1].healthy = false;
    world.set(&all);
    assert_eq!(world.counts(10), BTreeMap::from([(id(3), 10)]));
    let tried = TriedSet::default();
    let mut tried_third = tried.clone();
    tried_third.add(id(3));
    assert_eq!(
        world.try_pick(&Request::default(), &tried_third).unwrap().instance(),
        id(4),
        "a retry goes down a level"
    );
    all[0].healthy = true;
    world.set(&all);
    assert_eq!(world.counts(10), BTreeMap::from([(id(1), 10)]));
}

#[test]
fn what_was_learned_of_a_node_survives_edits_that_keep_it() {
    let mut world = World::new(Balancer::Ewma, &nodes(&[1, 1, 1]));
    let flight = Endpoint::begin(&world.endpoint(1));
    let _ = Endpoint::begin(&world.endpoint(1)).finish(START, Outcome::Success { latency_ns: 5_000_000 });
    let before = Arc::clone(&world.endpoint(1).state);
    let mut all = nodes(&[4, 1]);
    all[0].priority = 3;
    all.extend([node(7, 1), node(8, 1)]);
    world.set(&all);
    let mut sick = all.clone();
    sick[0].healthy = false;
    world.set(&sick);
    world.change(Change::PutApp {
        app: app(),
        upstream: UpstreamSpec { balancer: Balancer::LeastConn, ..static_upstream(4) },
        stopped: false,
        base_stopped: false,
        lanes: Vec::new(),
    });
    assert!(Arc::ptr_eq(&before, &world.endpoint(1).state));
    assert_eq!((before.in_flight(), before.totals()), (1, (1, 0)));
    drop(flight);
    assert_eq!(before.in_flight(), 0);
    world.set(&all[1..]);
    assert!(
        world.counts(40).keys().all(|instance| *instance != id(1)),
        "one that was removed gets nothing more"
    );
}

#[test]
fn three_dead_nodes_in_a_row_do_not_fail_a_request() {
    for balancer in
        [Balancer::Roundrobin, Balancer::Random, Balancer::Chash(HashBy::Address), Balancer::LeastConn]
    {
        let mut world = World::new(balancer, &nodes(&[1; 6]));
        let retries = world.endpoint(1).upstream.retry.retries;
        for _ in 0..200 {
            let mut tried = TriedSet::default();
            let dead = |instance| [id(1), id(2), id(3)].contains(&instance);
            let served = (0..=retries).find_map(|_| {
                let instance = world.try_pick(&Request::default(), &tried).unwrap().instance();
                tried.add(instance);
                (!dead(instance)).then_some(instance)
            });
            assert!(served.is_some() && tried.len() <= 4);
        }
    }
}

#[test]
fn least_conn_fills_up_by_weight() {
    let mut world = World::new(Balancer::LeastConn, &nodes(&[1, 2, 3]));
    let flights: Vec<_> = (0..60).map(|_| Endpoint::begin(&world.pick(&Request::default()))).collect();
    let in_flight = [1, 2, 3].map(|n| world.endpoint(n).state.in_flight());
    assert!(in_flight.iter().zip([10, 20, 30]).all(|(got, want)| got.abs_diff(want) <= 1), "{in_flight:?}");
    drop(flights);
}

#[test]
fn ewma_prefers_the_faster() {
    let mut world = World::new(Balancer::Ewma, &nodes(&[1, 1]));
    for (n, ms) in [(1, 5), (2, 50)] {
        let latency_ns = ms * 1_000_000;
        let _ = Endpoint::begin(&world.endpoint(n)).finish(START, Outcome::Success { latency_ns });
    }
    assert_eq!(world.counts(100), BTreeMap::from([(id(1), 100)]));
}

#[test]
fn a_hash_of_each_kind_of_key_keeps_to_one_node_however_busy() {
    let user = |n: usize| Some(format!("u{n}"));
    type Make = fn(Option<String>) -> Request;
    let header: Make = |value| Request { header: value, ..Request::default() };
    let query: Make = |value| Request { query: value.map(|v| format!("id={v}")), ..Request::default() };
    let consumer: Make = |value| Request { consumer: value, ..Request::default() };
    for (by, request) in [
        (HashBy::Var("http_x_user".into()), header),
        (HashBy::Header("x-user".into()), header),
        (HashBy::Var("arg_id".into()), query),
        (HashBy::Var("consumer_name".into()), consumer),
        (HashBy::Vars("$http_x_user-$arg_id".into()), query),
    ] {
        let weights = [5000, 5000, 1, 4999];
        let mut world = World::new(Balancer::Chash(by), &nodes(&weights));
        let mut at = BTreeMap::new();
        let mut flights = Vec::new();
        for round in 0..3 {
            for n in 0..300 {
                let endpoint = world.pick(&request(user(n)));
                assert_eq!(*at.entry(n).or_insert(endpoint.instance()), endpoint.instance(), "round {round}");
                flights.push(Endpoint::begin(&endpoint));
            }
        }
        let share = |n| at.values().filter(|instance| **instance == id(n)).count() as f64 / 300.0;
        near(share(1), 1.0 / 3.0, 0.1);
        // without the thing it goes by, the client's address decides
        let none = world.pick(&request(None)).instance();
        assert!((0..20).all(|_| world.pick(&request(None)).instance() == none));
        // a node more takes its share of the keys, and no other key moves
        let mut more = nodes(&weights);
        more.push(node(9, 5000));
        world.set(&more);
        let after: BTreeMap<_, _> = (0..300).map(|n| (n, world.pick(&request(user(n))).instance())).collect();
        assert!(after.iter().all(|(n, instance)| *instance == at[n] || *instance == id(9)));
        near(after.values().filter(|instance| **instance == id(9)).count() as f64 / 300.0, 0.25, 0.1);
    }
}
