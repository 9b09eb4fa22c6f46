//! Following a group's rollout to its end.

use super::Core;
use super::cache::CachedGroup;
use super::keys::GroupRef;
use super::soft::InstanceNews;
use std::time::Duration;
use towpath_plan::rollout::find_version;
use towpath_types::spec::{InstanceVersion, RolloutPhase, Wanted};
use towpath_types::{CellId, ErrorCode, Generation, InstanceId};
use towpath_wire::cell::InstanceState;

/// From so many instances on, what is heard of a group is gathered for a while before it is looked at.
const LARGE: usize = 50;
/// That while, for each instance.
const NEWS_PAUSE: Duration = Duration::from_micros(500);
/// The longest.
const NEWS_PAUSE_MOST: Duration = Duration::from_secs(1);

/// How long news of a group of so many instances are gathered; `None` = not at all. A look costs as much as the group is large,
/// and a thousand cells speak each on its own.
pub(crate) fn news_pause(instances: usize) -> Option<Duration> {
    let pause = NEWS_PAUSE.saturating_mul(u32::try_from(instances).unwrap_or(u32::MAX));
    (instances >= LARGE).then(|| pause.min(NEWS_PAUSE_MOST))
}

/// What is waited for: made right after the change was committed and seen by the cache.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupGoal {
    /// The group.
    pub group: GroupRef,
    /// Its generation at least.
    pub generation: Generation,
    /// The app's generation at least.
    pub app_generation: Generation,
    /// The version that has to serve; `None` = whichever (for scaling, where a failed version is none of its business).
    pub version: Option<InstanceVersion>,
}

/// How far a rollout is.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupProgress {
    /// Phase.
    pub phase: RolloutPhase,
    /// Instances of the wanted version that are ready and in all gateways.
    pub ready: u32,
    /// Instances wanted.
    pub wanted: u32,
    /// Instances of other versions that still run.
    pub old: u32,
    /// For people: what is being waited for.
    pub message: String,
}

/// How a rollout ended.
#[derive(Debug, Clone, PartialEq)]
pub enum GroupOutcome {
    /// As wanted: all new requests get the version, at full count.
    Done,
    /// The version has failed and is being taken back.
    Failed {
        /// Stable code.
        code: ErrorCode,
        /// For people.
        message: String,
    },
    /// A newer change asks for another version.
    Superseded,
    /// The group is gone.
    Deleted,
    /// The deadline came first; the rollout goes on.
    TimedOut {
        /// Where it stood.
        last: GroupProgress,
    },
}

impl Core {
    /// The goal that the cached specs of a group and its app ask for; `None` = there is no such group.
    pub fn find_goal(&self, group: &GroupRef, any_version: bool) -> Option<GroupGoal> {
        let cached = self.cache.group(group)?;
        let app = self.cache.app(&group.app);
        let no_env = Default::default();
        let env = app.as_ref().map_or(&no_env, |app| &app.spec.env);
        let (version, _) = find_version(&cached.spec, env);
        Some(GroupGoal {
            group: group.clone(),
            generation: cached.record.generation,
            app_generation: app.map_or(Generation(0), |app| app.record.generation),
            version: (!any_version).then_some(version),
        })
    }

    /// Waits for the goal, telling progress whenever it changes.
    pub async fn wait_group(
        &self,
        goal: &GroupGoal,
        deadline: Duration,
        mut progress: impl FnMut(&GroupProgress),
    ) -> GroupOutcome {
        let end = tokio::time::Instant::now() + deadline;
        let (mut cache, mut soft) = (self.cache.watch(), self.soft.watch());
        let mut told: Option<GroupProgress> = None;
        loop {
            cache.mark_unchanged();
            soft.mark_unchanged();
            let Some(group) = self.cache.group(&goal.group) else { return GroupOutcome::Deleted };
            let now = self.find_progress(goal, &group);
            match find_outcome(goal, &group) {
                Some(GroupOutcome::Done) if is_short(&group, &now) => {}
                Some(outcome) => return outcome,
                None => {}
            }
            if told.as_ref() != Some(&now) {
                progress(&now);
            }
            tokio::select! {
                _ = cache.changed() => {}
                _ = soft.changed() => {}
                () = tokio::time::sleep_until(end) => return GroupOutcome::TimedOut { last: now },
            }
            if let Some(pause) = news_pause(group.status.assignments.len()) {
                tokio::time::sleep_until(end.min(tokio::time::Instant::now() + pause)).await;
            }
            told = Some(now);
        }
    }

    /// How far the group is on its way to the goal.
    pub fn find_progress(&self, goal: &GroupGoal, group: &CachedGroup) -> GroupProgress {
        let status = &group.status;
        let gave_up = status.failed.is_some() && status.failed == status.target;
        let version = goal.version.or(if gave_up { status.good } else { status.target });
        let (new, old): (Vec<_>, Vec<_>) =
            status.assignments.iter().partition(|a| Some(a.version) == version && a.wanted == Wanted::Run);
        let ids = new.iter().map(|assignment| assignment.instance);
        let is_ready = |news: InstanceNews<'_>| news.report.state == InstanceState::Ready && news.heard;
        let ready = self.soft.read_instances(ids, is_ready).into_iter().filter(|ready| *ready).count();
        GroupProgress {
            phase: status.phase,
            ready: u32::try_from(ready).unwrap_or(u32::MAX),
            wanted: if group.spec.stopped { 0 } else { group.spec.count },
            old: u32::try_from(old.len()).unwrap_or(u32::MAX),
            message: status.message.clone(),
        }
    }

    /// Instances of the group with their cells, newest first: for reading the logs of a version that fails.
    pub fn group_instances(&self, group: &GroupRef) -> Vec<(InstanceId, CellId, InstanceVersion)> {
        let Some(group) = self.cache.group(group) else { return Vec::new() };
        let mut found: Vec<_> =
            group.status.assignments.iter().map(|a| (a.instance, a.cell, a.version)).collect();
        found.sort_by_key(|found| std::cmp::Reverse(found.0));
        found
    }
}

/// Whether a group that was settled before has lost instances since, as after a start of the whole platform: what is
/// stored says that it is as wanted, what the cells tell does not say so yet.
fn is_short(group: &CachedGroup, now: &GroupProgress) -> bool {
    group.status.phase != RolloutPhase::Failed && now.ready < now.wanted
}

/// Whether, and how, the rollout has ended for this goal.
fn find_outcome(goal: &GroupGoal, group: &CachedGroup) -> Option<GroupOutcome> {
    let status = &group.status;
    if status.observed < goal.generation || status.observed_app < goal.app_generation {
        return None;
    }
    let settled = matches!(status.phase, RolloutPhase::Steady | RolloutPhase::Failed);
    let Some(version) = goal.version else {
        return settled.then_some(GroupOutcome::Done);
    };
    if status.failed == Some(version) {
        // The verdict is final, whatever becomes of the way back: what ran before may be ill itself.
        let code = status.code.unwrap_or(ErrorCode::StartFailed);
        return Some(GroupOutcome::Failed { code, message: status.message.clone() });
    }
    if status.target.is_some_and(|target| target != version) {
        return Some(GroupOutcome::Superseded);
    }
    let wanted = if group.spec.stopped { 0 } else { group.spec.count };
    let serves = wanted > 0 && status.serving == Some(version);
    (serves || status.phase == RolloutPhase::Steady).then_some(GroupOutcome::Done)
}
