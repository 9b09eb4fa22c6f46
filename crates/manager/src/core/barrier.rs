//! Reading from memory what was surely committed before: one small question to the store, shared by all who ask at once.

use super::Core;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use towpath_types::Revision;

/// Longest wait for the cache to come to a revision that the store has.
const BEHIND: Duration = Duration::from_secs(2);

/// The line of those who ask.
#[derive(Debug, Default)]
pub(crate) struct Barrier {
    arrivals: AtomicU64,
    last: Mutex<Last>,
}

/// The last question that was answered.
#[derive(Debug, Default)]
struct Last {
    /// It was asked after so many had arrived, so that its answer is good for them.
    covers: u64,
    /// `None` = the store did not answer.
    revision: Option<Revision>,
}

impl Core {
    /// Waits until the cache holds everything that was committed before this was called, by whichever manager. `false` =
    /// that cannot be known now: the store does not answer, or the feed is behind.
    pub(crate) async fn catch_up(&self) -> bool {
        let Some(revision) = self.stored_revision().await else { return false };
        revision <= self.cache.revision() || self.wait_cache(revision, BEHIND).await
    }

    async fn stored_revision(&self) -> Option<Revision> {
        let arrival = self.barrier.arrivals.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last = self.barrier.last.lock().await;
        if last.covers < arrival {
            let covers = self.barrier.arrivals.load(Ordering::SeqCst);
            let answer = self.store.revision().await;
            self.store_seen(answer.is_ok());
            *last = Last { covers, revision: answer.ok() };
        }
        last.revision
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ManagerSettings;
    use serde_json::json;
    use std::sync::Arc;
    use towpath_bus::MemoryBus;
    use towpath_store::{Expect, SqliteStore, Store, Transaction, Write};
    use towpath_types::ManagerId;

    #[tokio::test]
    async fn what_was_committed_before_is_in_memory_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.path().join("s.db")).await.unwrap());
        let settings = ManagerSettings::new(dir.path());
        let core =
            Core::new(settings, store.clone(), Arc::new(MemoryBus::new()), ManagerId::mint(1, [1; 10]));
        core.cache.load(vec![], Revision(0));
        let feeding = {
            let core = core.clone();
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    let changes = core.store.changes(core.cache.revision(), 0).await.unwrap();
                    core.cache.apply(changes);
                }
            })
        };
        let mut readers = Vec::new();
        for n in 0..20_u8 {
            let key = crate::core::keys::token_key(&format!("t{n}"));
            let write = Write::Put {
                key: key.clone(),
                id: format!("id-{n}"),
                expect: Expect::Absent,
                spec: Some(json!({"n": n})),
                status: None,
            };
            store.commit(Transaction { writes: vec![write], fence: None, idempotency: None }).await.unwrap();
            let core = core.clone();
            readers.push(tokio::spawn(async move {
                assert!(core.catch_up().await);
                core.cache.get(&key).is_some()
            }));
        }
        for reader in readers {
            assert!(reader.await.unwrap());
        }
        feeding.abort();
    }
}
