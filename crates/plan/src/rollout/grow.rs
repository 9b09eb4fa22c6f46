//! Rule 6: missing instances are added, broken ones of the right version replaced, at a bounded rate.

use super::plan::{Aim, Work};
use super::standing::Standing;
use super::version::memory_of;
use crate::placement::{NoPlace, Placer};
use towpath_types::spec::{Assignment, InstanceVersion, Replacements, Wanted};
use towpath_types::{ByteSize, CellId};

/// Instances that come while others go may use this much more than the memory limit: for a moment both are there.
const SURGE_STRETCH: f64 = 1.25;

impl Work<'_> {
    /// Adds what is missing.
    pub(super) fn grow(&mut self, aim: &Aim) {
        let Some(version) = aim.version else { return };
        if aim.count == 0 || self.input.release.is_none() {
            return;
        }
        let running = self.running();
        let own = running.iter().filter(|(assignment, _)| assignment.version == version).count();
        let most = aim.count.saturating_add(self.input.policy.surge_of(aim.count)) as usize;
        let room = most.saturating_sub(running.len());
        let missing = (aim.count as usize).saturating_sub(own);
        let mut placer = self.placer(version, running.len() > own);
        let mut budget = self.input.budget as usize;
        let wanted = missing.min(room);
        for _ in 0..wanted.min(budget) {
            if !self.place_one(&mut placer, version, &[], "an instance is missing") {
                return;
            }
        }
        budget = budget.saturating_sub(wanted);
        if wanted > 0 && budget == 0 {
            self.wake_soon();
        }
        if missing == 0 && self.status.good == Some(version) {
            self.replace_broken(&mut placer, version, room, budget);
        }
    }

    /// Replaces one instance that does not come back by itself, when it is time to.
    fn replace_broken(&mut self, placer: &mut Placer, version: InstanceVersion, room: usize, budget: usize) {
        let beside = |cell| placer.has_open_beside(cell);
        let found = self.running().into_iter().filter(|(a, _)| a.version == version).find(|(a, standing)| {
            match standing {
                // Its own cell goes on trying; only another one can do better.
                Standing::Broken => beside(a.cell) || self.is_unpreparable(a),
                Standing::Weak { tired } => *tired && room > 0,
                _ => false,
            }
        });
        let Some((assignment, standing)) = found else { return };
        let wait = self.find_replace_wait();
        if wait > 0 || budget == 0 {
            return self.wake_in(wait.max(100));
        }
        // Replace first, so that a want of room leaves things as they are.
        let why = if standing == Standing::Broken { "one is broken" } else { "one stays unhealthy" };
        if !self.place_one(placer, version, &[assignment.cell], why) {
            return;
        }
        if standing == Standing::Broken {
            self.remove(assignment.instance, "replaced: it does not come back by itself");
        }
        let count = self.status.replaced.count.saturating_add(1);
        self.status.replaced = Replacements { count, last_ms: self.input.now_ms };
        self.wake_soon();
    }

    /// Whether it could not even be prepared.
    fn is_unpreparable(&self, assignment: &Assignment) -> bool {
        super::standing::report_of(self.input, assignment)
            .is_some_and(|observed| observed.life == super::Life::Failed)
    }

    /// Milliseconds until the next replacement may be.
    fn find_replace_wait(&mut self) -> u64 {
        let policy = self.input.policy;
        let replaced = self.status.replaced;
        let since = self.input.now_ms.saturating_sub(replaced.last_ms);
        if replaced.count == 0 || since >= policy.replace_reset_ms {
            self.status.replaced.count = 0;
            return 0;
        }
        let pause = policy.replace_ms.saturating_mul(1 << (replaced.count - 1).min(16));
        pause.min(policy.replace_max_ms).saturating_sub(since)
    }

    fn placer(&self, version: InstanceVersion, surging: bool) -> Placer {
        let stretch = if surging { SURGE_STRETCH } else { 1.0 };
        let overcommit = self.input.policy.overcommit * stretch;
        let mut placer = Placer::new(self.input.cells, &self.input.spec.region, overcommit);
        // Others will go, so they do not count for the spread.
        let stay = |a: &&Assignment| a.version == version && a.wanted == Wanted::Run;
        for assignment in self.status.assignments.iter().filter(stay) {
            placer.note(assignment.cell);
        }
        // What this plan has removed is not running any more when the new one starts.
        for before in &self.input.status.assignments {
            if !self.status.assignments.iter().any(|a| a.instance == before.instance) {
                placer.release(before.cell, memory_of(self.input.status, &before.version));
            }
        }
        placer
    }

    /// Adds one; `false` = there is no room.
    fn place_one(
        &mut self,
        placer: &mut Placer,
        version: InstanceVersion,
        avoid: &[CellId],
        why: &str,
    ) -> bool {
        let bytes = memory_of(&self.status, &version);
        match placer.place(bytes, avoid) {
            Ok(cell) => {
                self.assign(cell, version, why);
                true
            }
            Err(none) => {
                self.no_room = Some(explain(&none, bytes, &self.input.spec.region));
                false
            }
        }
    }
}

/// For people: why there is no room, and what would help.
fn explain(none: &NoPlace, bytes: u64, region: &str) -> String {
    let size = |bytes: u64| ByteSize(bytes >> 20 << 20);
    match none {
        NoPlace::NoCell if region.is_empty() => "no cell has reported yet".to_owned(),
        NoPlace::NoCell => format!("no cell of region {region:?} has reported yet"),
        NoPlace::AllClosed => "every cell is cordoned, leaving or silent".to_owned(),
        NoPlace::NoMemory { most_bytes } => format!(
            "no cell has {} of memory left for an instance (the most is {}); lower the limit, or add a cell",
            size(bytes),
            size(*most_bytes)
        ),
    }
}
