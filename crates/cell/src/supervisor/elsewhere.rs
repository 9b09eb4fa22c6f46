//! An app that listens, but not where it is told to, is told so long before its time to start is over.

use super::life::Life;
use crate::driver::Process;
use crate::health::find_elsewhere;
use std::net::SocketAddr;
use std::time::Duration;

/// An app that has been silent on its port for so long is looked at. Many open a port for themselves first, so it is only said.
const FIRST_LOOK: Duration = Duration::from_secs(1);

/// What was seen of one start.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    looks: u32,
    found: String,
}

impl Elsewhere {
    /// Where it listens instead: a predicate; empty if that is not known.
    pub(super) fn found(&self) -> &str {
        &self.found
    }

    /// Whether it is time for a look at an app of this age: a look reads the machine's table of sockets, so each takes twice as
    /// long to come as the one before.
    fn is_due(&self, age: Duration) -> bool {
        age >= FIRST_LOOK.saturating_mul(1 << self.looks.min(16))
    }
}

impl Life {
    /// Looks from time to time where a process that is silent on its port listens instead; says what is found in the instance's
    /// log and in what the cell announces.
    pub(super) async fn look_elsewhere(&mut self, process: &dyn Process, port: u16, age: Duration) {
        if !self.elsewhere.is_due(age) {
            return;
        }
        self.elsewhere.looks += 1;
        let shim = process.started().shim.pid;
        let wanted = SocketAddr::new(self.context.settings.address, port);
        let look = tokio::task::spawn_blocking(move || find_elsewhere(shim, wanted));
        let found = look.await.ok().flatten().unwrap_or_default();
        if found != self.elsewhere.found {
            if !found.is_empty() {
                process.note(&format!("the app {found}")).await;
            }
            self.elsewhere.found = found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rarer() {
        let due = |looks, seconds| {
            Elsewhere { looks, ..Elsewhere::default() }.is_due(Duration::from_secs_f64(seconds))
        };
        assert!(!due(0, 0.9) && due(0, 1.0) && !due(1, 1.9) && due(1, 2.0) && !due(5, 31.0) && due(5, 32.0));
        assert!(!due(u32::MAX, 60.0));
    }
}
