//! The life of one instance: brought up, watched, started again when it ends, ended when it is not wanted any more.

use super::{Beginning, Context, Goal};
use crate::backoff::plan_restart;
use crate::driver::Process;
use crate::health::{
    Health, Listening, ProbeFailure, Verdict, explain_silence, listening, probe, start_pause,
};
use crate::instance::{memory_limit, start_request};
use crate::ledger::Entry;
use crate::logs::LogWriter;
use crate::{disk, reason};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use towpath_types::InstanceId;
use towpath_types::health::Probe;
use towpath_types::spec::Wanted;
use towpath_wire::cell::{InstanceSpec, InstanceState};
use towpath_wire::log::LogSource;

/// An instance that is only checked for its process is ready when it has run for so long.
const PROCESS_SETTLES: Duration = Duration::from_millis(200);

/// A serving instance that is ended is announced so long before SIGTERM.
const GATEWAYS_HEAR: Duration = Duration::from_millis(50);

/// The supervisor of one instance.
pub(super) struct Life {
    context: Arc<Context>,
    instance: InstanceId,
    spec: Arc<InstanceSpec>,
    goal: watch::Receiver<Goal>,
    port: u16,
    user: Option<u32>,
    restarts: u32,
    crashes: u32,
    /// Why the start before ended.
    last_end: String,
}

/// Why a bring-up did not end in a process.
enum Halt {
    /// It is not wanted any more.
    Unwanted,
    /// It could not be prepared or started, in words for people.
    Failed(String),
}

