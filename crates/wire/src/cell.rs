//! Between cells and the rest.

use crate::WireMessage;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use towpath_secrets::{Parcel, Proof};
use towpath_types::health::HealthCheck;
use towpath_types::load::{HostLoad, InstanceLoad};
use towpath_types::spec::{Limits, Wanted};
use towpath_types::upstream::Protocol;
use towpath_types::{AppRef, CellId, Digest, Incarnation, InstanceId, LaneName, Millis, Place, Revision};

/// What a cell is and runs. Sent every [`ANNOUNCE_INTERVAL_MS`] and within 10 ms of a change; always complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellAnnounce {
    /// Who.
    pub cell: CellId,
    /// Which start of it.
    pub incarnation: Incarnation,
    /// Counts announcements of this incarnation, from 1; a gateway says in its report how far it has heard.
    pub seq: u64,
    /// Where.
    pub place: Place,
    /// IP address at which gateways reach its instances.
    pub address: String,
    /// Version of the binary.
    pub version: String,
    /// Name of the driver, for example `process`.
    pub driver: String,
    /// Memory that may be given to instances, bytes.
    pub memory_bytes: u64,
    /// Cores.
    pub cores: u32,
    /// Load of the machine.
    pub host: HostLoad,
    /// Whether it takes no new instances.
    pub cordoned: bool,
    /// Leaving cleanly: forget it at once after this one.
    pub leaving: bool,
    /// Revision of the desired set that it works on.
    pub desired: Revision,
    /// Builders whose tools are there, for example `python`.
    pub builders: Vec<String>,
    /// What is wrong with the cell itself, for people; usually nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
    /// Every instance that it knows.
    pub instances: Vec<InstanceReport>,
    /// How many instances it has ports for at once; absent = it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<u32>,
    /// Its instances are asked before those of lower priorities, wherever these are; 0 is normal.
    #[serde(default, skip_serializing_if = "is_normal")]
    pub priority: i32,
}

fn is_normal(priority: &i32) -> bool {
    *priority == 0
}

/// Interval of announcements in milliseconds.
pub const ANNOUNCE_INTERVAL_MS: u64 = 2_000;

/// Where an instance is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    /// Being prepared or started; never was ready in this start.
    Starting,
    /// Healthy; takes requests.
    Ready,
    /// Was ready, fails its health check now.
    Unhealthy,
    /// Takes no new requests, finishes what it has.
    Draining,
    /// Was told to stop.
    Stopping,
    /// Ended by itself; waits for its next start.
    Backoff,
    /// Ended so often that starts are far apart.
    CrashLoop,
    /// Could not be prepared: artifact missing or broken, no room.
    Failed,
}

impl InstanceState {
    /// Whether gateways may send it new requests.
    pub fn serves(self) -> bool {
        matches!(self, InstanceState::Ready | InstanceState::Unhealthy)
    }
}

/// One instance in an announcement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceReport {
    /// Which.
    pub instance: InstanceId,
    /// Its app.
    pub app: AppRef,
    /// Its lane.
    pub lane: LaneName,
    /// What it runs.
    pub release: Digest,
    /// Port at the cell's address; 0 while it has none.
    pub port: u16,
    /// Protocol on that port.
    pub protocol: Protocol,
    /// Balancing weight; 100 is normal, 0 takes no requests.
    pub weight: u32,
    /// State.
    pub state: InstanceState,
    /// How long it has been in this state, milliseconds.
    pub state_ms: u64,
    /// Starts after the first one.
    pub restarts: u32,
    /// For people: why it is in this state, for example `exited with status 1`.
    pub reason: String,
    /// Load.
    pub load: InstanceLoad,
    /// Used memory in bytes.
    pub memory_bytes: u64,
    /// Process id on the cell's machine, 0 if none.
    pub pid: u32,
    /// Memory that it may use as long as it is there, bytes: told of those that end, which nothing else speaks of any more.
    /// 0 = not told.
    #[serde(default, skip_serializing_if = "is_untold")]
    pub memory_limit: u64,
}

fn is_untold(bytes: &u64) -> bool {
    *bytes == 0
}

/// Something about what the cell should run has changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellPoke {
    /// Epoch of the sender's ownership; a lower one than seen before is ignored.
    pub epoch: u64,
    /// Ask for at least this revision.
    pub revision: Revision,
}

/// A cell asks for a page of what it should run. The answer is a [`SyncPage`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyncRequest {
    /// Who asks.
    pub cell: CellId,
    /// Which start of it.
    pub incarnation: Incarnation,
    /// Cursor of the page before; `None` = from the start.
    pub cursor: Option<String>,
    /// Revision that is at least wanted; the manager waits for it a moment.
    pub at_least: Revision,
    /// Highest epoch that the cell has obeyed: it takes nothing of a lower one. 0 = it has obeyed none.
    #[serde(default)]
    pub epoch: u64,
    /// Shows that it knows the cells' token, and to which key secrets are to be sealed. Cells of earlier versions send none, and
    /// are told of no instance with secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// What it has of the set that it obeyed last: by instance the stamp that a manager told with its spec. Of these it need not
    /// be told again what has not changed.
    #[serde(default, skip_serializing_if = "Stamps::is_empty")]
    pub known: Stamps,
}

