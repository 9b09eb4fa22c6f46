//! Reading rows of resources and changes. Each read is one statement, and so sees one state of the database.

use super::error::from_postgres;
use super::link::Pool;
use crate::document::{behind_prefix, columns, json, key};
use crate::{Change, Feed, Page, Query, StoreError};
use std::fmt::Write as _;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql};
use towpath_types::resource::Key;
use towpath_types::{Generation, Kind, Record, Revision};

/// The columns of a record, in the order of [`Columns::record`].
pub(super) const COLUMNS: &str = "r.id, r.generation, r.revision, r.created_ms, r.updated_ms, r.spec, r.status, r.kind, r.org, r.space, r.name";

/// A number for a `bigint` column.
pub(super) fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number from a `bigint` column.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Columns of a row, one after another.
pub(super) struct Columns<'a> {
    row: &'a Row,
    at: usize,
}

impl<'a> Columns<'a> {
    /// From the first column on.
    pub(super) fn of(row: &'a Row) -> Self {
        Self { row, at: 0 }
    }

    /// The next column.
    pub(super) fn take<T: FromSql<'a>>(&mut self) -> Result<T, StoreError> {
        let value = self.row.try_get(self.at).map_err(|error| from_postgres(&error));
        self.at += 1;
        value
    }

    /// The next `bigint`.
    pub(super) fn number(&mut self) -> Result<u64, StoreError> {
        self.take::<i64>().map(unsigned)
    }

    /// The next four columns as a key.
    pub(super) fn key(&mut self) -> Result<Option<Key>, StoreError> {
        let (kind, org, space): (&str, &str, &str) = (self.take()?, self.take()?, self.take()?);
        key(kind, org, space, self.take()?)
    }

    /// [`COLUMNS`] as a record; `None` if its kind is not known to this build.
    pub(super) fn record(&mut self) -> Result<Option<Record>, StoreError> {
        let id = self.take()?;
        let generation = Generation(self.number()?);
        let revision = Revision(self.number()?);
        let (created_ms, updated_ms) = (self.number()?, self.number()?);
        let (spec, status) = (json(self.take()?, "spec")?, json(self.take()?, "status")?);
        let record = |key| Record { id, key, generation, revision, created_ms, updated_ms, spec, status };
        Ok(self.key()?.map(record))
    }

    /// Whether the next column is NULL; does not move on.
    fn is_null(&self) -> Result<bool, StoreError> {
        let text: Option<&str> = self.row.try_get(self.at).map_err(|error| from_postgres(&error))?;
        Ok(text.is_none())
    }
}

/// One record.
pub(super) async fn get(pool: &Pool, key: &Key) -> Result<Option<Record>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM towpath.resources r WHERE kind = $1 AND org = $2 AND space = $3 AND name = $4"
    );
    let [kind, org, space, name] = columns(key);
    let rows = pool.query(&sql, &[&kind, &org, &space, &name]).await?;
    rows.first().map_or(Ok(None), |row| Columns::of(row).record())
}

/// Texts as parameters, numbered as they are added.
#[derive(Default)]
struct Parameters(Vec<String>);

impl Parameters {
    fn add(&mut self, text: &str) -> String {
        self.0.push(text.to_owned());
        format!("${}", self.0.len())
    }
}

/// The conditions and the order of a list. Kinds in the order of `Kind`, which is the order of keys.
fn list_sql(query: &Query, kinds: &[Kind], parameters: &mut Parameters) -> String {
    let mut sql = String::from("WHERE ");
    // With one kind, the order is that of the primary key.
    let rank = match kinds {
        [kind] => {
            let kind = parameters.add(kind.as_str());
            // Writing to a string does not fail.
            let _ = write!(sql, "r.kind = {kind}");
            String::from("1")
        }
        kinds => {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
            let names = parameters.add(&names.join(","));
            let _ = write!(sql, "r.kind = ANY (string_to_array({names}, ','))");
            format!("array_position(string_to_array({names}, ','), r.kind)")
        }
    };
    let equals = [
        ("r.org", query.org.as_ref().map(|org| org.as_str())),
        ("r.space", query.space.as_ref().map(|space| space.as_str())),
    ];
    for (column, text) in equals {
        if let Some(text) = text {
            let _ = write!(sql, " AND {column} = {}", parameters.add(text));
        }
    }
    if let Some(prefix) = query.name_prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
        let _ = write!(sql, " AND r.name >= {}", parameters.add(prefix));
        if let Some(behind) = behind_prefix(prefix) {
            let _ = write!(sql, " AND r.name < {}", parameters.add(&behind));
        }
    }
    // Kinds before its own are not in the list; its own, if it is, comes first.
    if let Some(after) = query.after.as_ref().filter(|after| kinds.first() == Some(&after.kind)) {
        let [_, org, space, name] = columns(after);
        let [org, space, name] = [org, space, name].map(|text| parameters.add(text));
        let _ = match kinds {
            [_] => write!(sql, " AND (r.org, r.space, r.name) > ({org}, {space}, {name})"),
            _ => write!(sql, " AND ({rank}, r.org, r.space, r.name) > (1, {org}, {space}, {name})"),
        };
    }
    let _ = match kinds {
        [_] => write!(sql, " ORDER BY r.org, r.space, r.name"),
        _ => write!(sql, " ORDER BY {rank}, r.org, r.space, r.name"),
    };
    sql
}

