//! PostgreSQL.

/// PostgreSQL.
pub struct PostgresStore;
/// Config.
pub struct PostgresConfig;
