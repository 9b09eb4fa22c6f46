//! Why a build has to end before it is done.

use super::Refusal;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use towpath_types::ErrorCode;

/// Tells a build to end. The first reason stays. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Stop {
    token: CancellationToken,
    why: Arc<OnceLock<Refusal>>,
}

impl Stop {
    pub(crate) fn new() -> Self {
        Self { token: CancellationToken::new(), why: Arc::default() }
    }

    /// Tells it to end.
    pub(crate) fn end(&self, code: ErrorCode, message: &str) {
        let _ = self.why.set(Refusal { code, message: message.to_owned() });
        self.token.cancel();
    }

    /// Waits until it has to end.
    pub(crate) async fn wait(&self) -> Refusal {
        self.token.cancelled().await;
        self.reason()
    }

    /// An error once it has to end.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if self.token.is_cancelled() { Err(self.reason()) } else { Ok(()) }
    }

    /// Ends it after so long, unless the guard is dropped before.
    pub(crate) fn after(&self, timeout: Duration) -> tokio_util::task::AbortOnDropHandle<()> {
        let stop = self.clone();
        tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::time::sleep(timeout).await;
            let message = format!("the build was not done after {} s and was ended", timeout.as_secs());
            stop.end(ErrorCode::BuildTimeout, &message);
        }))
    }

    fn reason(&self) -> Refusal {
        let unknown = || Refusal { code: ErrorCode::Superseded, message: "the build was ended".to_owned() };
        self.why.get().cloned().unwrap_or_else(unknown)
    }
}