/// By instance, what tells its specs apart: equal stamps, equal specs. Made by managers, and for cells a mere number.
pub type Stamps = BTreeMap<InstanceId, u64>;

impl SyncRequest {
    /// Who asks, as the proof says it.
    pub fn who(&self) -> String {
        format!("{} {}", self.cell, self.incarnation.0)
    }
}

/// Plain secrets of instances, as they are in a parcel: by instance, then by variable.
pub type PlainSecrets = BTreeMap<InstanceId, BTreeMap<String, String>>;

/// A page of what a cell should run. A cell acts when it has all pages of one answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyncPage {
    /// Epoch of the sender's ownership.
    pub epoch: u64,
    /// Revision at which it was read. Pages of different revisions do not mix: start again.
    pub revision: Revision,
    /// Instances.
    pub instances: Vec<InstanceSpec>,
    /// Cursor of the next page.
    pub next: Option<String>,
    /// [`PlainSecrets`] of the page's instances, sealed for the one who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parcel: Option<Parcel>,
    /// Instances whose secrets cannot be given, with the reason for people. One that runs goes on. One that is here but not
    /// in `instances` does not fit into a message, so no cell was ever told of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub withheld: BTreeMap<InstanceId, String>,
    /// Instances of the set whose specs are as the cell knows them, by the stamps in its request. They are not in `instances`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<InstanceId>,
    /// Stamps of instances in `instances`. Those with secrets have none: they are told in full each time.
    #[serde(default, skip_serializing_if = "Stamps::is_empty")]
    pub stamps: Stamps,
}

/// One instance that a cell should run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// Which.
    pub instance: InstanceId,
    /// Its app.
    pub app: AppRef,
    /// Its lane.
    pub lane: LaneName,
    /// Number in its group.
    pub ordinal: u32,
    /// What it runs.
    pub release: Digest,
    /// The staged artifact: a zstd-compressed tar.
    pub artifact: Digest,
    /// Its size in bytes.
    pub artifact_bytes: u64,
    /// Run by `/bin/sh -c`.
    pub command: String,
    /// Environment, complete but for what the cell adds (`PORT`, `TOWPATH_*`, `HOME`, `PATH`).
    pub env: BTreeMap<String, String>,
    /// Names of secret variables, which come in the page's parcel.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub secrets: BTreeSet<String>,
    /// Limits.
    pub limits: Limits,
    /// Health check.
    pub health: HealthCheck,
    /// Protocol on its port.
    pub protocol: Protocol,
    /// From SIGTERM to SIGKILL.
    pub grace: Millis,
    /// Run or drain. An instance that is not in the set at all is stopped.
    pub wanted: Wanted,
}

/// A command and who gives it. Written like the command alone, with the epoch beside its fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellOrder {
    /// Epoch of the sender's ownership; a cell obeys none that is lower than one that it has obeyed. 0 = a sender of an
    /// earlier version, which does not say, or a question, which may be asked by anybody.
    #[serde(default, skip_serializing_if = "is_unsaid")]
    pub epoch: u64,
    /// What to do.
    #[serde(flatten)]
    pub command: CellCommand,
}

fn is_unsaid(epoch: &u64) -> bool {
    *epoch == 0
}

/// A command to a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum CellCommand {
    /// Build a release.
    Stage(crate::staging::StageJob),
    /// End a build.
    CancelStage {
        /// The one that it belongs to.
        operation: towpath_types::OperationId,
    },
    /// Read an instance's log.
    Logs(crate::log::LogQuery),
    /// Take no new instances, or take them again.
    Cordon {
        /// Which of the two.
        on: bool,
    },
}

/// Answer to a [`CellCommand`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum CellReply {
    /// Accepted; what follows comes on the command's own subject.
    Accepted,
    /// Log lines, oldest first.
    Log {
        /// The lines.
        lines: Vec<crate::log::LogLine>,
    },
    /// Another manager owns this by now: the cell has obeyed a higher epoch. Only told to who says one.
    Outdated {
        /// The highest that it has obeyed.
        epoch: u64,
    },
    /// It cannot be done.
    Refused {
        /// Stable code.
        code: towpath_types::ErrorCode,
        /// For people.
        message: String,
    },
}

impl WireMessage for CellAnnounce {
    const NAME: &'static str = "cell.announce";
}
impl WireMessage for CellPoke {
    const NAME: &'static str = "cell.poke";
}
impl WireMessage for SyncRequest {
    const NAME: &'static str = "cell.sync_request";
}
impl WireMessage for SyncPage {
    const NAME: &'static str = "cell.sync_page";
}
impl WireMessage for CellCommand {
    const NAME: &'static str = "cell.command";
}
impl WireMessage for CellOrder {
    const NAME: &'static str = CellCommand::NAME;
    const VERSION: u16 = CellCommand::VERSION;
}
impl WireMessage for CellReply {
    const NAME: &'static str = "cell.reply";
}
