//! Housekeeping of identity: entries of the audit log that are too old or too many, sessions and tokens that ended.

use crate::core::Core;
use crate::error::CommitError;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use towpath_store::{Expect, Query, Write};
use towpath_types::identity::SessionSpec;
use towpath_types::resource::Key;
use towpath_types::spec::TokenSpec;
use towpath_types::{Kind, Record};

/// Time between two rounds.
const EVERY: Duration = Duration::from_secs(300);
/// Deletions in one transaction.
const BATCH: usize = 200;
/// Entries read at once.
const PAGE: usize = 1000;
/// Ended tokens stay for so long, so that a person can see why one is refused.
const KEPT_TOKENS_MS: u64 = 7 * 24 * 3600 * 1000;
const DAY_MS: u64 = 24 * 3600 * 1000;

/// Does a round now and then, until the manager stops.
pub(super) fn spawn(core: Arc<Core>) -> JoinHandle<()> {
    crate::vitals::spawn(&core.clone(), async move {
        let mut every = tokio::time::interval(EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                () = core.stopped() => return,
            }
            // One manager is enough; when that is gone, another one owns this.
            if !core.ownership.is_mine("audit") || core.fence().is_none() {
                continue;
            }
            if let Err(error) = remove_ended(&core).await {
                tracing::debug!(%error, "ended sessions and old entries could not be removed now");
            }
        }
    })
}

/// Removes ended sessions and tokens, and entries of the audit log beyond its limits; how many in all. Done now and then by
/// the manager that owns it.
pub async fn remove_ended(core: &Core) -> Result<usize, CommitError> {
    let now = core.now_ms();
    let session = |record: &Record| record.spec::<SessionSpec>().map_or(true, |spec| spec.expires_ms <= now);
    let token = |record: &Record| {
        let end = record.spec::<TokenSpec>().ok().and_then(|spec| spec.expires_ms);
        end.is_some_and(|end| end.saturating_add(KEPT_TOKENS_MS) <= now)
    };
    let mut gone: Vec<Key> = Vec::new();
    gone.extend(
        core.cache.list(Kind::Session, None, None).iter().filter(|r| session(r)).map(|r| r.key.clone()),
    );
    gone.extend(core.cache.list(Kind::Token, None, None).iter().filter(|r| token(r)).map(|r| r.key.clone()));
    gone.extend(beyond(core, now).await?);
    for batch in gone.chunks(BATCH) {
        let delete = |key: &Key| Write::Delete { key: key.clone(), expect: Expect::Any };
        core.commit(batch.iter().map(delete).collect()).await?;
    }
    Ok(gone.len())
}

/// Entries that are older than permitted, or more than that of their org. Names sort the newest first.
async fn beyond(core: &Core, now: u64) -> Result<Vec<Key>, CommitError> {
    let limits = &core.settings.limits;
    let oldest = now.saturating_sub(u64::from(limits.audit_days).saturating_mul(DAY_MS));
    let mut gone = Vec::new();
    let (mut org, mut kept) = (None, 0);
    let mut query = Query { kind: Some(Kind::Audit), limit: PAGE, ..Query::default() };
    loop {
        let page = core.store.list(&query).await?;
        for record in &page.records {
            if org != Some(record.key.org.clone()) {
                (org, kept) = (Some(record.key.org.clone()), 0);
            }
            if record.created_ms < oldest || kept >= limits.audit_entries {
                gone.push(record.key.clone());
            } else {
                kept += 1;
            }
        }
        query.after = page.records.last().map(|record| record.key.clone());
        // What is left is for the next round: memory stays bounded.
        if !page.more || query.after.is_none() || gone.len() >= 50 * BATCH {
            return Ok(gone);
        }
    }
}
