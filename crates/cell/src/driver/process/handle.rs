//! A running instance, held by the pidfd of its shim.

use super::leftovers::{self, Whose};
use super::read_json;
use crate::disk;
use crate::driver::{Exit, ExitHow, Process};
use crate::kernel::{open_pidfd, signal_pidfd, watch_pidfd};
use crate::launch::{ENDED_FILE, Ended, NOTICE_FILE, Started};
use async_trait::async_trait;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use towpath_types::InstanceId;

/// Longest time that a shim gets to kill its tree; then its work is done from here.
const SHIM_KILLS_WITHIN: Duration = Duration::from_secs(10);

pub(super) struct ShimHandle {
    instance: InstanceId,
    control: PathBuf,
    started: Started,
    pidfd: AsyncFd<OwnedFd>,
    /// Of the app itself; `None`: it had ended already.
    app: Option<AsyncFd<OwnedFd>>,
}

impl ShimHandle {
    /// Fails when the shim has gone already, or there is no runtime.
    pub(super) fn open(instance: InstanceId, control: PathBuf, started: Started) -> io::Result<Self> {
        let pidfd = watch_pidfd(open_pidfd(started.shim.pid)?)?;
        let app = open_pidfd(started.app.pid).and_then(watch_pidfd).ok();
        // Looked at once the pidfd fixes whom it means.
        let app = app.filter(|_| started.app.is_alive());
        Ok(Self { instance, control, started, pidfd, app })
    }

    async fn whose(&self) -> Whose {
        Whose::of(self.instance, self.control.with_file_name("app")).await
    }

    async fn shim_has_ended(&self) {
        has_ended(&self.pidfd).await;
    }
}

/// A pidfd is readable once its process has ended, and from then on.
async fn has_ended(pidfd: &AsyncFd<OwnedFd>) {
    let _ = pidfd.readable().await.map(|mut guard| guard.retain_ready());
}

#[async_trait]
impl Process for ShimHandle {
    fn started(&self) -> &Started {
        &self.started
    }

    async fn main_has_ended(&self) {
        match &self.app {
            Some(app) => has_ended(app).await,
            None => self.shim_has_ended().await,
        }
    }

    async fn wait(&self) -> Exit {
        self.shim_has_ended().await;
        match read_json::<Ended>(&self.control.join(ENDED_FILE)).await {
            Some(ended) => ended.into(),
            None => {
                // The shim was killed, so nobody has ended the app.
                leftovers::kill(&self.whose().await, &self.started).await;
                Exit { how: ExitHow::Lost, ran: None }
            }
        }
    }

    async fn terminate(&self) {
        if let Err(error) = signal_pidfd(self.pidfd.get_ref(), libc::SIGTERM) {
            tracing::debug!(instance = %self.instance, %error, "the supervisor has gone before SIGTERM");
        }
    }

    async fn note(&self, text: &str) {
        let (path, text) = (self.control.join(NOTICE_FILE), text.to_owned());
        let written = tokio::task::spawn_blocking(move || disk::write_whole(&path, text.as_bytes())).await;
        if matches!(written, Ok(Ok(()))) {
            // A shim of an older release passes over it.
            let _ = signal_pidfd(self.pidfd.get_ref(), libc::SIGHUP);
        }
    }

    async fn kill(&self) {
        let _ = signal_pidfd(self.pidfd.get_ref(), libc::SIGUSR1);
        if tokio::time::timeout(SHIM_KILLS_WITHIN, self.shim_has_ended()).await.is_err() {
            tracing::warn!(instance = %self.instance, "the supervisor does not end; killing it and the instance");
            let _ = signal_pidfd(self.pidfd.get_ref(), libc::SIGKILL);
            leftovers::kill(&self.whose().await, &self.started).await;
        }
    }
}
