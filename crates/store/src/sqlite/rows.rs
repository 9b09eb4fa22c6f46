//! Reading and writing rows of resources and changes.

use super::error::from_sqlite;
use crate::document::{behind_prefix, columns, json, key};
use crate::{Change, Page, Query, StoreError};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use towpath_types::resource::Key;
use towpath_types::{Generation, Kind, Record, Revision};

const COLUMNS: &str = "r.id, r.generation, r.revision, r.created_ms, r.updated_ms, r.spec, r.status";

/// A number of `meta`.
pub(super) fn meta(connection: &Connection, name: &str) -> Result<u64, StoreError> {
    connection
        .prepare_cached("SELECT value FROM meta WHERE name = ?")
        .and_then(|mut statement| statement.query_row([name], |row| row.get(0)))
        .map_err(from_sqlite)
}

/// Sets a number of `meta`.
pub(super) fn set_meta(connection: &Connection, name: &str, value: u64) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE meta SET value = ? WHERE name = ?")
        .and_then(|mut statement| statement.execute(params![value, name]))
        .map_err(from_sqlite)
        .map(drop)
}

/// The columns of a record, JSON still as text.
struct RawRecord {
    id: String,
    generation: u64,
    revision: u64,
    created_ms: u64,
    updated_ms: u64,
    spec: String,
    status: String,
}

impl RawRecord {
    /// Reads [`COLUMNS`] from the given position on.
    fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(at)?,
            generation: row.get(at + 1)?,
            revision: row.get(at + 2)?,
            created_ms: row.get(at + 3)?,
            updated_ms: row.get(at + 4)?,
            spec: row.get(at + 5)?,
            status: row.get(at + 6)?,
        })
    }

    fn record(self, key: Key) -> Result<Record, StoreError> {
        Ok(Record {
            spec: json(&self.spec, "spec")?,
            status: json(&self.status, "status")?,
            id: self.id,
            key,
            generation: Generation(self.generation),
            revision: Revision(self.revision),
            created_ms: self.created_ms,
            updated_ms: self.updated_ms,
        })
    }
}

/// One record.
pub(super) fn get(connection: &Connection, key: &Key) -> Result<Option<Record>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM resources r WHERE r.kind = ? AND r.org = ? AND r.space = ? AND r.name = ?"
    );
    connection
        .prepare_cached(&sql)
        .and_then(|mut statement| statement.query_row(columns(key), |row| RawRecord::read(row, 0)).optional())
        .map_err(from_sqlite)?
        .map(|raw| raw.record(key.clone()))
        .transpose()
}

/// Whether a resource has this id.
pub(super) fn has_id(connection: &Connection, id: &str) -> Result<bool, StoreError> {
    connection
        .prepare_cached("SELECT 1 FROM resources WHERE id = ?")
        .and_then(|mut statement| statement.exists([id]))
        .map_err(from_sqlite)
}

/// Creates or replaces a row, or removes it.
pub(super) fn put(connection: &Connection, key: &Key, record: Option<&Record>) -> Result<(), StoreError> {
    let [kind, org, space, name] = columns(key);
    let done = match record {
        None => connection
            .prepare_cached("DELETE FROM resources WHERE kind = ? AND org = ? AND space = ? AND name = ?")
            .and_then(|mut statement| statement.execute([kind, org, space, name])),
        Some(record) => {
            let sql = "INSERT INTO resources
                 (kind, org, space, name, id, generation, revision, created_ms, updated_ms, spec, status)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
                 ON CONFLICT (kind, org, space, name) DO UPDATE SET id = ?5, generation = ?6, revision = ?7,
                 created_ms = ?8, updated_ms = ?9, spec = ?10, status = ?11";
            connection.prepare_cached(sql).and_then(|mut statement| {
                statement.execute(params![
                    kind,
                    org,
                    space,
                    name,
                    record.id,
                    record.generation.0,
                    record.revision.0,
                    record.created_ms,
                    record.updated_ms,
                    record.spec.to_string(),
                    record.status.to_string(),
                ])
            })
        }
    };
    done.map_err(from_sqlite).map(drop)
}

/// Appends to the feed.
pub(super) fn append_change(
    connection: &Connection,
    revision: Revision,
    ord: usize,
    key: &Key,
) -> Result<(), StoreError> {
    let [kind, org, space, name] = columns(key);
    connection
        .prepare_cached("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?)")
        .and_then(|mut statement| statement.execute(params![revision.0, ord, kind, org, space, name]))
        .map_err(from_sqlite)
        .map(drop)
}

