//! The one thread that writes. It takes all jobs that wait, runs each in a savepoint, and commits them together, so
//! that many writers share one fsync; each still succeeds or fails alone and has a revision of its own.

use super::error::{from_commit, from_sqlite};
use super::{managers, rows};
use crate::decide::{self, Stand, View};
use crate::document::Remembered;
use crate::{Commit, Idempotency, StoreError, Transaction};
use rusqlite::{Connection, OptionalExtension, params};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};
use towpath_types::Revision;

/// Most jobs in one SQL transaction.
const MAX_BATCH: usize = 256;
/// How long a result is kept for its idempotency key.
pub(crate) const IDEMPOTENCY_MS: u64 = 24 * 3600 * 1000;
/// Pause between looks for old idempotency keys.
const CLEAN_EVERY_MS: u64 = 600_000;

/// Tells the caller how its job ended: `Err` if the batch was not committed.
pub(super) type Finish = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
/// A job: works inside the batch (`None`: the batch has failed, do nothing); says whether its part is to be kept.
pub(super) type Job = Box<dyn FnOnce(Option<&mut Batch<'_>>) -> (bool, Finish) + Send>;

/// The store's clock. Silence is measured by a clock that does not jump when the wall clock is set.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    start_ms: u64,
    start: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { start_ms: Self::wall_ms(), start: Instant::now() }
    }

    pub(super) fn wall_ms() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// Milliseconds since 1970 as of the start, counted on without jumps.
    pub(super) fn steady_ms(&self) -> u64 {
        self.start_ms + u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// What a job sees.
pub(super) struct Batch<'a> {
    pub(super) connection: &'a Connection,
    pub(super) clock: Clock,
    /// The revision of the last commit, this batch's included.
    revision: Revision,
}

impl Batch<'_> {
    /// Runs one transaction.
    pub(super) fn commit(&mut self, transaction: &Transaction) -> Result<Commit, StoreError> {
        let now_ms = Clock::wall_ms();
        decide::check(transaction)?;
        if let Some(commit) = self.first_result(transaction, now_ms)? {
            return Ok(commit);
        }
        if let Some(fence) = transaction.fence {
            managers::check(self.connection, fence)?;
        }
        let mut view = View::default();
        for key in decide::keys(transaction) {
            view.load(key.clone(), rows::get(self.connection, key)?);
        }
        for id in decide::new_ids(transaction) {
            if rows::has_id(self.connection, id)? {
                view.load_id(id.to_owned());
            }
        }
        let decision = decide::decide(transaction, &view, Stand { revision: self.revision, now_ms })?;
        for (ord, (key, record)) in decision.changes.iter().enumerate() {
            rows::put(self.connection, key, record.as_ref())?;
            rows::append_change(self.connection, decision.commit.revision, ord, key)?;
        }
        self.remember(transaction, &decision.commit, now_ms)?;
        self.revision = decision.commit.revision;
        Ok(decision.commit)
    }

    fn first_result(&self, transaction: &Transaction, now_ms: u64) -> Result<Option<Commit>, StoreError> {
        let Some(named) = &transaction.idempotency else { return Ok(None) };
        answered(self.connection, named, now_ms)
    }

    fn remember(&self, transaction: &Transaction, commit: &Commit, now_ms: u64) -> Result<(), StoreError> {
        let Some(named) = &transaction.idempotency else { return Ok(()) };
        let (key, records) = (&named.key, Remembered::new(commit, named).text());
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO idempotency VALUES (?, ?, ?, ?)")
            .and_then(|mut statement| statement.execute(params![key, commit.revision.0, records, now_ms]))
            .map_err(from_sqlite)
            .map(drop)
    }
}

/// The commit that was made under a key.
pub(super) fn answered(
    connection: &Connection,
    named: &Idempotency,
    now_ms: u64,
) -> Result<Option<Commit>, StoreError> {
    let oldest = now_ms.saturating_sub(IDEMPOTENCY_MS);
    let found: Option<(u64, String)> = connection
        .prepare_cached("SELECT revision, records FROM idempotency WHERE key = ? AND at_ms > ?")
        .and_then(|mut statement| {
            statement.query_row(params![named.key, oldest], |row| Ok((row.get(0)?, row.get(1)?))).optional()
        })
        .map_err(from_sqlite)?;
    let answer = |(revision, records): (u64, String)| Remembered::read(revision, &records)?.answer(named);
    found.map(answer).transpose()
}

