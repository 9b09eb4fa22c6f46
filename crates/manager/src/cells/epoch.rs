//! Cells (and gateways) that have obeyed a higher epoch than the store knows.
//!
//! A store that was set back or made anew, on a clock that was set back as well, gives out epochs that cells have seen
//! before, and a cell obeys nothing of a lower one than it has seen. So the store's epoch is raised above the cell's. It is
//! raised in the store, under the fence: a manager that was evicted cannot make itself look newer than its successor.

use crate::core::Core;
use towpath_store::StoreError;

/// Brings this manager's epoch to at least what a cell has obeyed; `false` = that cannot be done now, and an answer would
/// not be obeyed.
pub(crate) async fn reach(core: &Core, obeyed: u64) -> bool {
    if obeyed <= core.epoch() {
        return true;
    }
    match find_epoch(core, obeyed).await {
        Ok(epoch) => {
            core.raise_epoch(epoch);
            epoch >= obeyed
        }
        Err(error) => {
            tracing::warn!(%error, obeyed, "a cell has obeyed a higher epoch, which cannot be reached now");
            false
        }
    }
}

/// The store's epoch, which another manager may have raised; raised above the cell's if none has.
async fn find_epoch(core: &Core, obeyed: u64) -> Result<u64, StoreError> {
    let stored = core.store.epoch().await?;
    if stored >= obeyed {
        return Ok(stored);
    }
    let fence = core.fence().ok_or(StoreError::Fenced(core.manager))?;
    let raised = core.store.raise_epoch(fence, obeyed).await?;
    tracing::warn!(
        stored,
        obeyed,
        raised,
        "the store was set back or made anew: its epoch is raised above the cells'"
    );
    Ok(raised)
}
