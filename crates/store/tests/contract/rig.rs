//! Stores to test, and short ways to say what tests say often.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tempfile::TempDir;
use towpath_store::{
    Backup, Commit, Expect, Fence, ManagerRow, MemoryStore, PostgresConfig, PostgresStore, SqliteOptions,
    SqliteStore, Store, StoreError, Transaction, Write,
};
use towpath_testkit::Postgres;
use towpath_types::resource::Key;
use towpath_types::{Incarnation, Kind, ManagerId, OrgName, Record, Revision, SpaceName};

/// Long enough for anything that does happen.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) trait Rig {
    /// Opens the store under test; what was written through an earlier handle is there.
    async fn open_keeping(&self, keep_revisions: u64) -> Arc<dyn Store>;
    /// Sets the store back to a revision since which all changes made resources that were not there, and opens it.
    async fn set_back(&self, store: Arc<dyn Store>, to: u64) -> Arc<dyn Store>;
    /// Notes what the store holds now, if that is needed to set it back.
    fn note(&self) {}
    /// A store with nothing in it.
    async fn empty(&self) -> Arc<dyn Store>;

    async fn open(&self) -> Arc<dyn Store> {
        self.open_keeping(100_000).await
    }
}

/// What is kept is kept by the rig: a store in memory cannot be closed and opened again.
pub(crate) struct MemoryRig {
    store: OnceLock<Arc<MemoryStore>>,
    noted: Mutex<Option<Backup>>,
}

/// As in a copy that was taken at that revision.
const SET_BACK: [&str; 3] =
    ["DELETE FROM changes WHERE revision >", "DELETE FROM resources WHERE revision >", "UPDATE meta SET"];

impl MemoryRig {
    pub(crate) fn new() -> Self {
        Self { store: OnceLock::new(), noted: Mutex::default() }
    }
}

impl Rig for MemoryRig {
    async fn open_keeping(&self, keep_revisions: u64) -> Arc<dyn Store> {
        self.store.get_or_init(|| Arc::new(MemoryStore::new(1_700_000_000_000, keep_revisions))).clone()
    }

    fn note(&self) {
        *self.noted.lock().unwrap() = self.store.get().map(|store| store.back_up());
    }

    async fn set_back(&self, store: Arc<dyn Store>, to: u64) -> Arc<dyn Store> {
        self.store.get().unwrap().restore(self.noted.lock().unwrap().as_ref().unwrap());
        assert_eq!(store.revision().await.unwrap(), Revision(to));
        store
    }

    async fn empty(&self) -> Arc<dyn Store> {
        Arc::new(MemoryStore::new(1_700_000_000_000, 100_000))
    }
}

pub(crate) struct SqliteRig {
    directory: TempDir,
}

impl SqliteRig {
    pub(crate) fn new() -> Self {
        Self { directory: towpath_testkit::temp_dir() }
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("store.db")
    }
}

impl Rig for SqliteRig {
    async fn open_keeping(&self, keep_revisions: u64) -> Arc<dyn Store> {
        let options = SqliteOptions { keep_revisions, ..SqliteOptions::default() };
        Arc::new(SqliteStore::open_with(self.path(), options).await.unwrap())
    }

    async fn set_back(&self, store: Arc<dyn Store>, to: u64) -> Arc<dyn Store> {
        drop(store);
        let file = rusqlite::Connection::open(self.path()).unwrap();
        let [changes, resources, meta] = SET_BACK;
        file.execute_batch(&format!(
            "{changes} {to}; {resources} {to}; {meta} value = {to} WHERE name = 'revision'"
        ))
        .unwrap();
        drop(file);
        self.open().await
    }

    async fn empty(&self) -> Arc<dyn Store> {
        let name = uuid::Uuid::new_v4().to_string();
        Arc::new(SqliteStore::open(self.directory.path().join(name)).await.unwrap())
    }
}

pub(crate) struct PostgresRig {
    pub(crate) server: Postgres,
}

impl PostgresRig {
    pub(crate) fn new() -> Self {
        Self { server: Postgres::start() }
    }

