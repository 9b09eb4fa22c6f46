//! Loads a full snapshot of the hard state from the managers, page by page, until it works.

use super::incoming::{Items, read_page};
use super::keys::Asker;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use towpath_bus::{Bus, BusError};
use towpath_secrets::Keyring;
use towpath_types::{GatewayId, Revision};
use towpath_wire::gateway::SnapshotRequest;
use towpath_wire::{encode, subject};

/// A complete snapshot: the first page's revision, all items, and the keys that open what is secret in them, if they were asked for.
pub(crate) type Loaded = (Revision, Items, Option<Keyring>);

/// Longest wait for a page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// How tries follow each other: from the first pause to the longest, and half of it more at most, by chance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    first_ms: u64,
    longest_ms: u64,
}

/// Of a gateway that knows no route yet: when it was there before the first manager, it serves soon after that is.
pub(crate) const HURRIED: Pace = Pace { first_ms: 150, longest_ms: 400 };
/// Of one that serves what it knows meanwhile, and so do all the others that ask.
pub(crate) const CALM: Pace = Pace { first_ms: 500, longest_ms: 5_000 };

impl Pace {
    /// The pause after so many tries.
    fn pause(self, tries: u32, random: u64) -> Duration {
        let ms = self.first_ms.saturating_mul(1 << tries.min(16)).min(self.longest_ms);
        Duration::from_millis(ms + random % (ms / 2))
    }
}

/// Loads and sends the result.
pub(super) async fn run(
    bus: Arc<dyn Bus>,
    (gateway, asker): (GatewayId, Option<Asker>),
    pace: Pace,
    result: mpsc::Sender<Loaded>,
) {
    for tries in 0.. {
        match load(bus.as_ref(), gateway).await {
            Ok((revision, items)) => {
                let keys = match &asker {
                    Some(asker) => asker.ask(bus.as_ref()).await.ok(),
                    None => None,
                };
                let _ = result.send((revision, items, keys)).await;
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "no snapshot yet");
                tokio::time::sleep(pace.pause(tries, fastrand::u64(..))).await;
            }
        }
    }
}

async fn load(bus: &dyn Bus, gateway: GatewayId) -> Result<(Revision, Items), BusError> {
    let (mut revision, mut items, mut cursor) = (None, Items::default(), None);
    loop {
        let request = encode(&SnapshotRequest { gateway, cursor });
        let answer = bus.request(subject::GATEWAY_SNAPSHOT, Bytes::from(request), PAGE_TIMEOUT).await?;
        let page = read_page(&answer).map_err(|error| BusError::Invalid(error.to_string()))?;
        let first = *revision.get_or_insert(page.revision);
        items.extend(page.items);
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok((first, items)),
        }
    }
}
