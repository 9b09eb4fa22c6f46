//! Answers cells that ask what they should run.
//!
//! A cell stops whatever is not in the answer, so nothing is answered before the cache holds a whole state. What it says that it
//! has already, as it is to be, is named and not told again.

use super::secrets::{self, WithSecrets};
use super::stamp::find_stamp;
use super::waiting::{Asked, Waiting};
use crate::core::Core;
use crate::core::cache::{CachedGroup, CellInstance};
use crate::core::keys::GroupRef;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use towpath_bus::{BusError, MAX_PAYLOAD, Message};
use towpath_telemetry::SeldomHere;
use towpath_types::{InstanceId, Revision};
use towpath_wire::cell::{InstanceSpec, Stamps, SyncPage, SyncRequest};
use towpath_wire::{decode, encode, subject};

/// Largest page in bytes.
const PAGE_BYTES: usize = 500_000;
/// Most instances that are looked at for one page.
const PAGE_INSTANCES: usize = 2_000;
/// Longest wait for the revision that a cell asks for.
const WAIT: Duration = Duration::from_secs(1);
/// Requests that are worked on at the same time.
const AT_ONCE: usize = 64;

/// Subscribes, and starts answering.
pub(crate) async fn spawn(core: &Arc<Core>, tasks: &mut JoinSet<()>) -> Result<(), BusError> {
    let mut requests = core.bus.subscribe_queue(subject::CELL_SYNC, subject::MANAGERS).await?;
    let core = core.clone();
    tasks.spawn(async move {
        let (mut waiting, mut answering) = (Waiting::default(), JoinSet::new());
        loop {
            while answering.len() < AT_ONCE
                && let Some(Asked { request, reply }) = waiting.next()
            {
                let core = core.clone();
                answering.spawn(async move { answer(&core, request, &reply).await });
            }
            tokio::select! {
                message = requests.next() => match message {
                    Some(message) => read(message).into_iter().for_each(|asked| waiting.add(asked)),
                    None => return,
                },
                Some(_) = answering.join_next() => {}
                () = core.stopped() => return,
            }
        }
    });
    Ok(())
}

fn read(message: Message) -> Option<Asked> {
    let reply = message.reply?;
    match decode(&message.payload) {
        Ok(request) => Some(Asked { request, reply }),
        Err(error) => {
            static TOLD: SeldomHere = SeldomHere::new();
            if let Some(more) = TOLD.now() {
                tracing::warn!(%error, "ignored a cell's request{more}");
            }
            None
        }
    }
}

async fn answer(core: &Core, request: SyncRequest, reply: &str) {
    let whole = *core.cache_loaded().borrow() && core.cache.all_groups_readable();
    if !whole || !core.wait_cache(request.at_least, WAIT).await {
        tracing::debug!(cell = %request.cell, "not up to date yet; the cell will ask again");
        return;
    }
    if !super::epoch::reach(core, request.epoch).await {
        return;
    }
    // Another manager may have told the cell something newer: an older set must not come behind it. Without a store nobody
    // can tell anything newer.
    core.catch_up().await;
    let Ok(page) = make_page(core, &request) else {
        tracing::debug!(cell = %request.cell, "another manager has the keys; the cell will ask again");
        return;
    };
    match core.bus.publish(reply, page.into()).await {
        Err(error @ BusError::TooLarge(_)) => {
            tracing::error!(cell = %request.cell, %error, "a cell cannot be told what it should run");
        }
        Err(error) => tracing::debug!(cell = %request.cell, %error, "an answer to a cell was not sent"),
        Ok(()) => {}
    }
}

/// The page that a request asks for, as it is sent: as many instances as fit into a message. One that is too large for a
/// message by itself is left out, so that all others of the cell go on.
fn make_page(core: &Core, request: &SyncRequest) -> Result<Vec<u8>, secrets::Elsewhere> {
    let (mut most, mut withheld) = (PAGE_INSTANCES, BTreeMap::new());
    loop {
        let (mut page, with_secrets) = find_page(core, request, most, &withheld);
        secrets::pack(core, request, &mut page, &with_secrets)?;
        let encoded = encode(&page);
        if encoded.len() <= MAX_PAYLOAD {
            return Ok(encoded);
        }
        // What the values of secrets take is known only now.
        match page.instances.as_slice() {
            [] => return Ok(encoded),
            [alone] => {
                let InstanceSpec { instance, app, lane, .. } = alone;
                static TOLD: SeldomHere = SeldomHere::new();
                if let Some(more) = TOLD.now() {
                    let bytes = encoded.len();
                    tracing::error!(%instance, %app, %lane, bytes, "an instance's settings are too large for a message; make its environment smaller{more}");
                }
                withheld.insert(*instance, too_large());
            }
            several => most = several.len() / 2,
        }
    }
}

