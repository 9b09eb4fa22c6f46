//! Resources as clients see them.

use super::ApiState;
use super::auth::Caller;
use super::problem::{Outcome, Problem};
use super::variables::{Secrets, visible};
use crate::core::Core;
use crate::core::cache::CachedGroup;
use crate::core::keys::GroupRef;
use crate::operations::RouteIndex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use towpath_types::health::HealthCheck;
use towpath_types::lane::{EntryRule, LanePolicy};
use towpath_types::resource::Key;
use towpath_types::spec::{
    AppSpec, LaneKind, LaneSpec, LastFailure, Limits, OperationPhase, OperationSpec, OperationStatus,
    ReleaseSpec, Role, RolloutPhase, RouteSpec, SpaceSpec,
};
use towpath_types::upstream::{Protocol, UpstreamSpec};
use towpath_types::{
    AppName, AppRef, Digest, ErrorCode, GatewayId, Generation, LaneName, Millis, OperationId, OrgName,
    Record, Revision, SpaceName, SpaceRef,
};
use towpath_wire::cell::InstanceState;
use towpath_wire::gateway::ItemKey;

/// What every stored resource has.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub(crate) struct Meta {
    /// Id, never used again.
    pub(crate) id: String,
    /// Rises when the spec changes.
    pub(crate) generation: Generation,
    /// Revision of the last write; also the ETag.
    pub(crate) revision: Revision,
    /// Milliseconds since 1970, by the store's clock.
    pub(crate) created_ms: u64,
    /// Likewise.
    pub(crate) updated_ms: u64,
}

impl From<&Record> for Meta {
    fn from(record: &Record) -> Self {
        Self {
            id: record.id.clone(),
            generation: record.generation,
            revision: record.revision,
            created_ms: record.created_ms,
            updated_ms: record.updated_ms,
        }
    }
}

/// Why gateways do not serve a resource; an older version of it may serve on.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Refusal)]
pub(crate) struct RefusalView {
    /// What is wrong with it.
    pub(crate) why: String,
    /// Who says so.
    pub(crate) gateways: Vec<GatewayId>,
}

impl RefusalView {
    fn all(core: &Core, item: &ItemKey) -> Vec<Self> {
        let refusals = core.refusals(item);
        refusals.into_iter().map(|found| Self { why: found.why, gateways: found.gateways }).collect()
    }
}

/// How an app stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AppState {
    /// Nothing was pushed yet.
    Empty,
    /// Coming up; nothing serves yet.
    Starting,
    /// All that is wanted serves.
    Running,
    /// Less than wanted serves, or a group's last change failed.
    Degraded,
    /// Nothing serves although something should.
    Failed,
    /// Stopped on purpose.
    Stopped,
}

/// An app.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = App)]
pub(crate) struct AppView {
    pub(crate) name: String,
    pub(crate) org: Option<OrgName>,
    pub(crate) space: Option<SpaceName>,
    #[serde(flatten)]
    pub(crate) meta: Meta,
    /// Environment of every instance; viewers do not see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) env: Option<BTreeMap<String, String>>,
    /// Secret variables, without their values; viewers do not see them.
    #[serde(skip_serializing_if = "Secrets::is_empty")]
    #[schema(value_type = BTreeMap<String, super::variables::SecretView>, required = false)]
    pub(crate) secrets: Secrets,
    /// How gateways treat it.
    pub(crate) upstream: UpstreamSpec,
    /// Addresses in the base lane.
    pub(crate) urls: Vec<String>,
    pub(crate) state: AppState,
    pub(crate) groups: Vec<GroupView>,
    /// What gateways have against its settings; absent = nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) refused: Vec<RefusalView>,
}