/// Many records.
pub(super) async fn list(pool: &Pool, query: &Query) -> Result<Page, StoreError> {
    let mut parameters = Parameters::default();
    let kinds = query.kinds();
    let found =
        if kinds.is_empty() { "WHERE false".to_owned() } else { list_sql(query, &kinds, &mut parameters) };
    // One more than asked for tells whether there are more.
    let most = if query.limit == 0 { i64::MAX } else { bigint(query.limit as u64).saturating_add(1) };
    let limit = parameters.add(&most.to_string());
    let sql = format!(
        "SELECT m.revision, r.* FROM towpath.meta m LEFT JOIN LATERAL
         (SELECT {COLUMNS} FROM towpath.resources r {found} LIMIT {limit}::text::bigint) r ON true"
    );
    let texts: Vec<&(dyn ToSql + Sync)> =
        parameters.0.iter().map(|text| text as &(dyn ToSql + Sync)).collect();
    let rows = pool.query(&sql, &texts).await?;
    let mut page = Page { revision: Revision(0), records: Vec::with_capacity(rows.len()), more: false };
    for row in &rows {
        let mut columns = Columns::of(row);
        page.revision = Revision(columns.number()?);
        if !columns.is_null()? {
            page.records.extend(columns.record()?);
        }
    }
    if query.limit > 0 && page.records.len() > query.limit {
        page.records.truncate(query.limit);
        page.more = true;
    }
    Ok(page)
}

/// The feed after a revision.
pub(super) async fn changes(
    pool: &Pool,
    after: Revision,
    stamp: u64,
    limit: usize,
) -> Result<Feed, StoreError> {
    // The join keeps the order of the feed only if it is asked for at the end. What is not told is not looked up either.
    let audit = Kind::Audit.as_str();
    let sql = format!(
        "SELECT m.revision, m.compacted,
           coalesce((SELECT b.stamp FROM towpath.changes b WHERE b.revision = $1 ORDER BY b.ord LIMIT 1), 0),
           coalesce(c.stamp, 0), c.revision, c.kind, c.org, c.space, c.name, {COLUMNS}
         FROM towpath.meta m
         LEFT JOIN towpath.changes c ON c.revision > $1 AND c.revision <=
           (SELECT max(revision) FROM
             (SELECT revision FROM towpath.changes WHERE revision > $1 ORDER BY revision LIMIT $2) page)
         LEFT JOIN towpath.resources r ON r.kind = nullif(c.kind, '{audit}')
           AND r.org = c.org AND r.space = c.space AND r.name = c.name
         ORDER BY c.revision, c.ord"
    );
    let most = if limit == 0 { i64::MAX } else { i64::try_from(limit).unwrap_or(i64::MAX) };
    let rows = pool.query(&sql, &[&bigint(after.0), &most]).await?;
    let mut feed = Feed { changes: Vec::with_capacity(rows.len()), stamp: 0 };
    for row in &rows {
        let mut columns = Columns::of(row);
        let (newest, compacted) = (columns.number()?, columns.number()?);
        let (before, stamped) = (columns.number()?, columns.number()?);
        // Builds before this one wrote no stamps.
        if after.0 < compacted || after.0 > newest || (stamp != 0 && stamp != before) {
            return Err(StoreError::Compacted { after, oldest: Revision(compacted + 1) });
        }
        let Some(revision) = columns.take::<Option<i64>>()? else {
            feed.stamp = before;
            break;
        };
        feed.stamp = stamped;
        if let Some(key) = columns.key()? {
            let record = if columns.is_null()? { None } else { columns.record()? };
            feed.changes.push(Change { revision: Revision(unsigned(revision)), key, record });
        }
    }
    Ok(feed)
}

/// The newest revision.
pub(super) async fn revision(link: &super::link::Link) -> Result<Revision, tokio_postgres::Error> {
    let statement = link.prepared("SELECT revision FROM towpath.meta").await?;
    link.client.query_one_scalar::<i64, _>(&statement, &[]).await.map(|number| Revision(unsigned(number)))
}
