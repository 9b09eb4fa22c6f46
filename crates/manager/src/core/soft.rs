//! The soft state: what cells and gateways have announced, with expiry. Never stored.
//!
//! While the bus is down, or this manager stands still, time stands still here, too: silence of everybody is not death of
//! everybody.

mod entries;
mod names;

use super::clock::Clock;
use entries::{Entries, GatewayEntry};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;
use towpath_types::{CellId, InstanceId, Revision};
use towpath_wire::cell::{CellAnnounce, InstanceReport, InstanceState};
use towpath_wire::gateway::GatewayReport;

/// Silence after which a cell or gateway counts as not live, milliseconds: three intervals.
pub const LIVE_MS: u64 = 6_500;
/// Silence after which it is forgotten altogether, milliseconds.
const FORGET_MS: u64 = 600_000;
/// A cell that said that it leaves is forgotten after so long, milliseconds.
const FORGET_LEFT_MS: u64 = 60_000;
/// The listener looks every second; when it did not for so long, milliseconds, the manager stood still.
const STALL_MS: u64 = 3_000;
/// After a start, and after the bus came back, every gateway has reported within this time, milliseconds.
const SETTLE_MS: u64 = 2_500;

/// A cell as heard.
#[derive(Debug, Clone)]
pub struct HeardCell {
    /// Its last announcement.
    pub announce: Arc<CellAnnounce>,
    /// Silence since then, milliseconds.
    pub silent_ms: u64,
    /// Silent for longer than [`LIVE_MS`], or it said that it leaves.
    pub lost: bool,
    /// Instances that have begun to start lately.
    pub starting: u32,
}

/// A gateway as heard.
#[derive(Debug, Clone)]
pub struct HeardGateway {
    /// Its last report.
    pub report: Arc<GatewayReport>,
    /// Silence since then, milliseconds.
    pub silent_ms: u64,
    /// Silent for longer than [`LIVE_MS`].
    pub lost: bool,
}

/// An instance as heard.
#[derive(Debug, Clone)]
pub struct HeardInstance {
    /// Its cell.
    pub cell: CellId,
    /// Silence of the cell, milliseconds.
    pub silent_ms: u64,
    /// The report, as of the announcement.
    pub report: InstanceReport,
    /// Whether every live gateway serves (or no longer serves) it in this state.
    pub heard: bool,
    /// Requests in flight as gateways report them (draining instances only).
    pub in_flight: u64,
}

/// The same, without a copy of the report.
#[derive(Debug, Clone, Copy)]
pub struct InstanceNews<'a> {
    /// Its cell.
    pub cell: CellId,
    /// Silence of the cell, milliseconds.
    pub silent_ms: u64,
    /// The report, as of the announcement.
    pub report: &'a InstanceReport,
    /// Whether every live gateway serves (or no longer serves) it in this state.
    pub heard: bool,
    /// Requests in flight as gateways report them (draining instances only).
    pub in_flight: u64,
}

impl InstanceNews<'_> {
    fn owned(self) -> HeardInstance {
        let Self { cell, silent_ms, report, heard, in_flight } = self;
        HeardInstance { cell, silent_ms, report: report.clone(), heard, in_flight }
    }
}

/// What [`SoftState::take_changed`] found, all at one moment.
#[derive(Debug)]
pub struct ChangedCells {
    /// Now, on the clock on which silence is counted.
    pub time_ms: u64,
    /// Cells; `None` = not known (any more).
    pub cells: Vec<(CellId, Option<HeardCell>)>,
}

/// What an announcement changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AnnounceChange {
    /// Whether it was taken: neither old nor repeated.
    pub fresh: bool,
    /// The cell was not known, or not live.
    pub returned: bool,
    /// Instances that are new, gone or in another state.
    pub instances: Vec<InstanceId>,
}

/// The soft state. All methods are short and take no await.
#[derive(Debug)]
pub struct SoftState {
    inner: RwLock<Entries>,
    clock: Arc<Clock>,
    ticks: watch::Sender<u64>,
}