/// Why watching ended.
enum Outcome {
    /// It is not wanted any more; it has ended.
    Unwanted,
    /// It ended by itself, or had to be ended, after being healthy for so long.
    Ended(String, Duration),
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
            last_end: String::new(),
        }
    }

    pub(super) async fn run(mut self, beginning: Beginning) {
        let entry = self.context.ledger.read(|ledger| ledger.instances.get(&self.instance).cloned());
        if let Some(entry) = entry {
            (self.restarts, self.crashes) = (entry.restarts, entry.crashes);
            self.inherit(&entry);
        }
        self.context.board.add(Arc::clone(&self.spec), self.restarts);
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
    fn wish(&mut self) -> Option<Arc<InstanceSpec>> {
        match &*self.goal.borrow_and_update() {
            Goal::Keep(spec) => {
                self.spec = Arc::clone(spec);
                Some(Arc::clone(spec))
            }
            Goal::End(_) => None,
        }
    }

    fn show(&self, state: InstanceState, reason: String) {
        self.context.board.change(self.instance, |card| {
            card.spec = Arc::clone(&self.spec);
            card.state = state;
            card.reason = reason;
            card.restarts = self.restarts;
            card.port = self.port;
        });
    }

    /// Of a start that is not the first, people want to know why it was necessary.
    fn show_start(&self) {
        let reason =
            if self.last_end.is_empty() { String::new() } else { format!("restarted: {}", self.last_end) };
        self.show(InstanceState::Starting, reason);
    }

    /// Fetches, copies, starts.
    async fn bring_up(&mut self) -> Result<Box<dyn Process>, Halt> {
        let spec = self.wish().ok_or(Halt::Unwanted)?;
        self.show_start();
        let context = Arc::clone(&self.context);
        let failed = |error: &dyn std::fmt::Display| Halt::Failed(error.to_string());
        let fetching = context.artifacts.get(spec.artifact, spec.artifact_bytes);
        let unpacked = tokio::select! {
            fetched = fetching => fetched.map_err(|error| failed(&error))?,
            () = self.unwanted() => return Err(Halt::Unwanted),
        };
        if self.user.is_none() && context.users.are_separate() {
            let users = Arc::clone(&context.users);
            let taken = tokio::task::spawn_blocking(move || users.take()).await.ok().flatten();
            self.user = Some(taken.ok_or_else(|| failed(&"no user id is free for it"))?);
        }
        let driver = &context.driver;
        driver.prepare(self.instance, &unpacked.tree, self.user).await.map_err(|error| failed(&error))?;
        drop(unpacked);
        let old = std::mem::take(&mut self.port);
        context.ports.free(old);
        self.port = context.ports.take().ok_or_else(|| failed(&"no port is free on the cell"))?;
        if self.wish().is_none() {
            return Err(Halt::Unwanted);
        }
        self.write_entry().await;
        let home = driver.app_dir(self.instance);
        let request = start_request(&spec, &context.settings, self.port, self.user, &home, &context.binary);
        let process = driver.start(request).await.map_err(|error| failed(&error))?;
        context.ledger.change_entry(self.instance, |entry| entry.started = Some(process.started().clone()));
        Ok(process)
    }

    /// What an adopter needs is on disk before there is anything to adopt: in the ledger, and beside the instance in case the ledger
    /// is lost.
    async fn write_entry(&self) {
        let entry = Entry {
            spec: (*self.spec).clone(),
            port: self.port,
            user: self.user,
            started: None,
            ready: false,
            restarts: self.restarts,
            crashes: self.crashes,
        };
        let record = self.context.driver.record_dir(self.instance).join(super::ENTRY_FILE);
        let copy = entry.clone();
        let written = tokio::task::spawn_blocking(move || disk::write_json(&record, &copy)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(instance = %self.instance, %error, "the instance's record was not written");
        }
        let version = self.context.ledger.change(|ledger| {
            ledger.instances.insert(self.instance, entry);
        });
        self.context.ledger.written(version).await;
    }

    /// Watches a running instance until it ends, by itself or because it is not wanted.
    async fn watch(&mut self, process: Box<dyn Process>, was_ready: bool) -> Outcome {
        let process: Arc<dyn Process> = Arc::from(process);
        let mut health =
            if was_ready { Health::ready(Instant::now()) } else { Health::starting(Instant::now()) };
        let mut verdict = if was_ready { Verdict::Ready } else { Verdict::Starting };
        let mut probes = 0;
        self.context.board.change(self.instance, |card| {
            (card.started, card.port) = (Some(process.started().clone()), self.port);
        });
        let outcome = loop {
            let Some(spec) = self.wish() else {
                self.end(&*process).await;
                break Outcome::Unwanted;
            };
            let check = self.check(&*process, verdict, probes);
            let result = tokio::select! {
                biased;
                exit = process.wait() => {
                    let healthy = health.healthy_for(Instant::now());
                    break Outcome::Ended(reason::of_exit(exit, memory_limit(&spec)), healthy);
                }
                changed = self.goal.changed() => {
                    if changed.is_err() {
                        std::future::pending::<()>().await;
                    }
                    if self.wish().is_some() {
                        self.show_verdict(verdict, None);
                    }
                    continue;
                }
                result = check => result,
            };
            probes += 1;
            verdict = health.judge(&spec.health, result.is_ok(), Instant::now());
            self.show_verdict(verdict, result.as_ref().err().cloned());
            if let Some(reason) = self.give_up(&*process, verdict, result.err()).await {
                process.kill().await;
                process.wait().await;
                break Outcome::Ended(reason, Duration::ZERO);
            }
        };
        self.context.board.change(self.instance, |card| card.started = None);
        self.context.ledger.change_entry(self.instance, |entry| (entry.started, entry.ready) = (None, false));
        outcome
    }

    /// Waits for the next probe's time and probes.
    fn check(
        &self,
        process: &dyn Process,
        verdict: Verdict,
        probes: u32,
    ) -> impl Future<Output = Result<(), Trouble>> + use<> {
        let (spec, port) = (Arc::clone(&self.spec), self.port);
        let at = SocketAddr::new(self.context.settings.address, port);
        let is_first = verdict == Verdict::Starting;
        let shim = process.started().shim.pid;
        let pause = match verdict {
            Verdict::Starting if spec.health.probe == Probe::Process => PROCESS_SETTLES,
            Verdict::Starting => start_pause(probes),
            // An adopted instance is looked at soon.
            _ if probes == 0 => Duration::from_millis(50),
            _ => spec.health.interval.duration(),
        };
        async move {
            tokio::time::sleep(pause).await;
            probe(&spec.health.probe, spec.protocol, at, spec.health.timeout.duration()).await?;
            if is_first && spec.health.probe != Probe::Process {
                let owner = tokio::task::spawn_blocking(move || listening(shim, port)).await;
                if matches!(owner, Ok(Listening::Foreign)) {
                    return Err(Trouble::PortTaken);
                }
            }
            Ok(())
        }
    }

    fn show_verdict(&self, verdict: Verdict, trouble: Option<Trouble>) {
        let text = || trouble.as_ref().map_or_else(String::new, ToString::to_string);
        let (state, reason) = match verdict {
            _ if self.spec.wanted == Wanted::Drain => (InstanceState::Draining, String::new()),
            Verdict::Starting => return self.show_start(),
            Verdict::Ready => (InstanceState::Ready, String::new()),
            Verdict::Unhealthy | Verdict::Hopeless | Verdict::StartFailed => {
                (InstanceState::Unhealthy, text())
            }
        };
        if verdict == Verdict::StartFailed {
            return;
        }
        if state == InstanceState::Ready
            && self.context.ledger.read(|l| l.instances.get(&self.instance).is_some_and(|entry| !entry.ready))
        {
            self.context.ledger.change_entry(self.instance, |entry| entry.ready = true);
        }
        self.show(state, reason);
    }

    /// Why the running instance has to be ended and started anew, if it has to.
    async fn give_up(
        &self,
        process: &dyn Process,
        verdict: Verdict,
        trouble: Option<Trouble>,
    ) -> Option<String> {
        let limit = self.spec.health.start_timeout.duration();
        match (verdict, trouble) {
            (_, Some(Trouble::PortTaken)) => Some(Trouble::PortTaken.to_string()),
            (Verdict::StartFailed, Some(Trouble::Probe(ProbeFailure::NoConnection(port)))) => {
                let (shim, at) =
                    (process.started().shim.pid, SocketAddr::new(self.context.settings.address, port));
                let why =
                    tokio::task::spawn_blocking(move || explain_silence(shim, at)).await.unwrap_or_default();
                Some(format!("did not become healthy within {}: {why}", reason::time(limit)))
            }
            (Verdict::StartFailed, trouble) => {
                let why = trouble.map_or_else(String::new, |trouble| format!(": {trouble}"));
                Some(format!("did not become healthy within {}{why}", reason::time(limit)))
            }
            (Verdict::Hopeless, _) => Some(format!("stayed unhealthy for {}", reason::time(limit))),
            _ => None,
        }
    }

    /// SIGTERM, grace, SIGKILL.
    async fn end(&self, process: &dyn Process) {
        let within = match &*self.goal.borrow() {
            Goal::End(within) => *within,
            Goal::Keep(_) => Duration::MAX,
        };
        let grace = self.spec.grace.duration().min(within);
        let served = self.context.board.state(self.instance).is_some_and(InstanceState::serves);
        self.show(InstanceState::Stopping, String::new());
        if served {
            // It was not drained: gateways at least hear of it before it refuses connections.
            let _ = tokio::time::timeout(GATEWAYS_HEAR.min(grace), process.wait()).await;
        }
        process.terminate().await;
        if tokio::time::timeout(grace, process.wait()).await.is_err() {
            tracing::info!(instance = %self.instance, app = %self.spec.app, ?grace, "it ignores SIGTERM; killing it");
            process.kill().await;
            process.wait().await;
        }
    }

    /// Returns when the instance is not wanted any more.
    async fn unwanted(&self) {
        let mut goal = self.goal.clone();
        let ended = goal.wait_for(|goal| matches!(goal, Goal::End(_))).await.is_ok();
        if !ended {
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
            self.show(InstanceState::Draining, reason);
            self.unwanted().await;
            return false;
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
        for attempt in 1..=3_u32 {
            match context.driver.remove(self.instance).await {
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(instance = %self.instance, %error, attempt, "removing it failed")
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        context.ports.free(self.port);
        if let Some(user) = self.user {
            context.users.free(user);
        }
        context.ledger.change(|ledger| {
            ledger.instances.remove(&self.instance);
        });
        context.board.remove(self.instance);
    }
}

/// Why a check failed.
#[derive(Debug, Clone, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Probe(#[from] ProbeFailure),
    #[error("its port was taken by another process of the machine")]
    PortTaken,
}
