//! A push: reuse the release or build it, then roll it out; and going back to an earlier release.

use super::apply::{AppPicture, LoadedGroup};
use super::input::{Given, Push, merge_limits};
use super::order::Change;
use super::release::{self, ReleaseStatus};
use super::{Failure, Job, Operations, urls_of};
use crate::core::keys::{self, GroupRef};
use crate::core::outcome::GroupGoal;
use crate::vault::merge_env;
use std::collections::{BTreeMap, BTreeSet};
use towpath_plan::rollout::find_version;
use towpath_store::{Expect, Write};
use towpath_types::resource::Key;
use towpath_types::spec::{
    AppSpec, GroupSpec, LaneKind, LaneSpec, Limits, OperationPhase, ReleaseSpec, RouteSpec,
};
use towpath_types::{AppRef, Digest, ErrorCode, Millis};
use towpath_wire::staging::StageResult;

/// Grace from SIGTERM to SIGKILL when the push does not say.
const GRACE: Millis = Millis::secs(10);

/// Variables of a push whose names begin so are seen by the build.
const BUILD_PREFIX: &str = "BUILD_";

/// A release on its way into the store.
enum Ready {
    /// It is there.
    Kept,
    /// It was built just now. `replaces`: it is there, but its artifact was lost.
    Built { spec: Box<ReleaseSpec>, replaces: bool },
}

impl Operations {
    pub(super) async fn push(&self, job: &Job, push: &Push) -> Result<(), Failure> {
        let (goal, before) = match job.resumed {
            false => self.push_change(job, push).await?,
            true => (self.left_goal(job, &job.group, false)?, None),
        };
        if let Err(mut failure) = self.follow(job, &goal).await {
            if let (ErrorCode::NoRoom, Some(before)) = (failure.code, before)
                && self.take_back(job, &goal, &before).await
            {
                failure.message.push_str("; nothing was changed");
            }
            return Err(failure);
        }
        self.settle(job).await
    }

    /// Gives a group the spec that it had before a push for which there was no room: nothing of the push ever ran, so
    /// there is nothing to look at or to try again with other settings. Unless somebody has changed it since.
    /// Returns whether it has it again.
    async fn take_back(&self, job: &Job, goal: &GroupGoal, before: &GroupSpec) -> bool {
        let _turn = job.turn.begin().await;
        let taken = self
            .apply(job, &[], |picture| {
                job.turn.check(job.id)?;
                let group = picture.existing_group(&job.group)?;
                if group.record.generation != goal.generation {
                    return Err(Failure::superseded());
                }
                Ok(vec![super::apply::put_group(group, before)])
            })
            .await;
        if let Err(failure) = taken {
            tracing::warn!(operation = %job.id, why = failure.message, "a push without room was not taken back");
            return false;
        }
        true
    }

    /// Builds or finds the release, and makes the change. Gives the group's spec before it, too, if it was there.
    async fn push_change(&self, job: &Job, push: &Push) -> Result<(GroupGoal, Option<GroupSpec>), Failure> {
        let source = push.source.ok_or_else(|| Failure::unreadable("push"))?;
        let picture = self.load(job.app(), job, &[]).await.map_err(Failure::of_store)?;
        let env = build_env(push);
        let id = release::release_id(push, source, &env);
        let ready = match self.find_artifact(job.app(), id).await? {
            Some(_) => {
                job.set(|status| (status.release, status.reused) = (Some(id), true));
                Ready::Kept
            }
            None => {
                job.set(|status| (status.release, status.phase) = (Some(id), OperationPhase::Staging));
                let result = self.stage(job, push, source, env).await?;
                let replaces = picture.releases.iter().any(|kept| kept.spec.release == id);
                Ready::Built { spec: Box::new(release_spec(job, push, source, id, result)), replaces }
            }
        };
        let routes = route_keys(job.app(), &self.core.settings.domain, push);
        let _turn = job.turn.begin().await;
        let now_ms = self.core.now_ms();
        let keys: Vec<Key> = routes.iter().map(|(key, _)| key.clone()).collect();
        let mut before = None;
        let applied = self
            .apply(job, &keys, |picture| {
                job.turn.check(job.id)?;
                before = picture.group(&job.group).map(|group| group.spec.clone());
                self.push_writes(job, push, picture, &ready, id, &routes, now_ms)
            })
            .await?;
        job.turn.made(job.id, Change::Release);
        Ok((applied.goal(&job.group, false)?, before))
    }

