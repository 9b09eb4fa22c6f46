//! The managers' rows.

use super::error::from_sqlite;
use crate::{Fence, ManagerRow, StoreError, document};
use rusqlite::{Connection, OptionalExtension, params};
use towpath_types::{Incarnation, ManagerId};

/// Evicted managers are forgotten after this long: their absence fences them just as well.
const FORGET_AFTER_MS: u64 = 7 * 24 * 3600 * 1000;

/// What fences need to know of a row.
struct Standing {
    incarnation: u64,
    evicted: bool,
}

fn standing(connection: &Connection, manager: ManagerId) -> Result<Option<Standing>, StoreError> {
    connection
        .prepare_cached("SELECT incarnation, evicted FROM managers WHERE manager = ?")
        .and_then(|mut statement| {
            statement
                .query_row([manager.to_string()], |row| {
                    Ok(Standing { incarnation: row.get(0)?, evicted: row.get(1)? })
                })
                .optional()
        })
        .map_err(from_sqlite)
}

/// Refuses a writer that is gone, evicted or superseded.
pub(super) fn check(connection: &Connection, fence: Fence) -> Result<(), StoreError> {
    match standing(connection, fence.manager)? {
        Some(row) if !row.evicted && row.incarnation == fence.incarnation.0 => Ok(()),
        _ => Err(StoreError::Fenced(fence.manager)),
    }
}

/// Makes or replaces a row.
pub(super) fn register(
    connection: &Connection,
    row: &ManagerRow,
    now_ms: u64,
    steady_ms: u64,
) -> Result<(), StoreError> {
    if let Some(stored) = standing(connection, row.manager)? {
        let again = stored.incarnation == row.incarnation.0 && !stored.evicted;
        if stored.incarnation >= row.incarnation.0 && !again {
            return Err(StoreError::Fenced(row.manager));
        }
    }
    connection
        .prepare_cached("INSERT OR REPLACE INTO managers VALUES (?, ?, ?, ?, ?, ?, 0)")
        .and_then(|mut statement| {
            let manager = row.manager.to_string();
            statement.execute(params![
                manager,
                row.incarnation.0,
                row.address,
                row.version,
                now_ms,
                steady_ms
            ])
        })
        .map_err(from_sqlite)?;
    raise_epoch(connection, now_ms)
}

/// Ownership changed.
fn raise_epoch(connection: &Connection, now_ms: u64) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO meta VALUES ('epoch', ?1)
             ON CONFLICT (name) DO UPDATE SET value = max(value + 1, excluded.value)",
        )
        .and_then(|mut statement| statement.execute([now_ms]))
        .map_err(from_sqlite)
        .map(drop)
}

/// Raises the epoch above one that this store did not give out.
pub(super) fn raise_epoch_above(
    connection: &Connection,
    fence: Fence,
    above: u64,
) -> Result<u64, StoreError> {
    check(connection, fence)?;
    let (above, present) = (document::epoch_above(above)?, epoch(connection)?);
    if present < above {
        raise_epoch(connection, above)?;
    }
    Ok(present.max(above))
}

/// The epoch of ownership.
pub(super) fn epoch(connection: &Connection) -> Result<u64, StoreError> {
    let found: Option<u64> = connection
        .prepare_cached("SELECT value FROM meta WHERE name = 'epoch'")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)).optional())
        .map_err(from_sqlite)?;
    Ok(found.unwrap_or_default())
}

/// Refreshes a row.
pub(super) fn heartbeat(connection: &Connection, fence: Fence, steady_ms: u64) -> Result<(), StoreError> {
    check(connection, fence)?;
    connection
        .prepare_cached("UPDATE managers SET seen_ms = ? WHERE manager = ?")
        .and_then(|mut statement| statement.execute(params![steady_ms, fence.manager.to_string()]))
        .map_err(from_sqlite)
        .map(drop)
}

/// Removes a row.
pub(super) fn leave(connection: &Connection, fence: Fence, now_ms: u64) -> Result<(), StoreError> {
    check(connection, fence)?;
    connection
        .execute("DELETE FROM managers WHERE manager = ?", [fence.manager.to_string()])
        .map_err(from_sqlite)?;
    raise_epoch(connection, now_ms)
}

/// Evicts the silent, forgets the long evicted.
pub(super) fn evict(
    connection: &Connection,
    longer_than_ms: u64,
    steady_ms: u64,
    now_ms: u64,
) -> Result<Vec<ManagerId>, StoreError> {
    let silent: Vec<ManagerId> = all(connection, steady_ms)?
        .into_iter()
        .filter(|row| !row.evicted && row.silent_ms > longer_than_ms)
        .map(|row| row.manager)
        .collect();
    for manager in &silent {
        connection
            .execute("UPDATE managers SET evicted = 1 WHERE manager = ?", [manager.to_string()])
            .map_err(from_sqlite)?;
    }
    if !silent.is_empty() {
        raise_epoch(connection, now_ms)?;
    }
    connection
        .execute(
            "DELETE FROM managers WHERE evicted = 1 AND seen_ms < ?",
            [steady_ms.saturating_sub(FORGET_AFTER_MS)],
        )
        .map_err(from_sqlite)?;
    Ok(silent)
}

/// All rows.
pub(super) fn all(connection: &Connection, steady_ms: u64) -> Result<Vec<ManagerRow>, StoreError> {
    let sql = "SELECT manager, incarnation, address, version, started_ms, seen_ms, evicted FROM managers
               ORDER BY manager";
    let mut statement = connection.prepare_cached(sql).map_err(from_sqlite)?;
    let mut rows = statement.query([]).map_err(from_sqlite)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().map_err(from_sqlite)? {
        let read = || {
            let manager: String = row.get(0)?;
            let seen_ms: u64 = row.get(5)?;
            Ok((manager, seen_ms, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(6)?))
        };
        let (manager, seen_ms, incarnation, address, version, started_ms, evicted) =
            read().map_err(from_sqlite)?;
        let unreadable = |error| StoreError::Corrupt(format!("manager id {manager:?}: {error}"));
        all.push(ManagerRow {
            manager: manager.parse().map_err(unreadable)?,
            incarnation: Incarnation(incarnation),
            address,
            version,
            weight: 1.0,
            started_ms,
            silent_ms: steady_ms.saturating_sub(seen_ms),
            evicted,
        });
    }
    Ok(all)
}
