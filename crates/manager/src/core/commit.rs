//! Writing to the store: fenced, with retries of compare-and-set.

use super::Core;
use crate::error::CommitError;
use std::time::Duration;
use towpath_store::{Commit, Idempotency, StoreError, Transaction, Write};
use towpath_types::resource::Key;
use towpath_types::{Record, Revision};

/// Times that a compare-and-set is tried.
const ATTEMPTS: u32 = 12;

impl Core {
    /// Commits writes under this manager's fence, and waits a moment until the cache shows them.
    pub async fn commit(&self, writes: Vec<Write>) -> Result<Commit, CommitError> {
        self.commit_once(writes, None).await
    }

    /// Like [`Core::commit`]; the same `idempotency` text again within a day gives the first result again.
    pub async fn commit_once(
        &self,
        writes: Vec<Write>,
        idempotency: Option<Idempotency>,
    ) -> Result<Commit, CommitError> {
        let fence = self.fence_to_write().ok_or(CommitError::NotMember)?;
        match self.store.commit(Transaction { writes, fence: Some(fence), idempotency }).await {
            Ok(commit) => {
                self.store_seen(true);
                self.gate.note_made();
                self.wait_cache(commit.revision, Duration::from_secs(2)).await;
                Ok(commit)
            }
            Err(error) => {
                if matches!(error, StoreError::Fenced(_)) {
                    self.lose_membership(fence);
                }
                let is_away = matches!(error, StoreError::Unavailable { .. });
                self.store_seen(!is_away);
                if is_away {
                    self.gate.note_refused();
                }
                Err(error.into())
            }
        }
    }

    /// Reads a resource, lets `decide` make writes from it, commits them; begins again when one of them conflicts.
    /// `decide` returns `Ok(None)` when nothing is to be written. It has to set [`towpath_store::Expect`] by what it read.
    pub async fn update<E, F>(&self, key: &Key, mut decide: F) -> Result<Option<Commit>, E>
    where
        E: From<CommitError>,
        F: FnMut(Option<&Record>) -> Result<Option<Vec<Write>>, E>,
    {
        for attempt in 0..ATTEMPTS {
            let record = self.store.get(key).await.map_err(CommitError::from)?;
            let Some(writes) = decide(record.as_ref())? else { return Ok(None) };
            match self.commit(writes).await {
                Ok(commit) => return Ok(Some(commit)),
                Err(CommitError::Store(StoreError::Conflict { .. })) => {
                    let most = 4_u64 << attempt.min(6);
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=most))).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(CommitError::Contended.into())
    }

    /// Waits until the cache is complete up to `revision`; `false` when the time is over before.
    pub async fn wait_cache(&self, revision: Revision, deadline: Duration) -> bool {
        tokio::time::timeout(deadline, self.cache.wait(revision)).await.is_ok()
    }

    /// Waits until all live gateways serve at least `revision` (at once when there is none); `false` when the time is
    /// over before.
    pub async fn wait_revision_served(&self, revision: Revision, deadline: Duration) -> bool {
        let mut ticks = self.soft.watch();
        let served = async {
            loop {
                ticks.mark_unchanged();
                if self.soft.served_revision().is_none_or(|served| served >= revision) {
                    return;
                }
                // A gateway that dies sends no report, so look again now and then.
                drop(tokio::time::timeout(Duration::from_millis(500), ticks.changed()).await);
            }
        };
        tokio::time::timeout(deadline, served).await.is_ok()
    }
}
