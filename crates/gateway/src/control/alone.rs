//! The control thread of a gateway that runs alone: its resources come from a source, which is looked at again and again, or
//! are those that it has from before.

use super::state::State;
use super::view_of;
use crate::clock;
use crate::listeners::Listeners;
use crate::metrics::{Registry, Sources};
use crate::resources::file::{Loaded, ResourceSource};
use crate::resources::{Outcome, Resources};
use crate::table::SharedTable;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};
use towpath_resources::{Document, Key};

/// How often the source is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// What it is made of.
pub(super) struct Alone {
    pub(super) source: Option<Arc<dyn ResourceSource>>,
    pub(super) shared: Arc<SharedTable>,
    pub(super) state: State,
    pub(super) resources: Resources,
    pub(super) registry: Arc<Registry>,
    pub(super) listeners: Listeners,
    pub(super) seen: Option<u64>,
}

impl Alone {
    /// Loads what is there, says that it is there, and follows it until told to stop.
    pub(super) async fn run(mut self, ready: Option<oneshot::Sender<()>>, mut stop: oneshot::Receiver<()>) {
        self.look().await;
        self.publish();
        let _ = ready.map(|ready| ready.send(()));
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut again = interval(super::LISTEN_AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = &mut stop => return,
                event = self.resources.next() => {
                    let changes = self.resources.take(event);
                    self.state.push(changes);
                }
                _ = ticks.tick() => self.look().await,
                _ = again.tick() => self.state.take_listeners(self.listeners.try_again()),
            }
            self.publish();
        }
    }

    async fn look(&mut self) {
        self.resources.look();
        let Some(source) = self.source.clone() else { return };
        let seen = self.seen;
        match tokio::task::spawn_blocking(move || source.load(seen)).await {
            Ok(Loaded::Documents { mark, documents }) => {
                self.seen = Some(mark);
                let outcome = replace(&mut self.resources, documents);
                self.state.take_resources(outcome);
                self.state.complete();
            }
            Ok(Loaded::Refused { mark, faults }) => {
                self.seen = Some(mark);
                for fault in &faults {
                    tracing::error!("{fault}");
                }
                tracing::error!(
                    faults = faults.len(),
                    "the resources are refused; those from before go on serving"
                );
            }
            Ok(Loaded::Same) => {}
            Err(error) => tracing::error!(%error, "the resources could not be loaded"),
        }
    }

    fn publish(&mut self) {
        let changed = self.state.commit(clock::now_ns());
        let mut view = view_of(&self.state);
        view.plugins = self.resources.plugins();
        let before = self.shared.view();
        let same = before.has_plugins(view.plugins.as_ref());
        if changed || !same || view.loaded != before.loaded {
            self.shared.publish(view);
        }
        // What they lead to is in the table by now.
        let told = self.listeners.change(self.resources.take_listeners());
        self.state.take_listeners(told);
        self.registry.note_sources(Sources {
            bus_up: false,
            bus_since_ms: 0,
            managers_ms: None,
            announce_ms: None,
            cells: 0,
            stale: 0,
            refused: self.state.refused().len(),
        });
    }
}

/// Puts all documents, and deletes what is not among them.
fn replace(resources: &mut Resources, documents: Vec<Document>) -> Outcome {
    let wanted: HashSet<Key> = documents.iter().map(|document| document.key.clone()).collect();
    let gone: Vec<Key> = resources.keys().into_iter().filter(|key| !wanted.contains(key)).collect();
    resources.change(documents, &gone)
}