    /// Everything that a push changes, as one transaction.
    #[expect(clippy::too_many_arguments, reason = "the parts of one transaction")]
    fn push_writes(
        &self,
        job: &Job,
        push: &Push,
        picture: &AppPicture,
        ready: &Ready,
        release: Digest,
        routes: &[(Key, RouteSpec)],
        now_ms: u64,
    ) -> Result<Vec<Write>, Failure> {
        let mut writes = Vec::new();
        let lane = keys::lane_key(&job.app().space_ref(), &job.group.lane);
        if !picture.lane {
            writes.push(self.create(lane, &LaneSpec { kind: LaneKind::Feature }));
        } else if picture.group(&job.group).is_none() {
            // It has another revision from then on, so who is about to delete it as unused is too late.
            writes.push(Write::Put {
                key: lane,
                id: self.core.mint_record_id(),
                expect: Expect::Present,
                spec: None,
                status: Some(serde_json::json!({"joined_ms": now_ms})),
            });
        }
        self.write_app(job, push, picture, &mut writes);
        self.write_routes(picture, routes, &mut writes)?;
        writes.push(self.group_write(job, push, picture, release)?);
        let kept = picture.releases.iter().find(|kept| kept.spec.release == release);
        let status =
            ReleaseStatus { used_ms: now_ms, ..kept.map(|kept| kept.status.clone()).unwrap_or_default() };
        let spec = match (ready, kept) {
            // Somebody built the same at the same time, and releases do not change.
            (Ready::Built { replaces: false, .. }, Some(_)) | (Ready::Kept, Some(_)) => None,
            (Ready::Built { spec, .. }, _) => Some(serde_json::to_value(spec).unwrap_or_default()),
            (Ready::Kept, None) => {
                return Err(Failure::new(
                    ErrorCode::Conflict,
                    "the release was removed at the same moment; push again",
                ));
            }
        };
        writes.push(Write::Put {
            key: keys::release_key(job.app(), release),
            id: self.core.mint_record_id(),
            expect: kept.map_or(Expect::Absent, |kept| Expect::At(kept.record.revision)),
            spec,
            status: serde_json::to_value(status).ok(),
        });
        let mut in_use: BTreeSet<Digest> = picture
            .groups
            .iter()
            .flat_map(|group| release::in_use(group.spec.release, &group.status))
            .collect();
        in_use.insert(release);
        // The one of this push counts among the five.
        let mut releases = picture.releases.clone();
        releases.retain(|kept| kept.spec.release != release);
        for gone in release::plan_prune(&releases, &in_use, release::KEPT - 1) {
            writes.push(Write::Delete { key: keys::release_key(job.app(), gone), expect: Expect::Any });
        }
        Ok(writes)
    }

    fn write_app(&self, job: &Job, push: &Push, picture: &AppPicture, writes: &mut Vec<Write>) {
        match (&picture.app, &push.upstream) {
            (None, upstream) => {
                let spec = AppSpec { upstream: upstream.clone().unwrap_or_default(), ..AppSpec::default() };
                writes.push(self.create(keys::app_key(job.app()), &spec));
            }
            (Some(app), Some(upstream)) if app.spec.upstream != *upstream => writes.push(Write::Put {
                key: app.record.key.clone(),
                id: app.record.id.clone(),
                expect: Expect::At(app.record.revision),
                spec: serde_json::to_value(AppSpec { upstream: upstream.clone(), ..app.spec.clone() }).ok(),
                status: None,
            }),
            // It must still be there when this is committed.
            (Some(app), _) => writes.push(Write::Put {
                key: app.record.key.clone(),
                id: app.record.id.clone(),
                expect: Expect::Present,
                spec: None,
                status: None,
            }),
        }
    }

    /// Routes that are missing. The automatic one comes with the app, and stays away if it was removed later.
    fn write_routes(
        &self,
        picture: &AppPicture,
        routes: &[(Key, RouteSpec)],
        writes: &mut Vec<Write>,
    ) -> Result<(), Failure> {
        for (key, route) in routes {
            match picture.routes.iter().find(|present| present.record.key == *key) {
                Some(present) if present.spec.app == route.app => {}
                Some(present) => {
                    let holder = match present.spec.app.org == route.app.org {
                        true => format!("app {}", present.spec.app),
                        false => "another org".to_owned(),
                    };
                    let message = format!("the route {} belongs to {holder}", key.name);
                    return Err(Failure::new(ErrorCode::Conflict, message));
                }
                None if route.automatic && picture.app.is_some() => {}
                None => writes.push(self.create(key.clone(), route)),
            }
        }
        Ok(())
    }

