//! Pulling what should run from a manager.

use crate::desired::{Desired, Gathered, Gatherer};
use crate::secrets::Told;
use bytes::Bytes;
use std::time::Duration;
use towpath_bus::{Bus, BusError};
use towpath_secrets::{ParcelError, Recipient};
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
    /// The secrets in it cannot be opened.
    #[error("a manager's secrets cannot be opened: {0}")]
    Parcel(#[from] ParcelError),
    /// It changed while it was read, again and again.
    #[error("what should run changes faster than it can be read")]
    Restless,
}

/// Pulls all pages of one revision, which is `at_least` this one if the manager can give it, with what it says of secrets.
/// `epoch`: the highest that was obeyed. `token`: SHA-256 of the cells' token.
pub(crate) async fn load_desired(
    bus: &dyn Bus,
    cell: CellId,
    incarnation: Incarnation,
    at_least: Revision,
    epoch: u64,
    token: towpath_types::Digest,
) -> Result<(Desired, Told), SyncError> {
    for _ in 0..TRIES {
        let (mut gatherer, mut cursor, mut told) = (Gatherer::default(), None, Told::default());
        for _ in 0..PAGES {
            let mut request = SyncRequest { cell, incarnation, cursor, at_least, epoch, proof: None };
            let who = request.who();
            let recipient = Recipient::new(token)?;
            request.proof = Some(recipient.proof(&who));
            let payload = Bytes::from(towpath_wire::encode(&request));
            let answer = bus.request(subject::CELL_SYNC, payload, PAGE_TIMEOUT).await?;
            let mut page = towpath_wire::decode::<SyncPage>(&answer)?;
            if let Some(parcel) = page.parcel.take() {
                told.add(&recipient.open(&who, &parcel)?).map_err(|_| ParcelError::Refused)?;
            }
            told.withheld.append(&mut page.withheld);
            match gatherer.take(page) {
                Gathered::More(next) => cursor = Some(next),
                Gathered::Whole(desired) => return Ok((desired, told)),
                Gathered::Mixed => break,
            }
        }
    }
    Err(SyncError::Restless)
}
