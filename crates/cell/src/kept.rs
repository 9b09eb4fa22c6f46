//! Background tasks that the cell cannot do without.

use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

/// Pause before a task is begun again; it doubles while the task ends soon.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// A task that ran for so long has not ended soon.
const LONG: Duration = Duration::from_secs(60);

/// Runs what `make` makes again and again, whether it panics or ends. Never returns.
pub(crate) async fn keep<T: Future<Output = ()>>(name: &'static str, mut make: impl FnMut() -> T) {
    let mut pause = FIRST;
    loop {
        let began = Instant::now();
        // What a panic leaves half done is behind locks that are used on, or gone with the future.
        let ended = AssertUnwindSafe(make()).catch_unwind().await;
        let how = if ended.is_err() { "panicked" } else { "ended" };
        if began.elapsed() >= LONG {
            pause = FIRST;
        }
        tracing::error!(task = name, how, again_in = ?pause, "a background task of the cell is begun again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn a_task_that_panics_or_ends_is_begun_again() {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&runs);
        let kept = tokio::spawn(keep("test", move || {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match run {
                    0 => panic!("a fault in the task"),
                    1 => {}
                    _ => std::future::pending().await,
                }
            }
        }));
        while runs.load(Ordering::SeqCst) < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!kept.is_finished());
        kept.abort();
    }
}
