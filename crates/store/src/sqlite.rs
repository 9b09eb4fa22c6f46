//! SQLite: one file, one writing thread, a few readers.

mod error;
mod managers;
mod rows;
mod schema;
mod writer;

use crate::{Commit, Feed, Fence, Idempotency, ManagerRow, Page, Query, Store, StoreError, Transaction};
use async_trait::async_trait;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use towpath_types::resource::Key;
use towpath_types::{ManagerId, Record, Revision};
use writer::{Batch, Clock, Job, Writer};

/// Jobs that wait for the writing thread before callers wait for a place in the queue.
const QUEUE: usize = 1024;
/// How often it is told that opening waits.
const LOOK: Duration = Duration::from_secs(2);
/// Reads at the same time.
const READERS: usize = 4;

/// How the file is used.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// How many revisions of the change feed are kept (up to a tenth more).
    pub keep_revisions: u64,
    /// How long to wait for a lock of another process.
    pub busy_timeout: Duration,
    /// How long to wait for it when the file is opened.
    pub open_patience: Duration,
    /// Largest size of the database in pages of 4 KiB; the default is as good as none.
    pub max_pages: u32,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            keep_revisions: 100_000,
            busy_timeout: Duration::from_secs(5),
            open_patience: Duration::from_secs(15),
            max_pages: u32::MAX - 1,
        }
    }
}

/// The store in an SQLite file. Dropping it finishes the writes that wait.
pub struct SqliteStore {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    readers: Arc<Readers>,
    clock: Clock,
    watch: watch::Receiver<Revision>,
    batches: Arc<AtomicU64>,
    /// Stamp of what this handle has read and written: a file is only replaced by another while nobody has it open.
    life: u64,
}

impl SqliteStore {
    /// How many SQL transactions were committed so far: fewer than commits, when many come at once.
    pub fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Opens the file, making it when it is missing. Only one process may have it open.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, SqliteOptions::default()).await
    }

    /// Opens the file with options.
    pub async fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        blocking(move || Self::open_now(path, &options)).await
    }

    fn open_now(path: PathBuf, options: &SqliteOptions) -> Result<Self, StoreError> {
        let connection = open_at_last(&path, options)?;
        connection.pragma_update(None, "max_page_count", options.max_pages).map_err(error::from_sqlite)?;
        let clock = Clock::start();
        let (revisions, watch) = watch::channel(Revision(0));
        let batches = Arc::new(AtomicU64::new(0));
        let writer = Writer::new(connection, clock, options.keep_revisions, revisions, batches.clone())?;
        let (jobs, queue) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run(queue))
            .map_err(|error| unavailable(format!("no thread for the writer: {error}")))?;
        let readers = Readers {
            path,
            busy_timeout: options.busy_timeout,
            idle: Mutex::default(),
            places: Arc::new(Semaphore::new(READERS)),
        };
        let (jobs, thread, readers) = (Some(jobs), Some(thread), Arc::new(readers));
        Ok(Self { jobs, thread, readers, clock, watch, batches, life: fastrand::u64(1..) })
    }

    /// Has the writing thread do something, and waits until it is committed.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Batch<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let closed = || unavailable("it is shutting down".to_owned());
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |batch| {
            let result = batch.map(work);
            let kept = matches!(result, Some(Ok(_)));
            let finish = move |committed: Result<(), StoreError>| {
                let never_run = Err(unavailable("the write was not tried".to_owned()));
                // A caller that has gone away does not wait for the answer.
                let _ = answer.send(committed.and_then(|()| result.unwrap_or(never_run)));
            };
            (kept, Box::new(finish))
        });
        let jobs = self.jobs.as_ref().ok_or_else(closed)?;
        jobs.send(job).await.map_err(|_| closed())?;
        // The thread only goes away without an answer if it broke while it worked.
        answered.await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable { why: "the writing thread broke".to_owned(), uncertain: true })
        })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.jobs.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens the file for writing; waits for a process that holds a lock on it.
