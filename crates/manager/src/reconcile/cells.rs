//! The reconciler of cells: what the store wants of a cell against what the cell says of itself.
//!
//! Placement goes by the store alone, and the groups' reconcilers empty a draining cell; the cell is told whether it is
//! cordoned so that whoever only hears it knows as well, also with the managers gone. Level-triggered and idempotent like
//! all reconcilers: a lost command is sent again when the next announcement still differs.

use super::Mailboxes;
use crate::core::Core;
use std::time::Duration;
use towpath_bus::BusState;
use towpath_types::CellId;
use towpath_types::cell::Scheduling;
use towpath_wire::cell::{CellCommand, CellReply};
use towpath_wire::decode;

/// Longest wait for a cell's answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Pause before what did not work is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Name of a cell on the ring.
pub(crate) fn ring_name(cell: CellId) -> String {
    format!("cell/{cell}")
}

/// Looks at one cell once; says when to look again at the latest.
pub(crate) async fn reconcile(core: &Core, cell: CellId) -> Option<Duration> {
    if !core.ownership.is_mine(&ring_name(cell)) {
        return None;
    }
    if !core.may_act() || *core.bus.state().borrow() == BusState::Down {
        return Some(RETRY);
    }
    if !differs(core, cell) {
        return None;
    }
    let on = core.cache.cell(cell).scheduling != Scheduling::Open;
    let answer = crate::cells::order::send(core, cell, CellCommand::Cordon { on }, ANSWER).await;
    match answer.map(|payload| decode::<CellReply>(&payload)) {
        Ok(Ok(CellReply::Accepted)) => {
            tracing::info!(%cell, cordoned = on, "told a cell whether it is cordoned")
        }
        Ok(Ok(reply)) => tracing::warn!(%cell, ?reply, "a cell did not take its cordon"),
        Ok(Err(error)) => tracing::warn!(%cell, %error, "a cell's answer was not readable"),
        Err(error) => tracing::debug!(%cell, %error, "a cell could not be told whether it is cordoned"),
    }
    // Looked at again, whatever it answered: what counts is what it announces.
    Some(RETRY)
}

/// Whether a cell that speaks says something else than what is wanted of it.
pub(crate) fn differs(core: &Core, cell: CellId) -> bool {
    let wanted = core.cache.cell(cell).scheduling != Scheduling::Open;
    core.soft.cell(cell).is_some_and(|heard| !heard.lost && heard.announce.cordoned != wanted)
}

/// What is wanted of a cell has changed: the cell, the groups that stand there, and those that wait for room are looked at.
pub(crate) fn changed(core: &Core, mailboxes: &Mailboxes, cell: CellId) {
    mailboxes.activate_cell(cell);
    for group in core.cache.groups_on(cell) {
        mailboxes.activate(group);
    }
    mailboxes.activate_unsettled(core);
}
