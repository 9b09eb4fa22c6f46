//! PostgreSQL: one writing session, a few reading ones, one that listens.

mod batch;
mod config;
mod error;
mod link;
mod listen;
mod rows;
mod schema;
mod transaction;
mod writer;

use crate::document::{self, Remembered};
use crate::{Commit, Feed, Fence, Idempotency, ManagerRow, Page, Query, Store, StoreError, Transaction};
use async_trait::async_trait;
use link::{Link, Pool};
use rows::{Columns, bigint};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio_postgres::Row;
use towpath_types::resource::Key;
use towpath_types::{Incarnation, ManagerId, Record, Revision};
use writer::{Job, Statement, Writer};

pub use config::PostgresConfig;

/// Transactions that wait for the writer before callers wait for a place in the queue.
const QUEUE: usize = 4096;

/// The next pause between attempts to connect: doubled up to some seconds, and spread, so that a hundred managers do
/// not come back in one instant.
fn backoff(last: Duration) -> Duration {
    let doubled = (last * 2).clamp(Duration::from_millis(50), Duration::from_secs(3));
    doubled.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// The store in PostgreSQL. Several processes may share a database.
pub struct PostgresStore {
    jobs: mpsc::Sender<Job>,
    pool: Pool,
    watch: watch::Receiver<Revision>,
    listener: AbortHandle,
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        // The writer ends by itself when it has done what waits.
        self.listener.abort();
    }
}

impl PostgresStore {
    /// Connects, and makes the tables when they are missing. Waits for a server that is not there yet.
    pub async fn connect(config: PostgresConfig) -> Result<Self, StoreError> {
        let target = config.target()?;
        let link = Link::open_at_last(&target, config.start_patience).await?;
        schema::prepare(&link).await?;
        let newest = rows::revision(&link).await.map_err(|error| error::from_postgres(&error))?;
        drop(link);
        let (revisions, watch) = watch::channel(newest);
        let (jobs, queue) = mpsc::channel(QUEUE);
        let patience = config.statement_timeout + Duration::from_secs(2);
        let listener =
            tokio::spawn(listen::follow(target.clone(), config.poll_interval, patience, revisions.clone()));
        let pool = Pool::new(target.clone(), config.readers, patience);
        tokio::spawn(Writer::new(target, config, queue, revisions).run());
        Ok(Self { jobs, pool, watch, listener: listener.abort_handle() })
    }

    async fn work<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Job,
    ) -> Result<T, StoreError> {
        let closed = || StoreError::Unavailable { why: "it is shutting down".to_owned(), uncertain: false };
        let (answer, answered) = oneshot::channel();
        self.jobs.send(job(answer)).await.map_err(|_| closed())?;
        // The task only goes away without an answer if it broke while it worked.
        answered.await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable { why: "the writing task broke".to_owned(), uncertain: true })
        })
    }

    /// Runs a statement in line with all commits.
    async fn in_line(&self, statement: Statement) -> Result<Vec<Row>, StoreError> {
        self.work(|answer| Job::Statement(statement, answer)).await
    }
}

/// The only row, or the manager is not what it thinks.
fn fenced_if_none(rows: &[Row], manager: ManagerId) -> Result<(), StoreError> {
    if rows.is_empty() { Err(StoreError::Fenced(manager)) } else { Ok(()) }
}

fn manager_id(text: &str) -> Result<ManagerId, StoreError> {
    text.parse().map_err(|error| StoreError::Corrupt(format!("manager id {text:?}: {error}")))
}

