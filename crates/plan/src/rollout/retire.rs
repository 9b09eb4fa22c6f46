//! Rule 5: instances that are wrong or too many are let go, never so many that fewer than the count take requests.

use super::plan::{Aim, Work};
use super::standing::Standing;
use towpath_types::spec::Assignment;

type Stands = (Assignment, Standing);

impl Work<'_> {
    /// Lets go of what should not run.
    pub(super) fn retire(&mut self, aim: &Aim) {
        let running = self.running();
        if aim.count == 0 {
            for (assignment, standing) in running {
                self.let_go(assignment.instance, standing, "no instance is wanted");
            }
            return;
        }
        if self.input.release.is_none() {
            // The release is not there: nothing could take the place of what runs.
            return;
        }
        let (own, old): (Vec<Stands>, Vec<Stands>) =
            running.into_iter().partition(|(assignment, _)| Some(assignment.version) == aim.version);
        let mut spare = Spare::new(aim.count, own.iter().chain(&old));
        self.retire_old(&own, old, &mut spare);
        self.retire_excess(aim, own, &mut spare);
    }

    /// Instances of other versions.
    fn retire_old(&mut self, own: &[Stands], mut old: Vec<Stands>, spare: &mut Spare) {
        let proven = own.iter().any(|(_, standing)| *standing == Standing::Serving);
        // The weakest go first; of equals those on the fullest cells, then the newest.
        old.sort_by_key(|(assignment, standing)| (rank(*standing), std::cmp::Reverse(assignment.ordinal)));
        for (assignment, standing) in old {
            let of_good = self.status.good == Some(assignment.version);
            let go = match standing {
                Standing::Broken | Standing::Lost => true,
                // A version that was never good is not worth waiting for; a good one may come back until the new one is proven.
                Standing::Coming { .. } | Standing::Down | Standing::Leaving => !of_good || proven,
                Standing::Fresh => false,
                Standing::Weak { .. } => spare.take_weak(),
                Standing::Serving => spare.take_serving(),
            };
            if go {
                self.let_go(assignment.instance, standing, "another version takes its place");
            }
        }
    }

    /// Instances of the right version above the count.
    fn retire_excess(&mut self, aim: &Aim, mut own: Vec<Stands>, spare: &mut Spare) {
        let mut excess = own.len().saturating_sub(aim.count as usize);
        // A tired one has, or gets, a replacement, which must not be taken for the one too many.
        let is_tired = |standing: Standing| standing == Standing::Weak { tired: true };
        let mut untired = own.iter().filter(|(_, standing)| !is_tired(*standing)).count();
        let crowd = |cell| own.iter().filter(|(assignment, _)| assignment.cell == cell).count();
        let crowds: Vec<usize> = own.iter().map(|(assignment, _)| crowd(assignment.cell)).collect();
        let mut order: Vec<usize> = (0..own.len()).collect();
        order.sort_by_key(|index| {
            let Some((assignment, standing)) = own.get(*index) else { return (u8::MAX, None) };
            let crowd = crowds.get(*index).copied().unwrap_or_default();
            let closed = self.input.cells.iter().any(|view| view.cell == assignment.cell && view.cordoned);
            (rank(*standing), Some((!closed, std::cmp::Reverse((crowd, assignment.ordinal)))))
        });
        let chosen: Vec<Stands> = order.iter().filter_map(|index| own.get(*index).cloned()).collect();
        own.clear();
        for (assignment, standing) in chosen {
            if excess == 0 {
                break;
            }
            let too_many = untired > aim.count as usize;
            let go = match standing {
                Standing::Weak { tired: true } => spare.take_weak(),
                _ if !too_many => false,
                Standing::Weak { tired: false } => spare.take_weak(),
                Standing::Serving => spare.take_serving(),
                Standing::Fresh => false,
                Standing::Coming { .. }
                | Standing::Down
                | Standing::Broken
                | Standing::Leaving
                | Standing::Lost => true,
            };
            if go {
                untired -= usize::from(!is_tired(standing));
                excess -= 1;
                self.let_go(assignment.instance, standing, "more instances than wanted");
            }
        }
    }
}

/// Which are let go first: what serves least.
fn rank(standing: Standing) -> u8 {
    match standing {
        Standing::Broken | Standing::Lost => 0,
        Standing::Down => 1,
        Standing::Leaving => 2,
        Standing::Coming { .. } => 3,
        Standing::Weak { tired: true } => 4,
        Standing::Weak { tired: false } => 5,
        Standing::Fresh => 6,
        Standing::Serving => 7,
    }
}

/// How many may still be let go.
struct Spare {
    count: usize,
    /// Ready and in all gateways.
    serving: usize,
    /// Those, and unhealthy ones.
    alive: usize,
}

impl Spare {
    fn new<'a>(count: u32, all: impl Iterator<Item = &'a Stands>) -> Self {
        let (mut serving, mut alive) = (0, 0);
        for (_, standing) in all {
            serving += usize::from(*standing == Standing::Serving);
            alive += usize::from(matches!(standing, Standing::Serving | Standing::Weak { .. }));
        }
        Self { count: count as usize, serving, alive }
    }

    /// One that serves goes, if enough others do.
    fn take_serving(&mut self) -> bool {
        let go = self.serving > self.count;
        if go {
            self.serving -= 1;
            self.alive -= 1;
        }
        go
    }

    /// An unhealthy one goes, if enough others take requests.
    fn take_weak(&mut self) -> bool {
        let go = self.alive > self.count;
        self.alive -= usize::from(go);
        go
    }
}
