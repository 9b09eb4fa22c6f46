//! The two round trips of a database transaction: lock and load; write and commit.

use super::batch::{KeyArrays, Loaded, Plan, RecordArrays};
use super::error::Failure;
use super::link::Link;
use super::rows::{COLUMNS, Columns, bigint, unsigned};
use crate::decide;
use crate::document::Remembered;
use crate::{StoreError, Transaction};
use futures::future::{BoxFuture, join_all};
use std::collections::BTreeSet;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use towpath_types::{Incarnation, Revision};

/// How long a result is kept for its idempotency key.
pub(super) const IDEMPOTENCY_MS: u64 = 24 * 3600 * 1000;

/// The lock that all writers take first.
pub(super) const LOCK: &str =
    "SELECT revision, compacted, (extract(epoch FROM clock_timestamp()) * 1000)::bigint
                               FROM towpath.meta FOR UPDATE";
const TAKEN: &str = "SELECT id FROM towpath.resources WHERE id = ANY ($1)";
const STANDING: &str =
    "SELECT manager, incarnation FROM towpath.managers WHERE manager = ANY ($1) AND NOT evicted";
pub(super) const RESULTS: &str = "SELECT key, revision, records FROM towpath.idempotency WHERE key = ANY ($1)
    AND at_ms > (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $2";
const DELETE: &str = "DELETE FROM towpath.resources r
    USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS k (kind, org, space, name)
    WHERE r.kind = k.kind AND r.org = k.org AND r.space = k.space AND r.name = k.name";
const PUT: &str = "INSERT INTO towpath.resources
    (kind, org, space, name, id, generation, revision, created_ms, updated_ms, spec, status)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
                         $8::bigint[], $9::bigint[], $10::text[], $11::text[])
    ON CONFLICT (kind, org, space, name) DO UPDATE SET id = excluded.id, generation = excluded.generation,
    revision = excluded.revision, created_ms = excluded.created_ms, updated_ms = excluded.updated_ms,
    spec = excluded.spec, status = excluded.status";
const FEED: &str = "INSERT INTO towpath.changes (revision, ord, kind, org, space, name, stamp)
    SELECT u.*, $7::bigint
    FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::text[]) AS u";
const REMEMBER: &str = "INSERT INTO towpath.idempotency (key, revision, records, at_ms)
    SELECT k, r, t, $4::bigint FROM unnest($1::text[], $2::bigint[], $3::text[]) AS u (k, r, t)
    ON CONFLICT (key) DO UPDATE
    SET revision = excluded.revision, records = excluded.records, at_ms = excluded.at_ms";
const COMPACT: &str = "DELETE FROM towpath.changes WHERE revision <= $1";
const ADVANCE: &str = "UPDATE towpath.meta SET revision = $1, compacted = greatest(compacted, $2)";
const NOTIFY: &str = "SELECT pg_notify('towpath_revision', $1)";

/// Begins the database transaction, takes the lock and loads what the transactions are about.
pub(super) async fn load(link: &Link, transactions: &[&Transaction]) -> Result<Loaded, Failure> {
    let keys: BTreeSet<_> = transactions.iter().flat_map(|transaction| decide::keys(transaction)).collect();
    let keys: KeyArrays = keys.into_iter().collect();
    let ids: Vec<&str> = transactions.iter().flat_map(|transaction| decide::new_ids(transaction)).collect();
    let fences = transactions.iter().filter_map(|transaction| transaction.fence);
    let managers: BTreeSet<String> = fences.map(|fence| fence.manager.to_string()).collect();
    let managers: Vec<String> = managers.into_iter().collect();
    let once: Vec<&str> =
        transactions.iter().filter_map(|t| t.idempotency.as_ref()).map(|named| named.key.as_str()).collect();
    let records = format!(
        "SELECT {COLUMNS} FROM towpath.resources r
         JOIN unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS k (kind, org, space, name)
         USING (kind, org, space, name)"
    );

    let lock = link.prepared(LOCK).await?;
    let records = link.prepared(&records).await?;
    let taken = link.prepared(TAKEN).await?;
    let standing = link.prepared(STANDING).await?;
    let results = link.prepared(RESULTS).await?;
    let (client, kept) = (&link.client, bigint(IDEMPOTENCY_MS));
    let about_records: [&(dyn ToSql + Sync); 4] = [&keys.kinds, &keys.orgs, &keys.spaces, &keys.names];
    let about_ids: [&(dyn ToSql + Sync); 1] = [&ids];
    let about_managers: [&(dyn ToSql + Sync); 1] = [&managers];
    let about_results: [&(dyn ToSql + Sync); 2] = [&once, &kept];
    // Polled in this order, they go out in this order, without waiting for each other's answers.
    let (begun, locked, records, ids, managers, results) = futures::join!(
        client.batch_execute("BEGIN"),
        client.query_one(&lock, &[]),
        client.query(&records, &about_records),
        client.query(&taken, &about_ids),
        client.query(&standing, &about_managers),
        client.query(&results, &about_results),
    );
    begun?;
    let mut loaded = read_lock(&locked?)?;
    for row in records? {
        loaded.records.extend(Columns::of(&row).record()?.map(|record| (record.key.clone(), record)));
    }
    for row in ids? {
        loaded.ids.push(row.try_get(0)?);
    }
    for row in managers? {
        let (manager, incarnation): (&str, i64) = (row.try_get(0)?, row.try_get(1)?);
        let unreadable = |error| StoreError::Corrupt(format!("manager id {manager:?}: {error}"));
        loaded.managers.insert(manager.parse().map_err(unreadable)?, Incarnation(unsigned(incarnation)));
    }
    for row in results? {
        let (key, revision, records): (String, i64, &str) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        loaded.first_results.insert(key, Remembered::read(unsigned(revision), records)?);
    }
    Ok(loaded)
}