/// The copies of an app in a lane.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Group)]
pub(crate) struct GroupView {
    pub(crate) app: AppName,
    pub(crate) lane: LaneName,
    /// Empty = the only region.
    pub(crate) region: String,
    #[serde(flatten)]
    pub(crate) meta: Meta,
    /// Wanted instances.
    pub(crate) count: u32,
    /// Stopped on purpose.
    pub(crate) stopped: bool,
    /// Wanted release.
    pub(crate) release: Digest,
    /// The release that requests get now, when it is one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) serving: Option<Digest>,
    /// Environment on top of the app's; viewers do not see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) env: Option<BTreeMap<String, String>>,
    /// Secret variables, without their values; viewers do not see them.
    #[serde(skip_serializing_if = "Secrets::is_empty")]
    #[schema(value_type = BTreeMap<String, super::variables::SecretView>, required = false)]
    pub(crate) secrets: Secrets,
    pub(crate) limits: Limits,
    /// Overrides the release's health check.
    pub(crate) health: Option<HealthCheck>,
    /// Counts restarts.
    pub(crate) restart: u64,
    pub(crate) phase: RolloutPhase,
    pub(crate) code: Option<ErrorCode>,
    pub(crate) message: String,
    /// What went wrong last; it may be over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_failure: Option<LastFailure>,
    /// Instances that serve.
    pub(crate) ready: u32,
    /// Instances in all.
    pub(crate) instances: u32,
    /// Addresses of the lane.
    pub(crate) urls: Vec<String>,
}

impl GroupView {
    fn new(core: &Core, name: &GroupRef, group: &CachedGroup, routes: &RouteIndex, caller: &Caller) -> Self {
        let (spec, status) = (&group.spec, &group.status);
        let (env, secrets) = visible(&spec.env, caller);
        let ids = status.assignments.iter().map(|assignment| assignment.instance);
        let states = core.soft.read_instances(ids, |news| news.report.state);
        let ready = states.into_iter().filter(|state| *state == InstanceState::Ready).count();
        Self {
            app: spec.app.clone(),
            lane: spec.lane.clone(),
            region: spec.region.clone(),
            meta: Meta::from(&*group.record),
            count: spec.count,
            stopped: spec.stopped,
            release: spec.release,
            serving: status.serving.map(|version| version.release),
            env,
            secrets,
            limits: spec.limits.clone(),
            health: spec.health.clone(),
            restart: spec.restart,
            phase: status.phase,
            code: status.code,
            message: status.message.clone(),
            last_failure: status.last_failure.clone(),
            ready: u32::try_from(ready).unwrap_or(u32::MAX),
            instances: u32::try_from(status.assignments.len()).unwrap_or(u32::MAX),
            urls: routes.urls(&name.app, Some(&name.lane)),
        }
    }
}

impl AppView {
    fn new(
        core: &Core,
        record: &Record,
        groups: Vec<GroupView>,
        routes: &RouteIndex,
        caller: &Caller,
    ) -> Option<Self> {
        let spec: AppSpec = record.spec().ok()?;
        let app = app_of(&record.key)?;
        let (env, secrets) = visible(&spec.env, caller);
        Some(Self {
            name: record.key.name.clone(),
            org: record.key.org.clone(),
            space: record.key.space.clone(),
            meta: Meta::from(record),
            env,
            secrets,
            upstream: spec.upstream,
            urls: routes.urls(&app, None),
            state: state_of(&groups),
            groups,
            refused: RefusalView::all(core, &ItemKey::App(app)),
        })
    }
}

fn state_of(groups: &[GroupView]) -> AppState {
    if groups.is_empty() {
        return AppState::Empty;
    }
    let wanted: Vec<_> = groups.iter().filter(|group| !group.stopped && group.count > 0).collect();
    if wanted.is_empty() {
        return AppState::Stopped;
    }
    let none_serves = wanted.iter().all(|group| group.ready == 0);
    let moving =
        wanted.iter().any(|group| matches!(group.phase, RolloutPhase::Rolling | RolloutPhase::RollingBack));
    let whole = wanted.iter().all(|group| group.ready >= group.count && group.code.is_none());
    match (none_serves, moving, whole) {
        (true, true, _) => AppState::Starting,
        (true, false, _) => AppState::Failed,
        (false, _, true) => AppState::Running,
        (false, ..) => AppState::Degraded,
    }
}

