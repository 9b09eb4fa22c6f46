//! A user of its own for each instance and each build.

use crate::procfs;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

/// Hands out user ids of a range. Without one everything runs as the cell's own user.
#[derive(Debug)]
pub(crate) struct Users {
    range: Option<RangeInclusive<u32>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    taken: BTreeSet<u32>,
    /// Where the search goes on: a freed id is not used again at once.
    next: u32,
}

impl Users {
    /// Ids of the range, from a place in it that `seed` decides, so that two cells on one machine seldom meet.
    pub(crate) fn new(range: Option<RangeInclusive<u32>>, seed: u32) -> Self {
        let next = range.as_ref().map_or(0, |r| r.start() + seed % (r.end() - r.start()).max(1));
        Self { range, state: Mutex::new(State { taken: BTreeSet::new(), next }) }
    }

    /// Whether instances get users of their own.
    pub(crate) fn are_separate(&self) -> bool {
        self.range.is_some()
    }

    /// An id that nobody has and as which no process runs. `None`: use the own user, or (never in practice) all are taken.
    pub(crate) fn take(&self) -> Option<u32> {
        let range = self.range.clone()?;
        let busy = procfs::busy_users();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let found = plan_user(&range, state.next, |uid| state.taken.contains(&uid) || busy.contains(&uid))?;
        state.taken.insert(found);
        state.next = found.saturating_add(1);
        Some(found)
    }

    /// Marks an id as taken that an adopted instance has.
    pub(crate) fn keep(&self, uid: u32) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).taken.insert(uid);
    }

    /// Gives it back.
    pub(crate) fn free(&self, uid: u32) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).taken.remove(&uid);
    }
}

/// The first free id from `next` on, around the end of the range.
fn plan_user(range: &RangeInclusive<u32>, next: u32, is_busy: impl Fn(u32) -> bool) -> Option<u32> {
    let next = next.clamp(*range.start(), *range.end());
    (next..=*range.end()).chain(*range.start()..next).find(|uid| !is_busy(*uid))
}

/// Whether this process can start others as other users: root with the capabilities that takes (a container may lack them).
pub(crate) fn can_separate() -> bool {
    const CHOWN: u64 = 1 << 0;
    const DAC_OVERRIDE: u64 = 1 << 1;
    const KILL: u64 = 1 << 5;
    const SETGID: u64 = 1 << 6;
    const SETUID: u64 = 1 << 7;
    let needed = CHOWN | DAC_OVERRIDE | KILL | SETGID | SETUID;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok())
        .unwrap_or(0);
    nix::unistd::geteuid().is_root() && effective & needed == needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_round_and_skip_busy_ones() {
        assert_eq!(plan_user(&(10..=12), 11, |uid| uid == 11), Some(12));
        assert_eq!(plan_user(&(10..=12), 12, |uid| uid == 12), Some(10));
        assert_eq!(plan_user(&(10..=12), 99, |_| false), Some(12));
        assert_eq!(plan_user(&(10..=12), 10, |_| true), None);
    }

    #[test]
    fn a_freed_id_is_not_the_next_one() {
        let users = Users::new(Some(3_000_000..=3_000_002), 0);
        let first = users.take().unwrap();
        users.free(first);
        assert_ne!(users.take(), Some(first));
        assert_eq!(Users::new(None, 7).take(), None);
    }
}
