//! Who waits until the cache has come to a revision: each is woken once, when it has. (Were all woken at each step, a manager with
//! a thousand changes on their way would do little else.)

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use towpath_types::Revision;

/// Those who wait.
#[derive(Debug, Default)]
pub(super) struct Reached {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    at: Revision,
    ids: u64,
    waiting: BTreeMap<(Revision, u64), oneshot::Sender<()>>,
}

/// A place among those who wait, given back when dropped.
struct Place<'a> {
    reached: &'a Reached,
    key: (Revision, u64),
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.reached.lock().waiting.remove(&self.key);
    }
}

impl Reached {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cache is complete up to here, which may be less than before when it was loaded anew.
    pub(super) fn set(&self, at: Revision) {
        let mut state = self.lock();
        state.at = at;
        while let Some(first) = state.waiting.first_entry().filter(|first| first.key().0 <= at) {
            // Whoever is gone needs no waking.
            let _ = first.remove().send(());
        }
    }

    /// Resolves when it is complete up to this revision.
    pub(super) async fn wait(&self, revision: Revision) {
        let (key, woken) = {
            let mut state = self.lock();
            if state.at >= revision {
                return;
            }
            state.ids += 1;
            let key = (revision, state.ids);
            let (wake, woken) = oneshot::channel();
            state.waiting.insert(key, wake);
            (key, woken)
        };
        let _place = Place { reached: self, key };
        drop(woken.await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn who_waits_is_woken_when_its_revision_is_reached_and_leaves_nothing_behind() {
        let reached = Reached::default();
        reached.set(Revision(5));
        reached.wait(Revision(5)).await;
        let (mut near, mut far) = (Box::pin(reached.wait(Revision(7))), Box::pin(reached.wait(Revision(9))));
        assert!((&mut near).now_or_never().is_none() && (&mut far).now_or_never().is_none());
        reached.set(Revision(6));
        assert!((&mut near).now_or_never().is_none());
        reached.set(Revision(8));
        assert!((&mut near).now_or_never().is_some() && (&mut far).now_or_never().is_none());
        assert_eq!(reached.lock().waiting.len(), 1);
        drop(far);
        assert!(reached.lock().waiting.is_empty());
        reached.set(Revision(3));
        assert!(reached.wait(Revision(8)).now_or_never().is_none(), "it was loaded anew");
    }
}
