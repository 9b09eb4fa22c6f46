//! One task looks after each instance; this is the set of them.

mod bring_up;
mod life;
mod watching;

use crate::CellSettings;
use crate::artifact::Artifacts;
use crate::board::Board;
use crate::driver::{Driver, Exit, Process};
use crate::ledger::LedgerFile;
use crate::logs::EndedLogs;
use crate::plan::{Step, plan_steps};
use crate::ports::Ports;
use crate::users::Users;
use life::Life;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use towpath_types::InstanceId;
use towpath_wire::cell::InstanceSpec;

/// In an instance's record directory: its ledger entry, for the case that the ledger is lost.
pub(crate) const ENTRY_FILE: &str = "entry.json";

/// What every supervisor uses.
pub(crate) struct Context {
    pub(crate) settings: Arc<CellSettings>,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) artifacts: Artifacts,
    pub(crate) ledger: LedgerFile,
    pub(crate) board: Board,
    pub(crate) ports: Ports,
    pub(crate) users: Arc<Users>,
    pub(crate) ended_logs: EndedLogs,
    /// The platform's binary, where every user can run it.
    pub(crate) binary: PathBuf,
}

/// What a supervisor shall achieve.
#[derive(Debug, Clone)]
enum Goal {
    /// Keep it as the spec says.
    Keep(Arc<InstanceSpec>),
    /// End it and remove what is there of it; sooner than its grace if that is longer than this.
    End(Duration),
}

/// How an instance comes under a supervisor.
pub(crate) enum Beginning {
    /// Nothing of it is there.
    Fresh,
    /// It runs; whether it was ready.
    Running(Box<dyn Process>, bool),
    /// It ended while nobody looked.
    Ended(Exit),
}

/// The supervisors.
pub(crate) struct Supervisors {
    context: Arc<Context>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The cell is stopping: nothing begins any more.
    is_closed: bool,
    known: BTreeMap<InstanceId, Known>,
}

struct Known {
    goal: watch::Sender<Goal>,
    /// `None` while it ends.
    spec: Option<Arc<InstanceSpec>>,
    task: JoinHandle<()>,
}

impl Supervisors {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, state: Mutex::default() }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Takes the steps from what is looked after now to `desired`.
    pub(crate) fn apply(&self, desired: &[InstanceSpec]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_closed {
            return;
        }
        let known = &mut state.known;
        known.retain(|_, known| known.spec.is_some() || !known.task.is_finished());
        let now = known.iter().map(|(id, known)| (*id, known.spec.clone())).collect();
        for step in plan_steps(desired, &now) {
            match step {
                Step::Begin(spec) => self.begin_locked(known, spec, Beginning::Fresh),
                Step::Change(spec) => {
                    if let Some(known) = known.get_mut(&spec.instance) {
                        known.goal.send_replace(Goal::Keep(Arc::clone(&spec)));
                        known.spec = Some(spec);
                    }
                }
                Step::End(instance) => {
                    if let Some(known) = known.get_mut(&instance) {
                        known.spec = None;
                        known.goal.send_replace(Goal::End(Duration::MAX));
                    }
                }
            }
        }
    }

    /// Takes an instance over that an earlier cell process has left.
    pub(crate) fn begin(&self, spec: Arc<InstanceSpec>, beginning: Beginning) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.begin_locked(&mut state.known, spec, beginning);
    }

    fn begin_locked(
        &self,
        known: &mut BTreeMap<InstanceId, Known>,
        spec: Arc<InstanceSpec>,
        beginning: Beginning,
    ) {
        let (goal, seen) = watch::channel(Goal::Keep(Arc::clone(&spec)));
        let life = Life::new(Arc::clone(&self.context), Arc::clone(&spec), seen);
        // A supervisor that still ends the same instance finishes first: they share its files.
        let before = known.remove(&spec.instance).map(|known| known.task);
        let task = tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            life.run(beginning).await;
        });
        known.insert(spec.instance, Known { goal, spec: Some(spec), task });
    }

    /// Ends all instances and waits for it.
    pub(crate) async fn end_all(&self, within: Duration) {
        let all = self.close();
        for known in all.values() {
            known.goal.send_replace(Goal::End(within));
        }
        for known in all.into_values() {
            let _ = known.task.await;
        }
    }

    /// Lets go of all instances, as they are.
    pub(crate) async fn abandon_all(&self) {
        let all = self.close();
        for known in all.into_values() {
            known.task.abort();
            let _ = known.task.await;
        }
    }

    fn close(&self) -> BTreeMap<InstanceId, Known> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_closed = true;
        std::mem::take(&mut state.known)
    }
}

impl Drop for Supervisors {
    fn drop(&mut self) {
        for known in self.close().into_values() {
            known.task.abort();
        }
    }
}
