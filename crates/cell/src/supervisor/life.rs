//! The life of one instance: brought up, watched, started again when it ends, ended when it is not wanted any more.

use super::bring_up::Halt;
use super::elsewhere::Elsewhere;
use super::watching::Outcome;
use super::{Beginning, Context, Goal};
use crate::backoff::plan_restart;
use crate::instance::memory_limit;
use crate::ledger::Entry;
use crate::logs::LogWriter;
use crate::reason;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use towpath_types::InstanceId;
use towpath_types::spec::Wanted;
use towpath_wire::cell::{InstanceSpec, InstanceState};
use towpath_wire::log::LogSource;

/// The supervisor of one instance.
pub(super) struct Life {
    pub(super) context: Arc<Context>,
    pub(super) instance: InstanceId,
    pub(super) spec: Arc<InstanceSpec>,
    pub(super) goal: watch::Receiver<Goal>,
    pub(super) port: u16,
    pub(super) user: Option<u32>,
    pub(super) restarts: u32,
    pub(super) crashes: u32,
    /// What its directory took before it wrote anything.
    pub(super) disk_base: Option<u64>,
    /// Why the start before ended.
    last_end: String,
    /// Where this start's process was seen to listen instead of on its port.
    pub(super) elsewhere: Elsewhere,
}

impl Life {
    pub(super) fn new(context: Arc<Context>, spec: Arc<InstanceSpec>, goal: watch::Receiver<Goal>) -> Self {
        Self {
            context,
            instance: spec.instance,
            spec,
            goal,
            port: 0,
            user: None,
            restarts: 0,
            crashes: 0,
            disk_base: None,
            last_end: String::new(),
            elsewhere: Elsewhere::default(),
        }
    }

    /// Takes over what the ledger knows and puts the instance on the board, as what it is: whatever is announced from now on tells
    /// of it. An adopted ready instance is never shown as anything less, or gateways would stop sending to it.
    pub(super) fn enter(&mut self, beginning: &Beginning) {
        let entry = self.context.ledger.read(|ledger| ledger.instances.get(&self.instance).cloned());
        if let Some(entry) = entry {
            (self.restarts, self.crashes) = (entry.restarts, entry.crashes);
            self.disk_base = entry.disk_base;
            self.inherit(&entry);
        }
        let context = Arc::clone(&self.context);
        context.board.add(Arc::clone(&self.spec), self.restarts, |card| {
            if let Beginning::Running(process, was_ready) = beginning {
                (card.started, card.port) = (Some(process.started().clone()), self.port);
                card.state = match self.spec.wanted {
                    Wanted::Drain => InstanceState::Draining,
                    Wanted::Run if *was_ready => InstanceState::Ready,
                    Wanted::Run => InstanceState::Starting,
                };
            }
        });
    }

    /// Looks after it, once it has been entered.
    pub(super) async fn run(mut self, beginning: Beginning) {
        let mut outcome = match beginning {
            Beginning::Fresh => self.start_and_watch().await,
            Beginning::Running(process, was_ready) => self.watch(process, was_ready).await,
            Beginning::Ended(exit) => {
                Outcome::Ended(reason::of_exit(exit, memory_limit(&self.spec)), Duration::ZERO)
            }
        };
        while let Outcome::Ended(reason, healthy) = outcome {
            if !self.pause_after(reason, healthy).await {
                break;
            }
            self.restarts = self.restarts.saturating_add(1);
            outcome = self.start_and_watch().await;
        }
        self.clean_up().await;
    }

    /// Takes over port and user of a start by an earlier cell process.
    fn inherit(&mut self, entry: &Entry) {
        (self.port, self.user) = (entry.port, entry.user);
        if self.port != 0 {
            self.context.ports.keep(self.port);
        }
        if let Some(user) = self.user {
            self.context.users.keep(user);
        }
    }

    async fn start_and_watch(&mut self) -> Outcome {
        match self.bring_up().await {
            Ok(process) => self.watch(process, false).await,
            Err(Halt::Unwanted) => Outcome::Unwanted,
            Err(Halt::Failed(reason)) => {
                self.show(InstanceState::Failed, reason.clone());
                Outcome::Ended(reason, Duration::ZERO)
            }
        }
    }

