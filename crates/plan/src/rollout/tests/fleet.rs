//! Many groups on many cells, placed by one manager: the loss of a zone, and its return.

use super::world::{release, release_spec};
use crate::placement::starts::StartLedger;
use crate::placement::{CellIndex, CellView};
use crate::rollout::{
    GroupInput, Life, Observed, PlanAction, RolloutPolicy, find_version, memory_of, plan_group,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use towpath_types::spec::{GroupSpec, GroupStatus, Limits, RolloutPhase, Wanted};
use towpath_types::{ByteSize, CellId, Generation, InstanceId, LaneName, Place};

const STEP_MS: u64 = 200;
/// From the moment at which a cell is told of an instance until that is ready.
const READY_MS: u64 = 2_000;
const MIB: u64 = 1 << 20;

struct Group {
    spec: GroupSpec,
    generation: u64,
    status: GroupStatus,
    due_ms: u64,
}

struct Fleet {
    now_ms: u64,
    begun_ms: u64,
    views: Vec<CellView>,
    /// The same, brought up to date by what changes.
    cells: CellIndex,
    up: Vec<bool>,
    told_ms: Vec<u64>,
    /// Per cell: what runs there, and since when.
    running: Vec<BTreeMap<InstanceId, u64>>,
    index: HashMap<CellId, usize>,
    groups: Vec<Group>,
    ledger: StartLedger,
    policy: RolloutPolicy,
    entropy: u128,
    /// Starts in the place of lost ones.
    replaced: u32,
    /// Most that one cell was starting at once.
    most_starting: usize,
}

impl Fleet {
    fn new(cells: u16, groups: usize, count: u32) -> Self {
        let now_ms = 1_000_000;
        let policy = RolloutPolicy { starts_per_cell: 4, overcommit: 1.0, ..RolloutPolicy::default() };
        let view = |n: u16| {
            let mut random = [0; 10];
            random[..2].copy_from_slice(&n.to_be_bytes());
            CellView {
                cell: CellId::mint(1, random),
                place: Place { region: "r".into(), zone: (n % 3).to_string(), node: n.to_string() },
                heard_ms: now_ms,
                cordoned: false,
                draining: false,
                leaving: false,
                memory_bytes: 1_200 * MIB,
                overcommit: None,
                promised_bytes: 0,
                ports: u32::MAX,
                promised_count: 0,
                starting: 0,
                load: 0.0,
            }
        };
        let group = |_| Group {
            spec: GroupSpec {
                app: "shop".parse().unwrap(),
                lane: LaneName::base(),
                region: String::new(),
                count,
                release: release(1),
                env: BTreeMap::new(),
                limits: Limits { memory: Some(ByteSize(100 * MIB)), ..Limits::default() },
                health: None,
                restart: 0,
                stopped: false,
            },
            generation: 1,
            status: GroupStatus::default(),
            due_ms: 0,
        };
        let views: Vec<CellView> = (0..cells).map(view).collect();
        Self {
            now_ms,
            begun_ms: now_ms,
            up: vec![true; views.len()],
            told_ms: vec![now_ms; views.len()],
            running: vec![BTreeMap::new(); views.len()],
            index: views.iter().enumerate().map(|(index, view)| (view.cell, index)).collect(),
            cells: CellIndex::of(views.iter().cloned(), policy.overcommit, now_ms),
            views,
            groups: (0..groups).map(group).collect(),
            ledger: StartLedger::new(&policy.start_limits(), now_ms),
            policy,
            entropy: 1,
            replaced: 0,
            most_starting: 0,
        }
    }

    /// Cells do what they are told; then every group that is due is planned.
    fn step(&mut self) {
        self.now_ms += STEP_MS;
        let mut told: Vec<BTreeSet<InstanceId>> = vec![BTreeSet::new(); self.views.len()];
        for group in &self.groups {
            for assignment in &group.status.assignments {
                told[self.index[&assignment.cell]].insert(assignment.instance);
            }
        }
        for (index, told) in told.into_iter().enumerate().filter(|(index, _)| self.up[*index]) {
            let (now, running) = (self.now_ms, &mut self.running[index]);
            running.retain(|instance, _| told.contains(instance));
            for instance in told {
                running.entry(instance).or_insert(now);
            }
            for (instance, _) in running.iter().filter(|(_, since)| now - **since >= READY_MS) {
                self.ledger.end(self.views[index].cell, *instance);
            }
            let starting = running.values().filter(|since| now - **since < READY_MS).count();
            self.most_starting = self.most_starting.max(starting);
            self.told_ms[index] = now;
        }
        for (view, told) in self.views.iter_mut().zip(&self.told_ms) {
            view.heard_ms = *told;
            view.starting = self.ledger.starting(view.cell, self.now_ms);
            self.cells.set(view.clone());
        }
        self.cells.set_time(self.now_ms);
        for index in 0..self.groups.len() {
            if self.groups[index].due_ms <= self.now_ms {
                self.plan(index);
            }
        }
    }

    fn plan(&mut self, index: usize) {
        let group = &self.groups[index];
        let (target, settings) = find_version(&group.spec, &BTreeMap::new());
        let observed: BTreeMap<InstanceId, Observed> = group
            .status
            .assignments
            .iter()
            .filter_map(|a| {
                let since = *self.running[self.index[&a.cell]].get(&a.instance)?;
                let ready = self.now_ms - since >= READY_MS;
                let life = match (a.wanted, ready) {
                    (Wanted::Drain, _) => Life::Draining,
                    (Wanted::Run, true) => Life::Ready,
                    (Wanted::Run, false) => Life::Starting,
                };
                let observed = Observed {
                    cell: a.cell,
                    life,
                    state_ms: self.now_ms - since,
                    restarts: 0,
                    reason: String::new(),
                    heard: true,
                    in_flight: 0,
                };
                Some((a.instance, observed))
            })
            .collect();
        self.entropy += 1;
        let plan = plan_group(&GroupInput {
            now_ms: self.now_ms,
            listening_ms: self.now_ms - self.begun_ms,
            spec: &group.spec,
            generation: Generation(group.generation),
            app_generation: Generation(1),
            target,
            settings: &settings,
            release: Some(&release_spec()),
            status: &group.status,
            observed: &observed,
            cells: &self.cells,
            mates: &BTreeMap::new(),
            overpromised: &BTreeSet::new(),
            policy: &self.policy,
            budget: self.ledger.budget(self.now_ms),
            entropy: self.entropy,
        });
        for action in &plan.actions {
            if let PlanAction::Assign { instance, cell, replaces_lost, .. } = action {
                self.ledger.begin(*cell, *instance, *replaces_lost, self.now_ms);
                self.replaced += u32::from(*replaces_lost);
                self.views[self.index[cell]].starting += 1;
            }
        }
        for (status, sign) in [(&self.groups[index].status, false), (&plan.status, true)] {
            for assignment in &status.assignments {
                let view = &mut self.views[self.index[&assignment.cell]];
                let bytes = memory_of(status, &assignment.version);
                view.promised_bytes =
                    if sign { view.promised_bytes + bytes } else { view.promised_bytes - bytes };
            }
        }
        for view in &self.views {
            self.cells.set(view.clone());
            assert!(view.promised_bytes <= view.memory_bytes, "over the memory limit");
            assert!(view.starting <= self.policy.starts_per_cell, "too many starts at once");
        }
        let group = &mut self.groups[index];
        group.status = plan.status;
        group.due_ms = self.now_ms + plan.wake_ms;
    }

    /// Has all groups looked at, as the news of a lost cell would.
    fn activate_all(&mut self) {
        for group in &mut self.groups {
            group.due_ms = 0;
        }
    }

    fn run_until(&mut self, most_ms: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now_ms + most_ms;
        while self.now_ms < end {
            self.step();
            if done(self) {
                return true;
            }
        }
        false
    }

    fn settled(&self) -> bool {
        self.groups.iter().all(|group| group.status.phase == RolloutPhase::Steady)
    }

    fn set_zone(&mut self, zone: &str, up: bool) {
        for (index, view) in self.views.iter().enumerate() {
            if view.place.zone == zone {
                self.up[index] = up;
            }
        }
    }

    /// Instances of a group per zone.
    fn zones(&self, group: &Group) -> BTreeMap<String, usize> {
        let mut zones = BTreeMap::new();
        for assignment in &group.status.assignments {
            *zones.entry(self.views[self.index[&assignment.cell]].place.zone.clone()).or_default() += 1;
        }
        zones
    }
}

#[test]
fn the_loss_of_a_third_of_300_cells_is_made_good_at_a_bounded_rate_while_others_are_served_at_once() {
    let mut fleet = Fleet::new(300, 200, 6);
    assert!(fleet.run_until(120_000, |fleet| fleet.settled()));
    for group in &fleet.groups {
        assert_eq!(fleet.zones(group).into_values().collect::<Vec<_>>(), [2, 2, 2]);
    }
    assert_eq!(fleet.replaced, 0);

    fleet.set_zone("0", false);
    let lost = fleet.policy.lost_ms;
    let early = fleet.run_until(lost - STEP_MS, |fleet| fleet.replaced > 0);
    assert!(!early, "not before the time");
    fleet.activate_all();
    let (begun, mut scaled) = (fleet.now_ms, None);
    let rate = fleet.policy.replaced_per_second;
    let done = fleet.run_until(120_000, |fleet| {
        let passed = (fleet.now_ms - begun) as f64 / 1_000.0;
        let most = (rate * 4.0 + rate * passed).ceil() as u32 + 1;
        assert!(fleet.replaced <= most, "{} replaced after {passed} s", fleet.replaced);
        if passed > 1.0 && scaled.is_none() {
            // In the middle of it somebody asks for more.
            let group = fleet.groups.last_mut().unwrap();
            (group.spec.count, group.generation, group.due_ms) = (12, 2, 0);
            scaled = Some(fleet.now_ms);
        }
        if scaled.is_some_and(|at| fleet.now_ms == at + 2_000) {
            let group = fleet.groups.last().unwrap();
            let elsewhere = group.status.assignments.iter().filter(|a| fleet.up[fleet.index[&a.cell]]);
            assert!(elsewhere.count() >= 4 + 6, "what people ask for does not wait behind the storm");
        }
        fleet.settled() && scaled.is_some()
    });
    assert!(done, "all is made good");
    assert!(fleet.replaced >= 400, "{}", fleet.replaced);
    let took = fleet.now_ms - begun;
    assert!(took >= 3_000, "a storm: {took} ms");
    assert!(fleet.most_starting <= fleet.policy.starts_per_cell as usize, "{}", fleet.most_starting);
    for group in &fleet.groups {
        let zones = fleet.zones(group);
        let half = group.spec.count as usize / 2;
        assert_eq!((zones.get("0"), zones["1"], zones["2"]), (None, half, half));
    }

    // The zone returns: what still runs there is stopped, nothing moves back, nothing is there twice.
    let leftovers: usize =
        fleet.running.iter().enumerate().filter(|(n, _)| !fleet.up[*n]).map(|(_, r)| r.len()).sum();
    assert_eq!(leftovers, 400);
    let (before, replaced) =
        (fleet.groups.iter().map(|g| g.status.assignments.clone()).collect::<Vec<_>>(), fleet.replaced);
    fleet.set_zone("0", true);
    fleet.activate_all();
    fleet.run_until(10_000, |_| false);
    let running: Vec<InstanceId> = fleet.running.iter().flat_map(|cell| cell.keys().copied()).collect();
    assert_eq!(running.len(), 200 * 6 + 6);
    assert_eq!(running.iter().collect::<BTreeSet<_>>().len(), running.len(), "no instance on two cells");
    assert!(fleet.settled() && fleet.replaced == replaced);
    assert!(fleet.groups.iter().map(|g| &g.status.assignments).eq(&before), "nothing is moved");
}

#[test]
fn a_zone_that_is_back_before_all_is_replaced_keeps_what_was_not() {
    let mut fleet = Fleet::new(30, 30, 6);
    fleet.policy.replaced_per_second = 1.0;
    fleet.ledger = StartLedger::new(&fleet.policy.start_limits(), fleet.now_ms);
    assert!(fleet.run_until(120_000, |fleet| fleet.settled()));
    fleet.set_zone("1", false);
    fleet.run_until(fleet.policy.lost_ms, |_| false);
    fleet.activate_all();
    fleet.run_until(10_000, |_| false);
    let replaced = fleet.replaced;
    assert!((10..=16).contains(&replaced), "{replaced}");
    fleet.set_zone("1", true);
    fleet.activate_all();
    assert!(fleet.run_until(10_000, |fleet| fleet.settled()));
    assert_eq!(fleet.replaced, replaced, "what runs is not started again elsewhere");
    assert!(fleet.groups.iter().all(|group| group.status.assignments.len() == 6));
    fleet.step();
    assert_eq!(fleet.running.iter().map(BTreeMap::len).sum::<usize>(), 180);
}
