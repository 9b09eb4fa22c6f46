//! The routing table's way to the gateways: pages on request, changes as they come.

mod delta;
mod snapshot;

use crate::core::Core;
use std::sync::Arc;
use tokio::task::JoinSet;
use towpath_bus::BusError;

/// Starts both.
pub(crate) async fn spawn(core: &Arc<Core>, tasks: &mut JoinSet<()>) -> Result<(), BusError> {
    snapshot::spawn(core, tasks).await?;
    delta::spawn(core, tasks);
    Ok(())
}
