//! SIGTERM, SIGINT and SIGHUP: the first asks for a clean end, the second ends at once.

use crate::exit::{Exit, Failure, Outcome};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for them.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Begins to listen: from here on the signals do not end the process by themselves.
    pub(super) fn new() -> Outcome<Self> {
        let listen = |kind| signal(kind).map_err(|error| Failure::io("cannot listen for signals", &error));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for one of them; gives its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hang_up.recv() => "SIGHUP",
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