    fn group_write(
        &self,
        job: &Job,
        push: &Push,
        picture: &AppPicture,
        release: Digest,
    ) -> Result<Write, Failure> {
        let present = picture.group(&job.group);
        let mut spec = present.map_or_else(|| new_group(job, release), |group| group.spec.clone());
        let retry = present.is_some_and(|group| failed_before(group, release));
        if let Some(limits) = present.and_then(|group| proven_limits(group, picture)) {
            spec.limits = limits;
        }
        spec.release = release;
        spec.count = push.instances.unwrap_or(spec.count);
        spec.stopped = false;
        let fresh = self.core.mint_record_id();
        let of = format!("group:{}", present.map_or(&fresh, |group| &group.record.id));
        merge_env(&self.core, &mut spec.env, &of, job.app(), &push.env)?;
        merge_limits(&mut spec.limits, &push.limits);
        if retry {
            spec.restart += 1;
        }
        Ok(match present {
            Some(group) => super::apply::put_group(group, &spec),
            None => Write::Put {
                key: job.group.key(),
                id: fresh,
                expect: Expect::Absent,
                spec: serde_json::to_value(&spec).ok(),
                status: None,
            },
        })
    }

    pub(super) fn create<S: serde::Serialize>(&self, key: Key, spec: &S) -> Write {
        Write::Put {
            key,
            id: self.core.mint_record_id(),
            expect: Expect::Absent,
            spec: serde_json::to_value(spec).ok(),
            status: None,
        }
    }

    /// The release that a rollback of the group goes to.
    pub(crate) async fn choose_release(
        &self,
        group: &GroupRef,
        named: Option<&str>,
    ) -> Result<Digest, Failure> {
        let group_record = self.core.store.get(&group.key()).await.map_err(Failure::of_store)?;
        let present = group_record
            .and_then(|record| record.spec::<GroupSpec>().ok())
            .ok_or_else(|| {
                Failure::new(
                    ErrorCode::NotFound,
                    format!("app {} has nothing in lane {}", group.app.app, group.lane),
                )
            })?
            .release;
        let records =
            self.list_of(&group.app, towpath_types::Kind::Release).await.map_err(Failure::of_store)?;
        release::choose(&release::read(records), &group.lane, Some(present), named)
    }

    /// Rolls an earlier release out.
    pub(super) async fn rollback(&self, job: &Job, release: Digest) -> Result<(), Failure> {
        let goal = if job.resumed {
            self.left_goal(job, &job.group, false)?
        } else {
            job.set(|status| (status.release, status.reused) = (Some(release), true));
            if self.find_artifact(job.app(), release).await?.is_none() {
                return Err(Failure::new(
                    ErrorCode::NotFound,
                    "the release's artifact is no longer kept; push again",
                ));
            }
            let _turn = job.turn.begin().await;
            let now_ms = self.core.now_ms();
            let change = |picture: &AppPicture| {
                job.turn.check(job.id)?;
                let group = picture.existing_group(&job.group)?;
                let kept = picture
                    .releases
                    .iter()
                    .find(|kept| kept.spec.release == release)
                    .ok_or_else(|| Failure::new(ErrorCode::NotFound, "the release is no longer kept"))?;
                let mut spec = group.spec.clone();
                if failed_before(group, release) {
                    spec.restart += 1;
                }
                (spec.release, spec.stopped) = (release, false);
                let status = ReleaseStatus { used_ms: now_ms, ..kept.status.clone() };
                Ok(vec![
                    super::apply::put_group(group, &spec),
                    Write::Put {
                        key: kept.record.key.clone(),
                        id: kept.record.id.clone(),
                        expect: Expect::At(kept.record.revision),
                        spec: None,
                        status: serde_json::to_value(status).ok(),
                    },
                ])
            };
            let applied = self.apply(job, &[], change).await?;
            job.turn.made(job.id, Change::Release);
            applied.goal(&job.group, false)?
        };
        self.follow(job, &goal).await?;
        self.settle(job).await
    }

