//! Hears cells and gateways: bus → soft state → activation of the groups that may have to do something about it.

use crate::core::Core;
use crate::reconcile::Mailboxes;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use towpath_bus::{BusError, BusState, Message, Subscription};
use towpath_telemetry::SeldomHere;
use towpath_types::Revision;
use towpath_wire::cell::{CellAnnounce, InstanceState};
use towpath_wire::gateway::GatewayReport;
use towpath_wire::{WireMessage, decode, subject};

/// How often silence is looked at.
const TICK: Duration = Duration::from_secs(1);

/// Subscribes, and starts hearing.
pub(crate) async fn spawn(
    core: &Arc<Core>,
    mailboxes: &Arc<Mailboxes>,
    tasks: &mut JoinSet<()>,
) -> Result<(), BusError> {
    let cells = core.bus.subscribe(subject::CELL_ANNOUNCE_ALL).await?;
    let gateways = core.bus.subscribe(subject::GATEWAY_REPORT_ALL).await?;
    core.soft.begin_listening();
    let (core, mailboxes) = (core.clone(), mailboxes.clone());
    tasks.spawn(async move {
        tokio::select! {
            () = hear(&core, &mailboxes, cells, gateways) => {}
            () = core.stopped() => {}
        }
    });
    Ok(())
}

async fn hear(core: &Core, mailboxes: &Mailboxes, mut cells: Subscription, mut gateways: Subscription) {
    let mut bus = core.bus.state();
    let mut tick = tokio::time::interval(TICK);
    core.soft.note_listener();
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    core.soft.set_bus_up(*bus.borrow_and_update() == BusState::Up);
    let mut settled = false;
    loop {
        tokio::select! {
            message = cells.next() => match message {
                Some(message) => hear_cell(core, mailboxes, &message).await,
                None => return,
            },
            message = gateways.next() => match message {
                Some(message) => hear_gateway(core, mailboxes, &message),
                None => return,
            },
            Ok(()) = bus.changed() => {
                let up = *bus.borrow_and_update() == BusState::Up;
                core.soft.set_bus_up(up);
                if up {
                    mailboxes.activate_all(core);
                }
            }
            _ = tick.tick() => {
                core.soft.note_listener();
                hear_silence(core, mailboxes);
                if core.soft.settled() != settled {
                    settled = !settled;
                    mailboxes.activate_unsettled(core);
                }
            }
        }
    }
}

/// Decodes, or says whose message was not readable.
fn read<M: WireMessage>(message: &Message) -> Option<M> {
    decode(&message.payload)
        .inspect_err(|error| {
            static TOLD: SeldomHere = SeldomHere::new();
            if let Some(more) = TOLD.now() {
                tracing::warn!(subject = message.subject, %error, "ignored a message{more}");
            }
        })
        .ok()
}

async fn hear_cell(core: &Core, mailboxes: &Mailboxes, message: &Message) {
    let Some(announce) = read::<CellAnnounce>(message) else { return };
    let (cell, leaving) = (announce.cell, announce.leaving);
    let missed = core.cache.cell_changed(cell).filter(|changed| announce.desired < *changed);
    let due = |revision: &Revision| core.fence().is_some() && core.pokes.is_due(cell, *revision);
    if let Some(revision) = missed.filter(|_| !leaving).filter(due) {
        crate::reconcile::group::poke(core, cell, revision).await;
    }
    let change = core.soft.hear_cell(announce);
    let mut told = Vec::new();
    for instance in &change.instances {
        if core.soft.instance_state(*instance) != Some(InstanceState::Starting) {
            core.placing.started(cell, *instance);
        }
        if let Some(group) = core.cache.group_of(*instance)
            && told.last() != Some(&group)
        {
            mailboxes.activate_for_news(core, group.clone());
            told.push(group);
        }
    }
    if *core.cache_loaded().borrow() && crate::reconcile::cells::differs(core, cell) {
        mailboxes.activate_cell(cell);
    }
    if change.returned {
        // There may be room now for those that wait.
        mailboxes.activate_unsettled(core);
    }
    if leaving {
        for group in core.cache.groups_on(cell) {
            mailboxes.activate(group);
        }
    }
}

fn hear_gateway(core: &Core, mailboxes: &Mailboxes, message: &Message) {
    let Some(report) = read::<GatewayReport>(message) else { return };
    if core.soft.hear_gateway(report) {
        mailboxes.activate_unsettled(core);
    }
}

fn hear_silence(core: &Core, mailboxes: &Mailboxes) {
    for cell in core.soft.take_lost(core.settings.rollout.lost_ms) {
        tracing::warn!(%cell, "lost a cell: no announcement; its instances are replaced elsewhere");
        for group in core.cache.groups_on(cell) {
            mailboxes.activate(group);
        }
    }
}
