//! What was heard, as it is kept.

use super::names::Names;
use super::{AnnounceChange, HeardCell, InstanceNews, LIVE_MS, SETTLE_MS, STALL_MS};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use towpath_plan::placement::starts::START_MS;
use towpath_types::{CellId, GatewayId, InstanceId};
use towpath_wire::cell::{CellAnnounce, InstanceReport, InstanceState};
use towpath_wire::gateway::{GatewayReport, Heard};

#[derive(Debug)]
pub(super) struct CellEntry {
    /// Its reports in the order of their instances, each of which is there once.
    pub(super) announce: Arc<CellAnnounce>,
    pub(super) at_ms: u64,
    /// Per report: the announcement in which its present state was first told.
    pub(super) since: Box<[u64]>,
    /// Whether its loss was told to [`SoftState::take_lost`].
    pub(super) loss_told: bool,
    /// Instances that have begun to start lately.
    pub(super) starting: u32,
}

impl CellEntry {
    /// The cell as it stands at `time`.
    pub(super) fn heard(&self, time: u64) -> HeardCell {
        let silent_ms = time.saturating_sub(self.at_ms);
        let lost = self.announce.leaving || silent_ms > LIVE_MS;
        HeardCell { announce: self.announce.clone(), silent_ms, lost, starting: self.starting }
    }

    /// An instance's report, and the announcement in which its present state was first told.
    fn find(&self, instance: InstanceId) -> Option<(&InstanceReport, u64)> {
        let reports = &self.announce.instances;
        let at = reports.binary_search_by_key(&instance, |report| report.instance).ok()?;
        Some((reports.get(at)?, *self.since.get(at)?))
    }
}

#[derive(Debug)]
pub(super) struct GatewayEntry {
    pub(super) report: Arc<GatewayReport>,
    pub(super) at_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) cells: BTreeMap<CellId, CellEntry>,
    pub(super) gateways: BTreeMap<GatewayId, GatewayEntry>,
    pub(super) by_instance: HashMap<InstanceId, CellId>,
    pub(super) names: Names,
    /// Uptime at which the listener was at work last; `None` = nobody listens yet.
    pub(super) listener_at_ms: Option<u64>,
    /// Uptime at which the bus went down.
    pub(super) down_since_ms: Option<u64>,
    /// Time that passed while it was down, or the listener stood still; deadlines do not see it.
    pub(super) suspended_ms: u64,
    /// When silence was looked at last, in time without suspension.
    pub(super) looked_ms: u64,
    /// When listening began, in time without suspension.
    pub(super) listening_since_ms: Option<u64>,
    /// Cells of which something was heard, or that were forgotten, since [`SoftState::take_changed`] was asked last.
    pub(super) changed: BTreeSet<CellId>,
}

impl Entries {
    /// Uptime without the time in which the bus was down, or this manager stood still: what was said meanwhile it has yet
    /// to hear, so whoever looks at the time first must not take that for silence.
    pub(super) fn time_ms(&self, uptime_ms: u64) -> u64 {
        let heard_to = self.listener_at_ms.map_or(u64::MAX, |at| at.saturating_add(STALL_MS));
        self.down_since_ms.unwrap_or(uptime_ms).min(heard_to).saturating_sub(self.suspended_ms)
    }

    /// The listener is at work.
    pub(super) fn note_listener(&mut self, uptime_ms: u64) {
        let before = self.time_ms(uptime_ms);
        self.listener_at_ms = Some(uptime_ms);
        self.suspended_ms += self.time_ms(uptime_ms).saturating_sub(before);
    }

    /// While not one cell speaks, it is this manager that hears nothing, or there is nowhere to go: no cell gets any more
    /// lost by the time since the last look.
    pub(super) fn excuse_if_all_are_silent(&mut self, time: u64) {
        let passed = time.saturating_sub(self.looked_ms);
        self.looked_ms = time;
        let here = || self.cells.values().filter(|entry| !entry.announce.leaving);
        if here().all(|entry| time.saturating_sub(entry.at_ms) > LIVE_MS) {
            for (cell, entry) in self.cells.iter_mut().filter(|(_, entry)| !entry.announce.leaving) {
                self.changed.insert(*cell);
                let silent = time.saturating_sub(LIVE_MS + 1);
                entry.at_ms = entry.at_ms.saturating_add(passed).min(silent);
            }
        }
    }

