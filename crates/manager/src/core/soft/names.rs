//! Names that many reports say, kept once.
//!
//! Each message brings names of its own; of a hundred thousand instances they would be most of what is kept of them.

use std::collections::HashSet;
use std::hash::Hash;
use towpath_types::{AppRef, LaneName};
use towpath_wire::cell::InstanceReport;

/// Names beyond what was in use are looked through when there are twice as many, and so many more.
const SPARE: usize = 1_024;

/// The names in use.
#[derive(Debug, Default)]
pub(super) struct Names {
    apps: HashSet<AppRef>,
    lanes: HashSet<LaneName>,
    /// So many were in use when that was looked at last.
    used: usize,
}

impl Names {
    /// Puts the kept names in the place of the report's own, which are the same.
    pub(super) fn share(&mut self, report: &mut InstanceReport) {
        share(&mut self.apps, &mut report.app);
        share(&mut self.lanes, &mut report.lane);
    }

    /// Whether names may have gathered that nobody says any more.
    pub(super) fn is_full(&self) -> bool {
        self.apps.len() + self.lanes.len() > 2 * self.used + SPARE
    }

    /// Keeps the names of these reports and no others.
    pub(super) fn keep<'a>(&mut self, reports: impl Iterator<Item = &'a InstanceReport>) {
        self.apps.clear();
        self.lanes.clear();
        for report in reports {
            keep_first(&mut self.apps, &report.app);
            keep_first(&mut self.lanes, &report.lane);
        }
        self.used = self.apps.len() + self.lanes.len();
    }
}

fn share<T: Clone + Eq + Hash>(known: &mut HashSet<T>, name: &mut T) {
    match known.get(name) {
        Some(kept) => name.clone_from(kept),
        None => drop(known.insert(name.clone())),
    }
}

fn keep_first<T: Clone + Eq + Hash>(known: &mut HashSet<T>, name: &T) {
    if !known.contains(name) {
        known.insert(name.clone());
    }
}
