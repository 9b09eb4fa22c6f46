//! Making an operation's change in one commit, and following the rollout that it starts.

use super::logs;
use super::order::Change;
use super::release::{self, Kept};
use super::{Event, Failure, Job, Operations};
use crate::core::Core;
use crate::core::keys::{self, GroupRef};
use crate::core::outcome::{GroupGoal, GroupOutcome, GroupProgress};
use crate::error::CommitError;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use towpath_bus::BusState;
use towpath_plan::rollout::find_version;
use towpath_store::{Commit, Expect, Query, StoreError, Write};
use towpath_types::resource::Key;
use towpath_types::spec::{AppSpec, GroupSpec, GroupStatus, OperationPhase, RolloutPhase, RouteSpec};
use towpath_types::{AppRef, ErrorCode, Generation, Kind, Record};

/// Longest time that a rollout is followed; it goes on without its operation.
const FOLLOW: Duration = Duration::from_secs(1800);
/// An operation gives up when no cell has had room for so long; the group goes on waiting.
const WAIT_FOR_ROOM: Duration = Duration::from_secs(30);
/// How often it is looked at whether a rollout moves.
const LOOK: Duration = Duration::from_millis(500);
/// Longest wait for the gateways when everything else is done.
const SERVED: Duration = Duration::from_secs(10);
/// Times that a change is tried when others write at the same time.
const ATTEMPTS: u32 = 16;

/// A resource with its spec typed.
#[derive(Debug, Clone)]
pub(crate) struct Loaded<S> {
    pub(crate) record: Record,
    pub(crate) spec: S,
}

/// A group as read from the store.
#[derive(Debug, Clone)]
pub(crate) struct LoadedGroup {
    pub(crate) name: GroupRef,
    pub(crate) record: Record,
    pub(crate) spec: GroupSpec,
    pub(crate) status: GroupStatus,
}

/// All that changes of an app are decided on.
#[derive(Debug, Clone)]
pub(crate) struct AppPicture {
    pub(crate) app: Option<Loaded<AppSpec>>,
    /// Whether the operation's lane is there.
    pub(crate) lane: bool,
    pub(crate) groups: Vec<LoadedGroup>,
    pub(crate) releases: Vec<Kept>,
    /// The routes that were asked for and are there.
    pub(crate) routes: Vec<Loaded<RouteSpec>>,
}

impl AppPicture {
    /// The group of the operation.
    pub(crate) fn group(&self, name: &GroupRef) -> Option<&LoadedGroup> {
        self.groups.iter().find(|group| group.name == *name)
    }

    /// The group, or the failure that there is none.
    pub(crate) fn existing_group(&self, name: &GroupRef) -> Result<&LoadedGroup, Failure> {
        self.group(name).ok_or_else(|| {
            Failure::new(
                ErrorCode::NotFound,
                format!("app {} has nothing in lane {}", name.app.app, name.lane),
            )
        })
    }
}

/// A change that was made, with the app as it was decided on.
#[derive(Debug)]
pub(super) struct Applied {
    commit: Commit,
    app: Option<Loaded<AppSpec>>,
}

impl Applied {
    /// What the group has to come to by this change, whatever others have changed since.
    pub(super) fn goal(&self, group: &GroupRef, any_version: bool) -> Result<GroupGoal, Failure> {
        let unreadable = || Failure::unreadable("group");
        let record = self.written(&group.key()).ok_or_else(unreadable)?;
        let spec: GroupSpec = record.spec().map_err(|_| unreadable())?;
        Ok(self.goal_of(group, &spec, record.generation, any_version))
    }

    /// Likewise, for a group that was not written but is of the changed app.
    pub(super) fn goal_of(
        &self,
        group: &GroupRef,
        spec: &GroupSpec,
        generation: Generation,
        any_version: bool,
    ) -> GroupGoal {
        let app = self.written(&keys::app_key(&group.app)).or(self.app.as_ref().map(|app| &app.record));
        let env = app.and_then(|app| app.spec::<AppSpec>().ok()).map(|app| app.env).unwrap_or_default();
        let (version, _) = find_version(spec, &env);
        GroupGoal {
            group: group.clone(),
            generation,
            app_generation: app.map_or(Generation(0), |app| app.generation),
            version: (!any_version).then_some(version),
        }
    }

