//! Rule 6: missing instances are added, broken ones of the right version replaced, at a bounded rate.

use super::plan::{Aim, Numbers, Work};
use super::standing::Standing;
use super::version::memory_of;
use crate::placement::{NoPlace, Placer, PlacingRules};
use std::collections::HashSet;
use towpath_types::spec::{Assignment, InstanceVersion, Replacements, Wanted};
use towpath_types::{ByteSize, CellId, InstanceId};

impl<'a> Work<'a> {
    /// Adds what is missing.
    pub(super) fn grow(&mut self, aim: &Aim) {
        let Some(version) = aim.version else { return };
        if aim.count == 0 || self.input.release.is_none() {
            return;
        }
        let running = self.running();
        let in_place = |assignment: &Assignment| self.is_in_place(assignment, aim.version);
        let own = running.iter().filter(|(assignment, _)| in_place(assignment)).count();
        let most = aim.count.saturating_add(self.input.policy.surge_of(aim.count)) as usize;
        let room = most.saturating_sub(running.len());
        let missing = (aim.count as usize).saturating_sub(own);
        let wanted = missing.min(room);
        if wanted > 0 {
            self.add(version, wanted, running.len() > own);
        } else if missing == 0 && self.status.good == Some(version) {
            self.replace_broken(version, room);
        }
    }

    /// Adds so many, as far as they may be started now.
    fn add(&mut self, version: InstanceVersion, wanted: usize, moving: bool) {
        let mut placer = self.placer(version);
        let in_place_of_lost = wanted.min(self.lost.len());
        let others = wanted - in_place_of_lost;
        let why = if moving { "another one is to go" } else { "an instance is missing" };
        let all = self.input.budget.all as usize;
        let now = others.min(all);
        let replacing = in_place_of_lost.min(all - now).min(self.input.budget.replaced as usize);
        if now + replacing < wanted {
            self.wake_soon();
        }
        for (replaces_lost, count, why) in
            [(false, now, why), (true, replacing, "another one's cell is lost")]
        {
            let mut numbers = self.numbers(replaces_lost);
            for _ in 0..count {
                if !self.place_one(&mut placer, version, &[], &mut numbers, why) {
                    return;
                }
            }
        }
    }

    /// Replaces one instance that does not come back by itself, when it is time to.
    fn replace_broken(&mut self, version: InstanceVersion, room: usize) {
        let is_ill =
            |standing: &Standing| matches!(standing, Standing::Broken | Standing::Weak { tired: true });
        let in_place = |assignment: &Assignment| self.is_in_place(assignment, Some(version));
        let running: Vec<_> =
            self.running().into_iter().filter(|(a, standing)| is_ill(standing) && in_place(a)).collect();
        if running.is_empty() {
            return;
        }
        let mut placer = self.placer(version);
        let beside = |cell| placer.has_open_beside(cell);
        let found = running.into_iter().find(|(a, standing)| {
            match standing {
                // Its own cell goes on trying; only another one can do better.
                Standing::Broken => beside(a.cell) || self.is_unpreparable(a),
                Standing::Weak { tired } => *tired && room > 0,
                _ => false,
            }
        });
        let Some((assignment, standing)) = found else { return };
        let wait = self.find_replace_wait();
        if wait > 0 || self.input.budget.all == 0 {
            return self.wake_in(wait.max(100));
        }
        // Replace first, so that a want of room leaves things as they are.
        let why = if standing == Standing::Broken { "one is broken" } else { "one stays unhealthy" };
        let mut numbers = self.numbers(false);
        if !self.place_one(&mut placer, version, &[assignment.cell], &mut numbers, why) {
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

    fn placer(&self, version: InstanceVersion) -> Placer<'a> {
        let input = self.input;
        let mut placer = Placer::new(
            input.cells,
            PlacingRules {
                region: &input.spec.region,
                starts_per_cell: input.policy.starts_per_cell,
                mates: input.mates,
            },
        );
        // Others will go, so they do not count for the spread.
        for assignment in &self.status.assignments {
            if assignment.wanted == Wanted::Run && self.is_in_place(assignment, Some(version)) {
                placer.note(assignment.cell);
            } else {
                placer.note_going(assignment.cell, memory_of(&self.status, &assignment.version));
            }
        }
        // What this plan has removed is not running any more when the new one starts.
        let left: HashSet<InstanceId> = self.status.assignments.iter().map(|a| a.instance).collect();
        for before in &self.input.status.assignments {
            if !left.contains(&before.instance) {
                placer.release(before.cell, memory_of(self.input.status, &before.version));
            }
        }
        placer
    }

    /// Adds one; `false` = there is no room.
    fn place_one(
        &mut self,
        placer: &mut Placer<'_>,
        version: InstanceVersion,
        avoid: &[CellId],
        numbers: &mut Numbers,
        why: &str,
    ) -> bool {
        let bytes = memory_of(&self.status, &version);
        match placer.place(bytes, avoid) {
            Ok(cell) => {
                self.assign(cell, version, numbers, why);
                true
            }
            Err(NoPlace::Busy) => {
                self.wake_soon();
                false
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
        NoPlace::AllClosed => "every cell is cordoned, draining, leaving or silent".to_owned(),
        NoPlace::Busy => "the cells are starting other instances".to_owned(),
        NoPlace::NoPort => {
            "no cell with memory for an instance has a port left for it; give cells more `ports`, or add a cell".to_owned()
        }
        NoPlace::NoMemory { most_bytes } => format!(
            "no cell has {} of memory left for an instance (the most is {}); lower the limit, or add a cell",
            size(bytes),
            size(*most_bytes)
        ),
    }
}
