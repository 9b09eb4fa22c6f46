//! A store that can be taken away.

use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use towpath_store::{
    Commit, Feed, Fence, Idempotency, ManagerRow, Page, Query, Store, StoreError, Transaction,
};
use towpath_types::resource::Key;
use towpath_types::{ManagerId, Record, Revision};

/// Hands on to a real store, unless it is down.
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    down: AtomicBool,
    /// Reads work, writes do not.
    read_only: AtomicBool,
    /// Its watch says nothing any more, and nobody notices.
    silent: AtomicBool,
    nothing: tokio::sync::watch::Sender<Revision>,
    /// A look at the managers' table panics.
    panics: AtomicBool,
    /// So many commits until it is taken away, in the middle of the last one.
    dies_after: AtomicU64,
    /// Whether that last one is made all the same.
    dies_late: AtomicBool,
    /// Calls that came while it was down.
    refused: AtomicU64,
    /// Calls that came.
    calls: AtomicU64,
    /// Commits that came.
    commits: AtomicU64,
    /// So many times the epoch is not raised.
    keeps_epoch: AtomicU64,
    /// How far its clock was set back, milliseconds.
    back_ms: AtomicU64,
    /// How far it was set forward.
    ahead_ms: AtomicU64,
}

impl FaultyStore {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            down: AtomicBool::new(false),
            read_only: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            nothing: tokio::sync::watch::Sender::new(Revision(0)),
            panics: AtomicBool::new(false),
            dies_after: AtomicU64::new(u64::MAX),
            dies_late: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            keeps_epoch: AtomicU64::new(0),
            back_ms: AtomicU64::new(0),
            ahead_ms: AtomicU64::new(0),
        })
    }

    /// Its clock goes back by so much.
    pub(crate) fn set_clock_back(&self, ms: u64) {
        self.back_ms.store(ms, Ordering::SeqCst);
    }

    /// Its clock goes forward by so much.
    pub(crate) fn set_clock_ahead(&self, ms: u64) {
        self.ahead_ms.store(ms, Ordering::SeqCst);
    }

    /// So many times the epoch is not raised.
    pub(crate) fn keep_epoch(&self, times: u64) {
        self.keeps_epoch.store(times, Ordering::SeqCst);
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// It is taken away in the middle of the commit after so many further ones, which is made (`late`) or not.
    pub(crate) fn die_after(&self, commits: u64, late: bool) {
        self.dies_late.store(late, Ordering::SeqCst);
        self.dies_after.store(commits, Ordering::SeqCst);
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::SeqCst)
    }

    /// It is there again, for good.
    pub(crate) fn revive(&self) {
        self.dies_after.store(u64::MAX, Ordering::SeqCst);
        self.set_down(false);
    }

    pub(crate) fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::SeqCst);
    }

    /// Its watch dies without a word.
    pub(crate) fn silence_watch(&self) {
        self.silent.store(true, Ordering::SeqCst);
    }

    /// Its watch says that there is more than there is.
    pub(crate) fn boast(&self, revision: Revision) {
        self.nothing.send_replace(revision);
        self.silence_watch();
    }

    pub(crate) fn set_panics(&self, panics: bool) {
        self.panics.store(panics, Ordering::SeqCst);
    }

    fn check_write(&self) -> Result<(), StoreError> {
        if self.read_only.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable { why: "no room on the disk".into(), uncertain: false });
        }
        self.check()
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::SeqCst)
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Commits that were tried.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// The store behind it, which does not fail.
    pub(crate) fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn check(&self) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.down.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(StoreError::Unavailable { why: "taken away".into(), uncertain: false });
        }
        Ok(())
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.check()?;
        self.inner.get(key).await
    }
    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.check()?;
        self.inner.list(query).await
    }
    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.check_write()?;
        let counts = |left: u64| (left != u64::MAX).then(|| left.saturating_sub(1));
        let left = self.dies_after.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counts);
        if left == Ok(0) {
            self.set_down(true);
            if self.dies_late.load(Ordering::SeqCst) {
                drop(self.inner.commit(transaction).await);
            }
            return Err(StoreError::Unavailable { why: "taken away".into(), uncertain: true });
        }
        self.inner.commit(transaction).await
    }
    async fn answered(&self, idempotency: &Idempotency) -> Result<Option<Commit>, StoreError> {
        self.check()?;
        self.inner.answered(idempotency).await
    }
    async fn changes_since(&self, after: Revision, stamp: u64, limit: usize) -> Result<Feed, StoreError> {
        self.check()?;
        self.inner.changes_since(after, stamp, limit).await
    }
    fn watch(&self) -> tokio::sync::watch::Receiver<Revision> {
        if self.silent.load(Ordering::SeqCst) { self.nothing.subscribe() } else { self.inner.watch() }
    }
    async fn register_manager(&self, row: &ManagerRow) -> Result<(), StoreError> {
        self.check()?;
        self.inner.register_manager(row).await
    }
    async fn heartbeat(&self, fence: Fence) -> Result<(), StoreError> {
        self.check_write()?;
        self.inner.heartbeat(fence).await
    }
    async fn leave(&self, fence: Fence) -> Result<(), StoreError> {
        self.check()?;
        self.inner.leave(fence).await
    }
    async fn evict_silent(&self, longer_than_ms: u64) -> Result<Vec<ManagerId>, StoreError> {
        self.check()?;
        self.inner.evict_silent(longer_than_ms).await
    }
    async fn raise_epoch(&self, fence: Fence, above: u64) -> Result<u64, StoreError> {
        self.check()?;
        let left = |left: u64| left.checked_sub(1);
        if self.keeps_epoch.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok() {
            return Err(StoreError::Unavailable { why: "not now".into(), uncertain: false });
        }
        self.inner.raise_epoch(fence, above).await
    }
    async fn epoch(&self) -> Result<u64, StoreError> {
        self.check()?;
        self.inner.epoch().await
    }
    async fn revision(&self) -> Result<Revision, StoreError> {
        self.check()?;
        self.inner.revision().await
    }
    async fn managers(&self) -> Result<Vec<ManagerRow>, StoreError> {
        assert!(!self.panics.load(Ordering::SeqCst), "on purpose");
        self.check()?;
        self.inner.managers().await
    }
    async fn now_ms(&self) -> Result<u64, StoreError> {
        self.check()?;
        let ahead = self.inner.now_ms().await? + self.ahead_ms.load(Ordering::SeqCst);
        Ok(ahead.saturating_sub(self.back_ms.load(Ordering::SeqCst)))
    }
}
