//! A small deterministic world: cells that run what they are told, gateways that hear them with delay.

use crate::placement::starts::StartBudget;
use crate::placement::{CellIndex, CellView};
use crate::rollout::{
    GroupInput, GroupPlan, Life, Observed, PlanAction, RolloutPolicy, find_version, memory_of, plan_group,
};
use std::collections::{BTreeMap, BTreeSet};
use towpath_types::health::HealthCheck;
use towpath_types::spec::{Assignment, GroupSpec, GroupStatus, InstanceVersion, Limits, ReleaseSpec, Wanted};
use towpath_types::upstream::Protocol;
use towpath_types::{ByteSize, CellId, Digest, Generation, InstanceId, LaneName, Millis, Place};

/// How instances of a release behave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Behaviour {
    /// From start to ready; `None` = never.
    pub(super) ready_ms: Option<u64>,
    /// Exits so long after its start instead.
    pub(super) exits_ms: Option<u64>,
}

pub(super) const GOOD: Behaviour = Behaviour { ready_ms: Some(400), exits_ms: None };
pub(super) const NEVER_READY: Behaviour = Behaviour { ready_ms: None, exits_ms: None };
pub(super) const EXITS: Behaviour = Behaviour { ready_ms: None, exits_ms: Some(300) };

#[derive(Debug, Clone)]
pub(super) struct Running {
    pub(super) release: Digest,
    pub(super) life: Life,
    pub(super) since_ms: u64,
    pub(super) restarts: u32,
    pub(super) wanted: Wanted,
    /// When it entered this life, in announcements.
    seq: u64,
    pub(super) in_flight: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) id: CellId,
    pub(super) zone: u8,
    pub(super) up: bool,
    pub(super) reachable: bool,
    pub(super) cordoned: bool,
    pub(super) draining: bool,
    pub(super) memory: u64,
    pub(super) instances: BTreeMap<InstanceId, Running>,
    seq: u64,
    /// What the others have of its last announcement.
    told: BTreeMap<InstanceId, Running>,
    told_ms: u64,
    told_seq: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Gateway {
    pub(super) live: bool,
    /// Per cell: announcement up to which it has heard.
    heard: BTreeMap<CellId, u64>,
    /// What it sends requests to.
    pub(super) endpoints: BTreeMap<InstanceId, CellId>,
}

pub(super) struct World {
    pub(super) now_ms: u64,
    pub(super) spec: GroupSpec,
    pub(super) generation: u64,
    pub(super) status: GroupStatus,
    pub(super) cells: Vec<Cell>,
    pub(super) gateways: Vec<Gateway>,
    pub(super) behaviours: BTreeMap<Digest, Behaviour>,
    pub(super) policy: RolloutPolicy,
    pub(super) rng: Rng,
    release: ReleaseSpec,
    /// Actions of all plans, with the time.
    pub(super) history: Vec<(u64, PlanAction)>,
    /// Whether requests keep instances busy at random.
    pub(super) busy: bool,
    /// Whether draining instances never finish their requests.
    pub(super) endless: bool,
    /// What may be started in one plan.
    pub(super) budget: StartBudget,
    /// Instances that another planner's promises left no memory for.
    pub(super) overpromised: BTreeSet<InstanceId>,
}

/// A little generator (SplitMix64).
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::ring::hash(&self.0.to_le_bytes())
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

pub(super) fn release(n: u8) -> Digest {
    Digest::from_bytes([n; 32])
}

/// What all releases have in common here: ten seconds to start.
pub(super) fn release_spec() -> ReleaseSpec {
    ReleaseSpec {
        release: release(0),
        app: "shop".parse().unwrap(),
        source: release(0),
        artifact: release(0),
        artifact_bytes: 1,
        builder: "binary".into(),
        command: "./run".into(),
        env: BTreeMap::new(),
        health: HealthCheck { start_timeout: Millis::secs(10), ..HealthCheck::default() },
        protocol: Protocol::default(),
        grace: Millis::secs(1),
        by: String::new(),
        note: String::new(),
    }
}

impl World {
    pub(super) fn new(seed: u64, cells: u8, gateways: usize) -> Self {
        let spec = GroupSpec {
            app: "shop".parse().unwrap(),
            lane: LaneName::base(),
            region: String::new(),
            count: 2,
            release: release(1),
            env: BTreeMap::new(),
            limits: Limits { memory: Some(ByteSize::mib(100)), ..Limits::default() },
            health: None,
            restart: 0,
            stopped: false,
        };
        let cell = |n: u8| Cell {
            id: CellId::mint(1, [n + 1; 10]),
            zone: n % 3,
            up: true,
            reachable: true,
            cordoned: false,
            draining: false,
            memory: 4 << 30,
            instances: BTreeMap::new(),
            seq: 0,
            told: BTreeMap::new(),
            told_ms: 0,
            told_seq: 0,
        };
        let gateway = || Gateway { live: true, heard: BTreeMap::new(), endpoints: BTreeMap::new() };
        let mut world = Self {
            now_ms: 1_000_000,
            spec,
            generation: 1,
            status: GroupStatus::default(),
            cells: (0..cells).map(cell).collect(),
            gateways: (0..gateways).map(|_| gateway()).collect(),
            behaviours: BTreeMap::new(),
            policy: RolloutPolicy { prepare_ms: 5_000, ..RolloutPolicy::default() },
            rng: Rng(seed),
            release: release_spec(),
            history: Vec::new(),
            busy: false,
            endless: false,
            budget: StartBudget { all: 1_000, replaced: 1_000 },
            overpromised: BTreeSet::new(),
        };
        world.announce_all();
        world
    }