fn open_at_last(path: &Path, options: &SqliteOptions) -> Result<Connection, StoreError> {
    let began = Instant::now();
    loop {
        let opened = schema::open_writer(path, options.busy_timeout.min(LOOK));
        let waited = began.elapsed();
        match opened {
            Ok(connection) => {
                connection.busy_timeout(options.busy_timeout).map_err(error::from_sqlite)?;
                return Ok(connection);
            }
            Err(error) if error::is_locked(&error) && waited < options.open_patience => {
                let (file, patience) = (path.display(), options.open_patience.as_secs());
                tracing::warn!(
                    waited = waited.as_secs(),
                    patience,
                    "waiting for another process to let go of {file}"
                );
                // SQLite waits by itself, but not for every sort of lock.
                std::thread::sleep(options.busy_timeout.min(LOOK) / 4);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reading connections, opened when needed and kept.
struct Readers {
    path: PathBuf,
    busy_timeout: Duration,
    idle: Mutex<Vec<Connection>>,
    places: Arc<Semaphore>,
}

impl Readers {
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let closed = |_| unavailable("it is shutting down".to_owned());
        let place = self.places.clone().acquire_owned().await.map_err(closed)?;
        let readers = self.clone();
        blocking(move || {
            let _place = place;
            let idle = readers.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = match idle {
                Some(connection) => connection,
                None => schema::open_reader(&readers.path, readers.busy_timeout)?,
            };
            let result = work(&connection);
            readers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            result
        })
        .await
    }
}

fn unavailable(why: String) -> StoreError {
    StoreError::Unavailable { why, uncertain: false }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(unavailable(format!("a database thread broke: {error}"))))
}

#[async_trait]
impl Store for SqliteStore {
    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let key = key.clone();
        self.readers.read(move |connection| rows::get(connection, &key)).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let query = query.clone();
        self.readers.read(move |connection| rows::list(connection, &query)).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        self.write(move |batch| batch.commit(&transaction)).await
    }

    async fn answered(&self, idempotency: &Idempotency) -> Result<Option<Commit>, StoreError> {
        let (named, now_ms) = (idempotency.clone(), Clock::wall_ms());
        self.readers.read(move |connection| writer::answered(connection, &named, now_ms)).await
    }

    async fn changes_since(&self, after: Revision, stamp: u64, limit: usize) -> Result<Feed, StoreError> {
        // Another handle's reader: what has become of the file meanwhile is not known.
        if stamp != 0 && stamp != self.life {
            return Err(StoreError::Compacted { after, oldest: after });
        }
        let changes = self.readers.read(move |connection| rows::changes(connection, after, limit)).await?;
        Ok(Feed { changes, stamp: self.life })
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.watch.clone()
    }

    async fn register_manager(&self, row: &ManagerRow) -> Result<(), StoreError> {
        let row = row.clone();
        self.write(move |batch| {
            managers::register(batch.connection, &row, Clock::wall_ms(), batch.clock.steady_ms())
        })
        .await
    }

    async fn heartbeat(&self, fence: Fence) -> Result<(), StoreError> {
        self.write(move |batch| managers::heartbeat(batch.connection, fence, batch.clock.steady_ms())).await
    }

    async fn leave(&self, fence: Fence) -> Result<(), StoreError> {
        self.write(move |batch| managers::leave(batch.connection, fence, Clock::wall_ms())).await
    }

    async fn evict_silent(&self, longer_than_ms: u64) -> Result<Vec<ManagerId>, StoreError> {
        self.write(move |batch| {
            managers::evict(batch.connection, longer_than_ms, batch.clock.steady_ms(), Clock::wall_ms())
        })
        .await
    }

    async fn raise_epoch(&self, fence: Fence, above: u64) -> Result<u64, StoreError> {
        self.write(move |batch| managers::raise_epoch_above(batch.connection, fence, above)).await
    }

    async fn epoch(&self) -> Result<u64, StoreError> {
        self.readers.read(managers::epoch).await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        let page = self.list(&Query { limit: 1, ..Query::default() }).await?;
        Ok(page.revision)
    }

    async fn managers(&self) -> Result<Vec<ManagerRow>, StoreError> {
        let clock = self.clock;
        self.readers.read(move |connection| managers::all(connection, clock.steady_ms())).await
    }

    async fn now_ms(&self) -> Result<u64, StoreError> {
        Ok(Clock::wall_ms())
    }
}
