//! Which manager owns a resource: this manager's copy of the ring.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use towpath_plan::ring::{Member, Ring};
use towpath_types::ManagerId;

/// This manager's copy of the ring, reconciled with the managers' table at every heartbeat and membership event.
#[derive(Debug)]
pub struct Ownership {
    me: ManagerId,
    ring: RwLock<Arc<Ring>>,
}

impl Ownership {
    /// Alone until the table is read. A manager is always in its own ring: whether it may act is the fence's business.
    pub(super) fn new(me: ManagerId) -> Self {
        Self { me, ring: RwLock::new(Arc::new(ring_of(&BTreeSet::from([me])))) }
    }

    /// Takes over the members of the table; says whether anything changed.
    pub(crate) fn set_members(&self, members: impl IntoIterator<Item = ManagerId>) -> bool {
        let mut members: BTreeSet<ManagerId> = members.into_iter().collect();
        members.insert(self.me);
        let present = self.ring();
        if present.members().iter().eq(&members) {
            return false;
        }
        let fresh = Arc::new(ring_of(&members));
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        true
    }

    /// The ring as it is now.
    pub fn ring(&self) -> Arc<Ring> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The owner of a resource, by its name.
    pub fn owner(&self, resource: &str) -> ManagerId {
        self.ring().owner(resource).unwrap_or(self.me)
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

    #[test]
    fn a_manager_never_drops_itself_from_its_own_ring() {
        let id = |n: u8| ManagerId::mint(1, [n; 10]);
        let ownership = Ownership::new(id(1));
        assert!(ownership.is_mine("anything"));
        assert!(!ownership.set_members([]), "an empty table changes nothing");
        assert!(ownership.is_mine("anything"));
        assert!(ownership.set_members([id(2), id(3)]));
        assert!(!ownership.set_members([id(3), id(1), id(2)]));
        assert_eq!(ownership.ring().members(), [id(1), id(2), id(3)]);
    }
}
