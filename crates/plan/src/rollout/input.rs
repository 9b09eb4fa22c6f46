//! What a rollout is planned from, and what comes out.

use super::RolloutPolicy;
use crate::placement::CellIndex;
use crate::placement::starts::StartBudget;
use std::collections::{BTreeMap, BTreeSet};
use towpath_types::spec::{GroupSpec, GroupStatus, InstanceSettings, InstanceVersion, ReleaseSpec};
use towpath_types::{CellId, Generation, InstanceId, Millis};

/// Where an instance is in its life, as its cell reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Life {
    /// Being prepared or started.
    Starting,
    /// Healthy.
    Ready,
    /// Was ready, fails its health check.
    Unhealthy,
    /// Takes no new requests.
    Draining,
    /// Was told to stop.
    Stopping,
    /// Ended by itself; the cell will start it again.
    Backoff,
    /// Ended so often that starts are far apart.
    CrashLoop,
    /// Could not be prepared.
    Failed,
}

/// What is known of one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The cell that reports it.
    pub cell: CellId,
    /// State.
    pub life: Life,
    /// How long it has been in that state, milliseconds.
    pub state_ms: u64,
    /// Starts after the first one.
    pub restarts: u32,
    /// For people: why it is in this state.
    pub reason: String,
    /// Whether every live gateway has heard of it in this state (true also when there has been none for a while).
    pub heard: bool,
    /// Requests in flight to it through all gateways, as far as it drains.
    pub in_flight: u64,
}

/// All that a rollout is planned from.
#[derive(Debug, Clone)]
pub struct GroupInput<'a> {
    /// Now, milliseconds since 1970, the clock of the status's times.
    pub now_ms: u64,
    /// How long cells have been listened to without a break, milliseconds. Silence is judged against it.
    pub listening_ms: u64,
    /// What is wanted.
    pub spec: &'a GroupSpec,
    /// Generation of that.
    pub generation: Generation,
    /// Generation of the app's spec.
    pub app_generation: Generation,
    /// The version that spec and app ask for, from [`super::find_version`].
    pub target: InstanceVersion,
    /// The settings behind it.
    pub settings: &'a InstanceSettings,
    /// The target's release; `None` = it is not there.
    pub release: Option<&'a ReleaseSpec>,
    /// What was decided before.
    pub status: &'a GroupStatus,
    /// Reports of instances of this group.
    pub observed: &'a BTreeMap<InstanceId, Observed>,
    /// Cells that have been heard.
    pub cells: &'a CellIndex,
    /// Instances per cell that the lane's other groups have there.
    pub mates: &'a BTreeMap<CellId, u32>,
    /// Instances of this group that were promised more than their cells have: another planner did not know of them.
    pub overpromised: &'a BTreeSet<InstanceId>,
    /// How carefully to go.
    pub policy: &'a RolloutPolicy,
    /// Most new instances in this plan: the share of this group in what the platform starts at once.
    pub budget: StartBudget,
    /// Ids for new instances are minted from this; a fresh random number for every call.
    pub entropy: u128,
}

impl GroupInput<'_> {
    /// Start time-out of the target; `None` = the release is not there.
    pub(super) fn start_timeout(&self) -> Option<Millis> {
        let release = self.release?;
        Some(self.settings.health.as_ref().unwrap_or(&release.health).start_timeout)
    }
}

/// What to do about one instance, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanAction {
    /// A new instance on a cell.
    Assign {
        /// Which.
        instance: InstanceId,
        /// Where.
        cell: CellId,
        /// Whether it takes the place of one on a lost cell.
        replaces_lost: bool,
        /// For people.
        why: String,
    },
    /// Take it out of the gateways.
    Drain {
        /// Which.
        instance: InstanceId,
        /// For people.
        why: String,
    },
    /// Take it out of the set: its cell stops it.
    Remove {
        /// Which.
        instance: InstanceId,
        /// For people.
        why: String,
    },
}

/// A plan: the status to commit, and what changed against the one before.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupPlan {
    /// The status to store.
    pub status: GroupStatus,
    /// Changes of instances, in order.
    pub actions: Vec<PlanAction>,
    /// Plan again after so many milliseconds at the latest.
    pub wake_ms: u64,
}
