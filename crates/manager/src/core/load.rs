//! How much a manager has to do: counted where the work is, told in its reports.

use std::sync::atomic::AtomicU64;

/// The counters. (Changes that wait are counted by [`super::changes::Changes`] itself.)
#[derive(Debug, Default)]
pub struct Load {
    /// Operations that run.
    pub(crate) operations: AtomicU64,
}