#[async_trait]
impl Store for PostgresStore {
    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        rows::get(&self.pool, key).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        rows::list(&self.pool, query).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        self.work(|answer| Job::Commit(Box::new(transaction), answer)).await
    }

    async fn answered(&self, idempotency: &Idempotency) -> Result<Option<Commit>, StoreError> {
        let (once, kept) = (vec![idempotency.key.as_str()], bigint(transaction::IDEMPOTENCY_MS));
        let rows = self.pool.query(transaction::RESULTS, &[&once, &kept]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let mut columns = Columns::of(row);
        let _key: &str = columns.take()?;
        let (revision, records): (u64, &str) = (columns.number()?, columns.take()?);
        Remembered::read(revision, records)?.answer(idempotency).map(Some)
    }

    async fn changes_since(&self, after: Revision, stamp: u64, limit: usize) -> Result<Feed, StoreError> {
        rows::changes(&self.pool, after, stamp, limit).await
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.watch.clone()
    }

    async fn register_manager(&self, row: &ManagerRow) -> Result<(), StoreError> {
        let sql = "WITH registered AS (INSERT INTO towpath.managers AS m
            (manager, incarnation, address, version, weight, started_at, seen_at, evicted)
            VALUES ($1, $2, $3, $4, $5, clock_timestamp(), clock_timestamp(), false)
            ON CONFLICT (manager) DO UPDATE SET incarnation = excluded.incarnation, address = excluded.address,
            version = excluded.version, weight = excluded.weight, started_at = excluded.started_at, seen_at = excluded.seen_at, evicted = false
            WHERE m.incarnation < excluded.incarnation
               OR (m.incarnation = excluded.incarnation AND NOT m.evicted)
            RETURNING 1),
            raised AS (UPDATE towpath.meta SET epoch = greatest(epoch + 1,
              (extract(epoch FROM clock_timestamp()) * 1000)::bigint) WHERE EXISTS (SELECT 1 FROM registered))
            SELECT 1 FROM registered";
        let parameters: Vec<Box<dyn tokio_postgres::types::ToSql + Sync + Send>> = vec![
            Box::new(row.manager.to_string()),
            Box::new(bigint(row.incarnation.0)),
            Box::new(row.address.clone()),
            Box::new(row.version.clone()),
            Box::new(row.weight),
        ];
        fenced_if_none(&self.in_line(Statement { sql, parameters }).await?, row.manager)
    }

    /// Does not wait in line: a busy store must not make its managers look dead.
    async fn heartbeat(&self, fence: Fence) -> Result<(), StoreError> {
        let sql = "UPDATE towpath.managers SET seen_at = clock_timestamp()
            WHERE manager = $1 AND incarnation = $2 AND NOT evicted RETURNING 1";
        let (manager, incarnation) = (fence.manager.to_string(), bigint(fence.incarnation.0));
        let rows = self.pool.query(sql, &[&manager, &incarnation]).await?;
        fenced_if_none(&rows, fence.manager)
    }

    async fn leave(&self, fence: Fence) -> Result<(), StoreError> {
        let sql = "WITH gone AS (DELETE FROM towpath.managers
            WHERE manager = $1 AND incarnation = $2 AND NOT evicted RETURNING 1),
            raised AS (UPDATE towpath.meta SET epoch = greatest(epoch + 1,
              (extract(epoch FROM clock_timestamp()) * 1000)::bigint) WHERE EXISTS (SELECT 1 FROM gone))
            SELECT 1 FROM gone";
        let parameters: Vec<Box<dyn tokio_postgres::types::ToSql + Sync + Send>> =
            vec![Box::new(fence.manager.to_string()), Box::new(bigint(fence.incarnation.0))];
        fenced_if_none(&self.in_line(Statement { sql, parameters }).await?, fence.manager)
    }

    async fn evict_silent(&self, longer_than_ms: u64) -> Result<Vec<ManagerId>, StoreError> {
        // Those that were evicted a week ago are forgotten: their absence fences them just as well.
        let sql = "WITH forgotten AS (
              DELETE FROM towpath.managers WHERE evicted AND seen_at < clock_timestamp() - interval '7 days'),
            silent AS (UPDATE towpath.managers SET evicted = true
            WHERE NOT evicted AND (extract(epoch FROM clock_timestamp() - seen_at) * 1000)::bigint > $1
            RETURNING manager),
            raised AS (UPDATE towpath.meta SET epoch = greatest(epoch + 1,
              (extract(epoch FROM clock_timestamp()) * 1000)::bigint) WHERE EXISTS (SELECT 1 FROM silent))
            SELECT manager FROM silent";
        let rows =
            self.in_line(Statement { sql, parameters: vec![Box::new(bigint(longer_than_ms))] }).await?;
        rows.iter().map(|row| manager_id(Columns::of(row).take()?)).collect()
    }

    async fn raise_epoch(&self, fence: Fence, above: u64) -> Result<u64, StoreError> {
        let sql =
            "UPDATE towpath.meta SET epoch = greatest(epoch, $3) WHERE EXISTS (SELECT 1 FROM towpath.managers
            WHERE manager = $1 AND incarnation = $2 AND NOT evicted) RETURNING epoch";
        let parameters: Vec<Box<dyn tokio_postgres::types::ToSql + Sync + Send>> = vec![
            Box::new(fence.manager.to_string()),
            Box::new(bigint(fence.incarnation.0)),
            Box::new(bigint(document::epoch_above(above)?)),
        ];
        let rows = self.in_line(Statement { sql, parameters }).await?;
        rows.first().map_or(Err(StoreError::Fenced(fence.manager)), |row| Columns::of(row).number())
    }

    async fn epoch(&self) -> Result<u64, StoreError> {
        let rows = self.pool.query("SELECT epoch FROM towpath.meta", &[]).await?;
        rows.first().map_or(Ok(0), |row| Columns::of(row).number())
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        let rows = self.pool.query("SELECT revision FROM towpath.meta", &[]).await?;
        rows.first().map_or(Ok(Revision(0)), |row| Columns::of(row).number().map(Revision))
    }

    async fn managers(&self) -> Result<Vec<ManagerRow>, StoreError> {
        let sql = "SELECT manager, incarnation, (extract(epoch FROM started_at) * 1000)::bigint,
            greatest(0, (extract(epoch FROM clock_timestamp() - seen_at) * 1000)::bigint), address, version, evicted, weight
            FROM towpath.managers ORDER BY manager";
        let read = |row: &Row| {
            let mut columns = Columns::of(row);
            Ok(ManagerRow {
                manager: manager_id(columns.take()?)?,
                incarnation: Incarnation(columns.number()?),
                started_ms: columns.number()?,
                silent_ms: columns.number()?,
                address: columns.take()?,
                version: columns.take()?,
                evicted: columns.take()?,
                weight: columns.take()?,
            })
        };
        let rows = self.pool.query(sql, &[]).await?;
        rows.iter().map(read).collect()
    }

    async fn now_ms(&self) -> Result<u64, StoreError> {
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let rows = self.pool.query(sql, &[]).await?;
        rows.first().map_or(Ok(0), |row| Columns::of(row).number())
    }
}