    fn written(&self, key: &Key) -> Option<&Record> {
        self.commit.records.iter().flatten().find(|record| record.key == *key)
    }
}

/// The name of one commit of an operation: its step, and what was read, since after a conflict it is another transaction. An
/// uncertain one can be sent again under it, and is done once.
fn name_of(job: &Job, step: u32, writes: &[Write]) -> String {
    let read: Vec<String> = writes
        .iter()
        .map(|write| match write {
            Write::Put { key, expect, .. } => format!("put {key:?}{expect:?}"),
            Write::Delete { key, expect } => format!("delete {key:?}{expect:?}"),
        })
        .collect();
    format!("operation {} step {step} {}", job.id, logs::fingerprint(&read))
}

/// The write of a group's new spec over what was read.
pub(crate) fn put_group(group: &LoadedGroup, spec: &GroupSpec) -> Write {
    Write::Put {
        key: group.record.key.clone(),
        id: group.record.id.clone(),
        expect: Expect::At(group.record.revision),
        spec: serde_json::to_value(spec).ok(),
        status: None,
    }
}

impl Operations {
    /// Reads an app with its groups and releases, and the routes with these keys.
    pub(super) async fn load(
        &self,
        app: &AppRef,
        job: &Job,
        routes: &[Key],
    ) -> Result<AppPicture, StoreError> {
        let store = &self.core.store;
        let present = store.get(&keys::app_key(app)).await?;
        let lane = store.get(&keys::lane_key(&app.space_ref(), &job.group.lane)).await?.is_some();
        let mut groups = Vec::new();
        for record in self.list_of(app, Kind::Group).await? {
            let (Some(name), Ok(spec), Ok(status)) =
                (GroupRef::of_key(&record.key), record.spec(), record.status())
            else {
                tracing::error!(key = ?record.key, "a stored group is not readable; it is left as it is");
                continue;
            };
            groups.push(LoadedGroup { name, record, spec, status });
        }
        let releases = release::read(self.list_of(app, Kind::Release).await?);
        let mut found = Vec::new();
        for key in routes {
            if let Some(record) = store.get(key).await? {
                let spec = record.spec().map_err(|error| StoreError::Corrupt(error.to_string()))?;
                found.push(Loaded { record, spec });
            }
        }
        let app = match present {
            Some(record) => {
                let spec = record.spec().map_err(|error| StoreError::Corrupt(error.to_string()))?;
                Some(Loaded { record, spec })
            }
            None => None,
        };
        Ok(AppPicture { app, lane, groups, releases, routes: found })
    }

    /// All resources of a kind whose names begin with the app's.
    pub(super) async fn list_of(&self, app: &AppRef, kind: Kind) -> Result<Vec<Record>, StoreError> {
        let query = Query {
            kind: Some(kind),
            org: Some(app.org.clone()),
            space: Some(app.space.clone()),
            name_prefix: Some(format!("{}:", app.app)),
            after: None,
            limit: 0,
        };
        Ok(self.core.store.list(&query).await?.records)
    }

