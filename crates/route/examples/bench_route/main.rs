//! `make bench-route`: 100,000 routes, 10,000 apps of 20 endpoints. Time of match + lane + tier + pick, with begin and
//! finish apart, time to apply one change, and allocations; then the same for 100,000 rules in several layouts. Requests are timed by the CPU time of
//! their thread (whose clock ticks coarsely), changes by the wall clock. With `CHECK=1` it exits 1 when a target is missed.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    unsafe_code,
    missing_docs,
    reason = "a bench, and a counting allocator cannot be had without unsafe"
)]

mod rules;

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use towpath_route::{
    Address, Change, Draw, Endpoint, EndpointSpec, Match, Outcome, Pick, ReportedLoad, RequestView, Source,
    Table, TriedSet,
};
use towpath_types::lane::LanePolicy;
use towpath_types::spec::RouteSpec;
use towpath_types::upstream::{Protocol, UpstreamSpec};
use towpath_types::{AppName, AppRef, CellId, InstanceId, LaneName, Place, SpaceRef};

struct Counting;
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: hands everything on to the allocator that the product has too.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: as promised by our caller.
        unsafe { MiMalloc.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as promised by our caller.
        unsafe { MiMalloc.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const APPS: usize = 10_000;
const ENDPOINTS: usize = 20;
const ROUTES: usize = 100_000;
const CELLS: usize = 500;
const REQUESTS: usize = 200_000;
const ROUNDS: usize = 15;
const SEC: u64 = 1_000_000_000;

/// One request; all texts lie one after the other in one buffer, as they would in a connection's.
struct Request<'a> {
    host: &'a str,
    path: &'a str,
    lane: Option<&'a str>,
}

impl RequestView for Request<'_> {
    fn header(&self, name: &str, nth: usize) -> Option<&[u8]> {
        self.lane.filter(|_| nth == 0 && name.eq_ignore_ascii_case("towpath-lane")).map(str::as_bytes)
    }
    fn path(&self) -> &str {
        self.path
    }
    fn query(&self) -> Option<&str> {
        None
    }
    fn client(&self) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }
    fn inside(&self) -> bool {
        false
    }
}

fn app(n: usize) -> AppRef {
    AppRef::new(&SpaceRef::first(), AppName::new(&format!("app-{n}")).unwrap())
}

fn route(n: usize) -> RouteSpec {
    let (owner, kind) = (n % APPS, n / APPS);
    let (host, path) = match kind {
        0 => (format!("app-{owner}.example.com"), "/".to_owned()),
        1..=4 => (format!("app-{owner}.example.com"), format!("/api/v{kind}")),
        _ => (format!("shop-{kind}-{owner}.customer.example"), "/".to_owned()),
    };
    RouteSpec { host, path, app: app(owner), strip_path: false, entry: Vec::new(), automatic: false }
}

fn place(zone: usize) -> Place {
    Place { region: "r".into(), zone: format!("z{zone}"), node: String::new() }
}

fn endpoint(owner: usize, n: usize, rng: &mut fastrand::Rng) -> EndpointSpec {
    let id = (owner * ENDPOINTS + n) as u64;
    let mut random = [0; 10];
    random[..8].copy_from_slice(&id.to_be_bytes());
    let lane = if n % 5 == 4 { LaneName::new("feature").unwrap() } else { LaneName::base() };
    let mut load = ReportedLoad::default();
    (load.host.cpu, load.host.mem, load.instance.cpu, load.instance.mem) =
        (rng.f32(), rng.f32(), rng.f32(), rng.f32());
    EndpointSpec {
        instance: InstanceId::mint(id, random),
        start: 0,
        app: app(owner),
        lane,
        address: Address::parse("10.1.2.3", 1024 + (id % 60_000) as u16),
        place: place(n % 3),
        protocol: Protocol::Http1,
        weight: 100,
        priority: 0,
        draining: false,
        healthy: n != 7,
        ready_ms: 60_000,
        load: Some(load),
    }
}

fn cell(n: usize) -> Source {
    Source::Cell(CellId::mint(n as u64, [0; 10]))
}

