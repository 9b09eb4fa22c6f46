//! Which manager owns a resource: this manager's copy of the ring.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;
use towpath_plan::ring::{Member, Ring};
use towpath_types::ManagerId;

/// This manager's copy of the ring, reconciled with the managers' table at every heartbeat and membership event.
#[derive(Debug)]
pub struct Ownership {
    me: ManagerId,
    /// This manager hands over and goes.
    leaving: AtomicBool,
    ring: watch::Sender<Arc<Ring>>,
}

impl Ownership {
    /// Alone until the table is read. A manager is always in its own ring, unless it leaves: whether it may act is the
    /// fence's business.
    pub(super) fn new(me: ManagerId) -> Self {
        let ring = watch::Sender::new(Arc::new(ring_of(&BTreeSet::from([me]))));
        Self { me, leaving: AtomicBool::new(false), ring }
    }

    /// Takes over the members of the table; says whether anything changed.
    pub(crate) fn set_members(&self, members: impl IntoIterator<Item = ManagerId>) -> bool {
        let mut members: BTreeSet<ManagerId> = members.into_iter().collect();
        if self.leaving.load(Ordering::Relaxed) {
            members.remove(&self.me);
        }
        if members.is_empty() || !self.leaving.load(Ordering::Relaxed) {
            members.insert(self.me);
        }
        if self.ring().members().iter().eq(&members) {
            return false;
        }
        self.ring.send_replace(Arc::new(ring_of(&members)));
        true
    }

    /// Others own from now on what this manager owned, if there are any.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
        let others: Vec<ManagerId> = self.ring().members().to_vec();
        self.set_members(others);
    }

    /// The ring as it is now.
    pub fn ring(&self) -> Arc<Ring> {
        self.ring.borrow().clone()
    }

    /// Follows the ring.
    pub fn watch(&self) -> watch::Receiver<Arc<Ring>> {
        self.ring.subscribe()
    }

    /// The owner of a resource, by its name.
    pub fn owner(&self, resource: &str) -> ManagerId {
        self.ring.borrow().owner(resource).unwrap_or(self.me)
    }

    /// Whether this manager owns a resource.
    pub fn is_mine(&self, resource: &str) -> bool {
        self.owner(resource) == self.me
    }
}

fn ring_of(members: &BTreeSet<ManagerId>) -> Ring {
    let members: Vec<Member> =
        members.iter().map(|manager| Member { manager: *manager, weight: 1.0 }).collect();
    Ring::new(&members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> ManagerId {
        ManagerId::mint(1, [n; 10])
    }

    #[test]
    fn a_manager_never_drops_itself_from_its_own_ring() {
        let ownership = Ownership::new(id(1));
        assert!(ownership.is_mine("anything"));
        assert!(!ownership.set_members([]), "an empty table changes nothing");
        assert!(ownership.is_mine("anything"));
        assert!(ownership.set_members([id(2), id(3)]));
        assert!(!ownership.set_members([id(3), id(1), id(2)]));
        assert_eq!(ownership.ring().members(), [id(1), id(2), id(3)]);
    }

    #[test]
    fn who_leaves_hands_over_to_the_others_if_there_are_any() {
        let ownership = Ownership::new(id(1));
        ownership.set_members([id(2)]);
        ownership.leave();
        assert_eq!(ownership.ring().members(), [id(2)]);
        ownership.set_members([id(1), id(2), id(3)]);
        assert_eq!(ownership.ring().members(), [id(2), id(3)]);
        let alone = Ownership::new(id(1));
        alone.leave();
        assert!(alone.is_mine("anything"), "there is nobody else");
    }
}
