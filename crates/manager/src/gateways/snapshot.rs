//! Answers gateways that ask for a page of the routing table.

use crate::core::Core;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use towpath_bus::Message;
use towpath_telemetry::SeldomHere;
use towpath_wire::gateway::{ItemKey, SnapshotPage, SnapshotRequest};
use towpath_wire::{decode, encode, subject};

/// Largest page in bytes.
const PAGE_BYTES: usize = 500_000;
/// Most items that are looked at for one page.
const PAGE_ITEMS: usize = 5_000;

/// Starts answering once there is a whole table to answer with. Whoever asks before finds nobody and asks again; a
/// request that was taken and left lying would cost a gateway its longest wait.
pub(super) fn spawn(core: &Arc<Core>, tasks: &mut JoinSet<()>) {
    let core = core.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = run(&core) => {}
            () = core.stopped() => {}
        }
    });
}

async fn run(core: &Core) {
    crate::feed::wait_loaded(core).await;
    loop {
        match core.bus.subscribe_queue(subject::GATEWAY_SNAPSHOT, subject::MANAGERS).await {
            Ok(mut requests) => {
                while let Some(request) = requests.next().await {
                    answer(core, request).await;
                }
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot answer gateways yet");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn answer(core: &Core, message: Message) {
    let Some(reply) = message.reply else { return };
    let request: SnapshotRequest = match decode(&message.payload) {
        Ok(request) => request,
        Err(error) => {
            static TOLD: SeldomHere = SeldomHere::new();
            if let Some(more) = TOLD.now() {
                tracing::warn!(%error, "ignored a gateway's request{more}");
            }
            return;
        }
    };
    // A table that is not whole would make gateways drop routes.
    if !*core.cache_loaded().borrow() {
        return;
    }
    let page = find_page(core, request.cursor.as_deref());
    if let Err(error) = core.bus.publish(&reply, encode(&page).into()).await {
        tracing::debug!(gateway = %request.gateway, %error, "an answer to a gateway was not sent");
    }
}

/// The page behind a cursor, which is the last key of the page before, as JSON.
pub(super) fn find_page(core: &Core, cursor: Option<&str>) -> SnapshotPage {
    let revision = core.cache.revision();
    let after: Option<ItemKey> = cursor.and_then(|text| serde_json::from_str(text).ok());
    let found = core.cache.routing_items(after.as_ref(), PAGE_ITEMS);
    let mut cut = found.len() == PAGE_ITEMS;
    let mut page = SnapshotPage { revision, items: Vec::new(), next: None };
    let (mut bytes, mut last) = (0, None);
    for (key, item) in found {
        bytes += serde_json::to_vec(&*item).map_or(0, |text| text.len());
        if bytes > PAGE_BYTES && !page.items.is_empty() {
            cut = true;
            break;
        }
        page.items.push((*item).clone());
        last = Some(key);
    }
    if cut {
        page.next = last.and_then(|key| serde_json::to_string(&key).ok());
    }
    page
}
