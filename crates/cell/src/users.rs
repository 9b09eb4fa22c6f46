//! A user of its own for each instance and each build.
//!
//! Invariant: no two cells of a machine hand out the same id at the same time. A shim kills all processes of its user, so that a
//! shared one would cost another cell's instances their lives. A held id is a lock on a file that is common to all cells; it ends
//! with the process that holds it, and then the processes of that user still keep others off.

use crate::procfs;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Directory of the files that cells of a machine lock, one for each id that was ever taken since the machine started.
pub(crate) const LOCKS: &str = "/run/towpath/uids";

/// Hands out user ids of a range. Without one everything runs as the cell's own user.
#[derive(Debug)]
pub(crate) struct Users {
    range: Option<RangeInclusive<u32>>,
    /// `None`: locks cannot be made here.
    locks: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    taken: BTreeMap<u32, Option<Flock<File>>>,
    /// Where the search goes on: a freed id is not used again at once.
    next: u32,
}

/// Another cell has the id.
struct Held;

impl Users {
    /// Ids of the range, from a place in it that `seed` decides, so that two cells on one machine seldom try the same; `locks` is
    /// the directory by which they never get the same.
    pub(crate) fn new(range: Option<RangeInclusive<u32>>, seed: u32, locks: &Path) -> Self {
        let next = range.as_ref().map_or(0, |r| r.start() + seed % (r.end() - r.start()).max(1));
        let make = || std::fs::DirBuilder::new().recursive(true).mode(0o700).create(locks);
        let locks = range.as_ref().and_then(|_| {
            make()
                .inspect_err(|error| {
                    tracing::warn!(dir = %locks.display(), %error, "user ids cannot be locked: let no other cell use the same ones");
                })
                .ok()
                .map(|()| locks.to_owned())
        });
        Self { range, locks, state: Mutex::new(State { taken: BTreeMap::new(), next }) }
    }

    /// Whether instances get users of their own.
    pub(crate) fn are_separate(&self) -> bool {
        self.range.is_some()
    }

    /// An id that nobody has and as which no process runs. Blocks. `None`: use the own user, or (never in practice) all are taken.
    pub(crate) fn take(&self) -> Option<u32> {
        let range = self.range.clone()?;
        let mut busy = procfs::busy_users();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let is_busy = |uid| state.taken.contains_key(&uid) || busy.contains(&uid);
            let found = plan_user(&range, state.next, is_busy)?;
            let Ok(lock) = self.lock(found) else {
                busy.insert(found);
                continue;
            };
            state.taken.insert(found, lock);
            state.next = found.saturating_add(1);
            return Some(found);
        }
    }

    /// Marks an id as taken that an adopted instance has.
    pub(crate) fn keep(&self, uid: u32) {
        let lock = self.lock(uid).unwrap_or_else(|Held| {
            tracing::warn!(uid, "another cell holds the user id of an adopted instance");
            None
        });
        self.state.lock().unwrap_or_else(PoisonError::into_inner).taken.insert(uid, lock);
    }

    /// Gives it back.
    pub(crate) fn free(&self, uid: u32) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).taken.remove(&uid);
    }

    /// Locks the id for this cell; `None` where that cannot be done at all. The file stays: removing it would let two cells lock
    /// different files of one name.
    fn lock(&self, uid: u32) -> Result<Option<Flock<File>>, Held> {
        let Some(dir) = &self.locks else { return Ok(None) };
        let file = match File::options().create(true).append(true).open(dir.join(uid.to_string())) {
            Ok(file) => file,
            Err(error) => {
                tracing::warn!(uid, %error, "a user id cannot be locked");
                return Ok(None);
            }
        };
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(lock)),
            Err((_, Errno::EWOULDBLOCK)) => Err(Held),
            Err((_, error)) => {
                tracing::warn!(uid, %error, "a user id cannot be locked");
                Ok(None)
            }
        }
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
        let dir = tempfile::tempdir().unwrap();
        let users = Users::new(Some(3_000_000..=3_000_002), 0, dir.path());
        let first = users.take().unwrap();
        users.free(first);
        assert_ne!(users.take(), Some(first));
        assert_eq!(Users::new(None, 7, dir.path()).take(), None);
    }

    #[test]
    fn two_cells_never_have_the_same_id() {
        let dir = tempfile::tempdir().unwrap();
        let cell = || Users::new(Some(3_000_000..=3_000_001), 0, &dir.path().join("uids"));
        let (one, other) = (cell(), cell());
        assert_eq!((one.take(), other.take()), (Some(3_000_000), Some(3_000_001)));
        assert_eq!((one.take(), other.take()), (None, None));
        one.free(3_000_000);
        assert_eq!(other.take(), Some(3_000_000));
        // The process of a cell ends, the next one takes over what runs.
        drop(other);
        one.keep(3_000_000);
        let other = cell();
        assert_eq!((other.take(), other.take()), (Some(3_000_001), None));
    }
}
