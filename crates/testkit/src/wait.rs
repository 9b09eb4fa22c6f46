//! Waiting for something with a deadline.

use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);

/// Calls `closure` every few milliseconds until it gives something; panics, naming `what`, when `deadline` is over.
pub async fn poll_until<T>(deadline: Duration, what: &str, mut closure: impl FnMut() -> Option<T>) -> T {
    poll_until_async(deadline, what, async || closure()).await
}

/// [`poll_until`] with an async closure.
pub async fn poll_until_async<T>(
    deadline: Duration,
    what: &str,
    mut closure: impl AsyncFnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = closure().await {
            return found;
        }
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// The same without async.
pub fn block_until<T>(deadline: Duration, what: &str, mut closure: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = closure() {
            return found;
        }
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        std::thread::sleep(PAUSE);
    }
}
