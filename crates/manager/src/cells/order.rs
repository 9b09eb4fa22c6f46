//! Commands to cells, under this manager's epoch: what waits on the way until another owns the cell is not obeyed.

use super::epoch;
use crate::core::Core;
use bytes::Bytes;
use std::time::Duration;
use towpath_bus::BusError;
use towpath_types::CellId;
use towpath_wire::cell::{CellCommand, CellOrder, CellReply};
use towpath_wire::{decode, encode, subject};

/// The cell's answer, a [`CellReply`]. A cell that has obeyed a higher epoch is asked once more when this manager, a member
/// still, comes to that.
pub(crate) async fn send(
    core: &Core,
    cell: CellId,
    command: CellCommand,
    patience: Duration,
) -> Result<Bytes, BusError> {
    let subject = subject::cell_command(cell);
    let mut order = CellOrder { epoch: core.epoch(), command };
    let answer = core.bus.request(&subject, encode(&order).into(), patience).await?;
    match decode(&answer) {
        Ok(CellReply::Outdated { epoch }) if core.may_act() && epoch::reach(core, epoch).await => {
            order.epoch = core.epoch();
            core.bus.request(&subject, encode(&order).into(), patience).await
        }
        _ => Ok(answer),
    }
}
