//! Deleting a group or a whole app: routes go first, instances drain, then the records go.

use super::apply::{AppPicture, LoadedGroup, put_group};
use super::order::Change;
use super::{Failure, Job, Operations};
use crate::core::keys::{self, GroupRef};
use std::time::Duration;
use towpath_store::{Expect, Query, Write};
use towpath_types::spec::{GroupSpec, RouteSpec};
use towpath_types::{AppRef, ErrorCode, Kind, Record};

/// Instances that are not gone by then (their cell is lost) are deleted all the same: a cell stops what it is not told
/// to run.
const DRAIN: Duration = Duration::from_secs(90);

impl Operations {
    pub(super) async fn delete_group(&self, job: &Job) -> Result<(), Failure> {
        let present = self.core.store.get(&job.group.key()).await.map_err(Failure::of_store)?;
        if job.resumed && is_gone(job, present.as_ref()) {
            return Ok(());
        }
        // What it stopped once and is not stopped now was pushed or started by somebody later, who wins.
        if !job.resumed {
            let _turn = job.turn.begin().await;
            self.apply(job, &[], |picture| {
                let group = picture.existing_group(&job.group)?;
                job.check(&group.record)?;
                Ok(vec![put_group(group, &stopped(group))])
            })
            .await?;
            job.turn.made(job.id, Change::GroupDeleted);
        }
        self.wait_drained(std::slice::from_ref(&job.group)).await;
        self.apply(job, &[], |picture| {
            let group = picture.group(&job.group).ok_or_else(Failure::superseded)?;
            Ok(vec![delete_stopped(group)?])
        })
        .await
        .map(drop)
    }

    pub(super) async fn delete_app(&self, job: &Job) -> Result<(), Failure> {
        let present = self.core.store.get(&keys::app_key(job.app())).await.map_err(Failure::of_store)?;
        if job.resumed && is_gone(job, present.as_ref()) {
            return self.remove_late_routes(job).await;
        }
        // As with a group: what was begun once is not begun again.
        if !job.resumed {
            let routes = self.routes_of(job.app()).await?;
            self.apply(job, &[], |picture| {
                let app = picture.app.as_ref().ok_or_else(|| super::group_change::no_app(job.app()))?;
                job.check(&app.record)?;
                let stops = picture.groups.iter().map(|group| put_group(group, &stopped(group)));
                Ok(routes.iter().map(delete).chain(stops).collect())
            })
            .await?;
        }
        let groups: Vec<GroupRef> =
            self.core.cache.groups_of(job.app()).into_iter().map(|(name, _)| name).collect();
        self.order.app_deleted(job.app(), job.id);
        self.wait_drained(&groups).await;
        // Routes that were made in the meantime go too: nothing may point at an app that is not there.
        let routes = self.routes_of(job.app()).await?;
        self.apply(job, &[], |picture| remove_all(picture, &routes)).await?;
        self.remove_late_routes(job).await
    }

    /// A route is only made while its app is there, so none can come once the app is gone; one that came between the last look at
    /// the routes and the end of the app is removed here.
    async fn remove_late_routes(&self, job: &Job) -> Result<(), Failure> {
        let late = self.routes_of(job.app()).await?;
        if late.is_empty() {
            return Ok(());
        }
        self.apply(job, &[], |picture| {
            let made_anew = picture.app.is_some();
            let gone = late.iter().filter(|_| !made_anew);
            Ok(gone.map(|record| Write::Delete { key: record.key.clone(), expect: Expect::Any }).collect())
        })
        .await
        .map(drop)
    }

    /// Waits until the groups have no instances left.
    async fn wait_drained(&self, groups: &[GroupRef]) {
        let mut cache = self.core.cache.watch();
        let drained = async {
            loop {
                cache.mark_unchanged();
                let left = groups
                    .iter()
                    .filter_map(|group| self.core.cache.group(group))
                    .any(|group| group.spec.stopped && !group.status.assignments.is_empty());
                if !left || cache.changed().await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            tracing::warn!("instances of a deleted app are still not gone; it is deleted all the same");
        }
    }

    /// Records of the routes that lead to the app.
    async fn routes_of(&self, app: &AppRef) -> Result<Vec<Record>, Failure> {
        let query = Query { kind: Some(Kind::Route), ..Query::default() };
        let page = self.core.store.list(&query).await.map_err(Failure::of_store)?;
        let leads_here = |record: &Record| record.spec::<RouteSpec>().is_ok_and(|route| route.app == *app);
        Ok(page.records.into_iter().filter(leads_here).collect())
    }
}

/// Whether what it deletes is not there any more; what was made since it was asked for is another one.
fn is_gone(job: &Job, present: Option<&Record>) -> bool {
    present.is_none_or(|present| present.created_ms > job.created_ms)
}

fn stopped(group: &LoadedGroup) -> GroupSpec {
    GroupSpec { stopped: true, ..group.spec.clone() }
}

/// Deletes a group that is still stopped; somebody may have pushed in the meantime.
fn delete_stopped(group: &LoadedGroup) -> Result<Write, Failure> {
    if !group.spec.stopped {
        return Err(Failure::new(ErrorCode::Superseded, "it was pushed or started again in the meantime"));
    }
    Ok(delete(&group.record))
}

fn delete(record: &Record) -> Write {
    Write::Delete { key: record.key.clone(), expect: Expect::At(record.revision) }
}

fn remove_all(picture: &AppPicture, routes: &[Record]) -> Result<Vec<Write>, Failure> {
    let mut writes = Vec::new();
    for group in &picture.groups {
        writes.push(delete_stopped(group)?);
    }
    writes.extend(routes.iter().map(|route| Write::Delete { key: route.key.clone(), expect: Expect::Any }));
    writes.extend(
        picture
            .releases
            .iter()
            .map(|kept| Write::Delete { key: kept.record.key.clone(), expect: Expect::Any }),
    );
    if let Some(app) = &picture.app {
        writes.push(delete(&app.record));
    }
    Ok(writes)
}
