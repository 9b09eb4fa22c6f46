//! Specs and statuses of the stored kinds.

use crate::health::HealthCheck;
use crate::lane::{EntryRule, LanePolicy};
use crate::secret::Env;
use crate::upstream::{Protocol, UpstreamSpec};
use crate::{
    AppName, AppRef, ByteSize, CellId, Digest, ErrorCode, Generation, GroupId, InstanceId, LaneName,
    ManagerId, Millis, OperationId, OrgName, SpaceName,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Spec of a space.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub struct SpaceSpec {
    /// How lane tags are read.
    pub lanes: LanePolicy,
}

/// What sort of lane it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum LaneKind {
    /// The one that every space has and that serves whatever another lane lacks.
    Base,
    /// Holds only what differs from base.
    #[default]
    Feature,
    /// Developers' own machines.
    Local,
}

/// Spec of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub struct LaneSpec {
    /// What sort it is.
    pub kind: LaneKind,
}

/// Spec of an app: what holds for all its groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub struct AppSpec {
    /// Environment of every instance, below the group's own.
    pub env: Env,
    /// Balancing, limits, stickiness.
    pub upstream: UpstreamSpec,
}

/// What one instance may use. `None` = the platform's default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Hard limit on memory; default 512M.
    pub memory: Option<ByteSize>,
    /// Limit on what it writes on the disk beyond its release; default 1G. Above it the instance is begun anew.
    pub disk: Option<ByteSize>,
    /// Open files; default 16384.
    pub files: Option<u64>,
    /// Processes and threads; default 1024.
    pub processes: Option<u64>,
}

/// Spec of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// The app.
    pub app: AppName,
    /// The lane.
    pub lane: LaneName,
    /// The region; empty = the only one.
    #[serde(default)]
    pub region: String,
    /// How many instances are wanted.
    pub count: u32,
    /// Wanted release.
    pub release: Digest,
    /// Environment on top of the app's.
    #[serde(default)]
    pub env: Env,
    /// Limits of each instance.
    #[serde(default)]
    pub limits: Limits,
    /// Overrides the release's health check.
    #[serde(default)]
    pub health: Option<HealthCheck>,
    /// Raised by a restart: a new number replaces every instance, rolling.
    #[serde(default)]
    pub restart: u64,
    /// No instances at all, whatever `count` says.
    #[serde(default)]
    pub stopped: bool,
}

/// Where a group's rollout stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum RolloutPhase {
    /// Wanted and actual agree.
    #[default]
    Steady,
    /// New instances are being brought up, old ones drained.
    Rolling,
    /// The new version did not become healthy; the old one is being restored.
    RollingBack,
    /// Rolled back: the spec of `failed_generation` is given up.
    Failed,
    /// No cell has room.
    Waiting,
}

/// What a cell is told of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// Run it.
    #[default]
    Run,
    /// Announce it as draining: no new requests; it still runs.
    Drain,
}

/// One instance that the manager has decided on, with the version of the group that it embodies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Assignment {
    /// The instance.
    pub instance: InstanceId,
    /// Its cell.
    pub cell: CellId,
    /// Number inside the group, lowest free one at its creation.
    pub ordinal: u32,
    /// What it runs; instances of another version are replaced.
    pub version: InstanceVersion,
    /// Whether it serves or drains.
    pub wanted: Wanted,
    /// When it was decided, store clock, milliseconds since 1970.
    pub since_ms: u64,
    /// When draining began, same clock.
    #[serde(default)]
    pub drain_ms: Option<u64>,
}

/// All that, when changed, needs new instances. Equal versions run the same thing.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
pub struct InstanceVersion {
    /// Release.
    pub release: Digest,
    /// Digest of the [`InstanceSettings`]; their content is in [`GroupStatus::settings`].
    pub settings: Digest,
}

/// What goes into a running instance besides its release.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(default)]
pub struct InstanceSettings {
    /// The app's environment with the group's on top; the release's lies below it.
    pub env: Env,
    /// Limits.
    pub limits: Limits,
    /// The group's health check; `None` = the release's.
    pub health: Option<HealthCheck>,
    /// The group's restart counter.
    pub restart: u64,
}

/// Status of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(default)]
pub struct GroupStatus {
    /// Generation of the group's spec that this status speaks of.
    pub observed: Generation,
    /// Generation of the app's spec that went into it.
    pub observed_app: Generation,
    /// Rollout.
    pub phase: RolloutPhase,
    /// For people: why it waits or failed.
    pub message: String,
    /// Stable code of the failure.
    pub code: Option<ErrorCode>,
    /// What went wrong last, kept when all is well again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
    /// Instances decided on.
    pub assignments: Vec<Assignment>,
    /// Content of every settings digest that an assignment, `target` or `good` names.
    pub settings: BTreeMap<Digest, InstanceSettings>,
    /// Releases that these name, so that what runs can be told in full even when the release is no longer kept.
    pub releases: BTreeMap<Digest, ReleaseSpec>,
    /// The version that the spec asks for.
    pub target: Option<InstanceVersion>,
    /// The version that every new request gets: its full count is in all gateways, and no other version takes requests.
    pub serving: Option<InstanceVersion>,
    /// What last ran healthy at full count: rolled back to when a newer one fails.
    pub good: Option<InstanceVersion>,
    /// Version that failed; it is not tried again until the spec asks for another.
    pub failed: Option<InstanceVersion>,
    /// Instances because of which `failed` failed, at most five; their cells keep their logs for a while.
    pub casualties: Vec<Casualty>,
    /// When the present rollout began, store clock, milliseconds since 1970.
    pub rollout_ms: Option<u64>,
    /// Replacements of broken instances, so that they are not replaced ever faster.
    pub replaced: Replacements,
}

