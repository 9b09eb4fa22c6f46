//! One plan, from input to output.

use super::input::{GroupInput, GroupPlan, PlanAction};
use super::standing::{Standing, find_standing, is_draining};
use std::collections::HashSet;
use towpath_types::spec::{Assignment, GroupStatus, InstanceVersion, Replacements, Wanted};
use towpath_types::{CellId, InstanceId};

/// Longest time until the next look while something is under way, milliseconds.
const BUSY_MS: u64 = 1_000;
/// Longest time until the next look at a steady group, milliseconds.
const QUIET_MS: u64 = 60_000;

/// Plans the next steps for a group.
pub fn plan_group(input: &GroupInput<'_>) -> GroupPlan {
    let mut work = Work::new(input);
    work.take_target();
    work.finish_drains();
    work.set_lost_aside();
    work.judge_target();
    work.take_back_overpromised();
    let aim = work.find_aim();
    work.retire(&aim);
    work.grow(&aim);
    work.keep_unreplaced(&aim);
    work.conclude(&aim);
    GroupPlan { status: work.status, actions: work.actions, wake_ms: work.wake_ms }
}

/// What the instances should be now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Aim {
    /// Version; `None` = no instances, because the only version there ever was has failed.
    pub(super) version: Option<InstanceVersion>,
    /// Count.
    pub(super) count: u32,
}

/// Free numbers in a group, lowest first, as long as no instance leaves it.
pub(super) struct Numbers {
    /// Whether they are for those that replace instances on lost cells.
    replaces_lost: bool,
    taken: HashSet<u32>,
    next: u32,
}

impl Numbers {
    fn take(&mut self) -> u32 {
        while self.taken.contains(&self.next) {
            self.next += 1;
        }
        self.next += 1;
        self.next - 1
    }
}

/// A plan in the making.
pub(super) struct Work<'a> {
    pub(super) input: &'a GroupInput<'a>,
    pub(super) status: GroupStatus,
    pub(super) actions: Vec<PlanAction>,
    pub(super) wake_ms: u64,
    /// Instances on lost cells, until it is known whether others take their places.
    pub(super) lost: Vec<Assignment>,
    /// Why an instance found no place.
    pub(super) no_room: Option<String>,
    minted: u64,
}

impl<'a> Work<'a> {
    fn new(input: &'a GroupInput<'a>) -> Self {
        let mut status = input.status.clone();
        // A clock that went back must not make anything wait for ever.
        for assignment in &mut status.assignments {
            assignment.since_ms = assignment.since_ms.min(input.now_ms);
            assignment.drain_ms = assignment.drain_ms.map(|at| at.min(input.now_ms));
        }
        status.rollout_ms = status.rollout_ms.map(|at| at.min(input.now_ms));
        status.replaced.last_ms = status.replaced.last_ms.min(input.now_ms);
        Self {
            input,
            status,
            actions: Vec::new(),
            wake_ms: QUIET_MS,
            lost: Vec::new(),
            no_room: None,
            minted: 0,
        }
    }

    /// Rule 1: takes up what the spec asks for.
    fn take_target(&mut self) {
        let (input, status) = (self.input, &mut self.status);
        status.observed = input.generation;
        status.observed_app = input.app_generation;
        status.settings.insert(input.target.settings, input.settings.clone());
        if let Some(release) = input.release {
            status.releases.insert(input.target.release, release.clone());
        }
        if status.target == Some(input.target) {
            return;
        }
        status.target = Some(input.target);
        status.rollout_ms = Some(input.now_ms);
        status.replaced = Replacements::default();
        if status.failed != Some(input.target) {
            status.failed = None;
            status.casualties.clear();
            status.code = None;
            status.message.clear();
        }
    }

    /// What the instances should be, after the target was judged.
    fn find_aim(&self) -> Aim {
        let version = if self.status.failed == Some(self.input.target) {
            self.status.good
        } else {
            Some(self.input.target)
        };
        let spec = self.input.spec;
        let count = if spec.stopped || version.is_none() { 0 } else { spec.count };
        Aim { version, count }
    }

