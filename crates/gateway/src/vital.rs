//! The parts that a gateway cannot do without: its threads, and the tasks on them that serve everybody. One that panics must
//! not be missed in silence: health says so, and whoever runs the gateway can wait for it.

use tokio::sync::watch;

/// What has died, if anything has.
#[derive(Debug, Clone)]
pub(crate) struct Vital(watch::Sender<Option<&'static str>>);

impl Default for Vital {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Vital {
    /// Runs a part. If it panics, it has died; its end otherwise is its own affair.
    pub(crate) async fn watch<F: Future>(&self, name: &'static str, part: F) -> F::Output {
        let _guard = Guard { vital: self, name };
        part.await
    }

    /// The same for a thread's function.
    pub(crate) fn watch_thread<R>(&self, name: &'static str, part: impl FnOnce() -> R) -> R {
        let _guard = Guard { vital: self, name };
        part()
    }

    /// A part cannot even begin, or has died.
    pub(crate) fn fails(&self, name: &'static str) {
        self.0.send_if_modified(|failed| failed.replace(name).is_none());
    }

    /// The part that has died.
    pub(crate) fn failed(&self) -> Option<&'static str> {
        *self.0.borrow()
    }

    /// Waits until a part has died.
    pub(crate) fn failure(&self) -> impl Future<Output = &'static str> + Send + use<> {
        let (mut changes, kept) = (self.0.subscribe(), self.0.clone());
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
    async fn a_part_that_panics_is_missed_and_one_that_ends_or_is_dropped_is_not() {
        let vital = Vital::default();
        let task = |name, panics: bool| {
            let vital = vital.clone();
            tokio::spawn(async move {
                vital.watch(name, async { assert!(!panics) }).await;
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
        assert_eq!((vital.failed(), vital.failure().await), (Some("thread"), "thread"));
    }
}