fn read_lock(row: &Row) -> Result<Loaded, Failure> {
    let mut columns = Columns::of(row);
    Ok(Loaded {
        revision: Revision(columns.number()?),
        compacted: columns.number()?,
        now_ms: columns.number()?,
        ..Loaded::default()
    })
}

/// Writes what was planned and commits.
pub(super) async fn write(
    link: &Link,
    plan: &Plan,
    compacted: Option<u64>,
    now_ms: u64,
) -> Result<(), Failure> {
    let gone: KeyArrays =
        plan.states.iter().filter(|(_, record)| record.is_none()).map(|(key, _)| key).collect();
    let records = || plan.states.values().flatten();
    let there: KeyArrays = records().map(|record| &record.key).collect();
    let there_records: RecordArrays = records().collect();
    let fed: KeyArrays = plan.feed.iter().map(|(_, _, key)| key).collect();
    let fed_revisions: Vec<i64> = plan.feed.iter().map(|(revision, ..)| bigint(revision.0)).collect();
    let fed_places: Vec<i32> =
        plan.feed.iter().map(|(_, ord, _)| i32::try_from(*ord).unwrap_or(i32::MAX)).collect();
    let once: Vec<&str> = plan.remembered.iter().map(|(key, ..)| key.as_str()).collect();
    let once_revisions: Vec<i64> =
        plan.remembered.iter().map(|(_, revision, _)| bigint(revision.0)).collect();
    let once_records: Vec<&str> = plan.remembered.iter().map(|(.., records)| records.as_str()).collect();
    let (revision, now) = (bigint(plan.revision.0), bigint(now_ms));
    // One for the batch: it is there as a whole or not at all.
    let stamp = fastrand::i64(1..);
    let (compacted, news) = (compacted.map_or(0, bigint), plan.revision.0.to_string());

    let mut work = Work { link, statements: Vec::new() };
    if !gone.names.is_empty() {
        work.add(DELETE, vec![&gone.kinds, &gone.orgs, &gone.spaces, &gone.names]).await?;
    }
    if !there.names.is_empty() {
        let r = &there_records;
        let mut parameters: Vec<&(dyn ToSql + Sync)> =
            vec![&there.kinds, &there.orgs, &there.spaces, &there.names];
        parameters.extend([&r.ids as &(dyn ToSql + Sync), &r.generations, &r.revisions]);
        parameters.extend([&r.created as &(dyn ToSql + Sync), &r.updated, &r.specs, &r.statuses]);
        work.add(PUT, parameters).await?;
    }
    if !fed.names.is_empty() {
        let place: [&(dyn ToSql + Sync); 2] = [&fed_revisions, &fed_places];
        let key: [&(dyn ToSql + Sync); 4] = [&fed.kinds, &fed.orgs, &fed.spaces, &fed.names];
        let stamped: [&(dyn ToSql + Sync); 1] = [&stamp];
        work.add(FEED, place.into_iter().chain(key).chain(stamped).collect()).await?;
        work.add(NOTIFY, vec![&news]).await?;
    }
    if compacted > 0 {
        work.add(COMPACT, vec![&compacted]).await?;
    }
    work.add(REMEMBER, vec![&once, &once_revisions, &once_records, &now]).await?;
    work.add(ADVANCE, vec![&revision, &compacted]).await?;
    work.commit().await
}

/// Statements that go out together.
struct Work<'a> {
    link: &'a Link,
    statements: Vec<BoxFuture<'a, Result<(), Failure>>>,
}

impl<'a> Work<'a> {
    async fn add(&mut self, sql: &str, parameters: Vec<&'a (dyn ToSql + Sync)>) -> Result<(), Failure> {
        let statement = self.link.prepared(sql).await?;
        let client = &self.link.client;
        self.statements.push(Box::pin(async move {
            client.query(&statement, &parameters).await?;
            Ok(())
        }));
        Ok(())
    }

    /// Sends them with a COMMIT behind, which rolls back if one has failed. The failure that is no consequence counts.
    async fn commit(mut self) -> Result<(), Failure> {
        let client = &self.link.client;
        self.statements.push(Box::pin(async move { Ok(client.batch_execute("COMMIT").await?) }));
        let mut failed: Option<Failure> = None;
        for failure in join_all(self.statements).await.into_iter().filter_map(Result::err) {
            if failed.as_ref().is_none_or(|failed| failed.is_consequence) {
                failed = Some(failure);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}
