//! The parts that a gateway cannot do without: its threads, and the tasks on them that serve everybody. One that panics, or
//! that ends before the gateway is told to, must not be missed in silence: health says so, and whoever runs the gateway can
//! wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// What has died, if anything has.
#[derive(Debug, Clone)]
pub(crate) struct Vital {
    died: watch::Sender<Option<&'static str>>,
    ending: Arc<AtomicBool>,
}

impl Default for Vital {
    fn default() -> Self {
        Self { died: watch::Sender::new(None), ending: Arc::default() }
    }
}

impl Vital {
    /// Runs a part that lasts as long as the gateway. If it panics or ends before [`Vital::ends`], it has died; dropped by
    /// whoever runs it, it has not.
    pub(crate) async fn watch<F: Future>(&self, name: &'static str, part: F) -> F::Output {
        let output = self.watch_passing(name, part).await;
        self.has_ended(name);
        output
    }

    /// Runs a part whose end is its own affair. If it panics, it has died.
    pub(crate) async fn watch_passing<F: Future>(&self, name: &'static str, part: F) -> F::Output {
        let _guard = Guard { vital: self, name };
        part.await
    }

    /// [`Vital::watch`] for a thread's function.
    pub(crate) fn watch_thread<R>(&self, name: &'static str, part: impl FnOnce() -> R) -> R {
        let _guard = Guard { vital: self, name };
        let output = part();
        self.has_ended(name);
        output
    }

    /// From now on parts may end: the gateway does.
    pub(crate) fn ends(&self) {
        self.ending.store(true, Ordering::SeqCst);
    }

    fn has_ended(&self, name: &'static str) {
        if !self.ending.load(Ordering::SeqCst) {
            tracing::error!(part = name, "a part of the gateway has ended by itself");
            self.fails(name);
        }
    }

    /// A part cannot even begin, or has died.
    pub(crate) fn fails(&self, name: &'static str) {
        self.died.send_if_modified(|failed| {
            let first = failed.is_none();
            failed.get_or_insert(name);
            first
        });
    }

    /// The part that has died.
    pub(crate) fn failed(&self) -> Option<&'static str> {
        *self.died.borrow()
    }

    /// Waits until a part has died.
    pub(crate) fn failure(&self) -> impl Future<Output = &'static str> + Send + use<> {
        let (mut changes, kept) = (self.died.subscribe(), self.died.clone());
        async move {
            let failed = changes.wait_for(Option::is_some).await.ok().and_then(|failed| *failed);
            drop(kept);
            failed.unwrap_or("the gateway")
        }
    }
}

struct Guard<'a> {
    vital: &'a Vital,
    name: &'static str,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.vital.fails(self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_that_panics_is_missed_and_one_that_passes_or_is_dropped_is_not() {
        let vital = Vital::default();
        let task = |name, panics: bool| {
            let vital = vital.clone();
            tokio::spawn(async move {
                vital.watch_passing(name, async { assert!(!panics) }).await;
            })
        };
        task("ends", false).await.unwrap();
        let dropped = {
            let vital = vital.clone();
            tokio::spawn(async move { vital.watch("dropped", std::future::pending::<()>()).await })
        };
        tokio::task::yield_now().await;
        dropped.abort();
        assert!(dropped.await.is_err());
        assert_eq!(vital.failed(), None);
        let failure = vital.failure();
        assert!(task("panics", true).await.is_err());
        assert_eq!(failure.await, "panics");
        assert!(task("later", true).await.is_err());
        let thread = vital.clone();
        let joined = std::thread::spawn(move || thread.watch_thread("thread", || panic!())).join();
        assert!(joined.is_err());
        assert_eq!((vital.failed(), vital.failure().await), (Some("panics"), "panics"), "the first is told");
    }

    #[tokio::test]
    async fn a_lasting_part_that_ends_early_is_missed_too() {
        for thread in [false, true] {
            let (vital, ended) = (Vital::default(), Vital::default());
            ended.ends();
            for vital in [&vital, &ended] {
                match thread {
                    true => vital.watch_thread("early", || ()),
                    false => vital.watch("early", async {}).await,
                }
            }
            assert_eq!((vital.failed(), ended.failed()), (Some("early"), None));
            assert_eq!(vital.failure().await, "early");
        }
    }
}