    pub(super) fn change(&mut self, change: impl FnOnce(&mut GroupSpec)) {
        let before = self.spec.clone();
        change(&mut self.spec);
        if self.spec != before {
            self.generation += 1;
        }
    }

    pub(super) fn target(&self) -> InstanceVersion {
        find_version(&self.spec, &BTreeMap::new()).0
    }

    fn promised(&self, cell: CellId) -> u64 {
        let here = |a: &&Assignment| a.cell == cell;
        self.status.assignments.iter().filter(here).map(|a| memory_of(&self.status, &a.version)).sum()
    }

    fn views(&self) -> Vec<CellView> {
        self.cells
            .iter()
            .map(|cell| CellView {
                cell: cell.id,
                place: Place { region: "r".into(), zone: cell.zone.to_string(), node: cell.id.to_string() },
                heard_ms: cell.told_ms,
                cordoned: cell.cordoned,
                draining: cell.draining,
                leaving: false,
                memory_bytes: cell.memory,
                overcommit: None,
                promised_bytes: self.promised(cell.id),
                ports: u32::MAX,
                promised_count: 0,
                starting: 0,
                load: 0.0,
            })
            .collect()
    }

    /// What a manager would know of the instances.
    pub(super) fn observed(&self) -> BTreeMap<InstanceId, Observed> {
        let mut found = BTreeMap::new();
        for cell in &self.cells {
            for (id, told) in &cell.told {
                let heard = self
                    .gateways
                    .iter()
                    .filter(|gateway| gateway.live)
                    .all(|gateway| gateway.heard.get(&cell.id).is_some_and(|heard| *heard >= told.seq));
                let in_flight = cell.instances.get(id).map_or(0, |now| now.in_flight);
                let observed = Observed {
                    cell: cell.id,
                    life: told.life,
                    state_ms: self.now_ms - told.since_ms,
                    restarts: told.restarts,
                    reason: "as played".into(),
                    heard,
                    in_flight,
                };
                found.insert(*id, observed);
            }
        }
        found
    }

    /// One plan, taken over.
    pub(super) fn plan(&mut self) -> GroupPlan {
        let (version, settings) = find_version(&self.spec, &BTreeMap::new());
        let entropy = u128::from(self.rng.next()) << 64 | u128::from(self.rng.next());
        let (observed, views) = (self.observed(), self.views());
        let cells = CellIndex::of(views, self.policy.overcommit, self.now_ms);
        let plan = plan_group(&GroupInput {
            now_ms: self.now_ms,
            listening_ms: self.now_ms - 900_000,
            spec: &self.spec,
            generation: Generation(self.generation),
            app_generation: Generation(1),
            target: version,
            settings: &settings,
            release: Some(&self.release),
            status: &self.status,
            observed: &observed,
            cells: &cells,
            mates: &BTreeMap::new(),
            overpromised: &self.overpromised,
            policy: &self.policy,
            budget: self.budget,
            entropy,
        });
        self.status = plan.status.clone();
        self.history.extend(plan.actions.iter().map(|action| (self.now_ms, action.clone())));
        plan
    }

    /// Whether a cell is away, or was so long that it counts as lost until it speaks again.
    pub(super) fn is_lost(&self, cell: &Cell) -> bool {
        !(cell.up && cell.reachable) || self.now_ms - cell.told_ms >= self.policy.lost_ms
    }

    fn announce_all(&mut self) {
        for index in 0..self.cells.len() {
            self.announce(index);
        }
    }

    /// A cell announces, if it can.
    fn announce(&mut self, index: usize) {
        let now = self.now_ms;
        let cell = &mut self.cells[index];
        if !(cell.up && cell.reachable) {
            return;
        }
        cell.seq += 1;
        for (id, running) in &mut cell.instances {
            if cell.told.get(id).is_none_or(|told| told.life != running.life) {
                running.seq = cell.seq;
            }
        }
        cell.told = cell.instances.clone();
        (cell.told_ms, cell.told_seq) = (now, cell.seq);
    }

    /// A gateway hears a cell's last announcement.
    fn hear(&mut self, gateway: usize, index: usize) {
        let cell = &self.cells[index];
        let gateway = &mut self.gateways[gateway];
        gateway.heard.insert(cell.id, cell.told_seq);
        gateway.endpoints.retain(|_, at| *at != cell.id);
        let serves = |running: &Running| matches!(running.life, Life::Ready | Life::Unhealthy);
        let endpoints = cell.told.iter().filter(|(_, r)| serves(r)).map(|(id, _)| (*id, cell.id));
        gateway.endpoints.extend(endpoints);
    }

