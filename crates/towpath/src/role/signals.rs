//! SIGTERM, SIGINT and SIGHUP: the first asks for a clean end, the second ends at once.

use crate::exit::{Exit, Failure, Outcome};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for them.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` when it was ignored from the start, as under nohup.
    hang_up: Option<Signal>,
}

impl Signals {
    /// Begins to listen: from here on the signals do not end the process by themselves.
    pub(super) fn new() -> Outcome<Self> {
        let listen = |kind| signal(kind).map_err(|error| Failure::io("cannot listen for signals", &error));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: if hang_up_is_ignored() { None } else { Some(listen(SignalKind::hangup())?) },
        })
    }

    /// Waits for one of them; gives its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            () = received(&mut self.hang_up) => "SIGHUP",
        }
    }

    /// Runs a clean end; a further signal cuts it short.
    pub(super) async fn or_at_once<F: Future<Output = ()>>(&mut self, ending: F) -> Outcome {
        tokio::select! {
            () = ending => Ok(()),
            name = self.next() => Err(Failure::new(Exit::Interrupted, format!("ended at once by a second signal ({name})"))),
        }
    }
}

/// Waits for a signal, if it is listened for.
async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Whether whoever started the process had SIGHUP ignored: it is to outlive its terminal then.
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Signal n is bit n - 1; SIGHUP is 1.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
