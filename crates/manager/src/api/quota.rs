//! Quotas: what an org wants together, and the claim that goes with each change that wants more.
//!
//! What is wanted is counted, not kept in a counter: from the groups, lanes and routes in memory, and from the operations
//! that are accepted but not ended, each as if it came to its full effect. A change that wants more of what is limited
//! writes to the org's record under the condition that this is as it was when memory was complete up to it; so of two such
//! changes at the same moment, by however many managers, one comes first and the other counts again with it.

use super::ApiState;
use super::problem::{FieldError, Outcome, Problem};
use crate::core::keys::GroupRef;
use crate::core::{Core, keys};
use crate::operations::{Input, NewOperation, automatic_host};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use towpath_plan::rollout::DEFAULT_MEMORY;
use towpath_store::{Expect, Write};
use towpath_types::identity::{OrgSpec, Quota};
use towpath_types::spec::OperationSpec;
use towpath_types::{AppRef, ByteSize, ErrorCode, Kind, LaneName, OrgName, Record, SpaceRef};

/// Longest wait for memory to know the org as it was read.
const CACHE: Duration = Duration::from_secs(5);
/// Orgs whose turns are remembered when nobody waits.
const TURNS: usize = 1024;

/// A change that wants something.
#[derive(Debug, Clone)]
pub(crate) enum Ask {
    /// Whatever the operation comes to.
    Operation(Box<NewOperation>),
    /// A lane.
    Lane(SpaceRef, LaneName),
    /// A route of the org, by its key's name.
    Route(OrgName, String),
}

impl Ask {
    fn org(&self) -> &OrgName {
        match self {
            Ask::Operation(new) => &new.app.org,
            Ask::Lane(space, _) => &space.org,
            Ask::Route(org, _) => org,
        }
    }
}

/// The right to make a change before other changes of the org, once.
pub(crate) struct Claim {
    /// Has to be in the change's transaction.
    pub(crate) write: Write,
    _turn: OwnedMutexGuard<()>,
}

/// One at a time of each org: those who wait do not fail each other's transactions.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    by_org: Mutex<HashMap<OrgName, Arc<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    async fn begin(&self, org: &OrgName) -> OwnedMutexGuard<()> {
        let turn = {
            let mut map = self.by_org.lock().unwrap_or_else(PoisonError::into_inner);
            if map.len() > TURNS {
                map.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            map.entry(org.clone()).or_default().clone()
        };
        turn.lock_owned().await
    }
}

/// What an org uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Usage {
    /// Bytes.
    pub(crate) memory: ByteSize,
    pub(crate) instances: u64,
    pub(crate) routes: u64,
    /// Beside the base lanes.
    pub(crate) lanes: u64,
}

/// What is wanted of one group.
#[derive(Debug, Clone, Default)]
struct Group {
    /// As it is.
    now: State,
    /// What operations that have not ended make of it.
    asked: Vec<Change>,
}

/// What a group's spec says.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    count: u64,
    memory: u64,
    runs: bool,
}

/// What an operation sets.
#[derive(Debug, Clone, Copy, Default)]
struct Change {
    count: Option<u64>,
    memory: Option<u64>,
    runs: Option<bool>,
}

impl State {
    fn after(self, change: Change) -> Self {
        Self {
            count: change.count.unwrap_or(self.count),
            memory: change.memory.unwrap_or(self.memory),
            runs: change.runs.unwrap_or(self.runs),
        }
    }

    /// Instances, and bytes of memory.
    fn wants(self) -> (u64, u64) {
        if self.runs { (self.count, self.count.saturating_mul(self.memory)) } else { (0, 0) }
    }
}

impl Group {
    /// The most that can come of it, in whatever order the operations make their changes.
    fn most(&self) -> (u64, u64) {
        let now = self.now.wants();
        let after = match self.asked.as_slice() {
            [] => return now,
            [change] => self.now.after(*change),
            changes => changes.iter().fold(self.now, |most, change| State {
                count: most.count.max(change.count.unwrap_or_default()),
                memory: most.memory.max(change.memory.unwrap_or_default()),
                runs: most.runs || change.runs == Some(true),
            }),
        };
        let after = after.wants();
        (now.0.max(after.0), now.1.max(after.1))
    }
}

/// What is wanted of an org, at most.
#[derive(Debug, Clone, Default)]
struct Wants {
    groups: BTreeMap<GroupRef, Group>,
    apps: BTreeSet<AppRef>,
    lanes: BTreeSet<(SpaceRef, LaneName)>,
    routes: BTreeSet<String>,
}

