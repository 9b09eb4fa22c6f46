//! How much may be on its way to the server. The client library queues by number of messages, whatever their size, while
//! a server is slow, frozen or gone and nobody has noticed yet. Here bytes are counted: what is sent takes from a budget,
//! and a round trip through the server, which proves that all before it has arrived, gives it back.

use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// Most bytes that the server may not have taken yet.
pub(super) const WINDOW: u32 = 16 * 1024 * 1024;
/// From this many on it is asked whether it has them.
const ASK_AT: u32 = WINDOW / 4;
/// What a message takes beside its payload.
const HEAD: usize = 1024;

/// The budget of a connection.
pub(super) struct Window {
    budget: Semaphore,
    /// Sent since the last question.
    sent: AtomicU32,
    ask: Notify,
}

/// Leave to send one message.
pub(super) struct Leave<'a> {
    window: &'a Window,
    permit: SemaphorePermit<'a>,
    size: u32,
}

impl Window {
    pub(super) fn new() -> Self {
        let budget = Semaphore::new(usize::try_from(WINDOW).unwrap_or(usize::MAX));
        Self { budget, sent: AtomicU32::new(0), ask: Notify::new() }
    }

    /// Waits until a message with a payload of this size may be sent.
    pub(super) async fn enter(&self, payload: usize) -> Option<Leave<'_>> {
        let size = u32::try_from(payload + HEAD).unwrap_or(WINDOW).min(WINDOW);
        let permit = self.budget.acquire_many(size).await.ok()?;
        Some(Leave { window: self, permit, size })
    }

    /// Waits until it is worth a question; gives what the answer will be about.
    pub(super) async fn due(&self) -> u32 {
        loop {
            self.ask.notified().await;
            let sent = self.sent.swap(0, Ordering::AcqRel);
            if sent > 0 {
                return sent;
            }
        }
    }

    /// The server has these.
    pub(super) fn arrived(&self, bytes: u32) {
        self.budget.add_permits(usize::try_from(bytes).unwrap_or(0));
    }
}

impl Leave<'_> {
    /// The message was handed to the client library.
    pub(super) fn sent(self) {
        self.permit.forget();
        if self.window.sent.fetch_add(self.size, Ordering::AcqRel) + self.size >= ASK_AT {
            self.window.ask.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn what_is_on_its_way_is_bounded_until_it_has_arrived() {
        let window = Window::new();
        let mut entered = 0;
        while let Some(Some(leave)) = window.enter(1_000_000).now_or_never() {
            leave.sent();
            entered += 1;
        }
        assert_eq!(entered, 16);
        assert!(window.enter(20_000).now_or_never().flatten().is_some(), "a smaller one still fits");
        let bytes = window.due().await;
        assert!(window.enter(1_000_000).now_or_never().is_none());
        window.arrived(bytes);
        assert!(window.enter(1_000_000).now_or_never().is_some());
    }

    #[tokio::test]
    async fn leave_that_is_not_used_is_given_back() {
        let window = Window::new();
        for _ in 0..100 {
            drop(window.enter(1_000_000).await);
        }
        assert!(window.enter(1_000_000).now_or_never().is_some());
    }
}
