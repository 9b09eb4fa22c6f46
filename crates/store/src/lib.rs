//! The store of hard state: JSON resources with revisions, compare-and-set, an ordered change feed, manager rows and
//! fences; one trait, SQLite and PostgreSQL behind it, and memory for simulations.
//!
//! Invariants:
//! - Every commit that changes something gets the next store-wide revision; all its writes share it, and it is atomic.
//! - The change feed is ordered by revision and a reader never sees N+1 before it could see N.
//! - A write by a manager whose row is evicted, or has a newer incarnation, is refused (a fence).
//! - Time in records is the store's clock.
//!
//! Must not: know what specs mean, talk to the bus.

use async_trait::async_trait;
use towpath_types::resource::Key;
use towpath_types::{Incarnation, Kind, ManagerId, OrgName, Record, Revision, SpaceName};

mod decide;
mod document;
mod memory;
mod postgres;
mod sqlite;

pub use memory::{Backup, MemoryStore};
pub use postgres::{PostgresConfig, PostgresStore};
pub use sqlite::{SqliteOptions, SqliteStore};

/// Why a store call failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached, is locked, full or shutting down. Whether a commit took effect is not known if
    /// `uncertain`.
    #[error("the store is not available: {why}")]
    Unavailable {
        /// What the database said.
        why: String,
        /// Whether a commit may have taken effect all the same.
        uncertain: bool,
    },
    /// A compare-and-set failed; nothing of the transaction was written.
    #[error("{key:?} is at revision {actual:?}, not as expected")]
    Conflict {
        /// The resource.
        key: Key,
        /// Its present revision; `None` = it is not there.
        actual: Option<Revision>,
    },
    /// The writer is no longer a member; it has to stop acting and join anew.
    #[error("manager {0} was evicted or superseded")]
    Fenced(ManagerId),
    /// The feed no longer reaches back so far; list everything instead.
    #[error("changes after revision {after} are gone; the oldest kept is {oldest}")]
    Compacted {
        /// What was asked for.
        after: Revision,
        /// What is there.
        oldest: Revision,
    },
    /// The idempotency key belongs to another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// The database holds something unreadable, or a newer schema.
    #[error("the store's content is not usable: {0}")]
    Corrupt(String),
    /// The call asks for what no store can do: an empty name, an id that another resource has.
    #[error("the store cannot write this: {0}")]
    Invalid(String),
}

impl StoreError {
    /// A copy for each of those who shared a database transaction that failed.
    pub(crate) fn for_all(&self) -> Self {
        match self {
            Self::Unavailable { why, uncertain } => {
                Self::Unavailable { why: why.clone(), uncertain: *uncertain }
            }
            Self::Corrupt(why) => Self::Corrupt(why.clone()),
            Self::Invalid(why) => Self::Invalid(why.clone()),
            other => Self::Unavailable { why: other.to_string(), uncertain: false },
        }
    }
}

/// What must be true of a resource for a write to it to take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// It is not there.
    Absent,
    /// It is at this revision.
    At(Revision),
    /// It is there, whatever its revision.
    Present,
    /// Anything.
    Any,
}

/// One write.
#[derive(Debug, Clone)]
pub enum Write {
    /// Creates or replaces. The generation rises if the spec differs from the stored one. `id` is used on creation
    /// only. `None` leaves spec or status as stored (`{}` on creation).
    Put {
        /// Which resource.
        key: Key,
        /// Id to create it with (UUIDv7 text).
        id: String,
        /// Condition.
        expect: Expect,
        /// New spec.
        spec: Option<serde_json::Value>,
        /// New status.
        status: Option<serde_json::Value>,
    },
    /// Deletes. With `Expect::Any` a missing resource is no error.
    Delete {
        /// Which resource.
        key: Key,
        /// Condition.
        expect: Expect,
    },
}

/// Who writes: checked against the managers' table in the same transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// The writer.
    pub manager: ManagerId,
    /// Its incarnation as registered.
    pub incarnation: Incarnation,
}

/// Names a commit, so that it is done once however often it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The same text again within a day gives the first result again, without writing.
    pub key: String,
    /// Digest of the request. When both the first and a later commit with the key have one, they have to be the same.
    pub request: Option<String>,
    /// What is remembered in the place of the first record's spec: results are kept for a day, and what was written may hold what
    /// is not to be kept.
    pub spec: Option<serde_json::Value>,
}

impl<T: Into<String>> From<T> for Idempotency {
    fn from(key: T) -> Self {
        Self { key: key.into(), request: None, spec: None }
    }
}

/// Writes that take effect together or not at all.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// The writes, in order.
    pub writes: Vec<Write>,
    /// The writer; `None` only for tools that run beside the managers.
    pub fence: Option<Fence>,
    /// Its name, if it may be sent again.
    pub idempotency: Option<Idempotency>,
}

/// What a commit did.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    /// Its revision; the store's present one if nothing was to be changed.
    pub revision: Revision,
    /// The resources after the writes, in their order; `None` for deletes.
    pub records: Vec<Option<Record>>,
}

