//! Telling everybody what this cell is and runs.

use crate::CellSettings;
use crate::board::Board;
use crate::kept::Troubles;
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use towpath_bus::Bus;
use towpath_types::load::HostLoad;
use towpath_types::{CellId, Incarnation, Revision};
use towpath_wire::cell::{ANNOUNCE_INTERVAL_MS, CellAnnounce, InstanceReport};
use towpath_wire::subject;

/// A change is told at once, unless something was told less than this ago: then with all that changes until it is over.
const GATHER: Duration = Duration::from_millis(1);
/// The same as a multiple of the time that the last announcement took, so that announcing much never takes all of a core.
const GATHER_SHARE: u32 = 4;
/// But no longer than this.
const GATHER_MOST: Duration = Duration::from_millis(8);

/// The parts of an announcement that are not on the board.
pub(crate) struct Announcer {
    pub(crate) cell: CellId,
    pub(crate) incarnation: Incarnation,
    pub(crate) settings: Arc<CellSettings>,
    pub(crate) driver: &'static str,
    pub(crate) memory_bytes: u64,
    pub(crate) builders: Vec<String>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) board: Board,
    pub(crate) troubles: Troubles,
    pub(crate) host: Mutex<HostLoad>,
    pub(crate) cordoned: AtomicBool,
    /// Revision of the desired set.
    pub(crate) desired: AtomicU64,
    /// Number of the last announcement; held while one is made and sent, so that they go out in order.
    pub(crate) seq: tokio::sync::Mutex<u64>,
}

impl Announcer {
    /// Announces at once, on every change, and every [`ANNOUNCE_INTERVAL_MS`]; never returns.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut tick = tokio::time::interval(Duration::from_millis(ANNOUNCE_INTERVAL_MS));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.board.changed() => {}
            }
            let began = Instant::now();
            self.announce(false).await;
            tokio::time::sleep((began.elapsed() * GATHER_SHARE).clamp(GATHER, GATHER_MOST)).await;
        }
    }

    /// All instances, with the weight that this cell gives them.
    fn instances(&self) -> Vec<InstanceReport> {
        let mut reports = self.board.reports();
        reports.iter_mut().for_each(|report| report.weight = self.settings.weight);
        reports
    }

    /// Announces now.
    pub(crate) async fn announce(&self, leaving: bool) {
        let mut seq = self.seq.lock().await;
        *seq += 1;
        let announce = CellAnnounce {
            cell: self.cell,
            incarnation: self.incarnation,
            seq: *seq,
            place: self.settings.place.clone(),
            address: self.settings.address.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            driver: self.driver.to_owned(),
            memory_bytes: self.memory_bytes,
            cores: std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1)),
            host: *self.host.lock().unwrap_or_else(PoisonError::into_inner),
            cordoned: self.cordoned.load(Ordering::Relaxed),
            leaving,
            desired: Revision(self.desired.load(Ordering::Relaxed)),
            builders: self.builders.clone(),
            troubles: self.troubles.told(),
            instances: self.instances(),
            ports: u32::try_from(self.settings.ports.len()).ok(),
            priority: self.settings.priority,
        };
        let payload = Bytes::from(towpath_wire::encode(&announce));
        if let Err(error) = self.bus.publish(&subject::cell_announce(self.cell), payload).await {
            tracing::debug!(%error, "the announcement was not sent");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::spec;
    use towpath_bus::MemoryBus;
    use towpath_wire::cell::InstanceState;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_change_is_told_at_once_whenever_it_comes() {
        let bus = MemoryBus::new();
        let cell = CellId::mint(1, [1; 10]);
        let mut heard = bus.subscribe(&subject::cell_announce(cell)).await.unwrap();
        let board = Board::default();
        let announcer = Arc::new(Announcer {
            cell,
            incarnation: Incarnation(1),
            settings: Arc::new(CellSettings {
                weight: 250,
                priority: 3,
                ports: 20_000..=20_009,
                ..CellSettings::new("/d", "http://127.0.0.1:1", "t")
            }),
            driver: "process",
            memory_bytes: 1,
            builders: Vec::new(),
            bus: Arc::new(bus),
            board: board.clone(),
            troubles: Troubles::default(),
            host: Mutex::default(),
            cordoned: AtomicBool::new(false),
            desired: AtomicU64::new(0),
            seq: tokio::sync::Mutex::new(0),
        });
        let instance = spec(1).instance;
        board.add(Arc::new(spec(1)), 0, |_| ());
        let running = tokio::spawn(announcer.run());
        let mut last = 0;
        for restarts in 1..=40 {
            // While the announcer waits, gathers, or sends the change before.
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..6000))).await;
            board.change(instance, |card| card.state = InstanceState::Unhealthy);
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..6000))).await;
            board.change(instance, |card| (card.state, card.restarts) = (InstanceState::Ready, restarts));
            let told = async {
                loop {
                    let message = heard.next().await.unwrap();
                    let announce: CellAnnounce = towpath_wire::decode(&message.payload).unwrap();
                    assert!(announce.seq > last, "in order");
                    last = announce.seq;
                    assert_eq!((announce.priority, announce.ports), (3, Some(10)));
                    let report = &announce.instances[0];
                    assert_eq!(report.weight, 250);
                    if (report.state, report.restarts) == (InstanceState::Ready, restarts) {
                        return;
                    }
                }
            };
            // Less than the interval: the regular announcement cannot be it.
            let limit = Duration::from_millis(ANNOUNCE_INTERVAL_MS / 2);
            tokio::time::timeout(limit, told).await.expect("the change is told");
        }
        running.abort();
    }
}