    /// The newest spec; `None`: it is not wanted.
    pub(super) fn wish(&mut self) -> Option<Arc<InstanceSpec>> {
        match &*self.goal.borrow_and_update() {
            Goal::Keep(spec) => {
                self.spec = Arc::clone(spec);
                Some(Arc::clone(spec))
            }
            Goal::End(_) => None,
        }
    }

    pub(super) fn show(&self, state: InstanceState, reason: String) {
        self.context.board.change(self.instance, |card| {
            card.spec = Arc::clone(&self.spec);
            card.state = state;
            card.reason = reason;
            card.restarts = self.restarts;
            card.port = self.port;
        });
    }

    /// What keeps it from being ready, if that is seen; and of a start that is not the first, people want to know why it was
    /// necessary.
    pub(super) fn show_start(&self) {
        let reason = match self.elsewhere.found() {
            "" if self.last_end.is_empty() => String::new(),
            "" => format!("restarted: {}", self.last_end),
            found => found.to_owned(),
        };
        self.show(InstanceState::Starting, reason);
    }

    /// Returns when the instance is not wanted any more.
    pub(super) async fn unwanted(&self) {
        self.goal_is(|goal| matches!(goal, Goal::End(_))).await;
    }

    /// Returns when the goal is such a one.
    async fn goal_is(&self, is_it: impl FnMut(&Goal) -> bool) {
        let mut goal = self.goal.clone();
        let came = goal.wait_for(is_it).await.is_ok();
        if !came {
            // The cell itself is going away; it aborts this task.
            std::future::pending::<()>().await;
        }
    }

    /// After an end: waits for the time of the next start. `false`: it is not wanted any more.
    async fn pause_after(&mut self, reason: String, healthy: Duration) -> bool {
        let restart = plan_restart(&self.context.settings.restart, self.crashes, healthy, fastrand::f64());
        self.crashes = restart.crashes;
        let crashes = self.crashes;
        self.context.ledger.change_entry(self.instance, |entry| entry.crashes = crashes);
        tracing::info!(instance = %self.instance, app = %self.spec.app, reason, pause = ?restart.pause, "instance ended");
        if self.wish().is_none() {
            return false;
        }
        if self.spec.wanted == Wanted::Drain {
            // It was to go anyway.
            self.show(InstanceState::Draining, reason.clone());
            self.goal_is(|goal| !matches!(goal, Goal::Keep(spec) if spec.wanted == Wanted::Drain)).await;
            if self.wish().is_none() {
                return false;
            }
        }
        self.last_end.clone_from(&reason);
        let next = if restart.pause.is_zero() {
            "at once".into()
        } else {
            format!("in {}", reason::time(restart.pause))
        };
        self.note(format!("{reason}; starting it again {next}")).await;
        let was_failed = self.context.board.state(self.instance) == Some(InstanceState::Failed);
        let state = match (was_failed, restart.loops) {
            (true, _) => InstanceState::Failed,
            (_, true) => InstanceState::CrashLoop,
            _ => InstanceState::Backoff,
        };
        self.show(state, reason);
        tokio::select! {
            () = tokio::time::sleep(restart.pause) => true,
            () = self.unwanted() => false,
        }
    }

    /// A line of the cell's own in the instance's log. Nobody else writes there while nothing runs.
    async fn note(&self, text: String) {
        let (dir, bounds) = (self.context.driver.log_dir(self.instance), self.context.settings.logs);
        let write = move || {
            let since =
                std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            if let Ok(mut log) = LogWriter::open(&dir, bounds) {
                log.write(u64::try_from(since.as_millis()).unwrap_or(0), LogSource::Cell, text.as_bytes());
            }
        };
        let _ = tokio::task::spawn_blocking(write).await;
    }

    async fn clean_up(self) {
        self.show(InstanceState::Stopping, String::new());
        let context = &self.context;
        context.ended_logs.keep(self.instance, context.driver.log_dir(self.instance)).await;
        let mut removed = false;
        for attempt in 1..=3_u32 {
            match context.driver.remove(self.instance).await {
                Ok(()) => {
                    removed = true;
                    break;
                }
                Err(error) => {
                    tracing::warn!(instance = %self.instance, %error, attempt, "removing it failed")
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        context.ports.free(self.port);
        // The user of files that are left is nobody else's, until a start of the cell finds and removes them.
        if let Some(user) = self.user.filter(|_| removed) {
            context.users.free(user);
        }
        context.ledger.change(|ledger| {
            ledger.instances.remove(&self.instance);
        });
        context.board.remove(self.instance);
    }
}