/// What the thread keeps between batches.
pub(super) struct Writer {
    connection: Connection,
    clock: Clock,
    revision: Revision,
    compacted: u64,
    keep_revisions: u64,
    cleaned_ms: Option<u64>,
    watch: watch::Sender<Revision>,
    /// Committed SQL transactions.
    batches: Arc<AtomicU64>,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        clock: Clock,
        keep_revisions: u64,
        watch: watch::Sender<Revision>,
        batches: Arc<AtomicU64>,
    ) -> Result<Self, StoreError> {
        let revision = Revision(rows::meta(&connection, "revision")?);
        let compacted = rows::meta(&connection, "compacted")?;
        watch.send_replace(revision);
        Ok(Self { connection, clock, revision, compacted, keep_revisions, cleaned_ms: None, watch, batches })
    }

    /// Runs until all senders are gone and the queue is empty.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut waiting = Vec::with_capacity(MAX_BATCH);
        while jobs.blocking_recv_many(&mut waiting, MAX_BATCH) > 0 {
            self.run_batch(waiting.drain(..));
        }
        // The file is whole without this; it only saves the next start the work.
        let _ = self.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
    }

    fn run_batch(&mut self, jobs: impl Iterator<Item = Job>) {
        let mut failure = self.begin().err();
        let mut batch = Batch { connection: &self.connection, clock: self.clock, revision: self.revision };
        let mut finishes = Vec::new();
        for job in jobs {
            let before = batch.revision;
            let (kept, finish) = run_job(job, &mut batch, &mut failure);
            if !kept {
                batch.revision = before;
            }
            finishes.push(finish);
        }
        let revision = batch.revision;
        if failure.is_none() {
            failure = self.finish_batch(revision).err();
        }
        if failure.is_none() {
            self.revision = revision;
            self.batches.fetch_add(1, Ordering::Relaxed);
            self.watch.send_if_modified(|seen| std::mem::replace(seen, revision) != revision);
        } else if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        for finish in finishes {
            finish(match &failure {
                None => Ok(()),
                Some(error) => Err(error.for_all()),
            });
        }
    }

    /// Another process may have written to the file, against the rules; then its revisions count all the same.
    fn begin(&mut self) -> Result<(), StoreError> {
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(from_sqlite)?;
        self.revision = Revision(rows::meta(&self.connection, "revision")?);
        self.compacted = rows::meta(&self.connection, "compacted")?;
        Ok(())
    }

    fn finish_batch(&mut self, revision: Revision) -> Result<(), StoreError> {
        let mut compacted = self.compacted;
        if revision != self.revision {
            rows::set_meta(&self.connection, "revision", revision.0)?;
            compacted = self.compact(revision)?;
        }
        self.clean()?;
        self.connection.execute_batch("COMMIT").map_err(from_commit)?;
        self.compacted = compacted;
        Ok(())
    }

    /// Drops the oldest part of the feed, in steps of a tenth of what is kept.
    fn compact(&self, revision: Revision) -> Result<u64, StoreError> {
        let due = self.compacted + self.keep_revisions + self.keep_revisions / 10;
        if revision.0 <= due {
            return Ok(self.compacted);
        }
        let compacted = revision.0 - self.keep_revisions;
        self.connection
            .execute("DELETE FROM changes WHERE revision <= ?", [compacted])
            .map_err(from_sqlite)?;
        rows::set_meta(&self.connection, "compacted", compacted)?;
        Ok(compacted)
    }

    fn clean(&mut self) -> Result<(), StoreError> {
        let now = self.clock.steady_ms();
        if self.cleaned_ms.is_some_and(|at| now < at + CLEAN_EVERY_MS) {
            return Ok(());
        }
        self.cleaned_ms = Some(now);
        let oldest = Clock::wall_ms().saturating_sub(IDEMPOTENCY_MS);
        self.connection
            .execute("DELETE FROM idempotency WHERE at_ms <= ?", [oldest])
            .map_err(from_sqlite)
            .map(drop)
    }
}

/// Runs a job in a savepoint. A job that fails alone is undone alone; when SQLite has undone the whole transaction (as it
/// does when the disk is full), `failure` is set and the jobs that follow are not run.
fn run_job(job: Job, batch: &mut Batch<'_>, failure: &mut Option<StoreError>) -> (bool, Finish) {
    if failure.is_none() {
        *failure = batch.connection.execute_batch("SAVEPOINT job").map_err(from_sqlite).err();
    }
    if failure.is_some() {
        return job(None);
    }
    let (kept, finish) = job(Some(batch));
    if batch.connection.is_autocommit() {
        let why = "there is no room for the database file, or writing it failed".to_owned();
        *failure = Some(StoreError::Unavailable { why, uncertain: false });
        return (false, finish);
    }
    let end = if kept { "RELEASE job" } else { "ROLLBACK TO job; RELEASE job" };
    *failure = batch.connection.execute_batch(end).map_err(from_sqlite).err();
    (kept, finish)
}
