//! Background tasks that a manager cannot do without.
//!
//! A task that panics leaves its part of the work undone for good, while all else looks well. So its death is noted: the
//! health endpoint tells it, and the role ends with an error, to be started again by whatever looks after it.

use crate::core::Core;
use futures::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle, JoinSet};

/// Whether all of them live.
#[derive(Debug)]
pub struct Vitals(watch::Sender<Option<String>>);

impl Default for Vitals {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Vitals {
    /// What the first task that broke said; `None` = all is well.
    pub fn failure(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Resolves when a task broke.
    pub async fn failed(&self) -> String {
        let mut failure = self.0.subscribe();
        let failure = failure.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        match failure {
            Some(failure) => failure,
            None => std::future::pending().await,
        }
    }

    fn note(&self, panic: &(dyn Any + Send)) {
        let what = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "it is not known why".into());
        self.broke(what);
    }

    /// A background task has ended: by a panic, or by itself, which none may before the manager stops.
    fn note_end(&self, ended: Result<(), JoinError>, stopping: bool) {
        match ended {
            Ok(()) if !stopping => self.broke("a background task has ended by itself".into()),
            Ok(()) => {}
            Err(error) => {
                if let Ok(panic) = error.try_into_panic() {
                    self.note(&*panic);
                }
            }
        }
    }

    /// A part of the manager is gone.
    pub(crate) fn broke(&self, what: String) {
        tracing::error!(what, "a background task broke; the manager has to be started again");
        self.0.send_if_modified(|failure| {
            let first = failure.is_none();
            failure.get_or_insert(what);
            first
        });
    }
}

/// Looks after tasks until all have ended. When this is aborted they are, too.
pub(crate) fn watch_over(core: &Arc<Core>, mut tasks: JoinSet<()>) -> JoinHandle<()> {
    let core = core.clone();
    tokio::spawn(async move {
        while let Some(ended) = tasks.join_next().await {
            core.vitals.note_end(ended, *core.stopping().borrow());
        }
    })
}

/// Looks after one task.
pub(crate) fn spawn(core: &Arc<Core>, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    let core = core.clone();
    tokio::spawn(async move {
        if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
            core.vitals.note(&*panic);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_before_the_manager_stops_is_a_failure() {
        let vitals = Vitals::default();
        vitals.note_end(Ok(()), true);
        let cut_off = tokio::spawn(std::future::pending::<()>());
        cut_off.abort();
        vitals.note_end(cut_off.await, false);
        assert_eq!(vitals.failure(), None);
        vitals.note_end(Ok(()), false);
        assert!(vitals.failure().unwrap().contains("ended by itself"));
        let vitals = Vitals::default();
        vitals.note_end(tokio::spawn(async { panic!("boom") }).await, false);
        assert_eq!(vitals.failed().await, "boom");
    }
}
