//! The store in memory: for simulations and tests. Its clock is tokio's, so that it stands still and jumps with it. It
//! keeps all rules of the trait, and nothing when the process ends.

use crate::decide::{self, Stand, View};
use crate::document::{self, Remembered};
use crate::{
    Change, Commit, Feed, Fence, Idempotency, ManagerRow, Page, Query, Store, StoreError, Transaction,
};
use async_trait::async_trait;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::Instant;
use towpath_types::resource::Key;
use towpath_types::{Incarnation, Kind, ManagerId, Record, Revision};

/// How long a result is kept for its idempotency key.
const IDEMPOTENCY_MS: u64 = 24 * 3600 * 1000;

/// A store in memory. Share it behind an `Arc`.
pub struct MemoryStore {
    state: Mutex<State>,
    revisions: watch::Sender<Revision>,
    keep_revisions: u64,
    start: Instant,
    start_ms: u64,
    /// How often it was set back.
    lives: AtomicU64,
}

#[derive(Clone, Default)]
struct State {
    records: BTreeMap<Key, Record>,
    ids: HashSet<String>,
    revision: Revision,
    feed: VecDeque<(Revision, Key)>,
    compacted: u64,
    results: HashMap<String, (u64, Remembered)>,
    managers: BTreeMap<ManagerId, Row>,
    epoch: u64,
}

/// What a store held at some moment.
pub struct Backup(State);

#[derive(Clone)]
struct Row {
    incarnation: Incarnation,
    address: String,
    version: String,
    weight: f32,
    started_ms: u64,
    seen_ms: u64,
    evicted: bool,
}

impl MemoryStore {
    /// An empty store whose clock shows `now_ms` (milliseconds since 1970) at this moment of tokio's time. It keeps this
    /// many revisions of the change feed, and up to a tenth more.
    pub fn new(now_ms: u64, keep_revisions: u64) -> Self {
        Self {
            state: Mutex::default(),
            revisions: watch::Sender::new(Revision(0)),
            keep_revisions,
            start: Instant::now(),
            start_ms: now_ms,
            lives: AtomicU64::new(0),
        }
    }

    /// What it holds now.
    pub fn back_up(&self) -> Backup {
        Backup(self.state().clone())
    }

    /// Sets it back, as a standby does that was behind and takes over.
    pub fn restore(&self, backup: &Backup) {
        let mut state = self.state();
        *state = backup.0.clone();
        self.lives.fetch_add(1, Ordering::Relaxed);
        self.revisions.send_replace(state.revision);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clock_ms(&self) -> u64 {
        let since = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.start_ms.saturating_add(since)
    }
}

impl State {
    fn check(&self, fence: Fence) -> Result<(), StoreError> {
        match self.managers.get(&fence.manager) {
            Some(row) if !row.evicted && row.incarnation == fence.incarnation => Ok(()),
            _ => Err(StoreError::Fenced(fence.manager)),
        }
    }

    fn raise_epoch(&mut self, now_ms: u64) {
        self.epoch = (self.epoch + 1).max(now_ms);
    }

    fn commit(&mut self, transaction: &Transaction, now_ms: u64) -> Result<Commit, StoreError> {
        decide::check(transaction)?;
        if let Some(named) = &transaction.idempotency
            && let Some(first) = self.answered(named, now_ms)?
        {
            return Ok(first);
        }
        if let Some(fence) = transaction.fence {
            self.check(fence)?;
        }
        let mut view = View::default();
        for key in decide::keys(transaction) {
            view.load(key.clone(), self.records.get(key).cloned());
        }
        for id in decide::new_ids(transaction).filter(|id| self.ids.contains(*id)) {
            view.load_id(id.to_owned());
        }
        let decision = decide::decide(transaction, &view, Stand { revision: self.revision, now_ms })?;
        self.revision = decision.commit.revision;
        for (key, record) in decision.changes {
            self.put(key, record);
        }
        if let Some(named) = &transaction.idempotency {
            self.results.insert(named.key.clone(), (now_ms, Remembered::new(&decision.commit, named)));
        }
        Ok(decision.commit)
    }

    fn answered(&self, named: &Idempotency, now_ms: u64) -> Result<Option<Commit>, StoreError> {
        let fresh = |at_ms: u64| now_ms.saturating_sub(at_ms) < IDEMPOTENCY_MS;
        let known = self.results.get(&named.key).filter(|(at_ms, _)| fresh(*at_ms));
        known.map(|(_, remembered)| remembered.answer(named)).transpose()
    }

    fn put(&mut self, key: Key, record: Option<Record>) {
        self.feed.push_back((self.revision, key.clone()));
        let before = match record {
            Some(record) => {
                self.ids.insert(record.id.clone());
                let id = record.id.clone();
                self.records.insert(key, record).filter(|before| before.id != id)
            }
            None => self.records.remove(&key),
        };
        if let Some(before) = before {
            self.ids.remove(&before.id);
        }
    }

    fn compact(&mut self, keep: u64) {
        if self.revision.0 > self.compacted + keep + keep / 10 {
            self.compacted = self.revision.0 - keep;
            let behind = self.feed.partition_point(|(revision, _)| revision.0 <= self.compacted);
            self.feed.drain(..behind);
        }
    }

