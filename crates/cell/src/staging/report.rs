//! Says on the bus what a build does.

use super::Refusal;
use super::lines::MAX_LINE;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use towpath_bus::Bus;
use towpath_types::{ErrorCode, OperationId};
use towpath_wire::staging::{StageEvent, StageOutput};
use towpath_wire::subject;

/// Silence after which a sign of life is sent.
const ALIVE: Duration = Duration::from_secs(1);
/// Lines a second in the long run.
const LINES_A_SECOND: f64 = 1_000.0;
/// Lines at once.
const LINES_AT_ONCE: f64 = 5_000.0;
/// Longest message of a failure.
const MESSAGE_MAX: usize = 16 << 10;

/// Numbers events and sends them in order.
pub(crate) struct Reporter {
    state: Arc<Mutex<State>>,
    alive: AbortOnDropHandle<()>,
}

struct State {
    bus: Arc<dyn Bus>,
    subject: String,
    seq: u64,
    last: Instant,
    budget: Budget,
    left_out: u64,
}

/// A token bucket.
struct Budget {
    tokens: f64,
    at: Instant,
}

impl Budget {
    fn take(&mut self, now: Instant) -> bool {
        let gained = now.duration_since(self.at).as_secs_f64() * LINES_A_SECOND;
        self.tokens = (self.tokens + gained).min(LINES_AT_ONCE);
        self.at = now;
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

impl Reporter {
    /// Begins, with signs of life from now on.
    pub(crate) fn start(bus: Arc<dyn Bus>, operation: OperationId) -> Self {
        let now = Instant::now();
        let state = Arc::new(Mutex::new(State {
            bus,
            subject: subject::staging_output(operation),
            seq: 0,
            last: now,
            budget: Budget { tokens: LINES_AT_ONCE, at: now },
            left_out: 0,
        }));
        let watched = Arc::clone(&state);
        let alive = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let due = watched.lock().await.last + ALIVE;
                tokio::time::sleep_until(due).await;
                let mut state = watched.lock().await;
                if state.last.elapsed() >= ALIVE {
                    state.send(StageOutput::Alive).await;
                }
            }
        }));
        Self { state, alive }
    }

    /// A step begins.
    pub(crate) async fn step(&self, title: &str) {
        let mut state = self.state.lock().await;
        state.say_left_out().await;
        state.send(StageOutput::Step { title: title.to_owned() }).await;
    }

    /// A line for people, dropped (and counted) if there are too many.
    pub(crate) async fn line(&self, text: String) {
        debug_assert!(text.len() <= MAX_LINE);
        let mut state = self.state.lock().await;
        if !state.budget.take(Instant::now()) {
            state.left_out = state.left_out.saturating_add(1);
            return;
        }
        state.say_left_out().await;
        state.send(StageOutput::Line { text }).await;
    }

    /// The last word.
    pub(crate) async fn end(self, last: StageOutput) {
        drop(self.alive);
        let mut state = self.state.lock().await;
        state.say_left_out().await;
        state.send(shorten(last)).await;
        let _ = state.bus.flush().await;
    }
}

fn shorten(output: StageOutput) -> StageOutput {
    match output {
        StageOutput::Failed { code, message } if message.len() > MESSAGE_MAX => {
            let keep = (0..=MESSAGE_MAX).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            StageOutput::Failed { code, message: format!("{}…", message.get(..keep).unwrap_or_default()) }
        }
        other => other,
    }
}

impl State {
    async fn say_left_out(&mut self) {
        let count = std::mem::take(&mut self.left_out);
        if count > 0 {
            self.send(StageOutput::Line { text: format!("({count} lines left out: too many at once)") })
                .await;
        }
    }

    async fn send(&mut self, event: StageOutput) {
        self.seq += 1;
        self.last = Instant::now();
        let payload = Bytes::from(towpath_wire::encode(&StageEvent { seq: self.seq, event }));
        if let Err(error) = self.bus.publish(&self.subject, payload).await {
            tracing::warn!(%error, subject = self.subject, "a build's output was lost");
        }
    }
}

/// Our own fault: a file of ours could not be used.
pub(crate) fn broken(what: &str, error: &std::io::Error) -> Refusal {
    let full = matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
    let code = if full { ErrorCode::StorageFull } else { ErrorCode::Internal };
    Refusal { code, message: format!("{what}: {error}") }
}