/// A failure that may be over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LastFailure {
    /// When it was noticed, store clock, milliseconds since 1970.
    pub at_ms: u64,
    /// Stable code.
    pub code: ErrorCode,
    /// For people.
    pub message: String,
}

/// An instance that did not become healthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Casualty {
    /// Which.
    pub instance: InstanceId,
    /// Where.
    pub cell: CellId,
    /// For people: what happened.
    pub reason: String,
}

/// How often broken instances were replaced of late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(default)]
pub struct Replacements {
    /// Replacements in a row; a quiet while sets it back.
    pub count: u32,
    /// When the last one was, store clock, milliseconds since 1970.
    pub last_ms: u64,
}

/// Spec of a release. Immutable. The id is the digest of source, builder and settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseSpec {
    /// The release's id.
    pub release: Digest,
    /// The app.
    pub app: AppName,
    /// Digest of the uploaded source (of the uncompressed, canonical tar).
    pub source: Digest,
    /// Digest of the staged artifact (of the stored bytes).
    pub artifact: Digest,
    /// Size of the stored artifact in bytes.
    pub artifact_bytes: u64,
    /// Recipe that built it, for example `python`.
    pub builder: String,
    /// Command, run by `/bin/sh -c` in the app's directory.
    pub command: String,
    /// Environment that the builder adds, below the app's.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Health check if the group has none.
    #[serde(default)]
    pub health: HealthCheck,
    /// Protocol of the app's port.
    #[serde(default)]
    pub protocol: Protocol,
    /// Grace from SIGTERM to SIGKILL.
    #[serde(default = "ten_seconds")]
    pub grace: Millis,
    /// Who pushed it: the token's name.
    #[serde(default)]
    pub by: String,
    /// Free text: for example a git commit.
    #[serde(default)]
    pub note: String,
}

fn ten_seconds() -> Millis {
    Millis::secs(10)
}

/// Spec of a route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// Host in lower case without port: `shop.example.com`, or `*.example.com` for exactly one further label.
    pub host: String,
    /// Path prefix, matched by whole segments: `/` or `/api`.
    #[serde(default = "slash")]
    pub path: String,
    /// The app that serves it.
    pub app: AppRef,
    /// Cut `path` off before the request is sent on.
    #[serde(default)]
    pub strip_path: bool,
    /// Gray releases: the first rule that holds decides the lane of an untagged request.
    #[serde(default)]
    pub entry: Vec<EntryRule>,
    /// Made by the platform from app name and domain; goes with the app.
    #[serde(default)]
    pub automatic: bool,
}

fn slash() -> String {
    "/".into()
}

/// What a token or a member may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Operator,
    /// Everything inside an org: its spaces, members and tokens too.
    Owner,
    /// Everything inside a space.
    Developer,
    /// Reading only.
    Viewer,
    /// A cell: artifacts down, staged artifacts up.
    Cell,
    /// A gateway: the keys of what is secret in resources of the gateway, over the bus.
    Gateway,
}

/// Spec of a token. The token itself is never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenSpec {
    /// SHA-256 of the token (which has 256 random bits, so that no slow hash is needed).
    pub hash: Digest,
    /// What it may do.
    pub role: Role,
    /// Where it may do that; absent for operators and cells. Tokens of earlier versions have none and are of the org `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<OrgName>,
    /// In this space alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<SpaceName>,
    /// End, store clock, milliseconds since 1970; absent = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
}

impl TokenSpec {
    /// A platform's token without an end.
    pub fn platform(hash: Digest, role: Role) -> Self {
        Self { hash, role, org: None, space: None, expires_ms: None }
    }
}

/// Spec of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationSpec {
    /// The operation.
    pub operation: OperationId,
    /// For example `push`, `scale`.
    pub verb: String,
    /// The app that it works on.
    pub app: AppRef,
    /// The lane.
    pub lane: LaneName,
    /// The group, once known.
    #[serde(default)]
    pub group: Option<GroupId>,
    /// The verb's own input, so that another manager can go on with it.
    #[serde(default)]
    pub input: serde_json::Value,
    /// Who runs it.
    pub owner: ManagerId,
    /// Who asked for it: the token's name.
    #[serde(default)]
    pub by: String,
    /// How often it was taken up again before its change was made.
    #[serde(default)]
    pub taken_up: u32,
}

/// Where an operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum OperationPhase {
    /// Accepted.
    #[default]
    Pending,
    /// Building the release.
    Staging,
    /// Bringing up instances.
    Rolling,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

/// Status of an operation. What a later version has added is not known here, and no reason not to read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(default)]
pub struct OperationStatus {
    /// Where it stands.
    pub phase: OperationPhase,
    /// The release, once known.
    pub release: Option<Digest>,
    /// Whether staging was skipped because the release was there.
    pub reused: bool,
    /// Addresses of the app, when it succeeded.
    pub urls: Vec<String>,
    /// Stable code of the failure.
    pub code: Option<ErrorCode>,
    /// For people: what failed.
    pub message: String,
    /// The app's last log lines, when it failed to start.
    pub log: Vec<String>,
    /// Who asked for it to be given up, before its change was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<String>,
}