    fn rows(&self, now_ms: u64) -> Vec<ManagerRow> {
        let row = |(manager, row): (&ManagerId, &Row)| ManagerRow {
            manager: *manager,
            incarnation: row.incarnation,
            address: row.address.clone(),
            version: row.version.clone(),
            weight: row.weight,
            started_ms: row.started_ms,
            silent_ms: now_ms.saturating_sub(row.seen_ms),
            evicted: row.evicted,
        };
        self.managers.iter().map(row).collect()
    }
}

fn is_wanted(query: &Query, key: &Key) -> bool {
    query.kind.is_none_or(|kind| key.kind == kind)
        && query.org.as_ref().is_none_or(|org| key.org.as_ref() == Some(org))
        && query.space.as_ref().is_none_or(|space| key.space.as_ref() == Some(space))
        && query.name_prefix.as_ref().is_none_or(|prefix| key.name.starts_with(prefix))
        && query.after.as_ref().is_none_or(|after| key > after)
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.state().records.get(key).cloned())
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let state = self.state();
        let most = if query.limit == 0 { usize::MAX } else { query.limit };
        let mut found = state.records.iter().filter(|(key, _)| is_wanted(query, key));
        let records = found.by_ref().take(most).map(|(_, record)| record.clone()).collect();
        Ok(Page { revision: state.revision, records, more: found.next().is_some() })
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        let now_ms = self.clock_ms();
        let mut state = self.state();
        let commit = state.commit(&transaction, now_ms)?;
        state.compact(self.keep_revisions);
        let revision = state.revision;
        self.revisions.send_if_modified(|seen| std::mem::replace(seen, revision) != revision);
        Ok(commit)
    }

    async fn answered(&self, idempotency: &Idempotency) -> Result<Option<Commit>, StoreError> {
        self.state().answered(idempotency, self.clock_ms())
    }

    async fn changes_since(&self, after: Revision, stamp: u64, limit: usize) -> Result<Feed, StoreError> {
        let state = self.state();
        let own = self.lives.load(Ordering::Relaxed) + 1;
        let is_other = stamp != 0 && stamp != own;
        if is_other || after.0 < state.compacted || after > state.revision {
            return Err(StoreError::Compacted { after, oldest: Revision(state.compacted + 1) });
        }
        let first = state.feed.partition_point(|(revision, _)| *revision <= after);
        let mut changes: Vec<Change> = Vec::new();
        for (revision, key) in state.feed.range(first..) {
            let full = limit > 0 && changes.len() >= limit;
            if full && changes.last().is_some_and(|last| last.revision != *revision) {
                break;
            }
            let told = Some(key).filter(|key| key.kind != Kind::Audit);
            let record = told.and_then(|key| state.records.get(key)).cloned();
            changes.push(Change { revision: *revision, key: key.clone(), record });
        }
        Ok(Feed { changes, stamp: own })
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.revisions.subscribe()
    }

    async fn register_manager(&self, row: &ManagerRow) -> Result<(), StoreError> {
        let now_ms = self.clock_ms();
        let mut state = self.state();
        if let Some(stored) = state.managers.get(&row.manager) {
            let again = stored.incarnation == row.incarnation && !stored.evicted;
            if stored.incarnation >= row.incarnation && !again {
                return Err(StoreError::Fenced(row.manager));
            }
        }
        let stored = Row {
            incarnation: row.incarnation,
            address: row.address.clone(),
            version: row.version.clone(),
            weight: row.weight,
            started_ms: now_ms,
            seen_ms: now_ms,
            evicted: false,
        };
        state.managers.insert(row.manager, stored);
        state.raise_epoch(now_ms);
        Ok(())
    }

    async fn heartbeat(&self, fence: Fence) -> Result<(), StoreError> {
        let now_ms = self.clock_ms();
        let mut state = self.state();
        state.check(fence)?;
        if let Some(row) = state.managers.get_mut(&fence.manager) {
            row.seen_ms = now_ms;
        }
        Ok(())
    }

    async fn leave(&self, fence: Fence) -> Result<(), StoreError> {
        let now_ms = self.clock_ms();
        let mut state = self.state();
        state.check(fence)?;
        state.managers.remove(&fence.manager);
        state.raise_epoch(now_ms);
        Ok(())
    }

    async fn evict_silent(&self, longer_than_ms: u64) -> Result<Vec<ManagerId>, StoreError> {
        let now_ms = self.clock_ms();
        let mut state = self.state();
        let mut evicted = Vec::new();
        for (manager, row) in &mut state.managers {
            if !row.evicted && now_ms.saturating_sub(row.seen_ms) > longer_than_ms {
                row.evicted = true;
                evicted.push(*manager);
            }
        }
        if !evicted.is_empty() {
            state.raise_epoch(now_ms);
        }
        Ok(evicted)
    }

    async fn epoch(&self) -> Result<u64, StoreError> {
        Ok(self.state().epoch)
    }

    async fn raise_epoch(&self, fence: Fence, above: u64) -> Result<u64, StoreError> {
        let mut state = self.state();
        state.check(fence)?;
        state.epoch = state.epoch.max(document::epoch_above(above)?);
        Ok(state.epoch)
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(self.state().revision)
    }

    async fn managers(&self) -> Result<Vec<ManagerRow>, StoreError> {
        Ok(self.state().rows(self.clock_ms()))
    }

    async fn now_ms(&self) -> Result<u64, StoreError> {
        Ok(self.clock_ms())
    }
}
