//! Answers gateways that ask for a page of the routing table.
//!
//! A gateway takes what it is told for the whole table, so who may have missed a change does not answer: a manager that is no
//! member, one that cannot ask the store while others can, one of an older epoch than the gateway has obeyed.

use crate::core::Core;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use towpath_bus::{Message, Subscription};
use towpath_telemetry::SeldomHere;
use towpath_wire::gateway::{ItemKey, SnapshotPage, SnapshotRequest};
use towpath_wire::{decode, encode, subject};

/// Largest page in bytes.
const PAGE_BYTES: usize = 500_000;
/// Most items that are looked at for one page.
const PAGE_ITEMS: usize = 5_000;
/// Longest wait for what the store has.
const WAIT: Duration = Duration::from_secs(2);
/// Requests that are worked on at the same time.
const AT_ONCE: usize = 64;

/// Starts answering once there is a whole table to answer with, and this manager is a member. Whoever asks before finds nobody and asks again; a
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

async fn run(core: &Arc<Core>) {
    crate::feed::wait_loaded(core).await;
    let mut membership = core.membership();
    while core.fence().is_none() {
        if membership.changed().await.is_err() {
            return;
        }
    }
    loop {
        match core.bus.subscribe_queue(subject::GATEWAY_SNAPSHOT, subject::MANAGERS).await {
            Ok(requests) => return answer_all(core, requests).await,
            Err(error) => {
                tracing::warn!(%error, "cannot answer gateways yet");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn answer_all(core: &Arc<Core>, mut requests: Subscription) {
    let mut answering = JoinSet::new();
    loop {
        tokio::select! {
            request = requests.next(), if answering.len() < AT_ONCE => match request {
                Some(request) => {
                    let core = core.clone();
                    answering.spawn(async move { answer(&core, request).await });
                }
                None => return,
            },
            Some(_) = answering.join_next() => {}
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
    if !is_current(core, &request).await {
        tracing::debug!(gateway = %request.gateway, "not up to date now; the gateway will ask again");
        return;
    }
    let page = find_page(core, request.cursor.as_deref());
    if let Err(error) = core.bus.publish(&reply, encode(&page).into()).await {
        tracing::debug!(gateway = %request.gateway, %error, "an answer to a gateway was not sent");
    }
}

/// Whether this manager has the table that all are to serve. Where nobody reaches the store, that is the newest that
/// anybody has.
async fn is_current(core: &Core, request: &SnapshotRequest) -> bool {
    // A table that is not whole would make gateways drop routes.
    if !*core.cache_loaded().borrow() || core.fence().is_none() {
        return false;
    }
    let asked = async { (crate::cells::epoch::reach(core, request.epoch).await, core.catch_up().await) };
    match tokio::time::timeout(WAIT, asked).await {
        Ok((reached, _)) if !reached => false,
        // Whatever the gateway has seen was committed before it asked, unless the store was set back.
        Ok((_, true)) => core.fence().is_some(),
        _ => {
            let known = core.cache.revision();
            request.epoch <= core.epoch()
                && request.at_least <= known
                && !core.members.know_more(core.manager, core.epoch(), known)
        }
    }
}

/// The page behind a cursor, which is the last key of the page before, as JSON.
pub(super) fn find_page(core: &Core, cursor: Option<&str>) -> SnapshotPage {
    // Read first: never newer than the items.
    let (epoch, revision) = (core.epoch(), core.cache.revision());
    let after: Option<ItemKey> = cursor.and_then(|text| serde_json::from_str(text).ok());
    let found = core.cache.routing_items(after.as_ref(), PAGE_ITEMS);
    let mut cut = found.len() == PAGE_ITEMS;
    let mut page = SnapshotPage { epoch, revision, items: Vec::new(), next: None };
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
