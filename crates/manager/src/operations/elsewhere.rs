//! What an operation tells, asked of the manager that runs it: in pages, over the bus.

use super::{Event, Operations};
use crate::core::Core;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use towpath_bus::{BusError, Message};
use towpath_types::spec::{OperationPhase, OperationStatus};
use towpath_types::{ManagerId, OperationId};
use towpath_wire::manager::{OperationEvent, OperationPage, OperationQuery};
use towpath_wire::{decode, encode, subject};

/// Name of the service in subjects.
const SERVICE: &str = "operation";
/// Most events in a page.
const EVENTS: usize = 256;
/// Most bytes of events in a page, about.
const BYTES: usize = 300_000;
/// Longest wait for the next event.
const LONGEST: Duration = Duration::from_secs(10);
/// Questions that are answered at the same time; further ones are asked again.
const AT_ONCE: usize = 4096;
/// Time for an answer beyond the wait that was asked for.
const GRACE: Duration = Duration::from_secs(2);

/// Starts answering.
pub(crate) async fn serve(operations: &Arc<Operations>) -> Result<JoinHandle<()>, BusError> {
    let core = operations.core.clone();
    let mut questions = core.bus.subscribe(&subject::service(SERVICE, core.manager)).await?;
    let operations = operations.clone();
    Ok(crate::vitals::spawn(&core.clone(), async move {
        let mut answering = JoinSet::new();
        loop {
            tokio::select! {
                question = questions.next(), if answering.len() < AT_ONCE => match question {
                    Some(question) => {
                        let operations = operations.clone();
                        answering.spawn(async move { operations.answer(question).await });
                    }
                    None => return core.vitals.broke("the subscription to questions has ended".into()),
                },
                Some(_) = answering.join_next() => {}
                () = core.stopped() => return,
            }
        }
    }))
}

impl Operations {
    async fn answer(&self, message: Message) {
        let (Some(reply), Ok(query)) = (message.reply, decode::<OperationQuery>(&message.payload)) else {
            return;
        };
        let page = self.page(&query).await;
        if let Err(error) = self.core.bus.publish(&reply, encode(&page).into()).await {
            tracing::debug!(%error, "what an operation told was not sent");
        }
    }

    /// Waits for events if there are none, and gives them.
    async fn page(&self, query: &OperationQuery) -> OperationPage {
        let unknown =
            OperationPage { known: false, events: Vec::new(), ended: false, status: serde_json::Value::Null };
        let Some(live) = self.find_live(query.operation) else { return unknown };
        let until = Instant::now() + Duration::from_millis(query.wait_ms).min(LONGEST);
        let (mut newest, mut status) = (live.events.watch(), live.status());
        loop {
            newest.mark_unchanged();
            // The end first: what was told before it is then among the events.
            let now = status.borrow_and_update().clone();
            let found = live.events.behind(query.after, EVENTS);
            let over = matches!(now.phase, OperationPhase::Succeeded | OperationPhase::Failed);
            let late = Instant::now() >= until;
            if found.is_empty() && !over && !late {
                tokio::select! {
                    _ = newest.changed() => {}
                    _ = status.changed() => {}
                    () = live.left() => return unknown,
                    () = tokio::time::sleep_until(until) => {}
                }
                continue;
            }
            let (events, all) = cut(found);
            // Events behind these may be there yet.
            let last = events.last().map_or(query.after, |event| event.number);
            let ended = over && all && live.events.behind(last, 1).is_empty();
            return OperationPage {
                known: true,
                events,
                ended,
                status: serde_json::to_value(&now).unwrap_or_default(),
            };
        }
    }
}

/// As many as fit; whether those are all.
fn cut(found: Vec<(u64, Event)>) -> (Vec<OperationEvent>, bool) {
    let (mut events, mut bytes) = (Vec::new(), 0);
    for (number, event) in found {
        let data = serde_json::to_value(&event).unwrap_or_default();
        bytes += 100 + data.to_string().len();
        if bytes > BYTES && !events.is_empty() {
            return (events, false);
        }
        events.push(OperationEvent { number, name: event.name().into(), data });
    }
    (events, true)
}

/// Asks the manager that runs an operation; `None` = it does not answer, or does not run it.
pub(crate) async fn ask(
    core: &Core,
    owner: ManagerId,
    operation: OperationId,
    after: u64,
    wait: Duration,
) -> Option<OperationPage> {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or_default();
    let query = encode(&OperationQuery { operation, after, wait_ms });
    let answer = core.bus.request(&subject::service(SERVICE, owner), query.into(), wait + GRACE).await;
    let page: OperationPage = decode(&answer.ok()?).ok()?;
    page.known.then_some(page)
}

/// The status of an operation as the manager that runs it has it.
pub(crate) async fn ask_status(
    core: &Core,
    owner: ManagerId,
    operation: OperationId,
) -> Option<OperationStatus> {
    let asked = ask(core, owner, operation, u64::MAX, Duration::ZERO);
    let page = tokio::time::timeout(Duration::from_secs(1), asked).await.ok()??;
    serde_json::from_value(page.status).ok()
}