    /// Looks again in so many milliseconds at the latest.
    pub(super) fn wake_in(&mut self, ms: u64) {
        self.wake_ms = self.wake_ms.min(ms.max(10));
    }

    /// Something is under way.
    pub(super) fn wake_soon(&mut self) {
        self.wake_in(BUSY_MS);
    }

    /// How an assignment stands.
    pub(super) fn standing(&self, assignment: &Assignment) -> Standing {
        find_standing(self.input, assignment)
    }

    /// Running assignments with their standing.
    pub(super) fn running(&self) -> Vec<(Assignment, Standing)> {
        self.status
            .assignments
            .iter()
            .filter(|assignment| assignment.wanted == Wanted::Run)
            .map(|assignment| (assignment.clone(), self.standing(assignment)))
            .collect()
    }

    /// Whether an instance is of the right version, and where it may stay.
    pub(super) fn is_in_place(&self, assignment: &Assignment, version: Option<InstanceVersion>) -> bool {
        Some(assignment.version) == version && !is_draining(self.input, assignment.cell)
    }

    /// Takes an instance away: drained if it may have requests, else out of the set at once.
    pub(super) fn let_go(&mut self, instance: InstanceId, standing: Standing, why: &str) {
        if standing.is_off() {
            self.remove(instance, why);
        } else {
            self.drain(instance, why);
        }
    }

    /// Takes an instance out of the gateways.
    fn drain(&mut self, instance: InstanceId, why: &str) {
        let now = self.input.now_ms;
        if let Some(assignment) = self.status.assignments.iter_mut().find(|a| a.instance == instance) {
            assignment.wanted = Wanted::Drain;
            assignment.drain_ms = Some(now);
            self.actions.push(PlanAction::Drain { instance, why: why.to_owned() });
        }
    }

    /// Takes an instance out of the set.
    pub(super) fn remove(&mut self, instance: InstanceId, why: &str) {
        let before = self.status.assignments.len();
        self.status.assignments.retain(|assignment| assignment.instance != instance);
        if self.status.assignments.len() < before {
            self.actions.push(PlanAction::Remove { instance, why: why.to_owned() });
        }
    }

    /// Numbers that are free for new instances.
    pub(super) fn numbers(&self, replaces_lost: bool) -> Numbers {
        // The number of one on a lost cell is taken by what replaces it, and by nothing else.
        let kept = self.lost.iter().filter(|_| !replaces_lost);
        let taken = self.status.assignments.iter().chain(kept).map(|a| a.ordinal).collect();
        Numbers { replaces_lost, taken, next: 0 }
    }

    /// Adds an instance.
    pub(super) fn assign(
        &mut self,
        cell: CellId,
        version: InstanceVersion,
        numbers: &mut Numbers,
        why: &str,
    ) {
        let (ordinal, replaces_lost) = (numbers.take(), numbers.replaces_lost);
        let instance = InstanceId::mint(self.input.now_ms, self.mint());
        self.status.assignments.push(Assignment {
            instance,
            cell,
            ordinal,
            version,
            wanted: Wanted::Run,
            since_ms: self.input.now_ms,
            drain_ms: None,
        });
        self.actions.push(PlanAction::Assign { instance, cell, replaces_lost, why: why.to_owned() });
    }

    /// Ten bytes that no other call gives, from the input's entropy.
    fn mint(&mut self) -> [u8; 10] {
        self.minted += 1;
        let entropy = self.input.entropy.to_le_bytes();
        let salted: Vec<u8> = entropy.iter().copied().chain(self.minted.to_le_bytes()).collect();
        let (a, b) = (crate::ring::hash(&salted), crate::ring::hash(entropy.as_slice()) ^ self.minted);
        let mut bytes = [0; 10];
        for (to, from) in bytes.iter_mut().zip(a.to_le_bytes().into_iter().chain(b.to_le_bytes())) {
            *to = from;
        }
        bytes
    }
}
