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
    let mut loaded = false;
    loop {
        let result = if loaded { follow(core, mailboxes).await } else { load(core, mailboxes).await };
        match result {
            Ok(()) => {
                loaded = true;
                pause = BACKOFF.0;
                core.store_seen(true);
                core.set_cache_loaded();
            }
            Err(StoreError::Compacted { after, oldest }) => {
                tracing::warn!(%after, %oldest, "the feed does not reach back far enough; loading everything");
                loaded = false;
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

/// Lists everything. Pages may be of different revisions; changes since the first one's are read again.
async fn load(core: &Core, mailboxes: &Mailboxes) -> Result<(), StoreError> {
    let mut records = Vec::new();
    let mut first = None;
    let mut query = Query { limit: PAGE, ..Query::default() };
    loop {
        let page = core.store.list(&query).await?;
        first.get_or_insert(page.revision);
        query.after = page.records.last().map(|record| record.key.clone());
        // The audit log is not kept in memory, and its kind is the last.
        let is_audit = |last: &Key| last.kind == Kind::Audit;
        let end = !page.more || query.after.as_ref().is_none_or(is_audit);
        records.extend(page.records);
        if end {
            break;
        }
    }
    let step = core.cache.load(records, first.unwrap_or_default());
    tell(core, mailboxes, step);
    mailboxes.activate_all(core);
    Ok(())
}

/// Waits for news, or for the heartbeat, and applies what there is.
async fn follow(core: &Core, mailboxes: &Mailboxes) -> Result<(), StoreError> {
    let mut watch = core.store.watch();
    let at = core.cache.revision();
    let news = async { watch.wait_for(|revision| *revision > at).await.is_ok() };
    if tokio::time::timeout(HEARTBEAT, news).await == Ok(false) {
        // The watch is closed: fall back to looking now and then.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    loop {
        let after = core.cache.revision();
        let changes = core.store.changes(after, STEP).await?;
        if changes.is_empty() {
            return Ok(());
        }
        let step = core.cache.apply_for(changes, crate::gateways::tells(core));
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
