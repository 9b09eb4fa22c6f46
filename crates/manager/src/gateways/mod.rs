//! The routing table's way to the gateways: pages on request, changes as they come; and the keys of what is secret in it.

mod delta;
mod keys;
mod snapshot;

use crate::core::Core;
pub(crate) use delta::tells;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Starts all three.
pub(crate) fn spawn(core: &Arc<Core>, tasks: &mut JoinSet<()>) {
    snapshot::spawn(core, tasks);
    delta::spawn(core, tasks);
    keys::spawn(core, tasks);
}
