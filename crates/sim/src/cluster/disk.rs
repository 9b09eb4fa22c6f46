//! One manager's connection to the store: calls take time, fail, and leave it open whether a commit was done.

use super::audit::Audit;
use super::world::{Gate, World};
use async_trait::async_trait;
use std::sync::Arc;
use tokio::sync::watch;
use towpath_store::{
    Commit, Feed, Fence, Idempotency, ManagerRow, Page, Query, Store, StoreError, Transaction,
};
use towpath_types::resource::Key;
use towpath_types::{ManagerId, Record, Revision};

/// A handle of one process.
pub(super) struct Disk {
    world: Arc<World>,
    gate: Arc<Gate>,
    audit: Arc<Audit>,
}

fn unavailable(why: &str, uncertain: bool) -> StoreError {
    StoreError::Unavailable { why: why.to_owned(), uncertain }
}

impl Disk {
    pub(super) fn new(world: Arc<World>, gate: Arc<Gate>, audit: Arc<Audit>) -> Self {
        Self { world, gate, audit }
    }

    /// The way there.
    async fn go(&self) -> Result<(), StoreError> {
        self.gate.pass().await;
        let weather = self.world.weather();
        self.world.wait_up_to(weather.store_ms).await;
        if self.gate.is_store_gone() || self.world.happens(weather.failed) {
            return Err(unavailable("it is taken away", false));
        }
        // Whatever was checked before may be untrue by now.
        self.gate.pass().await;
        Ok(())
    }

    /// The way back.
    async fn come<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        self.world.wait_up_to(self.world.weather().store_ms).await;
        self.gate.pass().await;
        answer
    }
}

#[async_trait]
impl Store for Disk {
    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.go().await?;
        let answer = self.audit.store().get(key).await;
        self.come(answer).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.go().await?;
        let answer = self.audit.store().list(query).await;
        self.come(answer).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        self.go().await?;
        let answer = self.audit.commit(transaction).await;
        if answer.is_ok() && self.world.happens(self.world.weather().uncertain) {
            return self.come(Err(unavailable("the answer was lost", true))).await;
        }
        self.come(answer).await
    }

    async fn answered(&self, idempotency: &Idempotency) -> Result<Option<Commit>, StoreError> {
        self.go().await?;
        let answer = self.audit.store().answered(idempotency).await;
        self.come(answer).await
    }

    async fn changes_since(&self, after: Revision, stamp: u64, limit: usize) -> Result<Feed, StoreError> {
        self.go().await?;
        let answer = self.audit.store().changes_since(after, stamp, limit).await;
        self.come(answer).await
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.audit.store().watch()
    }

    async fn register_manager(&self, row: &ManagerRow) -> Result<(), StoreError> {
        self.go().await?;
        let answer = self.audit.store().register_manager(row).await;
        self.come(answer).await
    }

    async fn heartbeat(&self, fence: Fence) -> Result<(), StoreError> {
        self.go().await?;
        let store = self.audit.store();
        let answer = self.audit.as_member("a heartbeat", fence, store.heartbeat(fence)).await;
        self.come(answer).await
    }

    async fn leave(&self, fence: Fence) -> Result<(), StoreError> {
        self.go().await?;
        let store = self.audit.store();
        let answer = self.audit.as_member("the leaving", fence, store.leave(fence)).await;
        self.come(answer).await
    }

    async fn evict_silent(&self, longer_than_ms: u64) -> Result<Vec<ManagerId>, StoreError> {
        self.go().await?;
        let answer = self.audit.store().evict_silent(longer_than_ms).await;
        self.come(answer).await
    }

    async fn epoch(&self) -> Result<u64, StoreError> {
        self.go().await?;
        let answer = self.audit.store().epoch().await;
        self.come(answer).await
    }

    async fn raise_epoch(&self, fence: Fence, above: u64) -> Result<u64, StoreError> {
        self.go().await?;
        let store = self.audit.store();
        let answer = self.audit.as_member("an epoch", fence, store.raise_epoch(fence, above)).await;
        self.come(answer).await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.go().await?;
        let answer = self.audit.store().revision().await;
        self.come(answer).await
    }

    async fn managers(&self) -> Result<Vec<ManagerRow>, StoreError> {
        self.go().await?;
        let answer = self.audit.store().managers().await;
        self.come(answer).await
    }

    async fn now_ms(&self) -> Result<u64, StoreError> {
        self.go().await?;
        let answer = self.audit.store().now_ms().await.map(|now| self.gate.skewed(now));
        self.come(answer).await
    }
}