    /// Commits what `decide` makes of the present picture, with the operation's step to `rolling`, as one. Begins again
    /// when others were faster or the store is away for a moment.
    pub(super) async fn apply(
        &self,
        job: &Job,
        routes: &[Key],
        mut decide: impl FnMut(&AppPicture) -> Result<Vec<Write>, Failure> + Send,
    ) -> Result<Applied, Failure> {
        let step = job.steps.fetch_add(1, Ordering::Relaxed);
        let mut last = Failure::from(CommitError::Contended);
        // Commits of which it is not known whether they were made.
        let mut uncertain: Vec<String> = Vec::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=(8_u64 << attempt.min(8))))).await;
            }
            let picture = match self.load(job.app(), job, routes).await {
                Ok(picture) => picture,
                Err(error @ StoreError::Unavailable { .. }) => {
                    last = Failure::of_store(error);
                    continue;
                }
                Err(error) => return Err(Failure::of_store(error)),
            };
            match self.find_made(&uncertain).await {
                Ok(None) => {}
                Ok(Some(commit)) => return Ok(self.applied(job, commit, picture.app).await),
                Err(error) => {
                    last = Failure::of_store(error);
                    continue;
                }
            }
            // Another manager may have made the change of a later operation: then it is in the picture, and known now.
            self.note_newer(job).await;
            if job.sets_release() {
                job.turn.check(job.id)?;
            }
            let mut writes = decide(&picture)?;
            let mut status = job.status();
            status.phase = OperationPhase::Rolling;
            writes.push(job.write(&status));
            let name = name_of(job, step, &writes);
            match self.commit_change(writes, &name).await {
                Ok(commit) => return Ok(self.applied(job, commit, picture.app).await),
                Err(error) if error.is_transient() => {
                    uncertain.push(name);
                    last = error.into();
                }
                Err(error) if job.is_own_conflict(&error) => {
                    self.look_at_own(job).await?;
                    last = error.into();
                }
                Err(error @ CommitError::Store(StoreError::Conflict { .. })) => last = error.into(),
                Err(error) => return Err(error.into()),
            }
        }
        Err(last)
    }

    /// One commit, sent again under its name while it is uncertain.
    async fn commit_change(&self, writes: Vec<Write>, name: &str) -> Result<Commit, CommitError> {
        let mut attempt = 0;
        loop {
            match self.core.commit_once(writes.clone(), Some(name.into())).await {
                Err(error) if error.is_transient() && attempt < ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(Duration::from_millis(50 << attempt.min(5))).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// The one of these commits that was made after all: the store was away for too long to tell, and has it. Decided again, the
    /// change would be made twice.
    async fn find_made(&self, names: &[String]) -> Result<Option<Commit>, StoreError> {
        for name in names {
            if let Some(commit) = self.core.store.answered(&name.as_str().into()).await? {
                return Ok(Some(commit));
            }
        }
        Ok(None)
    }

    /// The change was made.
    async fn applied(&self, job: &Job, commit: Commit, app: Option<Loaded<AppSpec>>) -> Applied {
        // The goal is read from the cache, which has to have seen the change.
        while !self.core.wait_cache(commit.revision, Duration::from_secs(5)).await {
            tracing::warn!(operation = %job.id, "the change feed is behind");
        }
        job.saw(&commit);
        job.set(|status| status.phase = OperationPhase::Rolling);
        Applied { commit, app }
    }

    /// The goal of a change that was made before this manager started: what the specs ask for now.
    pub(super) fn left_goal(
        &self,
        job: &Job,
        group: &GroupRef,
        any_version: bool,
    ) -> Result<GroupGoal, Failure> {
        let Some(goal) = self.core.find_goal(group, any_version) else { return Err(self.deleted(group)) };
        // Another change may have been made since this one's: its release is not for this operation to tell about.
        let own = job.status().release;
        if goal.version.is_some_and(|version| own.is_some_and(|own| own != version.release)) {
            return Err(Failure::superseded());
        }
        Ok(goal)
    }

    /// The failure that a group is gone, or its app with it.
    pub(super) fn deleted(&self, group: &GroupRef) -> Failure {
        match self.core.cache.app(&group.app) {
            Some(_) => Change::GroupDeleted.failure(),
            None => Change::AppDeleted.failure(),
        }
    }

    /// Waits until the group serves what the change asked for; without a version: until it is settled, whatever it runs.
    pub(super) async fn follow(&self, job: &Job, goal: &GroupGoal) -> Result<(), Failure> {
        let group = &goal.group;
        let (told, progress) = watch::channel(None);
        let rollout = self.core.wait_group(goal, FOLLOW, |progress| {
            told.send_replace(Some(progress.clone()));
            job.live.events.push(progress_event(progress));
        });
        let patience = self.patience(group);
        let outcome = tokio::select! {
            outcome = rollout => outcome,
            () = no_room(progress.clone()) => {
                let message = self.core.cache.group(group).map(|group| group.status.message.clone());
                return Err(Failure::new(ErrorCode::NoRoom, message.unwrap_or_default()));
            }
            last = stalled(&self.core, progress, patience) => GroupOutcome::TimedOut { last },
            // It is stopped at first, which is not what was asked for.
            failure = job.turn.deleted(job.id) => return Err(failure),
        };
        match outcome {
            GroupOutcome::Done => {
                // Instances are in all gateways; routes have to be too, before anybody is told the address.
                let at = self.core.cache.revision();
                if !self.core.wait_revision_served(at, SERVED).await {
                    tracing::warn!(operation = %job.id, revision = %at, "not all gateways serve this yet");
                }
                // The end came instead of a last progress.
                if let Some(cached) = self.core.cache.group(group) {
                    job.live.events.push(progress_event(&self.core.find_progress(goal, &cached)));
                }
                Ok(())
            }
            GroupOutcome::Superseded => Err(Failure::superseded()),
            GroupOutcome::Deleted => Err(self.deleted(group)),
            GroupOutcome::Failed { code, message } => {
                Err(Failure { code, message, log: logs::failed_lines(&self.core, group, goal.version).await })
            }
            GroupOutcome::TimedOut { last } => Err(Failure {
                code: ErrorCode::StartFailed,
                message: format!(
                    "{} of {} are ready, and nothing has moved for {} s: {}",
                    last.ready,
                    last.wanted,
                    patience.as_secs(),
                    last.message
                ),
                log: logs::failed_lines(&self.core, group, goal.version).await,
            }),
        }
    }

    /// How long a rollout of the group may stand still: longer than it takes the reconciler to give up a version that does
    /// not start, or an instance that does not drain.
    fn patience(&self, group: &GroupRef) -> Duration {
        let slowest = self.core.cache.group(group).map_or(0, |cached| {
            let health = cached.spec.health.iter();
            let releases = cached.status.releases.values().map(|release| &release.health);
            let kept = self.core.cache.release(&group.app, cached.spec.release);
            let all = health.chain(releases).chain(kept.iter().map(|kept| &kept.spec.health));
            all.map(|health| health.start_timeout.0).max().unwrap_or_default()
        });
        let policy = &self.core.settings.rollout;
        Duration::from_millis(slowest.saturating_add(policy.prepare_ms).saturating_add(policy.drain_ms))
    }
}

/// Resolves when no cell has had room for [`WAIT_FOR_ROOM`].
async fn no_room(mut progress: watch::Receiver<Option<GroupProgress>>) {
    let waits = |now: &Option<GroupProgress>| {
        now.as_ref().is_some_and(|progress| progress.phase == RolloutPhase::Waiting)
    };
    loop {
        if progress.wait_for(|now| waits(now)).await.is_err() {
            return std::future::pending().await;
        }
        if tokio::time::timeout(WAIT_FOR_ROOM, progress.wait_for(|now| !waits(now))).await.is_err() {
            return;
        }
    }
}

/// Resolves when neither more instances got ready nor fewer old ones were left for so long, with where it stood. Time in
/// which nobody can be told, or nothing be stored, does not count.
async fn stalled(
    core: &Core,
    mut progress: watch::Receiver<Option<GroupProgress>>,
    patience: Duration,
) -> GroupProgress {
    let mut bus = core.bus.state();
    let mut best = (0, u32::MAX);
    let mut since = Instant::now();
    loop {
        let now = progress.borrow_and_update().clone();
        let can_act = core.store_is_up() && *bus.borrow_and_update() == BusState::Up;
        if let Some(now) = now {
            let better = (best.0.max(now.ready), best.1.min(now.old));
            if better != best || !can_act {
                (best, since) = (better, Instant::now());
            }
            if since.elapsed() >= patience {
                return now;
            }
        }
        if matches!(tokio::time::timeout(LOOK, progress.changed()).await, Ok(Err(_))) {
            return std::future::pending().await;
        }
    }
}

fn progress_event(progress: &GroupProgress) -> Event {
    Event::Progress { ready: progress.ready, wanted: progress.wanted, message: progress.message.clone() }
}
