//! Background tasks that the cell cannot do without, and what goes wrong with them.

use futures::FutureExt;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The times of [`keep`].
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Pause before a task is begun again; it doubles while the task ends soon.
    first: Duration,
    /// Up to this one.
    longest: Duration,
    /// A task that has run for so long has not ended soon, and is well.
    well: Duration,
}

const PACE: Pace = Pace {
    first: Duration::from_millis(100),
    longest: Duration::from_secs(5),
    well: Duration::from_secs(60),
};

/// Ends in a row of which everybody is told.
const TOLD: u32 = 3;
/// Ends in a row after which it is no use to go on in this process: with the pauses about half a minute.
const GIVEN_UP: u32 = 12;

/// What is wrong with the cell itself. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Troubles {
    now: Arc<Mutex<BTreeMap<&'static str, String>>>,
    dead: watch::Sender<Option<&'static str>>,
}

impl Default for Troubles {
    fn default() -> Self {
        Self { now: Arc::default(), dead: watch::Sender::new(None) }
    }
}

impl Troubles {
    /// A part of the cell has this trouble, until it is cleared.
    pub(crate) fn note(&self, part: &'static str, what: String) {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).insert(part, what);
    }

    /// The part is well again.
    pub(crate) fn clear(&self, part: &'static str) {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).remove(part);
    }

    /// All of it, for people.
    pub(crate) fn told(&self) -> Vec<String> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.iter().map(|(part, what)| format!("{part}: {what}")).collect()
    }

    /// Waits until a part ends again and again, and says which.
    pub(crate) async fn dead(&self) -> &'static str {
        let mut dead = self.dead.subscribe();
        let part = dead.wait_for(Option::is_some).await.ok().and_then(|part| *part);
        match part {
            Some(part) => part,
            None => std::future::pending().await,
        }
    }
}

/// Runs what `make` makes again and again, whether it panics or ends. Never returns.
pub(crate) async fn keep<T: Future<Output = ()>>(
    name: &'static str,
    troubles: Troubles,
    make: impl FnMut() -> T,
) {
    keep_at(PACE, name, troubles, make).await;
}

async fn keep_at<T: Future<Output = ()>>(
    pace: Pace,
    name: &'static str,
    troubles: Troubles,
    mut make: impl FnMut() -> T,
) {
    let (mut pause, mut ends) = (pace.first, 0_u32);
    loop {
        // What a panic leaves half done is behind locks that are used on, or gone with the future.
        let task = AssertUnwindSafe(make()).catch_unwind();
        tokio::pin!(task);
        let ended = match tokio::time::timeout(pace.well, &mut task).await {
            Ok(ended) => ended,
            Err(_) => {
                (pause, ends) = (pace.first, 0);
                troubles.clear(name);
                task.await
            }
        };
        let how = if ended.is_err() { "panicked" } else { "ended" };
        tracing::error!(task = name, how, again_in = ?pause, "a background task of the cell is begun again");
        ends = ends.saturating_add(1);
        if ends >= TOLD {
            troubles.note(name, format!("{how} {ends} times in a row"));
        }
        if ends == GIVEN_UP {
            troubles.dead.send_if_modified(|dead| dead.replace(name).is_none());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(pace.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn a_task_that_panics_or_ends_is_begun_again() {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&runs);
        let troubles = Troubles::default();
        let kept = tokio::spawn(keep("test", troubles.clone(), move || {
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
        assert!(!kept.is_finished() && troubles.told().is_empty());
        kept.abort();
    }

    async fn until(what: impl Fn() -> bool) {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn one_that_ends_again_and_again_is_told_and_given_up_unless_it_recovers() {
        let (first, longest) = (Duration::from_millis(1), Duration::from_millis(2));
        let pace = Pace { first, longest, well: Duration::from_millis(500) };
        let troubles = Troubles::default();
        let runs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&runs);
        // Well from the sixth run on.
        let recovering = tokio::spawn(keep_at(pace, "recovering", troubles.clone(), move || {
            let is_well = counted.fetch_add(1, Ordering::SeqCst) >= 5;
            async move {
                if is_well {
                    std::future::pending().await
                }
            }
        }));
        until(|| runs.load(Ordering::SeqCst) == 6).await;
        until(|| troubles.told().is_empty()).await;
        assert_eq!(runs.load(Ordering::SeqCst), 6);
        let lost =
            tokio::spawn(keep_at(pace, "lost", troubles.clone(), || async { panic!("again and again") }));
        assert_eq!(troubles.dead().await, "lost");
        assert!(troubles.told()[0].starts_with("lost: panicked "), "{:?}", troubles.told());
        recovering.abort();
        lost.abort();
    }
}
