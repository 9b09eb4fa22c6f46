//! Loads a full snapshot of the hard state from the managers, page by page, until it works.

use super::incoming::{Items, read_page};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use towpath_bus::{Bus, BusError};
use towpath_types::{GatewayId, Revision};
use towpath_wire::gateway::SnapshotRequest;
use towpath_wire::{encode, subject};

/// A complete snapshot: the first page's revision, and all items.
pub(crate) type Loaded = (Revision, Items);

/// Longest wait for a page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before another try; short, so that a gateway that was first is served soon after the first manager is there.
const RETRY: Duration = Duration::from_millis(150);

/// Loads and sends the result.
pub(crate) async fn run(bus: Arc<dyn Bus>, gateway: GatewayId, result: mpsc::Sender<Loaded>) {
    loop {
        match load(bus.as_ref(), gateway).await {
            Ok(loaded) => {
                let _ = result.send(loaded).await;
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "no snapshot yet");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn load(bus: &dyn Bus, gateway: GatewayId) -> Result<Loaded, BusError> {
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
