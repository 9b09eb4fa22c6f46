//! The routing table's way to the gateways: pages on request, changes as they come.

mod delta;
mod snapshot;

use crate::core::Core;
pub(crate) use delta::tells;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Starts both.
pub(crate) fn spawn(core: &Arc<Core>, tasks: &mut JoinSet<()>) {
    snapshot::spawn(core, tasks);
    delta::spawn(core, tasks);
}
