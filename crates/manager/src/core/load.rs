//! How much a manager has to do: counted where the work is, told in its reports.

use std::sync::atomic::AtomicU64;

/// The counters.
#[derive(Debug, Default)]
pub struct Load {
    /// Changes that wait for their turn.
    pub(crate) changes: AtomicU64,
    /// Operations that run.
    pub(crate) operations: AtomicU64,
}
