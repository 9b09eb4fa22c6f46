//! Something that one request does and others wait for.

use super::AttemptFault;
use crate::deadline::Deadline;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use tokio::sync::Notify;

/// Whether it has ended, and who waits.
#[derive(Default)]
pub(super) struct Awaited {
    ended: Cell<bool>,
    notify: Notify,
}

impl Awaited {
    /// It has ended, in whatever way.
    pub(super) fn ends(&self) {
        self.ended.set(true);
        self.notify.notify_waiters();
    }

    /// Waits for its end, until the deadline.
    pub(super) async fn end(&self, deadline: &Deadline) -> Result<(), AttemptFault> {
        let mut notified = pin!(self.notify.notified());
        poll_fn(|cx| {
            if self.ended.get() || notified.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if deadline.is_over(cx) {
                return Poll::Ready(Err(AttemptFault::of_late_connect(deadline)));
            }
            Poll::Pending
        })
        .await
    }
}
