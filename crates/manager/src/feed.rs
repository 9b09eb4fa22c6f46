//! The change feed: store → cache → everybody who follows steps, and the mailboxes of touched groups.

use crate::core::Core;
use crate::core::cache::CacheStep;
use crate::core::keys::GroupRef;
use crate::reconcile::Mailboxes;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use towpath_store::{Query, StoreError};
use towpath_types::resource::Key;
use towpath_types::{Kind, Revision};

/// Records in one page of the first load.
const PAGE: usize = 1_000;
/// Changes in one step.
const STEP: usize = 1_000;
/// A look at the feed even when nothing was told: a watch that died silently costs no more than this.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Pause before the next look when there was nothing although something was told.
const EMPTY: Duration = Duration::from_millis(200);
/// First and longest pause after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Starts the consumer.
pub(crate) fn spawn(core: &Arc<Core>, mailboxes: Arc<Mailboxes>, tasks: &mut JoinSet<()>) {
    let core = core.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = run(&core, &mailboxes) => {}
            () = core.stopped() => {}
        }
    });
}

/// Waits until the cache holds a whole state.
pub(crate) async fn wait_loaded(core: &Core) {
    let mut loaded = core.cache_loaded();
    drop(loaded.wait_for(|loaded| *loaded).await);
}

async fn run(core: &Core, mailboxes: &Mailboxes) {
    let mut pause = BACKOFF.0;
    let mut at: Option<u64> = None;
    // The store was set back, and the epoch is not raised for that yet.
    let mut set_back = false;
    loop {
        let wanted = core.reloads.wanted();
        let result = match &mut at {
            Some(stamp) if core.reloads.is_done(wanted) => follow(core, mailboxes, stamp).await,
            at => load(core, mailboxes, &mut set_back).await.map(|stamp| *at = Some(stamp)),
        };
        match result {
            Ok(()) => {
                pause = BACKOFF.0;
                core.store_seen(true);
                core.set_cache_loaded();
                core.reloads.done(wanted);
                if set_back {
                    set_back = !raise_epoch(core).await;
                }
            }
            Err(StoreError::Compacted { after, oldest }) => {
                tracing::warn!(%after, %oldest, "the feed does not reach back to what is known; loading everything");
                set_back |= at.take().is_some() && oldest.0 <= after.0.saturating_add(1);
            }
            Err(error) => {
                core.store_seen(!matches!(error, StoreError::Unavailable { .. }));
                tracing::debug!(%error, retry_in = ?pause, "reading the change feed failed");
                tokio::time::sleep(pause + pause.mul_f64(fastrand::f64() * 0.3)).await;
                pause = (pause * 2).min(BACKOFF.1);
            }
        }
    }
}

/// The store was set back: gateways and cells have obeyed revisions that it has not, or has with other content. Of a higher
/// epoch they take lower revisions. `false` = it has to be tried again.
async fn raise_epoch(core: &Core) -> bool {
    // Who is no member joins anew, which raises it.
    let Some(fence) = core.fence() else { return true };
    match core.store.raise_epoch(fence, core.epoch()).await {
        Ok(epoch) => {
            tracing::warn!(
                epoch,
                "the store was set back: its epoch is raised above all that was told before"
            );
            core.raise_epoch(epoch);
            true
        }
        Err(error) => {
            tracing::warn!(%error, "the epoch could not be raised");
            false
        }
    }
}

/// Lists everything, and gives the stamp of the revision before. Pages may be of different revisions; changes since that
/// one are read again. The epoch of a store that was set back is raised once its state is here, and before it is told of: what
/// was there before is never told with the new epoch.
async fn load(core: &Core, mailboxes: &Mailboxes, set_back: &mut bool) -> Result<u64, StoreError> {
    let mut records = Vec::new();
    // Before anything is listed: so what was listed in the life of another store is noticed by the next look.
    let newest = core.store.revision().await?;
    let begin = core.store.changes_since(newest, 0, 1).await?;
    let first = begin.changes.last().map_or(newest, |change| change.revision);
    let mut query = Query { limit: PAGE, ..Query::default() };
    loop {
        let page = core.store.list(&query).await?;
        query.after = page.records.last().map(|record| record.key.clone());
        // The audit log is not kept in memory, and its kind is the last.
        let is_audit = |last: &Key| last.kind == Kind::Audit;
        let end = !page.more || query.after.as_ref().is_none_or(is_audit);
        records.extend(page.records);
        if end {
            break;
        }
    }
    let step = core.cache.load(records, first);
    if *set_back {
        *set_back = !raise_epoch(core).await;
    }
    tell(core, mailboxes, step);
    mailboxes.activate_all(core);
    Ok(begin.stamp)
}

/// Waits for news, or for the heartbeat, and applies what there is. `stamp` is that of the cache's revision.
async fn follow(core: &Core, mailboxes: &Mailboxes, stamp: &mut u64) -> Result<(), StoreError> {
    let mut watch = core.store.watch();
    let at = core.cache.revision();
    let news = async {
        tokio::select! {
            told = watch.wait_for(|revision| *revision > at) => told.is_ok(),
            () = core.reloads.asked() => true,
        }
    };
    let news = tokio::time::timeout(HEARTBEAT, news).await;
    if news == Ok(false) {
        // The watch is closed: fall back to looking now and then.
        tokio::time::sleep(EMPTY).await;
    }
    loop {
        let after = core.cache.revision();
        let feed = core.store.changes_since(after, *stamp, STEP).await?;
        *stamp = feed.stamp;
        if feed.changes.is_empty() {
            if news == Ok(true) && after == at {
                // The watch promises what is not there: asking again at once would go on for as long as it does.
                tokio::time::sleep(EMPTY).await;
            }
            return Ok(());
        }
        let step = core.cache.apply_for(feed.changes, crate::gateways::tells(core));
        let progressed = step.to > after;
        tell(core, mailboxes, step);
        if !progressed {
            return Ok(());
        }
    }
}

/// Activates the groups that a step touches, and passes it on.
fn tell(core: &Core, mailboxes: &Mailboxes, step: CacheStep) {
    for key in &step.keys {
        match key.kind {
            Kind::Group => {
                if let Some(group) = GroupRef::of_key(key) {
                    mailboxes.activate(group);
                }
            }
            Kind::App => {
                if let (Some(org), Some(space), Ok(app)) = (&key.org, &key.space, key.name.parse()) {
                    let app = towpath_types::AppRef { org: org.clone(), space: space.clone(), app };
                    for (group, _) in core.cache.groups_of(&app) {
                        mailboxes.activate(group);
                    }
                }
            }
            Kind::Release => {
                if let Some(app) = app_of_release(key) {
                    for (group, _) in core.cache.groups_of(&app) {
                        mailboxes.activate(group);
                    }
                }
            }
            Kind::Cell => {
                if let Ok(cell) = key.name.parse() {
                    crate::reconcile::cells::changed(core, mailboxes, cell);
                }
            }
            Kind::Operation => {
                if let Ok(id) = key.name.parse() {
                    core.note_operation(id);
                }
            }
            _ => {}
        }
    }
    if step.to > Revision(0) {
        core.tell_step(step);
    }
}

fn app_of_release(key: &towpath_types::resource::Key) -> Option<towpath_types::AppRef> {
    let app = key.name.split(':').next()?.parse().ok()?;
    Some(towpath_types::AppRef { org: key.org.clone()?, space: key.space.clone()?, app })
}
