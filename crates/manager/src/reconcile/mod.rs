//! Reconcilers: what is wanted against what is, one resource at a time.

pub(crate) mod cells;
pub mod group;

use crate::core::Core;
use crate::core::keys::GroupRef;
use crate::core::outcome::news_pause;
use crate::mailbox::MailboxSet;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;
use towpath_bus::{BusError, Subscription};
use towpath_telemetry::SeldomHere;
use towpath_types::CellId;
use towpath_wire::manager::{Activate, MAX_HOPS};
use towpath_wire::{decode, encode, subject};

/// The mailboxes of all reconciled kinds.
#[derive(Debug, Default)]
pub struct Mailboxes {
    groups: Arc<MailboxSet<GroupRef>>,
    cells: Arc<MailboxSet<CellId>>,
    /// Groups that are not as wanted: looked at whenever gateways or cells say something new.
    unsettled: Mutex<BTreeSet<GroupRef>>,
}

impl Mailboxes {
    /// Has a group looked at soon.
    pub fn activate(&self, group: GroupRef) {
        self.groups.activate(group);
    }

    /// Has a cell looked at soon.
    pub fn activate_cell(&self, cell: CellId) {
        self.cells.activate(cell);
    }

    /// Has a group looked at since something was heard of its instances. A large one waits for more of it.
    pub fn activate_for_news(&self, core: &Core, group: GroupRef) {
        let size = core.cache.group(&group).map_or(0, |cached| cached.status.assignments.len());
        match news_pause(size) {
            Some(pause) => self.groups.activate_after(group, pause),
            None => self.groups.activate(group),
        }
    }

    /// Has all groups looked at.
    pub fn activate_all(&self, core: &Core) {
        for group in core.cache.group_names() {
            self.groups.activate(group);
        }
    }

    /// Has all groups looked at that are not as wanted.
    pub fn activate_unsettled(&self, core: &Core) {
        let unsettled = self.unsettled.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for group in unsettled {
            self.activate_for_news(core, group);
        }
    }

    /// Notes whether a group is as wanted.
    pub(crate) fn set_settled(&self, group: &GroupRef, settled: bool) {
        let mut unsettled = self.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
        if settled {
            unsettled.remove(group);
        } else if !unsettled.contains(group) {
            unsettled.insert(group.clone());
        }
    }

    /// Groups that wait for a worker.
    pub fn depth(&self) -> usize {
        self.groups.depth()
    }
}

/// Cells that are looked at at the same time.
const CELL_WORKERS: usize = 2;
/// Name of the service in subjects.
const SERVICE: &str = "group";

/// Starts the workers, and takes messages to this manager's service queue.
pub(crate) async fn spawn(
    core: &Arc<Core>,
    mailboxes: &Arc<Mailboxes>,
    tasks: &mut JoinSet<()>,
) -> Result<(), BusError> {
    let work = {
        let (core, mailboxes) = (core.clone(), mailboxes.clone());
        move |name: GroupRef| {
            let (core, mailboxes) = (core.clone(), mailboxes.clone());
            async move { group::reconcile(&core, &mailboxes, name).await }
        }
    };
    let stopped = {
        let core = core.clone();
        move || {
            let core = core.clone();
            async move { core.stopped().await }
        }
    };
    mailboxes.groups.spawn(core.settings.workers, work, stopped.clone(), tasks);
    let work = {
        let core = core.clone();
        move |cell: CellId| {
            let core = core.clone();
            async move { cells::reconcile(&core, cell).await }
        }
    };
    mailboxes.cells.spawn(CELL_WORKERS, work, stopped, tasks);
    let queue = core.bus.subscribe(&subject::service(SERVICE, core.manager)).await?;
    let (core, mailboxes) = (core.clone(), mailboxes.clone());
    tasks.spawn(async move {
        tokio::select! {
            () = take_messages(&core, &mailboxes, queue) => {}
            () = core.stopped() => {}
        }
    });
    Ok(())
}

/// Messages activate through the same path as feed and timers. One that found the wrong owner goes on to the right one.
async fn take_messages(core: &Core, mailboxes: &Mailboxes, mut queue: Subscription) {
    while let Some(message) = queue.next().await {
        let message: Activate = match decode(&message.payload) {
            Ok(message) => message,
            Err(error) => {
                static TOLD: SeldomHere = SeldomHere::new();
                if let Some(more) = TOLD.now() {
                    tracing::warn!(%error, "ignored a message to the group service{more}");
                }
                continue;
            }
        };
        let Some(group) = GroupRef::of_key(&message.key) else { continue };
        let owner = core.ownership.owner(&group.to_string());
        if owner == core.manager {
            mailboxes.activate(group);
        } else if message.hops < MAX_HOPS {
            let on = Activate { hops: message.hops + 1, ..message };
            if let Err(error) = core.bus.publish(&subject::service(SERVICE, owner), encode(&on).into()).await
            {
                tracing::debug!(%owner, %error, "a message could not be sent on; the feed will tell its owner");
            }
        }
    }
}
