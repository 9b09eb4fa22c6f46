//! Scaling, restarting, and other settings: changes of what is there already.

use super::apply::{Applied, put_group};
use super::input::{Given, GroupChange, merge_limits};
use super::{Failure, Job, Operations, urls_of};
use crate::core::outcome::GroupGoal;
use crate::vault::merge_env;
use std::collections::BTreeMap;
use towpath_store::{Expect, Write};
use towpath_types::spec::{AppSpec, GroupSpec};
use towpath_types::{AppRef, ErrorCode};

impl Operations {
    /// Another count, stopped or not, environment, limits, health check.
    pub(super) async fn change_group(&self, job: &Job, change: &GroupChange) -> Result<(), Failure> {
        // Scaling does not ask for another version, so a version that failed before is none of its business.
        let any_version =
            change.env.is_empty() && change.limits == Default::default() && change.health.is_none();
        let goal = if job.resumed {
            self.left_goal(job, &job.group, any_version)?
        } else {
            let change = |spec: &mut GroupSpec, of: &str| {
                spec.count = change.count.unwrap_or(spec.count);
                spec.stopped = change.stopped.unwrap_or(spec.stopped);
                merge_env(&self.core, &mut spec.env, of, job.app(), &change.env)?;
                merge_limits(&mut spec.limits, &change.limits);
                if let Some(health) = &change.health {
                    spec.health.clone_from(health);
                }
                Ok(())
            };
            self.apply_to_group(job, change).await?.goal(&job.group, any_version)?
        };
        self.follow_and_show(job, &goal).await
    }

    /// New instances of the same.
    pub(super) async fn restart(&self, job: &Job) -> Result<(), Failure> {
        let goal = match job.resumed {
            true => self.left_goal(job, &job.group, false)?,
            false => {
                let change = |spec: &mut GroupSpec, _: &str| {
                    spec.restart += 1;
                    Ok(())
                };
                self.apply_to_group(job, change).await?.goal(&job.group, false)?
            }
        };
        self.follow_and_show(job, &goal).await
    }

    /// Another environment of the app: every group rolls.
    pub(super) async fn change_app_env(
        &self,
        job: &Job,
        env: &BTreeMap<String, Option<Given>>,
    ) -> Result<(), Failure> {
        let applied = match job.resumed {
            true => None,
            false => Some(self.change_app(job, env).await?),
        };
        for (group, cached) in self.core.cache.groups_of(job.app()) {
            let goal = match &applied {
                Some(applied) => applied.goal_of(&group, &cached.spec, cached.record.generation, false),
                None => self.left_goal(job, &group, false)?,
            };
            self.follow(job, &goal).await.map_err(|failure| Failure {
                message: format!("lane {}: {}", group.lane, failure.message),
                ..failure
            })?;
        }
        let urls = urls_of(&self.core, job.app(), None);
        job.set(|status| status.urls = urls);
        Ok(())
    }

    async fn change_app(&self, job: &Job, env: &BTreeMap<String, Option<Given>>) -> Result<Applied, Failure> {
        self.apply(job, &[], |picture| {
            let app = picture.app.as_ref().ok_or_else(|| no_app(job.app()))?;
            job.check(&app.record)?;
            let mut spec: AppSpec = app.spec.clone();
            let of = format!("app:{}", app.record.id);
            merge_env(&self.core, &mut spec.env, &of, job.app(), env)?;
            Ok(vec![Write::Put {
                key: app.record.key.clone(),
                id: app.record.id.clone(),
                expect: Expect::At(app.record.revision),
                spec: serde_json::to_value(&spec).ok(),
                status: None,
            }])
        })
        .await
    }

    async fn apply_to_group(
        &self,
        job: &Job,
        change: impl Fn(&mut GroupSpec, &str) -> Result<(), Failure> + Send + Sync,
    ) -> Result<Applied, Failure> {
        let _turn = job.turn.begin().await;
        self.apply(job, &[], |picture| {
            let group = picture.existing_group(&job.group)?;
            job.check(&group.record)?;
            let mut spec = group.spec.clone();
            change(&mut spec, &format!("group:{}", group.record.id))?;
            job.set(|status| status.release = Some(spec.release));
            Ok(vec![put_group(group, &spec)])
        })
        .await
    }

    async fn follow_and_show(&self, job: &Job, goal: &GroupGoal) -> Result<(), Failure> {
        self.follow(job, goal).await?;
        let urls = urls_of(&self.core, job.app(), Some(&goal.group.lane));
        job.set(|status| status.urls = urls);
        Ok(())
    }
}

/// The failure that there is no such app.
pub(super) fn no_app(app: &AppRef) -> Failure {
    Failure::new(ErrorCode::NotFound, format!("there is no app {} in {}", app.app, app.space_ref()))
}