/// Many records. Kinds in the order of `Kind`, which is the order of keys.
pub(super) fn list(connection: &Connection, query: &Query) -> Result<Page, StoreError> {
    let snapshot = connection.unchecked_transaction().map_err(from_sqlite)?;
    let revision = Revision(meta(&snapshot, "revision")?);
    // One more than asked for tells whether there are more.
    let wanted = if query.limit == 0 { usize::MAX } else { query.limit.saturating_add(1) };
    let mut records = Vec::new();
    for kind in query.kinds() {
        if records.len() >= wanted {
            break;
        }
        list_kind(&snapshot, query, kind, wanted - records.len(), &mut records)?;
    }
    let more = query.limit > 0 && records.len() > query.limit;
    if more {
        records.truncate(query.limit);
    }
    Ok(Page { revision, records, more })
}

fn list_kind(
    connection: &Connection,
    query: &Query,
    kind: Kind,
    most: usize,
    into: &mut Vec<Record>,
) -> Result<(), StoreError> {
    let mut sql = format!("SELECT {COLUMNS}, r.org, r.space, r.name FROM resources r WHERE r.kind = ?");
    let mut values = vec![Value::from(kind.as_str().to_owned())];
    let mut and = |condition: &str, texts: &[&str]| {
        sql.push_str(" AND ");
        sql.push_str(condition);
        values.extend(texts.iter().map(|text| Value::from((*text).to_owned())));
    };
    if let Some(org) = &query.org {
        and("r.org = ?", &[org.as_str()]);
    }
    if let Some(space) = &query.space {
        and("r.space = ?", &[space.as_str()]);
    }
    if let Some(prefix) = query.name_prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
        and("r.name >= ?", &[prefix]);
        if let Some(behind) = behind_prefix(prefix) {
            and("r.name < ?", &[&behind]);
        }
    }
    if let Some(after) = query.after.as_ref().filter(|after| after.kind == kind) {
        let [_, org, space, name] = columns(after);
        and("(r.org, r.space, r.name) > (?, ?, ?)", &[org, space, name]);
    }
    sql.push_str(" ORDER BY r.org, r.space, r.name LIMIT ?");
    values.push(Value::from(i64::try_from(most).unwrap_or(i64::MAX)));

    let mut statement = connection.prepare_cached(&sql).map_err(from_sqlite)?;
    let mut rows = statement.query(params_from_iter(values)).map_err(from_sqlite)?;
    while let Some(row) = rows.next().map_err(from_sqlite)? {
        let read = || {
            let place: (String, String, String) = (row.get(7)?, row.get(8)?, row.get(9)?);
            Ok((RawRecord::read(row, 0)?, place))
        };
        let (raw, (org, space, name)) = read().map_err(from_sqlite)?;
        if let Some(key) = key(kind.as_str(), &org, &space, name)? {
            into.push(raw.record(key)?);
        }
    }
    Ok(())
}

/// The feed after a revision.
pub(super) fn changes(
    connection: &Connection,
    after: Revision,
    limit: usize,
) -> Result<Vec<Change>, StoreError> {
    let snapshot = connection.unchecked_transaction().map_err(from_sqlite)?;
    let compacted = meta(&snapshot, "compacted")?;
    if after.0 < compacted || after.0 > meta(&snapshot, "revision")? {
        return Err(StoreError::Compacted { after, oldest: Revision(compacted + 1) });
    }
    let audit = Kind::Audit.as_str();
    let sql = format!(
        "SELECT {COLUMNS}, c.revision, c.kind, c.org, c.space, c.name
         FROM changes c LEFT JOIN resources r ON r.kind = nullif(c.kind, '{audit}')
           AND r.org = c.org AND r.space = c.space AND r.name = c.name
         WHERE c.revision > ?1 AND c.revision <=
           (SELECT max(revision) FROM (SELECT revision FROM changes WHERE revision > ?1 ORDER BY revision LIMIT ?2))
         ORDER BY c.revision, c.ord"
    );
    let most = if limit == 0 { i64::MAX } else { i64::try_from(limit).unwrap_or(i64::MAX) };
    let mut statement = snapshot.prepare_cached(&sql).map_err(from_sqlite)?;
    let mut rows = statement.query(params![after.0, most]).map_err(from_sqlite)?;
    let mut changes = Vec::new();
    while let Some(row) = rows.next().map_err(from_sqlite)? {
        let read = || {
            let there: Option<String> = row.get(0)?;
            let raw = there.map(|_| RawRecord::read(row, 0)).transpose()?;
            let place: (String, String, String, String) =
                (row.get(8)?, row.get(9)?, row.get(10)?, row.get(11)?);
            Ok((raw, row.get::<_, u64>(7)?, place))
        };
        let (raw, revision, (kind, org, space, name)) = read().map_err(from_sqlite)?;
        if let Some(key) = key(&kind, &org, &space, name)? {
            let record = raw.map(|raw| raw.record(key.clone())).transpose()?;
            changes.push(Change { revision: Revision(revision), key, record });
        }
    }
    Ok(changes)
}