    pub(super) fn live_gateways(&self, time: u64) -> impl Iterator<Item = &GatewayReport> {
        self.gateways
            .values()
            .filter(move |entry| !entry.report.leaving && time.saturating_sub(entry.at_ms) <= LIVE_MS)
            .map(|entry| &*entry.report)
    }

    pub(super) fn settled(&self, time: u64) -> bool {
        self.listening_since_ms.is_some_and(|since| time.saturating_sub(since) >= SETTLE_MS)
    }

    /// What is known of an instance; `settled` is of this moment.
    pub(super) fn find_instance(
        &self,
        instance: InstanceId,
        time: u64,
        settled: bool,
    ) -> Option<InstanceNews<'_>> {
        let cell = *self.by_instance.get(&instance)?;
        let entry = self.cells.get(&cell)?;
        let (report, since) = entry.find(instance)?;
        let wanted = Heard { incarnation: entry.announce.incarnation, seq: since };
        let heard = settled
            && self
                .live_gateways(time)
                .all(|gateway| gateway.heard.get(&cell).is_some_and(|heard| *heard >= wanted));
        let in_flight = self.live_gateways(time).filter_map(|gateway| gateway.draining.get(&instance)).sum();
        Some(InstanceNews { cell, silent_ms: time.saturating_sub(entry.at_ms), report, heard, in_flight })
    }
}

impl Entries {
    /// Puts a fresh announcement in the place of `old`, which is already out of the map.
    pub(super) fn take_announce(
        &mut self,
        mut announce: CellAnnounce,
        old: Option<&CellEntry>,
        time: u64,
    ) -> AnnounceChange {
        let cell = announce.cell;
        self.tidy(&mut announce.instances);
        let away = |old: &CellEntry| old.announce.leaving || time.saturating_sub(old.at_ms) > LIVE_MS;
        let returned = !announce.leaving && old.is_none_or(away);
        let mut change = AnnounceChange { fresh: true, returned, instances: Vec::new() };
        let same_start = old.is_some_and(|old| old.announce.incarnation == announce.incarnation);
        let mut since = Vec::with_capacity(announce.instances.len());
        for report in &announce.instances {
            let told = old.and_then(|old| old.find(report.instance));
            let same = told.filter(|(told, _)| phase(told) == phase(report));
            since.push(same.filter(|_| same_start).map_or(announce.seq, |(_, seq)| seq));
            if same.is_none() {
                change.instances.push(report.instance);
            }
            self.by_instance.insert(report.instance, cell);
        }
        let there = |instance: &InstanceId| {
            announce.instances.binary_search_by_key(instance, |report| report.instance).is_ok()
        };
        let before = old.into_iter().flat_map(|old| &old.announce.instances).map(|report| report.instance);
        for instance in before.filter(|instance| !there(instance)) {
            change.instances.push(instance);
            if self.by_instance.get(&instance) == Some(&cell) {
                self.by_instance.remove(&instance);
            }
        }
        if announce.leaving {
            // It stays known as one that left: so its instances are replaced, and older news does not bring it back.
            self.by_instance.retain(|_, at| *at != cell);
        }
        let begins =
            |report: &&InstanceReport| report.state == InstanceState::Starting && report.state_ms < START_MS;
        let starting = announce.instances.iter().filter(begins).count();
        let starting = u32::try_from(starting).unwrap_or(u32::MAX);
        let (announce, since) = (Arc::new(announce), since.into_boxed_slice());
        self.cells.insert(cell, CellEntry { announce, at_ms: time, since, loss_told: false, starting });
        self.changed.insert(cell);
        change
    }

    /// Reports as they are kept: in order, each instance once, with names that all share, and in no more room than they take.
    fn tidy(&mut self, reports: &mut Vec<InstanceReport>) {
        reports.sort_by_key(|report| report.instance);
        reports.dedup_by_key(|report| report.instance);
        reports.shrink_to_fit();
        for report in reports {
            self.names.share(report);
        }
    }

    /// Forgets names that nobody says any more.
    pub(super) fn tidy_names(&mut self) {
        if self.names.is_full() {
            self.names.keep(self.cells.values().flat_map(|entry| &entry.announce.instances));
        }
    }
}

/// What of a report, when it changes, gateways have to hear and plans depend on.
fn phase(report: &InstanceReport) -> (InstanceState, u16, u32, u32) {
    (report.state, report.port, report.restarts, report.weight)
}
