//! Watching a running process: its end, its health, and whether it is still wanted.

use super::Goal;
use super::life::Life;
use crate::disk_limit::{self, DiskWatch, Standing};
use crate::driver::Process;
use crate::health::{
    Awaited, Health, Listening, ProbeFailure, Verdict, await_listener, explain_silence, listening, probe,
    start_pause,
};
use crate::instance::{disk_limit, memory_limit};
use crate::procfs;
use crate::reason;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use towpath_types::health::Probe;
use towpath_types::spec::Wanted;
use towpath_wire::cell::{InstanceSpec, InstanceState};

/// An instance that is only checked for its process is ready when it has run for so long.
const PROCESS_SETTLES: Duration = Duration::from_millis(200);

/// A serving instance that is ended is announced so long before SIGTERM.
const GATEWAYS_HEAR: Duration = Duration::from_millis(50);

/// A hung instance that is started anew gets so long to say why.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why watching ended.
pub(super) enum Outcome {
    /// It is not wanted any more; it has ended.
    Unwanted,
    /// It ended by itself, or had to be ended, after being healthy for so long.
    Ended(String, Duration),
}

/// Why a check failed.
#[derive(Debug, Clone, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Probe(#[from] ProbeFailure),
    /// Nothing was probed.
    #[error("nothing listens on port {0}")]
    Silence(u16),
    #[error("its port was taken by another process of the machine")]
    PortTaken,
    /// The kernel still accepts connections for it.
    #[error("its main process is stopped by a signal (SIGCONT would let it go on)")]
    Stopped,
}

impl Life {
    /// Watches a running instance until it ends, by itself or because it is not wanted.
    pub(super) async fn watch(&mut self, process: Box<dyn Process>, was_ready: bool) -> Outcome {
        let process: Arc<dyn Process> = Arc::from(process);
        let mut health =
            if was_ready { Health::ready(Instant::now()) } else { Health::starting(Instant::now()) };
        let mut verdict = if was_ready { Verdict::Ready } else { Verdict::Starting };
        let (began, mut probes) = (Instant::now(), 0);
        self.context.board.change(self.instance, |card| {
            (card.started, card.port) = (Some(process.started().clone()), self.port);
        });
        let (mut disk, mut is_dying) = (self.watch_disk().await, false);
        let outcome = loop {
            let Some(spec) = self.wish() else {
                self.end(&*process).await;
                break Outcome::Unwanted;
            };
            let check = self.check(&*process, verdict, began, probes);
            let result = tokio::select! {
                biased;
                exit = process.wait() => {
                    let healthy = health.healthy_for(Instant::now());
                    break Outcome::Ended(reason::of_exit(exit, memory_limit(&spec)), healthy);
                }
                () = process.main_has_ended(), if !is_dying => {
                    is_dying = true;
                    self.show_death();
                    continue;
                }
                changed = self.goal.changed() => {
                    if changed.is_err() {
                        std::future::pending::<()>().await;
                    }
                    if self.wish().is_some() && !is_dying {
                        self.show_verdict(verdict, None);
                    }
                    continue;
                }
                standing = disk.changed(), if !is_dying => match self.judge_disk(&*process, standing).await {
                    Some(reason) => {
                        self.show(InstanceState::Backoff, reason.clone());
                        end_gently(&*process, LAST_WORDS.min(spec.grace.duration())).await;
                        break Outcome::Ended(reason, health.healthy_for(Instant::now()));
                    }
                    None => continue,
                },
                result = check, if !is_dying => result,
            };
            if let (Verdict::Starting, Err(Trouble::Silence(port))) = (verdict, &result) {
                self.look_elsewhere(&*process, *port, began.elapsed()).await;
            } else {
                probes += 1;
            }
            verdict = health.judge(&spec.health, result.is_ok(), Instant::now());
            self.show_verdict(verdict, result.as_ref().err().cloned());
            if let Some(reason) = self.give_up(&*process, verdict, result.err()).await {
                end_gently(&*process, LAST_WORDS.min(spec.grace.duration())).await;
                break Outcome::Ended(reason, Duration::ZERO);
            }
        };
        if matches!(outcome, Outcome::Ended(..)) {
            self.show_death();
        }
        self.context.board.change(self.instance, |card| card.started = None);
        self.context.ledger.change_entry(self.instance, |entry| (entry.started, entry.ready) = (None, false));
        outcome
    }

