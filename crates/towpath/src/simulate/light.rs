//! One light cell: what it says and what it makes of what it is told. No I/O.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use towpath_types::load::{HostLoad, InstanceLoad};
use towpath_types::spec::Wanted;
use towpath_types::{CellId, Incarnation, InstanceId, Place, Revision};
use towpath_wire::cell::{CellAnnounce, InstanceReport, InstanceSpec, InstanceState};

/// Memory of an instance of usual size, bytes.
const USUAL: u64 = 512 << 20;

/// A life that is only told.
struct Life {
    report: InstanceReport,
    since: Instant,
    wanted: Wanted,
}

/// A cell without instances.
pub(super) struct LightCell {
    pub(super) id: CellId,
    pub(super) incarnation: Incarnation,
    /// The highest epoch that it has obeyed.
    pub(super) epoch: u64,
    pub(super) cordoned: bool,
    place: Place,
    room: u32,
    start_time: Duration,
    seq: u64,
    desired: Revision,
    lives: BTreeMap<InstanceId, Life>,
}

impl LightCell {
    pub(super) fn new(id: CellId, now_ms: u64, place: Place, room: u32, start_time: Duration) -> Self {
        Self {
            id,
            incarnation: Incarnation(now_ms),
            epoch: 0,
            cordoned: false,
            place,
            room,
            start_time,
            seq: 0,
            desired: Revision(0),
            lives: BTreeMap::new(),
        }
    }

    /// Instances, and those of them that are ready.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.lives.len(), self.lives.values().filter(|life| life.report.state.serves()).count())
    }

    /// Runs this from now on and nothing else. An older epoch or set is not obeyed; `false` = this one is.
    pub(super) fn obey(&mut self, epoch: u64, revision: Revision, specs: Vec<InstanceSpec>) -> bool {
        if epoch < self.epoch || revision < self.desired {
            return false;
        }
        (self.epoch, self.desired) = (epoch, revision);
        let mut before = std::mem::take(&mut self.lives);
        for spec in specs {
            let life = match before.remove(&spec.instance) {
                Some(life) => Life { wanted: spec.wanted, ..life },
                None => Life { wanted: spec.wanted, since: Instant::now(), report: report_of(spec) },
            };
            self.lives.insert(life.report.instance, life);
        }
        true
    }

    /// Instances go on with their lives; says whether any has changed.
    pub(super) fn live(&mut self) -> bool {
        let now = Instant::now();
        let mut changed = false;
        for life in self.lives.values_mut() {
            let next = match (life.wanted, life.report.state) {
                (Wanted::Drain, InstanceState::Draining) => continue,
                (Wanted::Drain, _) => InstanceState::Draining,
                (Wanted::Run, InstanceState::Draining) => InstanceState::Ready,
                (Wanted::Run, InstanceState::Starting) if life.since + self.start_time <= now => {
                    InstanceState::Ready
                }
                _ => continue,
            };
            (life.report.state, life.since) = (next, now);
            changed = true;
        }
        changed
    }

    /// When something will change by itself.
    pub(super) fn due(&self) -> Option<Instant> {
        let starting = self.lives.values().filter(|life| life.report.state == InstanceState::Starting);
        starting.map(|life| life.since + self.start_time).min()
    }

    pub(super) fn announce(&mut self, leaving: bool) -> CellAnnounce {
        self.seq += 1;
        let told = |life: &Life| InstanceReport {
            state_ms: u64::try_from(life.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            ..life.report.clone()
        };
        CellAnnounce {
            cell: self.id,
            incarnation: self.incarnation,
            seq: self.seq,
            place: self.place.clone(),
            address: "127.0.0.1".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            driver: "simulated".into(),
            memory_bytes: u64::from(self.room) * USUAL,
            cores: 64,
            host: HostLoad::default(),
            cordoned: self.cordoned,
            leaving,
            desired: self.desired,
            builders: Vec::new(),
            troubles: Vec::new(),
            ports: None,
            priority: 0,
            instances: self.lives.values().map(told).collect(),
        }
    }
}

fn report_of(spec: InstanceSpec) -> InstanceReport {
    InstanceReport {
        instance: spec.instance,
        app: spec.app,
        lane: spec.lane,
        release: spec.release,
        // Nothing listens there.
        port: 9,
        protocol: spec.protocol,
        weight: 100,
        state: InstanceState::Starting,
        state_ms: 0,
        restarts: 0,
        reason: String::new(),
        load: InstanceLoad::default(),
        memory_bytes: 0,
        pid: 1,
        memory_limit: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(n: u8, wanted: Wanted) -> InstanceSpec {
        let text = format!(
            r#"{{"instance":"018f0000-0000-7000-8000-0000000000{n:02x}","app":{{"org":"default","space":"default","app":"a"}},
            "lane":"base","ordinal":0,"release":"sha256:{0}","artifact":"sha256:{0}","artifact_bytes":1,"command":"x","env":{{}},
            "limits":{{}},"health":{{}},"protocol":"http1","grace":"1s","wanted":"run"}}"#,
            "00".repeat(32)
        );
        InstanceSpec { wanted, ..serde_json::from_str(&text).unwrap() }
    }

    fn states(cell: &mut LightCell) -> Vec<InstanceState> {
        cell.announce(false).instances.iter().map(|report| report.state).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn instances_start_become_ready_drain_and_go() {
        let start = Duration::from_millis(300);
        let mut cell = LightCell::new(CellId::mint(1, [1; 10]), 5, Place::default(), 10, start);
        assert!(cell.obey(7, Revision(3), vec![spec(1, Wanted::Run), spec(2, Wanted::Run)]));
        assert!(!cell.live() && cell.due().is_some());
        assert_eq!(states(&mut cell), [InstanceState::Starting; 2]);
        tokio::time::sleep(start).await;
        assert!(cell.live() && cell.due().is_none());
        assert_eq!(cell.counts(), (2, 2));
        assert!(!cell.obey(6, Revision(9), vec![]), "an older epoch");
        assert!(!cell.obey(7, Revision(2), vec![]), "an older set");
        assert!(cell.obey(7, Revision(4), vec![spec(1, Wanted::Run), spec(2, Wanted::Drain)]));
        assert!(cell.live());
        assert_eq!(states(&mut cell), [InstanceState::Ready, InstanceState::Draining]);
        assert!(cell.obey(8, Revision(5), vec![spec(1, Wanted::Run)]));
        assert_eq!(cell.counts(), (1, 1));
        assert_eq!(cell.announce(true).seq, 3);
    }
}
