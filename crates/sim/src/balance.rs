//! The simulation of one scenario, event by event.

use crate::scenario::{Instance, Scenario, instances};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::net::IpAddr;
use towpath_route::{
    Address, Change, Draw, Endpoint, EndpointSpec, InFlight, Outcome, ReportedLoad, RequestView, Source,
    Table, TriedSet,
};
use towpath_types::load::{HostLoad, InstanceLoad};
use towpath_types::spec::RouteSpec;
use towpath_types::upstream::{Protocol, UpstreamSpec};
use towpath_types::{AppName, AppRef, CellId, InstanceId, LaneName, Place, SpaceRef};

/// Latencies of a scenario, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Median.
    pub p50: f64,
    /// Of a hundred requests, one is slower.
    pub p99: f64,
    /// Mean.
    pub mean: f64,
    /// Requests measured.
    pub requests: usize,
    /// Share of the requests that went to a slow instance.
    pub slow_share: f64,
}

enum Event {
    Arrival { gateway: usize },
    Done { instance: usize, worker: usize },
    Report,
}

/// Earlier ones first; among equals in the order in which they were made.
struct Timed {
    at: f64,
    order: u64,
    event: Event,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.total_cmp(&other.at).then(self.order.cmp(&other.order))
    }
}

struct Job {
    arrived: f64,
    work: f64,
    flight: InFlight,
}

struct Running {
    instance: Instance,
    queue: VecDeque<Job>,
    /// What each worker works on.
    workers: Vec<Option<Job>>,
    /// Worker seconds of work since the last report.
    busy: f64,
}

struct NoHeaders;

impl RequestView for NoHeaders {
    fn header(&self, _: &str, _: usize) -> Option<&[u8]> {
        None
    }
    fn path(&self) -> &str {
        "/"
    }
    fn query(&self) -> Option<&str> {
        None
    }
    fn client(&self) -> Option<IpAddr> {
        None
    }
    fn inside(&self) -> bool {
        false
    }
}

struct Sim<'s> {
    scenario: &'s Scenario,
    now: f64,
    order: u64,
    events: BinaryHeap<Reverse<Timed>>,
    tables: Vec<Table>,
    running: Vec<Running>,
    /// Arrivals and work: the same for every balancer.
    clients: fastrand::Rng,
    /// The gateways' random numbers.
    draws: fastrand::Rng,
    rate: f64,
    latencies: Vec<f64>,
    to_slow: usize,
}

/// Runs a scenario.
pub fn run(scenario: &Scenario) -> Figures {
    let running: Vec<Running> = instances(scenario)
        .into_iter()
        .map(|instance| Running {
            instance,
            queue: VecDeque::new(),
            workers: (0..scenario.workers).map(|_| None).collect(),
            busy: 0.0,
        })
        .collect();
    let capacity: f64 =
        running.iter().map(|r| r.instance.speed * scenario.workers as f64 / scenario.work).sum();
    let mut sim = Sim {
        scenario,
        now: 0.0,
        order: 0,
        events: BinaryHeap::new(),
        tables: vec![Table::new(Place::default()); scenario.gateways],
        running,
        clients: fastrand::Rng::with_seed(scenario.seed),
        draws: fastrand::Rng::with_seed(scenario.seed ^ 0xd1ce),
        rate: capacity * scenario.utilisation,
        latencies: Vec::new(),
        to_slow: 0,
    };
    sim.start();
    let end = scenario.warm_up + scenario.measured;
    while let Some(Reverse(next)) = sim.events.pop() {
        if next.at > end {
            break;
        }
        sim.now = next.at;
        match next.event {
            Event::Arrival { gateway } => sim.arrive(gateway),
            Event::Done { instance, worker } => sim.finish(instance, worker),
            Event::Report => sim.report(),
        }
    }
    sim.figures(end)
}

fn app() -> Option<AppRef> {
    Some(AppRef::new(&SpaceRef::first(), AppName::new("app").ok()?))
}