    /// The group serves as wanted: notes that the release ran well here, and the URLs.
    pub(super) async fn settle(&self, job: &Job) -> Result<(), Failure> {
        let Some(group) = self.core.cache.group(&job.group) else { return Err(self.deleted(&job.group)) };
        let release = job.status().release.unwrap_or(group.spec.release);
        let (lane, now_ms) = (job.group.lane.clone(), self.core.now_ms());
        let noted = self
            .core
            .update::<crate::CommitError, _>(&keys::release_key(job.app(), release), |record| {
                let Some(record) = record else { return Ok(None) };
                let mut status: ReleaseStatus = record.status().unwrap_or_default();
                status.good_ms.insert(lane.clone(), now_ms);
                Ok(Some(vec![Write::Put {
                    key: record.key.clone(),
                    id: record.id.clone(),
                    expect: Expect::At(record.revision),
                    spec: None,
                    status: serde_json::to_value(status).ok(),
                }]))
            })
            .await;
        if let Err(error) = noted {
            tracing::warn!(%error, operation = %job.id, "it could not be noted that the release runs well");
        }
        let urls = urls_of(&self.core, job.app(), Some(&job.group.lane));
        job.set(|status| (status.release, status.urls) = (Some(release), urls));
        Ok(())
    }
}

/// What the build sees: the push's variables that are named for it. All else is for instances alone, so that the same
/// source is built once, whatever runs it.
fn build_env(push: &Push) -> BTreeMap<String, String> {
    let given = push.env.iter().filter(|(name, _)| name.starts_with(BUILD_PREFIX));
    let plain = |given: &Option<Given>| match given {
        Some(Given::Plain(value)) => Some(value.clone()),
        // Refused when it was asked for: what a build sees ends in its output and its artifact.
        Some(Given::Secret(_) | Given::Hidden(_)) | None => None,
    };
    given.filter_map(|(name, value)| Some((name.clone(), plain(value)?))).collect()
}

fn new_group(job: &Job, release: Digest) -> GroupSpec {
    GroupSpec {
        app: job.app().app.clone(),
        lane: job.group.lane.clone(),
        region: job.group.region.clone(),
        count: 1,
        release,
        env: BTreeMap::new(),
        limits: Default::default(),
        health: None,
        restart: 0,
        stopped: false,
    }
}

/// The limits to begin with when those of the present version have failed with it: of the version that ran well, or none.
/// Otherwise a limit that was too small once would fail every later push that does not name it.
fn proven_limits(group: &LoadedGroup, picture: &AppPicture) -> Option<Limits> {
    let no_env = BTreeMap::new();
    let env = picture.app.as_ref().map_or(&no_env, |app| &app.spec.env);
    let (version, _) = find_version(&group.spec, env);
    if group.status.failed != Some(version) {
        return None;
    }
    let good = group.status.good.and_then(|good| group.status.settings.get(&good.settings));
    Some(good.map(|settings| settings.limits.clone()).unwrap_or_default())
}

/// Whether the group has given this release up: then the same again needs to be told apart to be tried again.
fn failed_before(group: &LoadedGroup, release: Digest) -> bool {
    group.status.failed.is_some_and(|failed| failed.release == release)
}

fn release_spec(job: &Job, push: &Push, source: Digest, release: Digest, result: StageResult) -> ReleaseSpec {
    ReleaseSpec {
        release,
        app: job.app().app.clone(),
        source,
        artifact: result.artifact,
        artifact_bytes: result.artifact_bytes,
        builder: result.builder,
        command: result.command,
        env: result.env,
        health: push.health.clone().unwrap_or(result.health),
        protocol: push.protocol,
        grace: push.grace.unwrap_or(GRACE),
        by: job.by.clone(),
        note: push.note.clone(),
    }
}

/// The app's automatic route and those that the push asks for.
fn route_keys(app: &AppRef, domain: &str, push: &Push) -> Vec<(Key, RouteSpec)> {
    let route = |host: &str, path: &str, automatic| {
        let spec = RouteSpec {
            host: host.to_owned(),
            path: path.to_owned(),
            app: app.clone(),
            strip_path: false,
            entry: Vec::new(),
            automatic,
        };
        (keys::route_key(host, path), spec)
    };
    let mut routes = vec![route(&super::urls::automatic_host(app, domain), "/", true)];
    for (host, path) in &push.routes {
        let further = route(host, path, false);
        if !routes.iter().any(|(key, _)| *key == further.0) {
            routes.push(further);
        }
    }
    routes
}
