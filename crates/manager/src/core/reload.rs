//! Loading everything anew: asked of the feed by who cannot trust what is in memory.

use super::Core;
use tokio::sync::watch;

/// Which reloads were asked for, and which are done.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    wanted: watch::Sender<u64>,
    done: watch::Sender<u64>,
}

impl Reloads {
    /// The last one that was asked for.
    pub(crate) fn wanted(&self) -> u64 {
        *self.wanted.borrow()
    }

    /// Whether one is done.
    pub(crate) fn is_done(&self, wanted: u64) -> bool {
        *self.done.borrow() >= wanted
    }

    /// All up to this one are done.
    pub(crate) fn done(&self, wanted: u64) {
        self.done.send_if_modified(|done| std::mem::replace(done, wanted) != wanted);
    }

    /// Resolves when one is asked for that is not done.
    pub(crate) async fn asked(&self) {
        let mut wanted = self.wanted.subscribe();
        drop(wanted.wait_for(|wanted| !self.is_done(*wanted)).await);
    }
}

impl Core {
    /// Has everything loaded anew, and waits for it.
    pub(crate) async fn reload(&self) {
        let mut number = 0;
        self.reloads.wanted.send_modify(|wanted| {
            *wanted += 1;
            number = *wanted;
        });
        let mut done = self.reloads.done.subscribe();
        drop(done.wait_for(|done| *done >= number).await);
    }
}