/// Environments hold secrets: those who only read do not get them.
pub(crate) fn sees_env(caller: &Caller) -> bool {
    matches!(caller.role, Role::Operator | Role::Owner | Role::Developer)
}

/// The app that a record's key names.
pub(crate) fn app_of(key: &Key) -> Option<AppRef> {
    Some(AppRef { org: key.org.clone()?, space: key.space.clone()?, app: key.name.parse().ok()? })
}

impl ApiState {
    /// The groups of an app.
    pub(crate) fn group_views(&self, app: &AppRef, routes: &RouteIndex, caller: &Caller) -> Vec<GroupView> {
        let groups = self.core.cache.groups_of(app);
        groups.iter().map(|(name, group)| GroupView::new(&self.core, name, group, routes, caller)).collect()
    }

    /// An app from its record.
    pub(crate) fn app_view(&self, record: &Record, caller: &Caller) -> Outcome<AppView> {
        let app = app_of(&record.key).ok_or_else(|| unreadable(record))?;
        let routes = RouteIndex::of(&self.core, Some(&app));
        let groups = self.group_views(&app, &routes, caller);
        AppView::new(&self.core, record, groups, &routes, caller).ok_or_else(|| unreadable(record))
    }

    /// Many apps; unreadable ones are left out.
    pub(crate) fn app_views(&self, records: &[Arc<Record>], caller: &Caller) -> Vec<AppView> {
        let routes = RouteIndex::of(&self.core, None);
        records
            .iter()
            .filter_map(|record| {
                let groups = self.group_views(&app_of(&record.key)?, &routes, caller);
                AppView::new(&self.core, record, groups, &routes, caller)
            })
            .collect()
    }
}

/// A stored document that does not fit its type: our own fault, or a newer version's work.
pub(crate) fn unreadable(record: &Record) -> Problem {
    Problem::new(
        ErrorCode::Internal,
        format!("the stored {} {:?} is not readable", record.key.kind, record.key.name),
    )
}

/// A release.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Release)]
pub(crate) struct ReleaseView {
    pub(crate) release: Digest,
    /// Its first 12 hex digits.
    pub(crate) short: String,
    pub(crate) app: AppName,
    pub(crate) source: Digest,
    pub(crate) artifact: Digest,
    pub(crate) artifact_bytes: u64,
    pub(crate) builder: String,
    pub(crate) command: String,
    /// What the builder added; viewers do not see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) env: Option<BTreeMap<String, String>>,
    pub(crate) health: HealthCheck,
    pub(crate) protocol: Protocol,
    pub(crate) grace: Millis,
    /// Who pushed it.
    pub(crate) by: String,
    pub(crate) note: String,
    pub(crate) created_ms: u64,
    /// When it was last pushed or rolled back to.
    pub(crate) used_ms: u64,
    /// Lanes that run it now.
    pub(crate) lanes: Vec<LaneName>,
    /// Lanes in which it ran well once.
    pub(crate) good_in: Vec<LaneName>,
}

impl ReleaseView {
    pub(crate) fn new(record: &Record, lanes: Vec<LaneName>, caller: &Caller) -> Option<Self> {
        let spec: ReleaseSpec = record.spec().ok()?;
        let status: crate::operations::ReleaseStatus = record.status().unwrap_or_default();
        Some(Self {
            short: spec.release.short(),
            release: spec.release,
            app: spec.app,
            source: spec.source,
            artifact: spec.artifact,
            artifact_bytes: spec.artifact_bytes,
            builder: spec.builder,
            command: spec.command,
            env: sees_env(caller).then_some(spec.env),
            health: spec.health,
            protocol: spec.protocol,
            grace: spec.grace,
            by: spec.by,
            note: spec.note,
            created_ms: record.created_ms,
            used_ms: status.used_ms,
            lanes,
            good_in: status.good_ms.into_keys().collect(),
        })
    }
}

