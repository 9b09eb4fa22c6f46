//! What two processes that are one gateway for a while know of each other.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use tokio::sync::watch;
use towpath_types::{CellId, InstanceId, Revision};
use towpath_wire::gateway::Heard;

/// Whether this process speaks for the gateway: reports, explains, writes the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Not yet: another one does.
    Waiting,
    Active,
    /// No longer: another one does.
    HandedOver,
}

/// The process from which this one has taken over.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Predecessor {
    /// There is none, or it is gone.
    None,
    /// It has not said anything yet.
    Silent,
    Says(Status),
}

/// What a process serves, as far as others wait for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) revision: Revision,
    /// How far each cell was heard.
    pub(crate) heard: BTreeMap<CellId, Heard>,
    /// Requests in flight to draining instances.
    pub(crate) draining: BTreeMap<InstanceId, u64>,
}

impl Status {
    /// What both serve: what is in both, requests of both.
    pub(crate) fn merge(mut self, other: &Self) -> Self {
        self.revision = self.revision.min(other.revision);
        let order = |heard: &Heard| (heard.incarnation, heard.seq);
        self.heard.retain(|cell, heard| match other.heard.get(cell) {
            Some(others) => {
                if order(others) < order(heard) {
                    *heard = *others;
                }
                true
            }
            None => false,
        });
        for (instance, requests) in &other.draining {
            match self.draining.entry(*instance) {
                Entry::Occupied(mut sum) => *sum.get_mut() += requests,
                Entry::Vacant(new) => drop(new.insert(*requests)),
            }
        }
        self
    }
}

/// The control thread's part in a hand-over.
#[derive(Clone)]
pub(crate) struct Word {
    pub(crate) duty: watch::Sender<Duty>,
    pub(crate) predecessor: watch::Sender<Predecessor>,
    /// What this process says to the one that has taken over from it.
    pub(crate) told: watch::Sender<Option<Status>>,
}

impl Word {
    /// Of a process that starts; `takes_over` = another one serves still.
    pub(crate) fn new(takes_over: bool) -> Self {
        let (duty, predecessor) = match takes_over {
            true => (Duty::Waiting, Predecessor::Silent),
            false => (Duty::Active, Predecessor::None),
        };
        Self {
            duty: watch::Sender::new(duty),
            predecessor: watch::Sender::new(predecessor),
            told: watch::Sender::new(None),
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        *self.duty.borrow() == Duty::Active
    }

    /// What the gateway serves, of which this process serves `own`; `None` = not known yet.
    pub(crate) fn of_all(&self, own: Status) -> Option<Status> {
        match &*self.predecessor.borrow() {
            Predecessor::None => Some(own),
            Predecessor::Silent => None,
            Predecessor::Says(others) => Some(own.merge(others)),
        }
    }
}