impl SoftState {
    /// Nothing heard yet.
    pub fn new(clock: Arc<Clock>) -> Self {
        Self { inner: RwLock::default(), clock, ticks: watch::Sender::new(0) }
    }

    fn read<R>(&self, f: impl FnOnce(&Entries, u64) -> R) -> R {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let time = inner.time_ms(self.clock.uptime_ms());
        f(&inner, time)
    }

    fn write<R>(&self, f: impl FnOnce(&mut Entries, u64) -> R) -> R {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let time = inner.time_ms(self.clock.uptime_ms());
        f(&mut inner, time)
    }

    /// Follows changes: a counter that rises with every announcement and report.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.ticks.subscribe()
    }

    fn tick(&self) {
        self.ticks.send_modify(|ticks| *ticks += 1);
    }

    /// Cells and gateways are listened to from now on.
    pub fn begin_listening(&self) {
        self.write(|inner, time| inner.listening_since_ms = Some(time));
    }

    /// How long they have been listened to, bus outages left out, milliseconds.
    pub fn listening_ms(&self) -> u64 {
        self.read(|inner, time| inner.listening_since_ms.map_or(0, |since| time.saturating_sub(since)))
    }

    /// The bus went down, or came back.
    pub fn set_bus_up(&self, up: bool) {
        let uptime = self.clock.uptime_ms();
        self.write(|inner, _| match (up, inner.down_since_ms) {
            (false, None) => inner.down_since_ms = Some(uptime),
            (true, Some(since)) => {
                inner.suspended_ms += uptime.saturating_sub(since);
                inner.down_since_ms = None;
                // What was heard before may be old news: wait until all had a chance to speak.
                let time = inner.time_ms(uptime);
                if inner.listening_since_ms.is_some_and(|begun| time.saturating_sub(begun) >= SETTLE_MS) {
                    inner.listening_since_ms = Some(time);
                    for (cell, entry) in &mut inner.cells {
                        entry.at_ms = time;
                        inner.changed.insert(*cell);
                    }
                }
            }
            _ => {}
        });
        self.tick();
    }

    /// Takes a cell's announcement.
    pub fn hear_cell(&self, announce: CellAnnounce) -> AnnounceChange {
        let change = self.write(|inner, time| {
            let old = inner.cells.remove(&announce.cell);
            if let Some(old) = old {
                let stamp = |a: &CellAnnounce| (a.incarnation, a.seq);
                if stamp(&announce) <= stamp(&old.announce) {
                    inner.cells.insert(announce.cell, old);
                    return AnnounceChange::default();
                }
                inner.take_announce(announce, Some(&old), time)
            } else {
                inner.take_announce(announce, None, time)
            }
        });
        if change.fresh {
            self.tick();
        }
        change
    }

    /// Takes a gateway's report; says whether what it has heard, serves or drains changed.
    pub fn hear_gateway(&self, report: GatewayReport) -> bool {
        let changed = self.write(|inner, time| {
            let old = inner.gateways.get(&report.gateway);
            // The word of an earlier start counts nothing, as long as the later one speaks.
            let speaks = |old: &&GatewayEntry| time.saturating_sub(old.at_ms) <= LIVE_MS;
            if old.filter(speaks).is_some_and(|old| old.report.incarnation > report.incarnation) {
                return false;
            }
            let changed = old.is_none_or(|old| {
                old.report.heard != report.heard
                    || old.report.draining != report.draining
                    || old.report.revision != report.revision
                    || old.report.leaving != report.leaving
            });
            inner.gateways.insert(report.gateway, GatewayEntry { report: Arc::new(report), at_ms: time });
            changed
        });
        self.tick();
        changed
    }

    /// All known cells, in the order of their ids.
    pub fn cells(&self) -> Vec<HeardCell> {
        self.read(|inner, time| inner.cells.values().map(|entry| entry.heard(time)).collect())
    }

    /// A cell.
    pub fn cell(&self, cell: CellId) -> Option<HeardCell> {
        self.read(|inner, time| inner.cells.get(&cell).map(|entry| entry.heard(time)))
    }

    /// All known gateways, in the order of their ids.
    pub fn gateways(&self) -> Vec<HeardGateway> {
        self.read(|inner, time| {
            inner
                .gateways
                .values()
                .map(|entry| {
                    let silent_ms = time.saturating_sub(entry.at_ms);
                    let lost = entry.report.leaving || silent_ms > LIVE_MS;
                    HeardGateway { report: entry.report.clone(), silent_ms, lost }
                })
                .collect()
        })
    }

    /// Cells of which something was heard since this was called last, and the others that are asked for.
    pub fn take_changed(&self, others: BTreeSet<CellId>) -> ChangedCells {
        self.write(|inner, time| {
            let mut cells = std::mem::take(&mut inner.changed);
            cells.extend(others);
            let heard = |cell| inner.cells.get(&cell).map(|entry| entry.heard(time));
            ChangedCells { time_ms: time, cells: cells.into_iter().map(|cell| (cell, heard(cell))).collect() }
        })
    }

    /// An instance as last heard.
    pub fn instance(&self, instance: InstanceId) -> Option<HeardInstance> {
        self.read(|inner, time| {
            inner.find_instance(instance, time, inner.settled(time)).map(InstanceNews::owned)
        })
    }

    /// The state in which an instance was heard last.
    pub fn instance_state(&self, instance: InstanceId) -> Option<InstanceState> {
        self.read(|inner, time| inner.find_instance(instance, time, false).map(|news| news.report.state))
    }

    /// What `take` makes of many instances, all at one moment.
    pub fn read_instances<R>(
        &self,
        ids: impl IntoIterator<Item = InstanceId>,
        take: impl Fn(InstanceNews<'_>) -> R,
    ) -> Vec<R> {
        self.read(|inner, time| {
            let settled = inner.settled(time);
            let find = |instance| inner.find_instance(instance, time, settled).map(&take);
            ids.into_iter().filter_map(find).collect()
        })
    }

    /// Number of live gateways.
    pub fn live_gateways(&self) -> u32 {
        self.read(|inner, time| u32::try_from(inner.live_gateways(time).count()).unwrap_or(u32::MAX))
    }

    /// The lowest revision that a live gateway serves; `None` = there is no live gateway.
    pub fn served_revision(&self) -> Option<Revision> {
        self.read(|inner, time| inner.live_gateways(time).map(|gateway| gateway.revision).min())
    }

    /// Whether all gateways had the time to report since listening began.
    pub fn settled(&self) -> bool {
        self.read(|inner, time| inner.settled(time))
    }

    /// The listener is at work: it calls this every second. When it did not for a while, that time does not count.
    pub fn note_listener(&self) {
        let uptime = self.clock.uptime_ms();
        self.write(|inner, _| {
            inner.note_listener(uptime);
            let time = inner.time_ms(uptime);
            inner.excuse_if_all_are_silent(time);
        });
    }

    /// Cells that were silent for longer than `lost_ms` and were not returned by this before. Forgets what has been gone for long.
    pub fn take_lost(&self, lost_ms: u64) -> Vec<CellId> {
        self.write(|inner, time| {
            inner.tidy_names();
            inner.gateways.retain(|_, entry| time.saturating_sub(entry.at_ms) <= FORGET_MS);
            let forgotten: Vec<CellId> = inner
                .cells
                .iter()
                .filter(|(_, entry)| {
                    let most = if entry.announce.leaving { FORGET_LEFT_MS } else { FORGET_MS };
                    time.saturating_sub(entry.at_ms) > most
                })
                .map(|(cell, _)| *cell)
                .collect();
            for cell in forgotten {
                inner.cells.remove(&cell);
                inner.changed.insert(cell);
                inner.by_instance.retain(|_, at| *at != cell);
            }
            inner
                .cells
                .iter_mut()
                .filter(|(_, entry)| !entry.announce.leaving && !entry.loss_told)
                .filter(|(_, entry)| time.saturating_sub(entry.at_ms) > lost_ms)
                .map(|(cell, entry)| {
                    entry.loss_told = true;
                    *cell
                })
                .collect()
        })
    }
}

#[cfg(test)]
mod tests;