impl Wants {
    /// As memory has it now.
    fn load(core: &Core, org: &OrgName) -> Self {
        let mut wants = Self::default();
        for (name, group) in core.cache.groups_in(org) {
            let memory = group.spec.limits.memory.unwrap_or(DEFAULT_MEMORY).0;
            let now = State { count: group.spec.count.into(), memory, runs: !group.spec.stopped };
            wants.groups.insert(name, Group { now, asked: Vec::new() });
        }
        for record in core.cache.list(Kind::App, Some(org), None) {
            wants.apps.extend(super::view::app_of(&record.key));
        }
        for record in core.cache.list(Kind::Lane, Some(org), None) {
            if let (Some(space), Ok(lane)) = (&record.key.space, record.key.name.parse()) {
                wants.lane(&SpaceRef { org: org.clone(), space: space.clone() }, &lane);
            }
        }
        for record in core.cache.list(Kind::Route, None, None) {
            if is_of(&record.spec, org) {
                wants.routes.insert(record.key.name.clone());
            }
        }
        for record in core.cache.list(Kind::Operation, None, None) {
            if let Some((app, lane, input)) = pending(&record, org) {
                wants.operation(core, &app, &lane, &input);
            }
        }
        wants
    }

    fn add(&mut self, core: &Core, ask: &Ask) {
        match ask {
            Ask::Operation(new) => self.operation(core, &new.app, &new.lane, &new.input),
            Ask::Lane(space, lane) => self.lane(space, lane),
            Ask::Route(_, name) => drop(self.routes.insert(name.clone())),
        }
    }

    fn lane(&mut self, space: &SpaceRef, lane: &LaneName) {
        if !lane.is_base() {
            self.lanes.insert((space.clone(), lane.clone()));
        }
    }

    /// The most that an operation can come to, whatever runs before it.
    fn operation(&mut self, core: &Core, app: &AppRef, lane: &LaneName, input: &Input) {
        let name = GroupRef::new(app.clone(), lane.clone());
        match input {
            Input::Push(push) => {
                self.lane(&app.space_ref(), lane);
                if self.apps.insert(app.clone()) {
                    self.routes.insert(format!("{}/", automatic_host(app, &core.settings.domain)));
                }
                self.routes.extend(push.routes.iter().map(|(host, path)| format!("{host}{path}")));
                let fresh = State { count: 1, memory: DEFAULT_MEMORY.0, runs: false };
                let group =
                    self.groups.entry(name).or_insert_with(|| Group { now: fresh, asked: Vec::new() });
                group.asked.push(change(push.instances, push.limits.memory, Some(true)));
            }
            Input::Scale(asked) | Input::Update(asked) => {
                if let Some(group) = self.groups.get_mut(&name) {
                    let runs = asked.stopped.map(|stopped| !stopped);
                    group.asked.push(change(asked.count, asked.limits.memory, runs));
                }
            }
            Input::Rollback { .. } => {
                if let Some(group) = self.groups.get_mut(&name) {
                    group.asked.push(change(None, None, Some(true)));
                }
            }
            Input::Env { .. } | Input::Restart | Input::DeleteGroup | Input::Delete => {}
        }
    }

    fn usage(&self) -> Usage {
        let add = |(n, bytes): (u64, u64), group: &Group| {
            let (more, memory) = group.most();
            (n.saturating_add(more), bytes.saturating_add(memory))
        };
        let (instances, memory) = self.groups.values().fold((0, 0), add);
        Usage {
            memory: ByteSize(memory),
            instances,
            routes: self.routes.len() as u64,
            lanes: self.lanes.len() as u64,
        }
    }
}

fn change(count: Option<u32>, memory: Option<ByteSize>, runs: Option<bool>) -> Change {
    Change { count: count.map(u64::from), memory: memory.map(|memory| memory.0), runs }
}

/// Whether a spec names an app of the org.
fn is_of(spec: &serde_json::Value, org: &OrgName) -> bool {
    spec.pointer("/app/org").and_then(serde_json::Value::as_str) == Some(org.as_str())
}

/// Whether an operation has ended.
pub(crate) fn has_ended(record: &Record) -> bool {
    let phase = record.status.pointer("/phase").and_then(serde_json::Value::as_str);
    matches!(phase, Some("succeeded" | "failed"))
}

/// An operation of the org that has not ended.
fn pending(record: &Record, org: &OrgName) -> Option<(AppRef, LaneName, Input)> {
    if has_ended(record) || !is_of(&record.spec, org) {
        return None;
    }
    let spec: OperationSpec = record.spec().ok()?;
    Some((spec.app, spec.lane, serde_json::from_value(spec.input).ok()?))
}