fn build(rng: &mut fastrand::Rng) -> (Table, Vec<Vec<EndpointSpec>>) {
    let lanes = vec![LaneName::base(), LaneName::new("feature").unwrap()];
    let mut changes = vec![Change::PutSpace {
        space: SpaceRef::first(),
        policy: LanePolicy::default(),
        names: lanes.clone(),
        local: Vec::new(),
    }];
    for n in 0..APPS {
        let upstream = UpstreamSpec::default();
        changes.push(Change::PutApp {
            app: app(n),
            upstream,
            stopped: false,
            base_stopped: false,
            lanes: lanes.clone(),
        });
    }
    changes.extend((0..ROUTES).map(|n| Change::PutRoute(route(n))));
    let mut cells = vec![Vec::new(); CELLS];
    for owner in 0..APPS {
        for n in 0..ENDPOINTS {
            cells[rng.usize(..CELLS)].push(endpoint(owner, n, rng));
        }
    }
    for (n, endpoints) in cells.iter().enumerate() {
        changes.push(Change::Endpoints { source: cell(n), endpoints: endpoints.clone() });
    }
    let started = Instant::now();
    let (table, refused) = Table::new(place(0)).apply(&changes, SEC);
    println!("compiled {:?} in {:?}, {} refused", table.counts(), started.elapsed(), refused.len());
    // every endpoint has been measured by some requests
    for endpoint in table.endpoints() {
        for _ in 0..3 {
            let latency_ns = rng.u64(1_000_000..50_000_000);
            let _ = Endpoint::begin(endpoint).finish(2 * SEC, Outcome::Success { latency_ns });
        }
    }
    (table, cells)
}

fn requests(rng: &mut fastrand::Rng) -> (String, Vec<[usize; 4]>) {
    let mut text = String::new();
    let mut spans = Vec::new();
    for _ in 0..REQUESTS {
        let route = route(rng.usize(..ROUTES));
        let start = text.len();
        text.push_str(&route.host);
        text.push_str(":8080");
        let host = text.len();
        text.push_str(&route.path);
        if rng.bool() {
            text.push_str(if route.path == "/" { "cart/items" } else { "/orders/17" });
        }
        let path = text.len();
        if rng.u8(..10) < 3 {
            text.push_str("feature");
        }
        spans.push([start, host, path, text.len()]);
    }
    (text, spans)
}

fn view<'a>(text: &'a str, span: &[usize; 4]) -> Request<'a> {
    let lane = &text[span[2]..span[3]];
    Request {
        host: &text[span[0]..span[1]],
        path: &text[span[1]..span[2]],
        lane: Some(lane).filter(|l| !l.is_empty()),
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// CPU time of this thread so far: what neighbours take of the core does not count.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Nanoseconds a request, median of the rounds, and allocations a request.
fn time_requests(memory: &mut Memory, mut one: impl FnMut(usize)) -> (f64, f64) {
    let (mut rounds, mut allocations, mut misses) = (Vec::new(), 0, Vec::new());
    for _ in 0..ROUNDS {
        let (before, started) = (ALLOCATIONS.load(Relaxed), cpu_ns());
        let counted = ALLOCATIONS.load(Relaxed) - before;
        (0..REQUESTS).for_each(&mut one);
        let after = ALLOCATIONS.load(Relaxed);
        rounds.push((cpu_ns() - started) as f64 / REQUESTS as f64);
        allocations += after - before - counted;
        misses.push(memory.read());
    }
    println!("rounds: {rounds:.0?}, a cache miss costs {:.0} ns", median(misses));
    (median(rounds), allocations as f64 / (ROUNDS * REQUESTS) as f64)
}

/// 128 MB of memory to read at random, where the address of each read is known only after the one before: the measure
/// of what a cache miss costs here and now.
struct Memory {
    lines: Vec<[u32; 16]>,
    at: u32,
}

impl Memory {
    fn new() -> Self {
        const LINES: usize = 128 * 1024 * 1024 / 64;
        let mut order: Vec<u32> = (0..LINES as u32).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut order);
        let mut lines = vec![[0_u32; 16]; LINES];
        for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
            lines[*from as usize][0] = *to;
        }
        Self { lines, at: 0 }
    }

    /// Nanoseconds of one read.
    fn read(&mut self) -> f64 {
        const READS: usize = 500_000;
        let started = cpu_ns();
        for _ in 0..READS {
            self.at = self.lines[self.at as usize][0];
        }
        (cpu_ns() - started) as f64 / READS as f64
    }
}

