//! What is known of every instance right now: written by supervisors and the sampler, read by announcements.

use crate::driver::Usage;
use crate::instance::memory_limit;
use crate::launch::Started;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;
use towpath_types::InstanceId;
use towpath_types::load::InstanceLoad;
use towpath_wire::cell::{InstanceReport, InstanceSpec, InstanceState};

/// Weight of an instance in balancing.
const NORMAL_WEIGHT: u32 = 100;

/// Bytes a second from and to block devices that count as all of an instance's I/O. There is no limit on it that a share could be
/// of; so much is what a usual cloud disk gives.
const IO_ALLOWANCE: f64 = 128.0 * 1024.0 * 1024.0;

/// All instances. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Board {
    cards: Arc<Mutex<BTreeMap<InstanceId, Card>>>,
    changed: Arc<Notify>,
}

/// One instance on the board.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    pub(crate) spec: Arc<InstanceSpec>,
    pub(crate) state: InstanceState,
    pub(crate) reason: String,
    pub(crate) port: u16,
    pub(crate) restarts: u32,
    /// Its process, while it has one.
    pub(crate) started: Option<Started>,
    since: Instant,
    usage: Usage,
}

impl Board {
    /// Puts an instance on the board; as starting, if `fill` says nothing else.
    pub(crate) fn add(&self, spec: Arc<InstanceSpec>, restarts: u32, fill: impl FnOnce(&mut Card)) {
        let mut card = Card {
            state: InstanceState::Starting,
            reason: String::new(),
            port: 0,
            restarts,
            started: None,
            since: Instant::now(),
            usage: Usage::default(),
            spec: Arc::clone(&spec),
        };
        fill(&mut card);
        self.cards.lock().unwrap_or_else(PoisonError::into_inner).insert(spec.instance, card);
        self.changed.notify_one();
    }

    /// Changes a card; who listens is told when it differs.
    pub(crate) fn change(&self, instance: InstanceId, change: impl FnOnce(&mut Card)) {
        let mut cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(card) = cards.get_mut(&instance) else { return };
        let before = (card.state, card.port, card.restarts, card.reason.clone(), card.started.clone());
        change(card);
        if card.state != before.0 {
            card.since = Instant::now();
        }
        if card.started.is_none() {
            card.usage = Usage::default();
        }
        if (card.state, card.port, card.restarts, &card.reason, &card.started)
            != (before.0, before.1, before.2, &before.3, &before.4)
        {
            self.changed.notify_one();
        }
    }

    /// Takes an instance off the board.
    pub(crate) fn remove(&self, instance: InstanceId) {
        self.cards.lock().unwrap_or_else(PoisonError::into_inner).remove(&instance);
        self.changed.notify_one();
    }

    /// Tells the listener that something else of the cell has changed.
    pub(crate) fn mark_changed(&self) {
        self.changed.notify_one();
    }

    /// Waits for a change since the last wait. For one listener.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The state of one instance.
    pub(crate) fn state(&self, instance: InstanceId) -> Option<InstanceState> {
        let cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        cards.get(&instance).map(|card| card.state)
    }

    /// Instances that have a process.
    pub(crate) fn running(&self) -> Vec<(InstanceId, Started)> {
        let cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        cards.iter().filter_map(|(id, card)| Some((*id, card.started.clone()?))).collect()
    }

    /// Notes what instances use; told with the next announcement.
    pub(crate) fn note_usage(&self, usages: &HashMap<InstanceId, Usage>) {
        let mut cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        for (instance, usage) in usages {
            if let Some(card) = cards.get_mut(instance) {
                card.usage = *usage;
            }
        }
    }

    /// Everything, for an announcement.
    pub(crate) fn reports(&self) -> Vec<InstanceReport> {
        let cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        cards.values().map(Card::report).collect()
    }
}

impl Card {
    fn report(&self) -> InstanceReport {
        InstanceReport {
            instance: self.spec.instance,
            app: self.spec.app.clone(),
            lane: self.spec.lane.clone(),
            release: self.spec.release,
            port: self.port,
            protocol: self.spec.protocol,
            weight: NORMAL_WEIGHT,
            state: self.state,
            state_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            restarts: self.restarts,
            reason: self.reason.clone(),
            load: load(self.usage, memory_limit(&self.spec).0),
            memory_bytes: self.usage.memory,
            pid: self.started.as_ref().map_or(0, |started| started.app.pid),
            memory_limit: match self.state {
                InstanceState::Draining | InstanceState::Stopping => memory_limit(&self.spec).0,
                _ => 0,
            },
        }
    }
}

/// Shares of what it may use: one core (there is no quota), its memory limit, [`IO_ALLOWANCE`].
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "shares between 0 and 1")]
fn load(usage: Usage, limit: u64) -> InstanceLoad {
    InstanceLoad {
        cpu: usage.cores.clamp(0.0, 1.0) as f32,
        mem: (usage.memory as f64 / limit.max(1) as f64).clamp(0.0, 1.0) as f32,
        io: (usage.io / IO_ALLOWANCE).clamp(0.0, 1.0) as f32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::spec;
    use futures::FutureExt;

    #[test]
    fn listeners_hear_of_real_changes_only() {
        let board = Board::default();
        let spec = Arc::new(spec(1));
        let id = spec.instance;
        board.add(spec, 0, |_| ());
        assert!(board.changed().now_or_never().is_some());
        board.change(id, |card| card.state = InstanceState::Starting);
        board.note_usage(&HashMap::from([(id, Usage { cores: 3.0, memory: 256 << 20, io: 1.0 })]));
        assert!(board.changed().now_or_never().is_none());
        board.change(id, |card| card.state = InstanceState::Ready);
        assert!(board.changed().now_or_never().is_some());
        assert_eq!(board.reports()[0].memory_bytes, 0, "no process, no memory");
    }

    #[test]
    fn load_is_a_share() {
        let half = load(Usage { cores: 0.5, memory: 256, io: IO_ALLOWANCE / 2.0 }, 512);
        assert_eq!((half.cpu, half.mem, half.io), (0.5, 0.5, 0.5));
        let full = load(Usage { cores: 3.0, memory: 1024, io: 1e12 }, 512);
        assert_eq!((full.cpu, full.mem, full.io), (1.0, 1.0, 1.0));
    }
}