fn too_large() -> String {
    format!(
        "what it is to run with is larger than the {MAX_PAYLOAD} bytes of a message; make its environment smaller"
    )
}

/// The page that a request asks for, with so many instances at most, and those in it that have secrets.
fn find_page(
    core: &Core,
    request: &SyncRequest,
    most: usize,
    withheld: &BTreeMap<InstanceId, String>,
) -> (SyncPage, Vec<WithSecrets>) {
    let cursor = request.cursor.as_deref().and_then(parse_cursor);
    let after = cursor.map(|(_, instance)| instance);
    let (changed, found) = core.cache.cell_instances(request.cell, after, PAGE_INSTANCES);
    // The set is the same at every revision from `changed` to the cache's; the lowest that serves makes no news of none.
    // A later page keeps the first one's revision as long as the set has not changed since.
    let revision = match cursor {
        Some((first, _)) if changed <= first => first,
        _ => changed.max(request.at_least),
    };
    let whole = found.len() < PAGE_INSTANCES;
    let mut page = SyncPage {
        epoch: core.epoch(),
        revision,
        instances: Vec::new(),
        next: None,
        parcel: None,
        withheld: BTreeMap::new(),
        kept: Vec::new(),
        stamps: Stamps::new(),
    };
    let (mut bytes, mut last, mut with_secrets) = (0, None, Vec::new());
    let mut cut = !whole;
    for found in found {
        let stamp = find_stamp(&found);
        let CellInstance { instance, group, name, at } = found;
        let name = GroupRef::clone(&name);
        let is_known = stamp.is_some() && request.known.get(&instance) == stamp.as_ref();
        if is_known && !withheld.contains_key(&instance) {
            page.kept.push(instance);
        } else if let Some(why) = withheld.get(&instance) {
            page.withheld.insert(instance, why.clone());
        } else if let Some(spec) = find_instance(instance, &group, &name, at) {
            bytes += serde_json::to_vec(&spec).map_or(0, |text| text.len());
            bytes += if spec.secrets.is_empty() { 0 } else { sealed_bytes(instance, &group) };
            if !page.instances.is_empty() && (bytes > PAGE_BYTES || page.instances.len() >= most) {
                cut = true;
                break;
            }
            if !spec.secrets.is_empty() {
                with_secrets.push(WithSecrets { instance, group, name });
            }
            page.instances.push(spec);
            page.stamps.extend(stamp.map(|stamp| (instance, stamp)));
        }
        last = Some(instance);
    }
    if cut {
        page.next = last.map(|instance| format!("{revision}:{instance}"));
    }
    (page, with_secrets)
}

/// How much an instance's secrets take in a page: a little less than in the store.
fn sealed_bytes(instance: InstanceId, group: &CachedGroup) -> usize {
    let assignment = group.status.assignments.iter().find(|a| a.instance == instance);
    let settings = assignment.and_then(|a| group.status.settings.get(&a.version.settings));
    let sealed = settings.into_iter().flat_map(secrets::secrets_of);
    sealed.map(|(name, secret)| name.len() + secret.sealed.as_str().len()).sum()
}

fn parse_cursor(text: &str) -> Option<(Revision, InstanceId)> {
    let (revision, instance) = text.split_once(':')?;
    Some((Revision(revision.parse().ok()?), instance.parse().ok()?))
}

/// All that a cell needs to run an instance: its own version's settings, even while the group moves on to another one.
pub(crate) fn find_instance(
    instance: InstanceId,
    group: &CachedGroup,
    name: &GroupRef,
    at: usize,
) -> Option<InstanceSpec> {
    let assignment = group.status.assignments.get(at).filter(|a| a.instance == instance)?;
    let settings = group.status.settings.get(&assignment.version.settings);
    let release = group.status.releases.get(&assignment.version.release);
    let (Some(settings), Some(release)) = (settings, release) else {
        tracing::error!(%instance, group = %name, "an instance's release or settings are gone; it cannot be told");
        return None;
    };
    let mut env: BTreeMap<String, String> = release.env.clone();
    let plain =
        settings.env.iter().filter_map(|(name, value)| Some((name.clone(), value.plain()?.to_owned())));
    env.extend(plain);
    let secrets: BTreeSet<String> = secrets::secrets_of(settings).map(|(name, _)| name.clone()).collect();
    env.retain(|name, _| !secrets.contains(name));
    Some(InstanceSpec {
        instance,
        app: name.app.clone(),
        lane: name.lane.clone(),
        ordinal: assignment.ordinal,
        release: assignment.version.release,
        artifact: release.artifact,
        artifact_bytes: release.artifact_bytes,
        command: release.command.clone(),
        env,
        secrets,
        limits: settings.limits.clone(),
        health: settings.health.clone().unwrap_or_else(|| release.health.clone()),
        protocol: release.protocol,
        grace: release.grace,
        wanted: assignment.wanted,
    })
}