/// Which resources to list. Ordered by key.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Kind.
    pub kind: Option<Kind>,
    /// Tenant.
    pub org: Option<OrgName>,
    /// Space.
    pub space: Option<SpaceName>,
    /// Beginning of the name.
    pub name_prefix: Option<String>,
    /// Continue behind this key (the last one of the page before).
    pub after: Option<Key>,
    /// Most records in the answer; 0 = no limit.
    pub limit: usize,
}

impl Query {
    /// The kinds to look through, in the order of keys.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = match self.kind {
            Some(kind) => vec![kind],
            None => Kind::ALL.to_vec(),
        };
        kinds.sort();
        if let Some(after) = &self.after {
            kinds.retain(|kind| *kind >= after.kind);
        }
        kinds
    }
}

/// A page of records and the revision at which it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The store's revision when the page was read.
    pub revision: Revision,
    /// Records.
    pub records: Vec<Record>,
    /// Whether there are more.
    pub more: bool,
}

/// One change of one resource. Several share a revision when they were committed together.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The commit's revision.
    pub revision: Revision,
    /// Which resource.
    pub key: Key,
    /// Its newest content (which may be newer than `revision`); `None` = deleted, or an entry of the audit log: every change
    /// makes one, and whoever follows the feed would read twice as much for nothing. They are listed instead.
    pub record: Option<Record>,
}

/// A part of the change feed.
#[derive(Debug, Clone, PartialEq)]
pub struct Feed {
    /// The changes, oldest first.
    pub changes: Vec<Change>,
    /// Stamp of the last change's revision; of the one that was asked for when there are none. 0 = not known.
    pub stamp: u64,
}

/// A manager's row.
#[derive(Debug, Clone, PartialEq)]
pub struct ManagerRow {
    /// Who.
    pub manager: ManagerId,
    /// Which start of it.
    pub incarnation: Incarnation,
    /// Where its API is reached, for example `http://10.0.0.1:7700`.
    pub address: String,
    /// Its version.
    pub version: String,
    /// Its share of the work relative to others: 1 is normal. (A store of one process keeps none: it is always 1 there.)
    pub weight: f32,
    /// When it registered, store clock, milliseconds since 1970.
    pub started_ms: u64,
    /// Milliseconds since its last heartbeat, by the store's clock, when read.
    pub silent_ms: u64,
    /// Whether it was evicted.
    pub evicted: bool,
}

/// The store. Cheap to share behind an `Arc`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// One resource by its key.
    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError>;

    /// Many resources.
    async fn list(&self, query: &Query) -> Result<Page, StoreError>;

    /// Writes. Concurrent commits may share one database transaction (group commit), but succeed or fail each alone.
    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError>;

    /// The commit that was made under an idempotency key within the last day. Fails with `KeyReused` like a commit.
    async fn answered(&self, idempotency: &Idempotency) -> Result<Option<Commit>, StoreError>;

    /// Changes after a revision, oldest first, whole revisions only, about `limit` of them (0 = all). `Compacted` also
    /// when `after` is ahead of the store, as after a restore from a backup: what the caller has seen is not there.
    async fn changes(&self, after: Revision, limit: usize) -> Result<Vec<Change>, StoreError> {
        Ok(self.changes_since(after, 0, limit).await?.changes)
    }

    /// Like [`Store::changes`], for who has read up to `after` already and was given its `stamp`. A store that was set back (a
    /// standby that was behind took over, a backup was restored) and has made other changes since has the same revisions with
    /// other content: then the stamp is another one, and the answer is `Compacted`. 0 = the reader has none.
    async fn changes_since(&self, after: Revision, stamp: u64, limit: usize) -> Result<Feed, StoreError>;

    /// Follows the newest revision that [`Store::changes`] can deliver. It goes back when the store was set back.
    fn watch(&self) -> tokio::sync::watch::Receiver<Revision>;

    /// Makes or replaces the manager's row. Fails with `Fenced` if a newer incarnation is registered.
    async fn register_manager(&self, row: &ManagerRow) -> Result<(), StoreError>;

    /// Refreshes the row. Fails with `Fenced` if it is gone, evicted or superseded.
    async fn heartbeat(&self, fence: Fence) -> Result<(), StoreError>;

    /// Removes the row of a manager that leaves cleanly.
    async fn leave(&self, fence: Fence) -> Result<(), StoreError>;

    /// Marks managers as evicted that were silent for longer; returns them.
    async fn evict_silent(&self, longer_than_ms: u64) -> Result<Vec<ManagerId>, StoreError>;

    /// The epoch of ownership: rises whenever a manager registers, leaves or is evicted, in the same transaction; never
    /// falls. Read it before [`Store::managers`]: the rows are then at least as new.
    async fn epoch(&self) -> Result<u64, StoreError>;

    /// Raises the epoch above one that was heard of although this store has never given it out: it was set back, or made
    /// anew. Gives the epoch as it is then. Fails with `Fenced` like a commit.
    async fn raise_epoch(&self, fence: Fence, above: u64) -> Result<u64, StoreError>;

    /// The newest revision that is committed. Whoever has seen all changes up to it has seen every commit that was
    /// answered before this was asked.
    async fn revision(&self) -> Result<Revision, StoreError>;

    /// All rows, evicted ones too.
    async fn managers(&self) -> Result<Vec<ManagerRow>, StoreError>;

    /// The store's clock, milliseconds since 1970.
    async fn now_ms(&self) -> Result<u64, StoreError>;
}
