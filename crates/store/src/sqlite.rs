//! SQLite.

/// SQLite.
pub struct SqliteStore;