impl Sim<'_> {
    fn start(&mut self) {
        let Some(app) = app() else { return };
        let upstream = UpstreamSpec { balancer: self.scenario.balancer.clone(), ..UpstreamSpec::default() };
        let route = RouteSpec {
            host: "app".into(),
            path: "/".into(),
            app: app.clone(),
            strip_path: false,
            entry: Vec::new(),
            automatic: false,
        };
        let changes = [
            Change::PutApp {
                app,
                upstream,
                stopped: false,
                base_stopped: false,
                lanes: vec![LaneName::base()],
            },
            Change::PutRoute(route),
        ];
        for table in &mut self.tables {
            *table = table.apply(&changes, 0).0;
        }
        self.report();
        for gateway in 0..self.scenario.gateways {
            self.next_arrival(gateway);
        }
    }

    fn at(&mut self, at: f64, event: Event) {
        self.order += 1;
        self.events.push(Reverse(Timed { at, order: self.order, event }));
    }

    fn exponential(rng: &mut fastrand::Rng, mean: f64) -> f64 {
        -mean * (1.0 - rng.f64()).ln()
    }

    fn next_arrival(&mut self, gateway: usize) {
        let mean = self.scenario.gateways as f64 / self.rate;
        let at = self.now + Self::exponential(&mut self.clients, mean);
        self.at(at, Event::Arrival { gateway });
    }

    fn nanos(&self) -> u64 {
        (self.now * 1e9) as u64
    }

    fn arrive(&mut self, gateway: usize) {
        let work = Self::exponential(&mut self.clients, self.scenario.work);
        self.next_arrival(gateway);
        let draw = Draw { now: self.nanos(), rnd: self.draws.u64(..), key: 0 };
        let Some(table) = self.tables.get(gateway) else { return };
        let Some(matched) = table.find(b"app", b"/") else { return };
        let Ok(lane) = table.lane(&matched, &NoHeaders) else { return };
        let Ok(pick) = table.pick(&matched, &lane, draw, &TriedSet::default()) else { return };
        let flight = Endpoint::begin(pick.endpoint);
        let Address::Socket(address) = pick.endpoint.address() else { return };
        let at = usize::from(address.port() - FIRST_PORT);
        let Some(running) = self.running.get_mut(at) else { return };
        if self.now >= self.scenario.warm_up && running.instance.slow {
            self.to_slow += 1;
        }
        running.queue.push_back(Job { arrived: self.now, work, flight });
        self.begin_work(at);
    }

    /// Gives waiting jobs to free workers.
    fn begin_work(&mut self, at: usize) {
        let mut ends = Vec::new();
        if let Some(running) = self.running.get_mut(at) {
            for (worker, place) in running.workers.iter_mut().enumerate().filter(|(_, place)| place.is_none())
            {
                let Some(job) = running.queue.pop_front() else { break };
                let took = job.work / running.instance.speed;
                running.busy += took;
                ends.push((self.now + took, worker));
                *place = Some(job);
            }
        }
        for (end, worker) in ends {
            self.at(end, Event::Done { instance: at, worker });
        }
    }

    fn finish(&mut self, at: usize, worker: usize) {
        let now = self.nanos();
        let place = self.running.get_mut(at).and_then(|running| running.workers.get_mut(worker));
        let Some(job) = place.and_then(Option::take) else { return };
        let latency = self.now - job.arrived;
        let _ = job.flight.finish(now, Outcome::Success { latency_ns: (latency * 1e9) as u64 });
        if job.arrived >= self.scenario.warm_up {
            self.latencies.push(latency);
        }
        self.begin_work(at);
    }

    /// Every cell announces its instance with its load; each gateway hears all of them.
    fn report(&mut self) {
        let Some(app) = app() else { return };
        let (interval, workers) = (self.scenario.report_interval, self.scenario.workers as f64);
        let first = self.now == 0.0;
        let now = self.nanos();
        for (n, running) in self.running.iter_mut().enumerate() {
            let share = (running.busy / (interval * workers)).min(1.0);
            running.busy = 0.0;
            let host_cpu = running.instance.host_busy + (1.0 - running.instance.host_busy) * share;
            let (host_mem, mem) = running.instance.memory;
            let load = ReportedLoad {
                host: HostLoad { cpu: host_cpu as f32, mem: host_mem, io: 0.0 },
                instance: InstanceLoad { cpu: share as f32, mem, io: 0.0 },
            };
            let endpoint = EndpointSpec {
                instance: InstanceId::mint(n as u64, [0; 10]),
                start: 0,
                app: app.clone(),
                lane: LaneName::base(),
                address: Address::parse("127.0.0.1", FIRST_PORT + n as u16),
                place: Place::default(),
                protocol: Protocol::Http1,
                weight: 100,
                priority: 0,
                draining: false,
                healthy: true,
                ready_ms: 60_000,
                load: (!first).then_some(load),
            };
            let source = Source::Cell(CellId::mint(n as u64, [0; 10]));
            let change = Change::Endpoints { source, endpoints: vec![endpoint] };
            for table in &mut self.tables {
                *table = table.apply(std::slice::from_ref(&change), now).0;
            }
        }
        self.at(self.now + interval, Event::Report);
    }

    /// Requests that are not answered at the end count with the time that they have waited so far.
    fn figures(mut self, end: f64) -> Figures {
        for running in &self.running {
            let waiting = running.queue.iter().chain(running.workers.iter().flatten());
            self.latencies.extend(
                waiting.filter(|job| job.arrived >= self.scenario.warm_up).map(|job| end - job.arrived),
            );
        }
        self.latencies.sort_by(f64::total_cmp);
        let count = self.latencies.len();
        let at = |share: f64| {
            let place = ((count as f64 * share) as usize).min(count.saturating_sub(1));
            self.latencies.get(place).copied().unwrap_or_default()
        };
        Figures {
            p50: at(0.50),
            p99: at(0.99),
            mean: self.latencies.iter().sum::<f64>() / count.max(1) as f64,
            requests: count,
            slow_share: self.to_slow as f64 / count.max(1) as f64,
        }
    }
}

/// Port of the first instance; the ports tell the instances apart.
const FIRST_PORT: u16 = 1000;