/// Refuses what goes beyond, naming each limit; what does not want more of it passes even when a limit was lowered.
fn check(org: &OrgName, quota: &Quota, before: Usage, after: Usage) -> Outcome<()> {
    let plain = |n: u64| n.to_string();
    let bytes = |n: u64| ByteSize(n).to_string();
    type Shown = fn(u64) -> String;
    let rows: [(&str, Option<u64>, u64, u64, Shown); 4] = [
        ("memory", quota.memory.map(|memory| memory.0), before.memory.0, after.memory.0, bytes),
        ("instances", quota.instances, before.instances, after.instances, plain),
        ("routes", quota.routes, before.routes, after.routes, plain),
        ("lanes", quota.lanes, before.lanes, after.lanes, plain),
    ];
    let errors: Vec<FieldError> = rows
        .into_iter()
        .filter_map(|(what, limit, used, wanted, shown)| {
            let limit = limit.filter(|limit| wanted > used && wanted > *limit)?;
            let (used, more, limit) = (shown(used), shown(wanted - used), shown(limit));
            let message = format!("used {used}, asked for {more} more, limit {limit}");
            Some(FieldError::new(format!("quota.{what}"), message))
        })
        .collect();
    if errors.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = errors
        .iter()
        .map(|error| format!("{}: {}", error.field.trim_start_matches("quota."), error.message))
        .collect();
    let detail = format!("org {org}: {}", told.join("; "));
    Err(Problem { errors, ..Problem::new(ErrorCode::QuotaExceeded, detail) })
}

impl ApiState {
    /// What an org uses now.
    pub(crate) fn usage_of(&self, org: &OrgName) -> Usage {
        Wants::load(&self.core, org).usage()
    }

    /// Checks a change against its org's quota. `None` = nothing that it wants is limited.
    pub(crate) async fn claim(&self, ask: &Ask) -> Outcome<Option<Claim>> {
        let org = ask.org();
        let key = keys::org_key(org);
        let quota_of = |record: &Record| record.spec::<OrgSpec>().map(|spec| spec.quota).unwrap_or_default();
        // A quota that was set this moment holds for what comes after it.
        if self.core.cache.get(&key).is_none_or(|record| quota_of(&record).is_unlimited()) {
            return Ok(None);
        }
        let turn = self.turns.begin(org).await;
        let Some(record) = self.core.store.get(&key).await? else { return Ok(None) };
        if !self.core.wait_cache(record.revision, CACHE).await {
            return Err(Problem::new(ErrorCode::StoreUnavailable, "the change feed is behind; try again")
                .retry_after(Duration::from_secs(1)));
        }
        let mut wants = Wants::load(&self.core, org);
        let before = wants.usage();
        wants.add(&self.core, ask);
        let after = wants.usage();
        check(org, &quota_of(&record), before, after)?;
        if after == before {
            return Ok(None);
        }
        let claimed = serde_json::json!({"claim": self.core.mint_record_id()});
        let write = Write::Put {
            key,
            id: record.id.clone(),
            expect: Expect::At(record.revision),
            spec: None,
            status: Some(claimed),
        };
        Ok(Some(Claim { write, _turn: turn }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(memory: u64, instances: u64) -> Usage {
        Usage { memory: ByteSize(memory), instances, routes: 0, lanes: 0 }
    }

    #[test]
    fn what_can_come_of_a_group_is_counted_in_any_order() {
        let now = State { count: 2, memory: 10, runs: true };
        let most = |asked: &[Change]| Group { now, asked: asked.to_vec() }.most();
        let (more, less) = (change(Some(5), None, None), change(Some(1), None, None));
        let large = change(None, Some(ByteSize(100)), None);
        assert_eq!(most(&[]), (2, 20));
        assert_eq!(most(&[less]), (2, 20), "until it is so");
        assert_eq!(most(&[change(Some(4), Some(ByteSize(1)), None)]), (4, 20));
        assert_eq!(most(&[change(None, None, Some(false))]), (2, 20));
        assert_eq!(most(&[more, less, large]), (5, 500), "`more` may be the last one");
    }

    #[test]
    fn a_refusal_names_used_asked_and_limit() {
        let org: OrgName = "acme".parse().unwrap();
        let quota = Quota { instances: Some(10), memory: Some(ByteSize::mib(64)), ..Quota::default() };
        let mib = ByteSize::mib(1).0;
        assert!(check(&org, &quota, usage(0, 8), usage(64 * mib, 10)).is_ok());
        assert!(check(&org, &quota, usage(0, 12), usage(0, 11)).is_ok(), "less is always permitted");
        let problem = check(&org, &quota, usage(32 * mib, 8), usage(96 * mib, 12)).unwrap_err();
        assert_eq!(problem.code, ErrorCode::QuotaExceeded);
        assert_eq!(
            problem.detail,
            "org acme: memory: used 32M, asked for 64M more, limit 64M; instances: used 8, asked for 4 more, limit 10"
        );
    }
}
