//! Which manager owns a resource: this manager's copy of the ring.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use towpath_plan::ring::{Member, Ring};
use towpath_types::ManagerId;

/// This manager's copy of the ring, reconciled with the managers' table at every heartbeat and membership event.
#[derive(Debug)]
pub struct Ownership {
    me: ManagerId,
    /// This manager's own weight.
    weight: f32,
    /// This manager hands over and goes.
    leaving: AtomicBool,
    /// Those of whom the ring is made.
    present: Mutex<Weights>,
    ring: watch::Sender<Arc<Ring>>,
}

/// Members and their weights.
type Weights = BTreeMap<ManagerId, f32>;

impl Ownership {
    /// Alone until the table is read. A manager is always in its own ring, unless it leaves: whether it may act is the
    /// fence's business.
    pub(super) fn new(me: ManagerId, weight: f32) -> Self {
        let present = Weights::from([(me, weight)]);
        let ring = watch::Sender::new(Arc::new(ring_of(&present)));
        Self { me, weight, leaving: AtomicBool::new(false), present: Mutex::new(present), ring }
    }

    /// Takes over the members of the table with their weights; says whether anything changed.
    pub(crate) fn set_members(&self, members: impl IntoIterator<Item = (ManagerId, f32)>) -> bool {
        let mut members: Weights = members.into_iter().collect();
        if self.leaving.load(Ordering::Relaxed) {
            members.remove(&self.me);
        }
        if members.is_empty() || !self.leaving.load(Ordering::Relaxed) {
            members.insert(self.me, self.weight);
        }
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if *present == members {
            return false;
        }
        self.ring.send_replace(Arc::new(ring_of(&members)));
        *present = members;
        true
    }

    /// Others own from now on what this manager owned, if there are any.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
        let others = self.present.lock().unwrap_or_else(PoisonError::into_inner).clone();
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

fn ring_of(members: &Weights) -> Ring {
    let member = |(manager, weight): (&ManagerId, &f32)| Member { manager: *manager, weight: *weight };
    Ring::new(&members.iter().map(member).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> ManagerId {
        ManagerId::mint(1, [n; 10])
    }

    #[test]
    fn a_manager_never_drops_itself_from_its_own_ring() {
        let ownership = Ownership::new(id(1), 1.0);
        assert!(ownership.is_mine("anything"));
        assert!(!ownership.set_members([]), "an empty table changes nothing");
        assert!(ownership.is_mine("anything"));
        assert!(ownership.set_members([(id(2), 1.0), (id(3), 1.0)]));
        assert!(!ownership.set_members([(id(3), 1.0), (id(1), 1.0), (id(2), 1.0)]));
        assert_eq!(ownership.ring().members(), [id(1), id(2), id(3)]);
    }

    #[test]
    fn who_leaves_hands_over_to_the_others_if_there_are_any() {
        let ownership = Ownership::new(id(1), 1.0);
        ownership.set_members([(id(2), 1.0)]);
        ownership.leave();
        assert_eq!(ownership.ring().members(), [id(2)]);
        ownership.set_members([(id(1), 1.0), (id(2), 1.0), (id(3), 1.0)]);
        assert_eq!(ownership.ring().members(), [id(2), id(3)]);
        let alone = Ownership::new(id(1), 1.0);
        alone.leave();
        assert!(alone.is_mine("anything"), "there is nobody else");
    }

    #[test]
    fn a_manager_of_more_weight_owns_more() {
        let ownership = Ownership::new(id(1), 1.0);
        ownership.set_members([(id(2), 3.0)]);
        let share = |who: u8| {
            let shares = ownership.ring().shares();
            shares.iter().find(|(manager, _)| *manager == id(who)).map(|(_, share)| *share).unwrap()
        };
        assert!((share(2) - 0.75).abs() < 0.05 && (share(1) - 0.25).abs() < 0.05);
        assert!(!ownership.set_members([(id(2), 3.0), (id(1), 9.0)]), "its own weight it knows itself");
        assert!(ownership.set_members([(id(2), 1.0)]), "a weight that changes changes the ring");
        assert!((share(2) - 0.5).abs() < 0.05);
        ownership.set_members([(id(2), 0.0)]);
        assert!(ownership.is_mine("anything"), "one of no weight owns nothing");
    }
}