    /// Watches what the instance writes from now on. Of one that an older cell began nobody knows what it got.
    async fn watch_disk(&mut self) -> DiskWatch {
        let tree = self.context.driver.app_dir(self.instance);
        let base = match self.disk_base {
            Some(base) => base,
            None => disk_limit::measure(tree.clone()).await,
        };
        if self.disk_base.replace(base).is_none() {
            self.context.ledger.change_entry(self.instance, |entry| entry.disk_base = Some(base));
        }
        DiskWatch::start(self.context.disk_looks.clone(), tree, base, disk_limit(&self.spec).0)
    }

    /// Warns an instance that is near its limit; why one that is above it has to be ended.
    async fn judge_disk(&self, process: &dyn Process, standing: Standing) -> Option<String> {
        let limit = reason::size(disk_limit(&self.spec).0);
        match standing {
            Standing::Fine => None,
            Standing::Near(used) => {
                let used = reason::size(used);
                process
                    .note(&format!(
                        "disk nearly full: {used} of {limit} are used; above it the app is restarted"
                    ))
                    .await;
                None
            }
            Standing::Over(used) => {
                Some(format!("disk limit exceeded: uses {} of {limit}", reason::size(used)))
            }
        }
    }

    /// Waits for the next probe's time and probes.
    fn check(
        &self,
        process: &dyn Process,
        verdict: Verdict,
        began: Instant,
        probes: u32,
    ) -> impl Future<Output = Result<(), Trouble>> + use<> {
        let (spec, user, crowd) = (Arc::clone(&self.spec), self.user, self.context.starting.clone());
        let at = SocketAddr::new(self.context.settings.address, self.port);
        let (shim, app) = (process.started().shim.pid, process.started().app.pid);
        async move {
            let must_listen = verdict == Verdict::Starting && spec.health.probe != Probe::Process;
            let mut is_own = !must_listen;
            tokio::time::sleep(pause(&spec, verdict, probes)).await;
            if must_listen {
                match await_listener(at, began, crowd).await {
                    Awaited::Listens(listener) => is_own = user == Some(listener.user),
                    Awaited::Silence => return Err(Trouble::Silence(at.port())),
                    Awaited::Unknown => {}
                }
            }
            if procfs::is_stopped(app) {
                return Err(Trouble::Stopped);
            }
            probe(&spec.health.probe, spec.protocol, at, spec.health.timeout.duration()).await?;
            if !is_own {
                let owner = tokio::task::spawn_blocking(move || listening(shim, at)).await;
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

    /// A dead instance gets no request more, although it is not yet known how it ended.
    fn show_death(&self) {
        if self.context.board.state(self.instance).is_some_and(InstanceState::serves) {
            self.show(InstanceState::Backoff, "its main process has ended".into());
        }
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
            (
                Verdict::StartFailed,
                Some(Trouble::Silence(port) | Trouble::Probe(ProbeFailure::NoConnection(port))),
            ) => {
                let (shim, at) =
                    (process.started().shim.pid, SocketAddr::new(self.context.settings.address, port));
                let why =
                    tokio::task::spawn_blocking(move || explain_silence(shim, at)).await.unwrap_or_default();
                Some(format!("did not become healthy within {}: it {why}", reason::time(limit)))
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
        end_gently(process, grace).await;
    }
}

/// Time before the n-th probe.
fn pause(spec: &InstanceSpec, verdict: Verdict, probes: u32) -> Duration {
    match verdict {
        Verdict::Starting if spec.health.probe == Probe::Process => PROCESS_SETTLES,
        Verdict::Starting if probes == 0 => Duration::ZERO,
        Verdict::Starting => start_pause(probes),
        // An adopted instance is looked at soon.
        _ if probes == 0 => Duration::from_millis(50),
        _ => spec.health.interval.duration(),
    }
}

/// SIGTERM, grace, SIGKILL.
async fn end_gently(process: &dyn Process, grace: Duration) {
    process.terminate().await;
    if tokio::time::timeout(grace, process.wait()).await.is_err() {
        tracing::info!(pid = process.started().app.pid, ?grace, "an instance ignores SIGTERM; killing it");
        process.kill().await;
        process.wait().await;
    }
}
