//! The tables. They live in a schema of their own and are named in full, so that sessions need no search path.

use super::error::from_postgres;
use super::link::Link;
use crate::StoreError;

/// The version of the tables that this build reads and writes.
const SCHEMA: i32 = 1;

/// Any number; managers that start at once make the tables one after another.
const MAKING_TABLES: i64 = 0x746f_7770_6174_6801;

const TABLES: &str = r#"
CREATE SCHEMA IF NOT EXISTS towpath;
CREATE TABLE towpath.resources (
  kind text COLLATE "C" NOT NULL, org text COLLATE "C" NOT NULL,
  space text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL UNIQUE,
  generation bigint NOT NULL, revision bigint NOT NULL,
  created_ms bigint NOT NULL, updated_ms bigint NOT NULL,
  spec text NOT NULL, status text NOT NULL,
  PRIMARY KEY (kind, org, space, name)
);
CREATE TABLE towpath.changes (
  revision bigint NOT NULL, ord integer NOT NULL,
  kind text COLLATE "C" NOT NULL, org text COLLATE "C" NOT NULL,
  space text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
  stamp bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (revision, ord)
);
CREATE TABLE towpath.managers (
  manager text COLLATE "C" PRIMARY KEY, incarnation bigint NOT NULL,
  address text NOT NULL, version text NOT NULL, weight real NOT NULL DEFAULT 1,
  started_at timestamptz NOT NULL, seen_at timestamptz NOT NULL, evicted boolean NOT NULL
);
CREATE TABLE towpath.idempotency (
  key text COLLATE "C" PRIMARY KEY, revision bigint NOT NULL, records text NOT NULL, at_ms bigint NOT NULL
);
CREATE INDEX idempotency_age ON towpath.idempotency (at_ms);
-- One row. Writers lock it from their first look until they have committed: so revisions become visible in order.
CREATE TABLE towpath.meta (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  schema integer NOT NULL, revision bigint NOT NULL, compacted bigint NOT NULL,
  epoch bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO towpath.meta (schema, revision, compacted) VALUES (1, 0, 0);
"#;

/// Makes the tables when they are missing; refuses those of a newer build.
pub(super) async fn prepare(link: &Link) -> Result<(), StoreError> {
    let failed = |error: tokio_postgres::Error| from_postgres(&error);
    let client = &link.client;
    client
        .batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({MAKING_TABLES})"))
        .await
        .map_err(failed)?;
    let there = client
        .query_one_scalar::<bool, _>("SELECT to_regclass('towpath.meta') IS NOT NULL", &[])
        .await
        .map_err(failed)?;
    if !there {
        client.batch_execute(TABLES).await.map_err(failed)?;
    }
    let has_epoch = client
        .query_one_scalar::<bool, _>(
            "SELECT EXISTS (SELECT 1 FROM information_schema.columns
             WHERE table_schema = 'towpath' AND table_name = 'meta' AND column_name = 'epoch')",
            &[],
        )
        .await
        .map_err(failed)?;
    if !has_epoch {
        // Of a build before there were several managers; those of that build go on beside this one.
        client
            .batch_execute("ALTER TABLE towpath.meta ADD COLUMN epoch bigint NOT NULL DEFAULT 0")
            .await
            .map_err(failed)?;
    }
    // Likewise; managers of the build before have weight 1, and divide the work as if all had.
    client
        .batch_execute("ALTER TABLE towpath.managers ADD COLUMN IF NOT EXISTS weight real NOT NULL DEFAULT 1")
        .await
        .map_err(failed)?;
    // Likewise; what they write has no stamp.
    client
        .batch_execute("ALTER TABLE towpath.changes ADD COLUMN IF NOT EXISTS stamp bigint NOT NULL DEFAULT 0")
        .await
        .map_err(failed)?;
    let schema: i32 =
        client.query_one_scalar("SELECT schema FROM towpath.meta", &[]).await.map_err(failed)?;
    client.batch_execute("COMMIT").await.map_err(failed)?;
    if schema == SCHEMA {
        return Ok(());
    }
    Err(StoreError::Corrupt(format!(
        "its tables have version {schema}, this build knows {SCHEMA}; use a newer build"
    )))
}
