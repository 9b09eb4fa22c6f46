//! One light cell: what it says and what it makes of what it is told. No I/O.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use towpath_types::load::{HostLoad, InstanceLoad};
use towpath_types::spec::Wanted;
use towpath_types::{CellId, Incarnation, InstanceId, Place, Revision};
use towpath_wire::cell::{CellAnnounce, InstanceReport, InstanceSpec, InstanceState, Stamps};

/// Memory of an instance of usual size, bytes.
const USUAL: u64 = 512 << 20;

/// A life that is only told.
struct Life {
    report: InstanceReport,
    since: Instant,
    wanted: Wanted,
    /// Of the spec; `None` = it has none.
    stamp: Option<u64>,
}

/// What a cell is told to run.
#[derive(Default)]
pub(super) struct WantedSet {
    /// New or changed instances.
    pub(super) specs: Vec<InstanceSpec>,
    /// Instances that go on as they are.
    pub(super) kept: Vec<InstanceId>,
    /// Stamps of the specs.
    pub(super) stamps: Stamps,
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

    /// What need not be told again as long as it does not change.
    pub(super) fn known(&self) -> Stamps {
        self.lives.iter().filter_map(|(instance, life)| Some((*instance, life.stamp?))).collect()
    }

    /// Runs this from now on and nothing else. An older epoch or set, or one with parts that are not known here, is not
    /// obeyed; `true` = this one is.
    pub(super) fn obey(&mut self, epoch: u64, revision: Revision, set: WantedSet) -> bool {
        let is_known = |instance| self.lives.contains_key(instance);
        if epoch < self.epoch || revision < self.desired || !set.kept.iter().all(is_known) {
            return false;
        }
        (self.epoch, self.desired) = (epoch, revision);
        let mut before = std::mem::take(&mut self.lives);
        for instance in set.kept {
            self.lives.extend(before.remove_entry(&instance));
        }
        for spec in set.specs {
            let (wanted, stamp) = (spec.wanted, set.stamps.get(&spec.instance).copied());
            let life = match before.remove(&spec.instance) {
                Some(life) => Life { wanted, stamp, ..life },
                None => Life { wanted, stamp, since: Instant::now(), report: report_of(spec) },
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

    fn set(specs: Vec<InstanceSpec>) -> WantedSet {
        WantedSet { specs, ..WantedSet::default() }
    }

    fn states(cell: &mut LightCell) -> Vec<InstanceState> {
        cell.announce(false).instances.iter().map(|report| report.state).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn instances_start_become_ready_drain_and_go() {
        let start = Duration::from_millis(300);
        let mut cell = LightCell::new(CellId::mint(1, [1; 10]), 5, Place::default(), 10, start);
        assert!(cell.obey(7, Revision(3), set(vec![spec(1, Wanted::Run), spec(2, Wanted::Run)])));
        assert!(!cell.live() && cell.due().is_some());
        assert_eq!(states(&mut cell), [InstanceState::Starting; 2]);
        tokio::time::sleep(start).await;
        assert!(cell.live() && cell.due().is_none());
        assert_eq!(cell.counts(), (2, 2));
        assert!(!cell.obey(6, Revision(9), set(vec![])), "an older epoch");
        assert!(!cell.obey(7, Revision(2), set(vec![])), "an older set");
        assert!(cell.obey(7, Revision(4), set(vec![spec(1, Wanted::Run), spec(2, Wanted::Drain)])));
        assert!(cell.live());
        assert_eq!(states(&mut cell), [InstanceState::Ready, InstanceState::Draining]);
        let stamped = spec(1, Wanted::Run);
        let stamps: Stamps = [(stamped.instance, 5)].into();
        assert!(cell.known().is_empty());
        assert!(cell.obey(
            8,
            Revision(5),
            WantedSet { stamps: stamps.clone(), ..set(vec![stamped.clone()]) }
        ));
        assert_eq!((cell.counts(), cell.known()), ((1, 1), stamps.clone()));
        let kept = vec![stamped.instance, spec(2, Wanted::Run).instance];
        assert!(
            !cell.obey(8, Revision(6), WantedSet { kept, ..set(vec![]) }),
            "it does not have one of them"
        );
        assert!(cell.obey(8, Revision(6), WantedSet { kept: vec![stamped.instance], ..set(vec![]) }));
        assert_eq!((cell.counts(), cell.known()), ((1, 1), stamps));
        assert_eq!(cell.announce(true).seq, 3);
    }
}
