//! The tables, and the settings of each connection.

use super::error::from_sqlite;
use crate::StoreError;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// The version of the tables that this build reads and writes.
const SCHEMA: i64 = 1;

const TABLES: &str = "
CREATE TABLE resources (
  kind TEXT NOT NULL, org TEXT NOT NULL, space TEXT NOT NULL, name TEXT NOT NULL,
  id TEXT NOT NULL UNIQUE,
  generation INTEGER NOT NULL, revision INTEGER NOT NULL,
  created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,
  spec TEXT NOT NULL, status TEXT NOT NULL,
  PRIMARY KEY (kind, org, space, name)
);
CREATE TABLE changes (
  revision INTEGER NOT NULL, ord INTEGER NOT NULL,
  kind TEXT NOT NULL, org TEXT NOT NULL, space TEXT NOT NULL, name TEXT NOT NULL,
  PRIMARY KEY (revision, ord)
) WITHOUT ROWID;
CREATE TABLE managers (
  manager TEXT PRIMARY KEY, incarnation INTEGER NOT NULL,
  address TEXT NOT NULL, version TEXT NOT NULL,
  started_ms INTEGER NOT NULL, seen_ms INTEGER NOT NULL, evicted INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE idempotency (
  key TEXT PRIMARY KEY, revision INTEGER NOT NULL, records TEXT NOT NULL, at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX idempotency_age ON idempotency (at_ms);
-- schema: version of the tables; revision: of the last commit; compacted: changes up to it are gone
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('schema', 1), ('revision', 0), ('compacted', 0);
";

/// Opens the writing connection, making the file (mode 0600) and the tables when they are missing.
pub(super) fn open_writer(path: &Path, busy_timeout: Duration) -> Result<Connection, StoreError> {
    make_private(path)?;
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, busy_timeout)?;
    let settings =
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864;";
    connection.execute_batch(settings).map_err(from_sqlite)?;
    create_tables(&connection)?;
    Ok(connection)
}

/// Opens a reading connection to a database that the writer has opened.
pub(super) fn open_reader(path: &Path, busy_timeout: Duration) -> Result<Connection, StoreError> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, busy_timeout)?;
    connection.execute_batch("PRAGMA query_only = ON;").map_err(from_sqlite)?;
    Ok(connection)
}

fn open(path: &Path, flags: OpenFlags, busy_timeout: Duration) -> Result<Connection, StoreError> {
    let connection =
        Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(from_sqlite)?;
    connection.busy_timeout(busy_timeout).map_err(from_sqlite)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Nobody but the owner may read tokens' hashes and env: SQLite gives its -wal and -shm files the mode of the database.
fn make_private(path: &Path) -> Result<(), StoreError> {
    let unavailable = |error: std::io::Error| StoreError::Unavailable {
        why: format!("{}: {error}", path.display()),
        uncertain: false,
    };
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(unavailable)?;
    file.set_permissions(Permissions::from_mode(0o600)).map_err(unavailable)
}

fn create_tables(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch("BEGIN IMMEDIATE").map_err(from_sqlite)?;
    let result = match stored_schema(connection) {
        Ok(None) => connection.execute_batch(TABLES).map_err(from_sqlite),
        Ok(Some(SCHEMA)) => Ok(()),
        Ok(Some(newer)) => Err(StoreError::Corrupt(format!(
            "its tables have version {newer}, this build knows {SCHEMA}; use a newer build"
        ))),
        Err(error) => Err(error),
    };
    let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
    result.and(connection.execute_batch(end).map_err(from_sqlite))
}

fn stored_schema(connection: &Connection) -> Result<Option<i64>, StoreError> {
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))
        .map_err(from_sqlite)?;
    if tables == 0 {
        return Ok(None);
    }
    connection
        .query_row("SELECT value FROM meta WHERE name = 'schema'", [], |row| row.get(0))
        .optional()
        .ok()
        .flatten()
        .map(Some)
        .ok_or_else(|| StoreError::Corrupt("it is a database, but not one of Towpath's".to_owned()))
}
