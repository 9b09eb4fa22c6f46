//! Watches what takes effect in the store, and says so when something does that must not.
//!
//! It stands between the managers' connections and the store, and judges by what it reads itself, not by what the store
//! answers: who is a member, at which revision things are, which requests were done.

use super::sabotage::{self, Sabotage};
use super::world::World;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use towpath_store::{Commit, Expect, Fence, MemoryStore, Store, StoreError, Transaction, Write};
use towpath_types::resource::Key;
use towpath_types::{Kind, Revision};

/// The store as managers reach it.
pub(super) struct Audit {
    world: Arc<World>,
    store: Arc<MemoryStore>,
    sabotage: Option<Sabotage>,
    /// Idempotency keys, each with what its first request was told.
    done: Mutex<HashMap<String, Revision>>,
}

impl Audit {
    pub(super) fn new(world: &Arc<World>, store: &Arc<MemoryStore>, sabotage: Option<Sabotage>) -> Arc<Self> {
        let (world, store) = (world.clone(), store.clone());
        Arc::new(Self { world, store, sabotage, done: Mutex::default() })
    }

    pub(super) fn store(&self) -> &Arc<MemoryStore> {
        &self.store
    }

    /// Commits. Nothing else happens between the looks before and after, since the store in memory never waits.
    pub(super) async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        let before = self.store.revision().await?;
        let wrong = self.wrong_with(&transaction).await?;
        let once = transaction.idempotency.as_ref().map(|named| named.key.clone());
        let chance = || self.world.happens(0.2);
        let commit = sabotage::commit(&self.store, self.sabotage, transaction, chance).await?;
        let after = self.store.revision().await?;
        if let Some(once) = once {
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            let first = *done.entry(once.clone()).or_insert(commit.revision);
            if first != commit.revision {
                self.world
                    .breaks(format!("request {once} was done at {first} and again at {}", commit.revision));
            }
        }
        if after == before {
            // Nothing was to be changed, or it was done before.
            return Ok(commit);
        }
        if let Some(wrong) = wrong {
            self.world.breaks(wrong);
        }
        if self.sabotage != Some(Sabotage::Losses)
            && (after != Revision(before.0 + 1) || commit.revision != after)
        {
            self.world.breaks(format!("after {before} came {after}, and {} was told", commit.revision));
        }
        Ok(commit)
    }

    /// Why this must have no effect.
    async fn wrong_with(&self, transaction: &Transaction) -> Result<Option<String>, StoreError> {
        let Some(fence) = transaction.fence else {
            return Ok(Some("a manager wrote without a fence".into()));
        };
        if !self.is_member(fence).await? {
            return Ok(Some(evicted("a write", fence)));
        }
        for write in &transaction.writes {
            let (Write::Put { key, expect, .. } | Write::Delete { key, expect }) = write;
            let actual = self.store.get(key).await?.map(|record| record.revision);
            let fits = match expect {
                Expect::Absent => actual.is_none(),
                Expect::At(revision) => actual == Some(*revision),
                Expect::Present => actual.is_some(),
                Expect::Any => true,
            };
            if !fits {
                return Ok(Some(format!("{} was written at {actual:?}, decided at {expect:?}", named(key))));
            }
            // Two may believe that they own a group; what they decide has to exclude each other.
            let blind =
                matches!(write, Write::Put { status: Some(_), expect: Expect::Any | Expect::Present, .. });
            if blind && key.kind == Kind::Group {
                return Ok(Some(format!("the status of {} was written whatever it was", named(key))));
            }
        }
        Ok(None)
    }

    async fn is_member(&self, fence: Fence) -> Result<bool, StoreError> {
        let rows = self.store.managers().await?;
        Ok(rows
            .iter()
            .any(|row| row.manager == fence.manager && row.incarnation == fence.incarnation && !row.evicted))
    }

    /// Something that only members can do, and that was done.
    pub(super) async fn as_member<T>(
        &self,
        what: &str,
        fence: Fence,
        done: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let member = self.is_member(fence).await?;
        let done = done.await?;
        if !member {
            self.world.breaks(evicted(what, fence));
        }
        Ok(done)
    }
}

fn evicted(what: &str, fence: Fence) -> String {
    format!("{what} of evicted manager {} {} took effect", fence.manager.short(), fence.incarnation.0)
}

fn named(key: &Key) -> String {
    format!("{} {}", key.kind.as_str(), key.name)
}
