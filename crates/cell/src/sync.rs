//! Pulling what should run from a manager.

use crate::desired::{Desired, Gathered, Gatherer};
use bytes::Bytes;
use std::time::Duration;
use towpath_bus::{Bus, BusError};
use towpath_types::{CellId, Incarnation, Revision};
use towpath_wire::cell::{SyncPage, SyncRequest};
use towpath_wire::{DecodeError, subject};

/// Longest wait for a page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pages whose revisions differ make the pull begin anew so often.
const TRIES: u32 = 5;
/// More pages than this are no answer.
const PAGES: u32 = 10_000;

/// Why there is no complete answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    /// No manager answers.
    #[error("no manager answers: {0}")]
    Bus(#[from] BusError),
    /// The answer cannot be read.
    #[error("a manager's answer cannot be read: {0}")]
    Unreadable(#[from] DecodeError),
    /// It changed while it was read, again and again.
    #[error("what should run changes faster than it can be read")]
    Restless,
}

/// Pulls all pages of one revision, which is `at_least` this one if the manager can give it. `epoch`: the highest that was obeyed.
pub(crate) async fn load_desired(
    bus: &dyn Bus,
    cell: CellId,
    incarnation: Incarnation,
    at_least: Revision,
    epoch: u64,
) -> Result<Desired, SyncError> {
    for _ in 0..TRIES {
        let (mut gatherer, mut cursor) = (Gatherer::default(), None);
        for _ in 0..PAGES {
            let request = SyncRequest { cell, incarnation, cursor, at_least, epoch };
            let payload = Bytes::from(towpath_wire::encode(&request));
            let answer = bus.request(subject::CELL_SYNC, payload, PAGE_TIMEOUT).await?;
            match gatherer.take(towpath_wire::decode::<SyncPage>(&answer)?) {
                Gathered::More(next) => cursor = Some(next),
                Gathered::Whole(desired) => return Ok(desired),
                Gathered::Mixed => break,
            }
        }
    }
    Err(SyncError::Restless)
}
