//! Rule 5: instances that are wrong or too many are let go, never so many that fewer than the count take requests.

use super::input::GroupInput;
use super::plan::{Aim, Work};
use super::standing::Standing;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use towpath_types::CellId;
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
            running.into_iter().partition(|(assignment, _)| self.is_in_place(assignment, aim.version));
        let mut spare = Spare::new(aim.count, own.iter().chain(&old));
        self.retire_old(aim, &own, old, &mut spare);
        self.retire_excess(aim, &own, &mut spare);
    }

    /// Instances of other versions, or on draining cells.
    fn retire_old(&mut self, aim: &Aim, own: &[Stands], mut old: Vec<Stands>, spare: &mut Spare) {
        let proven = own.iter().any(|(_, standing)| *standing == Standing::Serving);
        let replaced = own.len() >= aim.count as usize;
        // The weakest go first; of equals those on the fullest cells, then the newest.
        old.sort_by_key(|(assignment, standing)| (rank(*standing), Reverse(assignment.ordinal)));
        for (assignment, standing) in old {
            let of_good = self.status.good == Some(assignment.version);
            let moves = Some(assignment.version) == aim.version;
            let go = match standing {
                // It may come back for as long as there is no other place for it.
                Standing::Broken
                | Standing::Lost
                | Standing::Coming { .. }
                | Standing::Down
                | Standing::Leaving
                    if moves =>
                {
                    replaced
                }
                Standing::Broken | Standing::Lost => true,
                // A version that was never good is not worth waiting for; a good one may come back until the new one is proven.
                Standing::Coming { .. } | Standing::Down | Standing::Leaving => !of_good || proven,
                Standing::Fresh => false,
                Standing::Weak { .. } => spare.take_weak(),
                Standing::Serving => spare.take_serving(),
            };
            if go {
                let why = if moves { "its cell is draining" } else { "another version takes its place" };
                self.let_go(assignment.instance, standing, why);
            }
        }
    }

    /// Instances of the right version above the count.
    fn retire_excess(&mut self, aim: &Aim, own: &[Stands], spare: &mut Spare) {
        let mut excess = own.len().saturating_sub(aim.count as usize);
        // A tired one has, or gets, a replacement, which must not be taken for the one too many.
        let is_tired = |standing: Standing| standing == Standing::Weak { tired: true };
        let mut untired = own.iter().filter(|(_, standing)| !is_tired(*standing)).count();
        let mut queue = Excess::new(self.input, own);
        while excess > 0 {
            let Some((assignment, standing)) = queue.next() else { return };
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
                queue.gone(&assignment);
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

/// Instances of which some are too many, in the order in which they are let go: what serves least, then what stands on closed
/// cells, then where zone and cell have most, then the newest.
struct Excess {
    left: Vec<(Assignment, Standing, usize, bool)>,
    zones: Vec<u32>,
    cells: BTreeMap<CellId, u32>,
    zone_of: BTreeMap<CellId, usize>,
}

impl Excess {
    fn new(input: &GroupInput<'_>, own: &[Stands]) -> Self {
        let mut found = Self {
            left: Vec::with_capacity(own.len()),
            zones: Vec::new(),
            cells: BTreeMap::new(),
            zone_of: BTreeMap::new(),
        };
        let mut named: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for (assignment, standing) in own {
            let view = input.cells.get(assignment.cell);
            let name = view.map_or(("", ""), |view| (view.place.region.as_str(), view.place.zone.as_str()));
            let next = named.len();
            let zone = *named.entry(name).or_insert(next);
            if zone == found.zones.len() {
                found.zones.push(0);
            }
            if let Some(count) = found.zones.get_mut(zone) {
                *count += 1;
            }
            *found.cells.entry(assignment.cell).or_default() += 1;
            found.zone_of.insert(assignment.cell, zone);
            found.left.push((
                assignment.clone(),
                *standing,
                zone,
                view.is_none_or(|view| input.cells.is_open(view)),
            ));
        }
        found
    }

    /// The next one; whoever lets it go says so by [`Excess::gone`].
    fn next(&mut self) -> Option<Stands> {
        let crowd = |assignment: &Assignment, zone: usize| {
            let here = self.cells.get(&assignment.cell).copied().unwrap_or_default();
            (self.zones.get(zone).copied().unwrap_or_default(), here)
        };
        let (index, _) =
            self.left.iter().enumerate().min_by_key(|(_, (assignment, standing, zone, open))| {
                (rank(*standing), *open, Reverse(crowd(assignment, *zone)), Reverse(assignment.ordinal))
            })?;
        let (assignment, standing, ..) = self.left.swap_remove(index);
        Some((assignment, standing))
    }

    fn gone(&mut self, assignment: &Assignment) {
        if let Some(here) = self.cells.get_mut(&assignment.cell) {
            *here = here.saturating_sub(1);
        }
        let zone = self.zone_of.get(&assignment.cell).copied().unwrap_or_default();
        if let Some(here) = self.zones.get_mut(zone) {
            *here = here.saturating_sub(1);
        }
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