/// A long piece of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Operation)]
pub struct OperationView {
    /// Its id.
    pub id: OperationId,
    /// `push`, `scale`, …
    pub verb: String,
    /// The app.
    pub app: AppName,
    /// Its tenant.
    pub org: OrgName,
    /// Its space.
    pub space: SpaceName,
    /// The lane.
    pub lane: LaneName,
    /// Who asked for it.
    pub by: String,
    /// Where it stands.
    pub phase: OperationPhase,
    /// The release, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Digest>,
    /// Nothing had to be built.
    pub reused: bool,
    /// Addresses, when it succeeded.
    pub urls: Vec<String>,
    /// Stable code of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// What failed.
    pub message: String,
    /// Last log lines, when it failed.
    pub log: Vec<String>,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// Likewise.
    pub updated_ms: u64,
    /// Of its record.
    pub revision: Revision,
}

impl OperationView {
    /// From its record; `live` is newer than what is stored.
    pub(crate) fn new(record: &Record, live: Option<OperationStatus>) -> Option<Self> {
        let spec: OperationSpec = record.spec().ok()?;
        let status = live.unwrap_or_else(|| record.status().unwrap_or_default());
        Some(Self {
            id: spec.operation,
            verb: spec.verb,
            app: spec.app.app,
            org: spec.app.org,
            space: spec.app.space,
            lane: spec.lane,
            by: spec.by,
            phase: status.phase,
            release: status.release,
            reused: status.reused,
            urls: status.urls,
            code: status.code,
            message: status.message,
            log: status.log,
            created_ms: record.created_ms,
            updated_ms: record.updated_ms,
            revision: record.revision,
        })
    }
}

/// A route.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Route)]
pub(crate) struct RouteView {
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) app: AppRef,
    pub(crate) strip_path: bool,
    pub(crate) entry: Vec<EntryRule>,
    /// Came with the app.
    pub(crate) automatic: bool,
    pub(crate) url: String,
    /// What gateways have against it; absent = nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) refused: Vec<RefusalView>,
    #[serde(flatten)]
    pub(crate) meta: Meta,
}

impl RouteView {
    pub(crate) fn new(core: &Core, record: &Record) -> Option<Self> {
        let spec: RouteSpec = record.spec().ok()?;
        Some(Self {
            refused: RefusalView::all(core, &ItemKey::Route(record.key.name.clone())),
            url: crate::operations::url(&core.settings.gateway_url, &spec.host, &spec.path),
            host: spec.host,
            path: spec.path,
            app: spec.app,
            strip_path: spec.strip_path,
            entry: spec.entry,
            automatic: spec.automatic,
            meta: Meta::from(record),
        })
    }
}

/// A lane.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Lane)]
pub(crate) struct LaneView {
    pub(crate) name: String,
    pub(crate) kind: LaneKind,
    /// Apps that have something in it.
    pub(crate) apps: Vec<AppName>,
    #[serde(flatten)]
    pub(crate) meta: Meta,
}

impl LaneView {
    pub(crate) fn new(record: &Record, apps: Vec<AppName>) -> Option<Self> {
        let spec: LaneSpec = record.spec().ok()?;
        Some(Self { name: record.key.name.clone(), kind: spec.kind, apps, meta: Meta::from(record) })
    }
}

/// A space.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Space)]
pub(crate) struct SpaceView {
    pub(crate) org: Option<OrgName>,
    pub(crate) space: String,
    /// How lane tags are read.
    pub(crate) lanes: LanePolicy,
    /// What gateways have against it (they go by the policy before); absent = nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) refused: Vec<RefusalView>,
    #[serde(flatten)]
    pub(crate) meta: Meta,
}

impl SpaceView {
    pub(crate) fn new(core: &Core, record: &Record) -> Option<Self> {
        let spec: SpaceSpec = record.spec().ok()?;
        let org = record.key.org.clone();
        let item =
            org.zip(record.key.name.parse().ok()).map(|(org, space)| ItemKey::Space(SpaceRef { org, space }));
        Some(Self {
            org: record.key.org.clone(),
            space: record.key.name.clone(),
            lanes: spec.lanes,
            refused: item.map(|item| RefusalView::all(core, &item)).unwrap_or_default(),
            meta: Meta::from(record),
        })
    }
}
