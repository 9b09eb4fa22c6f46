//! Housekeeping of identity: entries of the audit log that are too old or too many, sessions and tokens that ended.

use super::ApiLimits;
use crate::core::Core;
use crate::error::CommitError;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use towpath_store::{Expect, Query, Write};
use towpath_types::identity::{Actor, AuditSpec, SessionSpec};
use towpath_types::resource::Key;
use towpath_types::spec::TokenSpec;
use towpath_types::{Kind, OrgName, Record};

/// Time between two rounds.
const EVERY: Duration = Duration::from_secs(300);
/// The same, after a round that removed many.
const SOON: Duration = Duration::from_secs(5);
/// So many.
const MANY: usize = 5_000;
/// Deletions in one transaction.
const BATCH: usize = 200;
/// Entries read at once.
const PAGE: usize = 1000;
/// Ended tokens stay for so long, so that a person can see why one is refused.
const KEPT_TOKENS_MS: u64 = 7 * 24 * 3600 * 1000;
/// What users do to themselves, however often they like.
const OWN: [&str; 3] = ["session.login", "session.logout", "user.password"];
const DAY_MS: u64 = 24 * 3600 * 1000;

/// Does a round now and then, until the manager stops.
pub(super) fn spawn(core: Arc<Core>) -> JoinHandle<()> {
    crate::vitals::spawn(&core.clone(), async move {
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = EVERY,
                () = core.stopped() => return,
            }
            // One manager is enough; when that is gone, another one owns this.
            if !core.ownership.is_mine("audit") || core.fence().is_none() {
                continue;
            }
            match remove_ended(&core).await {
                // Somebody makes many.
                Ok(gone) if gone >= MANY => pause = SOON,
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "ended sessions and old entries could not be removed now")
                }
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
    let removed = remove(core, &gone).await?;
    Ok(removed + remove_beyond(core, now).await?)
}

/// Deletes them; how many.
async fn remove(core: &Core, gone: &[Key]) -> Result<usize, CommitError> {
    for batch in gone.chunks(BATCH) {
        let delete = |key: &Key| Write::Delete { key: key.clone(), expect: Expect::Any };
        core.commit(batch.iter().map(delete).collect()).await?;
    }
    Ok(gone.len())
}

/// Removes entries that are older than permitted, or more than that of their org; how many. Each round goes through all orgs,
/// so that none waits for another, and holds one page in memory.
async fn remove_beyond(core: &Core, now: u64) -> Result<usize, CommitError> {
    let limits = &core.settings.limits;
    let oldest = now.saturating_sub(u64::from(limits.audit_days).saturating_mul(DAY_MS));
    let (mut removed, mut kept) = (0, Kept::default());
    let mut query = Query { kind: Some(Kind::Audit), limit: PAGE, ..Query::default() };
    loop {
        let page = core.store.list(&query).await?;
        let is_beyond = |record: &&Record| record.created_ms < oldest || !kept.takes(record, limits);
        let gone: Vec<Key> = page.records.iter().filter(is_beyond).map(|record| record.key.clone()).collect();
        removed += remove(core, &gone).await?;
        query.after = page.records.last().map(|record| record.key.clone());
        if !page.more || query.after.is_none() {
            return Ok(removed);
        }
    }
}

/// What stays of the org that is looked at. Names sort the newest first.
#[derive(Default)]
struct Kept {
    org: Option<Option<OrgName>>,
    entries: usize,
    /// Users' entries about themselves, by the user: they are counted apart, so that nobody's logins push out what others did.
    own: HashMap<String, usize>,
}

impl Kept {
    /// Whether an entry stays.
    fn takes(&mut self, record: &Record, limits: &ApiLimits) -> bool {
        if self.org.as_ref() != Some(&record.key.org) {
            *self = Self { org: Some(record.key.org.clone()), ..Self::default() };
        }
        let (count, most) = match of_own(record) {
            Some(user) => (self.own.entry(user).or_default(), limits.audit_logins_per_user),
            None => (&mut self.entries, limits.audit_entries),
        };
        *count += 1;
        *count <= most
    }
}

/// The user whose login, logout or new password an entry is about.
fn of_own(record: &Record) -> Option<String> {
    let entry: AuditSpec = record.spec().ok()?;
    match entry.by {
        Actor::User { name } if OWN.contains(&entry.action.as_str()) => Some(name),
        _ => None,
    }
}