/// Milliseconds to apply one change and to drop what it replaced, median and worst.
fn time_changes(table: &Table, change: &mut dyn FnMut(usize) -> Change) -> (f64, f64) {
    let mut table = table.clone();
    let mut times = Vec::new();
    for n in 0..200 {
        let change = change(n);
        let started = Instant::now();
        let (next, refused) = table.apply(std::slice::from_ref(&change), 2 * SEC);
        assert!(refused.is_empty(), "{refused:?}");
        table = next;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let worst = times.iter().copied().fold(0.0, f64::max);
    (median(times), worst)
}

/// Figures of one change of each kind: name, median and worst, milliseconds.
fn changes(table: &Table, cells: &[Vec<EndpointSpec>]) -> Vec<(&'static str, f64, f64)> {
    let mut out = Vec::new();
    let mut measure = |name, change: &mut dyn FnMut(usize) -> Change| {
        let (middle, worst) = time_changes(table, change);
        println!("apply_{name}_ms={middle:.3} worst_ms={worst:.3}");
        out.push((name, middle, worst));
    };
    measure("put_route", &mut |n| Change::PutRoute(RouteSpec { strip_path: true, ..route(n * 499) }));
    measure("new_route", &mut |n| {
        Change::PutRoute(RouteSpec { path: format!("/new/{n}"), ..route(n * 499) })
    });
    measure("delete_route", &mut |n| {
        let spec = route(n * 499);
        Change::DeleteRoute(towpath_route::route_key(&spec.host, &spec.path))
    });
    measure("put_app", &mut |n| Change::PutApp {
        app: app(n * 49),
        upstream: UpstreamSpec::default(),
        stopped: n % 2 == 0,
        base_stopped: false,
        lanes: Vec::new(),
    });
    measure("put_space", &mut |n| Change::PutSpace {
        space: SpaceRef::first(),
        policy: LanePolicy { trust_baggage: n % 2 == 0, ..LanePolicy::default() },
        names: vec![LaneName::new("feature").unwrap()],
        local: Vec::new(),
    });
    measure("announce_with_change", &mut |n| {
        let mut endpoints = cells[n % CELLS].clone();
        endpoints[0].draining = true;
        Change::Endpoints { source: cell(n % CELLS), endpoints }
    });
    measure("announce_loads_only", &mut |n| Change::Endpoints {
        source: cell(n % CELLS),
        endpoints: cells[n % CELLS].clone(),
    });
    out
}

/// The whole choice for one request.
fn choose<'t>(table: &'t Table, request: &Request<'_>, draw: Draw) -> (Match<'t>, Pick<'t>) {
    let matched = table.find(request.host.as_bytes(), request.path.as_bytes()).unwrap();
    let lane = table.lane(&matched, request).unwrap();
    let pick = table.pick(&matched, &lane, draw, &TriedSet::default()).unwrap();
    (matched, pick)
}

fn main() {
    let mut rng = fastrand::Rng::with_seed(42);
    let (table, cells) = build(&mut rng);
    let (text, spans) = requests(&mut rng);
    let now = 3 * SEC;
    let draw = |n: usize| Draw { now, rnd: (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15), key: 0 };

    let changes = changes(&table, &cells);
    let mut memory = Memory::new();
    let (find, _) = time_requests(&mut memory, |n| {
        let request = view(&text, &spans[n]);
        black_box(table.find(request.host.as_bytes(), request.path.as_bytes()).unwrap());
    });
    let (cached, _) = time_requests(&mut memory, |n| {
        black_box(choose(&table, &view(&text, &spans[n % 64]), draw(n)));
    });
    let (whole, _) = time_requests(&mut memory, |n| {
        let (matched, pick) = choose(&table, &view(&text, &spans[n]), draw(n));
        matched.budget().request(now);
        let flight = Endpoint::begin(pick.endpoint);
        let _ = black_box(flight.finish(now, Outcome::Success { latency_ns: 10_000_000 }));
    });
    let (pick, allocations) = time_requests(&mut memory, |n| {
        black_box(choose(&table, &view(&text, &spans[n]), draw(n)));
    });

    drop(table);
    let (slowest_rule, allocations_of_rules) = rules::run(&mut memory);

    println!("match_ns={find:.0}");
    println!("match_lane_pick_few_hosts_ns={cached:.0}");
    println!("match_lane_pick_begin_finish_ns={whole:.0}");
    let slowest = changes.iter().map(|change| change.1).fold(0.0, f64::max);
    println!("match_lane_pick_ns={pick:.0}");
    println!("apply_one_change_ms={slowest:.3}");
    println!("allocations_per_pick={allocations}");
    println!("apply_one_rule_ms={slowest_rule:.3}");
    println!("allocations_per_match_of_rules={allocations_of_rules}");
    let slow = slowest.max(slowest_rule) > 5.0;
    let missed = pick > 1000.0 || slow || allocations.max(allocations_of_rules) > 0.0;
    if missed && std::env::var_os("CHECK").is_some_and(|check| check == "1") {
        println!("missed: at most 1000 ns, 5 ms and 0 allocations");
        std::process::exit(1);
    }
}