    pub(crate) fn config(&self) -> PostgresConfig {
        PostgresConfig::new(self.server.url())
    }

    pub(crate) async fn connect(&self) -> Arc<PostgresStore> {
        Arc::new(PostgresStore::connect(self.config()).await.unwrap())
    }
}

impl Rig for PostgresRig {
    async fn open_keeping(&self, keep_revisions: u64) -> Arc<dyn Store> {
        let config = PostgresConfig { keep_revisions, ..self.config() };
        Arc::new(PostgresStore::connect(config).await.unwrap())
    }

    async fn set_back(&self, store: Arc<dyn Store>, to: u64) -> Arc<dyn Store> {
        let (session, connection) =
            tokio_postgres::connect(&self.server.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let [changes, resources, meta] = SET_BACK;
        let sql =
            format!("SET search_path TO towpath; {changes} {to}; {resources} {to}; {meta} revision = {to}");
        session.batch_execute(&sql).await.unwrap();
        store
    }

    async fn empty(&self) -> Arc<dyn Store> {
        let store = self.connect().await;
        let (session, connection) =
            tokio_postgres::connect(&self.server.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let clear = "TRUNCATE towpath.resources, towpath.changes, towpath.managers, towpath.idempotency;
                     UPDATE towpath.meta SET revision = 0, compacted = 0";
        session.batch_execute(clear).await.unwrap();
        store
    }
}

/// A key in `o/s`.
pub(crate) fn key(kind: Kind, name: &str) -> Key {
    key_in(kind, Some("o"), Some("s"), name)
}

pub(crate) fn key_in(kind: Kind, org: Option<&str>, space: Option<&str>, name: &str) -> Key {
    Key {
        kind,
        org: org.map(|org| OrgName::new(org).unwrap()),
        space: space.map(|space| SpaceName::new(space).unwrap()),
        name: name.to_owned(),
    }
}

pub(crate) fn app(name: &str) -> Key {
    key(Kind::App, name)
}

pub(crate) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// A put of a spec.
pub(crate) fn put(key: &Key, expect: Expect, spec: impl Into<serde_json::Value>) -> Write {
    Write::Put { key: key.clone(), id: new_id(), expect, spec: Some(spec.into()), status: None }
}

/// A put of a status.
pub(crate) fn put_status(key: &Key, expect: Expect, status: impl Into<serde_json::Value>) -> Write {
    Write::Put { key: key.clone(), id: new_id(), expect, spec: None, status: Some(status.into()) }
}

pub(crate) fn delete(key: &Key, expect: Expect) -> Write {
    Write::Delete { key: key.clone(), expect }
}

/// A transaction without fence and idempotency key.
pub(crate) fn plain(writes: Vec<Write>) -> Transaction {
    Transaction { writes, fence: None, idempotency: None }
}

pub(crate) async fn commit(store: &dyn Store, writes: Vec<Write>) -> Result<Commit, StoreError> {
    store.commit(plain(writes)).await
}

/// Commits one write that has to succeed; returns the record.
pub(crate) async fn write(store: &dyn Store, write: Write) -> Option<Record> {
    let mut commit = commit(store, vec![write]).await.unwrap();
    commit.records.remove(0)
}

/// Waits for the watch to show a revision.
pub(crate) async fn until(store: &dyn Store, revision: Revision) {
    let mut watch = store.watch();
    tokio::time::timeout(SOON, watch.wait_for(|seen| *seen >= revision))
        .await
        .unwrap_or_else(|_| panic!("the watch does not reach {revision} in time"))
        .unwrap();
}

pub(crate) fn fence(manager: u8, incarnation: u64) -> Fence {
    Fence { manager: ManagerId::mint(1, [manager; 10]), incarnation: Incarnation(incarnation) }
}

pub(crate) fn row(fence: Fence) -> ManagerRow {
    ManagerRow {
        manager: fence.manager,
        incarnation: fence.incarnation,
        address: "http://10.0.0.1:7700".to_owned(),
        version: "0.1.0".to_owned(),
        weight: 1.0,
        started_ms: 0,
        silent_ms: 0,
        evicted: false,
    }
}