    /// A cell takes over what the status says, and its instances live on. Returns what it stopped although a live gateway
    /// still sends to it: a lost request.
    fn live(&mut self, index: usize) -> Vec<InstanceId> {
        let now = self.now_ms;
        let cell = &mut self.cells[index];
        if !cell.up {
            return Vec::new();
        }
        let mut harmed = Vec::new();
        if cell.reachable {
            let mine: BTreeMap<InstanceId, &Assignment> = self
                .status
                .assignments
                .iter()
                .filter(|a| a.cell == cell.id)
                .map(|a| (a.instance, a))
                .collect();
            let gateways = &self.gateways;
            cell.instances.retain(|id, running| {
                if mine.contains_key(id) {
                    return true;
                }
                let served = matches!(running.life, Life::Ready | Life::Unhealthy | Life::Draining);
                let wanted = |g: &Gateway| g.live && g.endpoints.contains_key(id);
                if served && gateways.iter().any(wanted) {
                    harmed.push(*id);
                }
                false
            });
            for (id, assignment) in mine {
                let running = cell.instances.entry(id).or_insert_with(|| Running {
                    release: assignment.version.release,
                    life: Life::Starting,
                    since_ms: now,
                    restarts: 0,
                    wanted: Wanted::Run,
                    seq: 0,
                    in_flight: 0,
                });
                running.wanted = assignment.wanted;
            }
        }
        for running in cell.instances.values_mut() {
            let behaviour = self.behaviours.get(&running.release).copied().unwrap_or(GOOD);
            running.live(now, behaviour, self.busy, &mut self.rng);
            if self.endless && running.life == Life::Draining {
                running.in_flight = 1;
            }
        }
        harmed
    }

    /// One step of time: everything lives, speaks and hears, with delays; then there is a plan. Returns harmed instances.
    pub(super) fn step(&mut self) -> Vec<InstanceId> {
        self.now_ms += 100;
        let mut harmed = Vec::new();
        for index in 0..self.cells.len() {
            if self.rng.chance(80) {
                harmed.extend(self.live(index));
            }
            if self.rng.chance(80) {
                self.announce(index);
            }
            for gateway in 0..self.gateways.len() {
                if self.gateways[gateway].live && self.rng.chance(60) {
                    self.hear(gateway, index);
                }
            }
        }
        harmed
    }

    /// Ready instances of a version that every live gateway sends to.
    pub(super) fn serving(&self, version: Option<InstanceVersion>) -> usize {
        let assigned = self.status.assignments.iter().filter(|a| a.wanted == Wanted::Run);
        let of_version = assigned.filter(|a| version.is_none_or(|version| a.version == version));
        of_version
            .filter(|a| {
                let cell = self.cells.iter().find(|cell| cell.id == a.cell && cell.up);
                cell.and_then(|cell| cell.instances.get(&a.instance)).is_some_and(|r| r.life == Life::Ready)
            })
            .filter(|a| {
                self.gateways.iter().filter(|g| g.live).all(|g| g.endpoints.contains_key(&a.instance))
            })
            .count()
    }

    /// Steps and plans until `done`, at most so long. Returns whether it was, checking that nobody is harmed.
    pub(super) fn run_until(&mut self, most_ms: u64, mut done: impl FnMut(&World) -> bool) -> bool {
        let end = self.now_ms + most_ms;
        while self.now_ms < end {
            let harmed = self.step();
            assert!(harmed.is_empty(), "stopped while gateways send to it: {harmed:?}");
            self.plan();
            if done(self) {
                return true;
            }
        }
        false
    }
}

impl Running {
    fn enter(&mut self, life: Life, now: u64) {
        if self.life != life {
            self.life = life;
            self.since_ms = now;
        }
    }

    fn live(&mut self, now: u64, behaviour: Behaviour, busy: bool, rng: &mut Rng) {
        let age = now - self.since_ms;
        if self.wanted == Wanted::Drain && self.life != Life::Draining {
            self.in_flight = if busy && self.life == Life::Ready { rng.below(4) } else { 0 };
            return self.enter(Life::Draining, now);
        }
        match self.life {
            Life::Starting if behaviour.exits_ms.is_some_and(|after| age >= after) => {
                self.restarts += 1;
                self.enter(if self.restarts >= 5 { Life::CrashLoop } else { Life::Backoff }, now);
            }
            Life::Starting if behaviour.ready_ms.is_some_and(|after| age >= after) => {
                self.enter(Life::Ready, now);
            }
            Life::Backoff if age >= 500 => self.enter(Life::Starting, now),
            Life::CrashLoop if age >= 30_000 => self.enter(Life::Starting, now),
            Life::Draining if self.in_flight > 0 && rng.chance(30) => self.in_flight -= 1,
            _ => {}
        }
    }

    /// It ends by itself.
    pub(super) fn crash(&mut self, now: u64) {
        if matches!(self.life, Life::Ready | Life::Starting | Life::Unhealthy) {
            self.restarts += 1;
            self.enter(Life::Backoff, now);
        }
    }
}
