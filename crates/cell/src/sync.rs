//! Pulling what should run from a manager.

use crate::desired::{Desired, Gathered, Gatherer, Known};
use crate::secrets::Told;
use bytes::Bytes;
use std::time::Duration;
use towpath_bus::{Bus, BusError};
use towpath_secrets::{ParcelError, Recipient};
use towpath_types::{CellId, Incarnation, Revision};
use towpath_wire::cell::{Stamps, SyncPage, SyncRequest};
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

/// Who asks, and what it has obeyed.
pub(crate) struct Asking<'a> {
    pub(crate) cell: CellId,
    pub(crate) incarnation: Incarnation,
    /// The highest epoch that was obeyed.
    pub(crate) epoch: u64,
    /// SHA-256 of the cells' token.
    pub(crate) token: towpath_types::Digest,
    /// The set that was obeyed last.
    pub(crate) known: &'a Known,
}

/// Pulls all pages of one revision, which is `at_least` this one if the manager can give it, with the stamps of the specs and what
/// it says of secrets.
pub(crate) async fn load_desired(
    bus: &dyn Bus,
    asking: &Asking<'_>,
    at_least: Revision,
) -> Result<(Desired, Stamps, Told), SyncError> {
    let nothing = Known::default();
    let mut known = asking.known;
    for _ in 0..TRIES {
        let (mut gatherer, mut cursor, mut told) = (Gatherer::default(), None, Told::default());
        for _ in 0..PAGES {
            let mut request = SyncRequest {
                cell: asking.cell,
                incarnation: asking.incarnation,
                cursor,
                at_least,
                epoch: asking.epoch,
                proof: None,
                known: known.stamps.clone(),
            };
            let who = request.who();
            let recipient = Recipient::new(asking.token)?;
            request.proof = Some(recipient.proof(&who));
            let payload = Bytes::from(towpath_wire::encode(&request));
            let answer = bus.request(subject::CELL_SYNC, payload, PAGE_TIMEOUT).await?;
            let mut page = towpath_wire::decode::<SyncPage>(&answer)?;
            if let Some(parcel) = page.parcel.take() {
                told.add(&recipient.open(&who, &parcel)?).map_err(|_| ParcelError::Refused)?;
            }
            told.withheld.append(&mut page.withheld);
            match gatherer.take(page, known) {
                Gathered::More(next) => cursor = Some(next),
                Gathered::Whole(desired, stamps) => return Ok((desired, stamps, told)),
                Gathered::Mixed => break,
                Gathered::Unknown => {
                    known = &nothing;
                    break;
                }
            }
        }
    }
    Err(SyncError::Restless)
}
