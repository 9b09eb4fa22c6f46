//! What runs instances. The cell decides, a driver does: `process` here, a container driver behind the same trait.

pub(crate) mod process;

use crate::launch::Started;
use crate::shim::spawn::SpawnError;
use async_trait::async_trait;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use towpath_secrets::Secret;
use towpath_types::{ByteSize, InstanceId};

/// Runs instances on this machine. Every call may be repeated after a failure.
#[async_trait]
pub(crate) trait Driver: Send + Sync + 'static {
    /// Its name in announcements.
    fn name(&self) -> &'static str;

    /// Makes a fresh, private, writable copy of the artifact's tree for the instance's next start.
    async fn prepare(&self, instance: InstanceId, tree: &Path, user: Option<u32>) -> Result<(), DriverError>;

    /// Starts a prepared instance and returns once its program runs.
    async fn start(&self, start: StartRequest) -> Result<Box<dyn Process>, DriverError>;

    /// Finds what an earlier cell process has started.
    async fn adopt(&self, instance: InstanceId) -> Adopted;

    /// Every instance of which anything is on this machine.
    async fn found(&self) -> Vec<InstanceId>;

    /// What the running instances use. CPU is since the call before.
    async fn sample(&self, instances: &[(InstanceId, Started)]) -> HashMap<InstanceId, Usage>;

    /// Ends whatever still runs of the instance and removes its files.
    async fn remove(&self, instance: InstanceId) -> Result<(), DriverError>;

    /// The directory of its log segments.
    fn log_dir(&self, instance: InstanceId) -> PathBuf;

    /// The directory in which its program starts.
    fn app_dir(&self, instance: InstanceId) -> PathBuf;

    /// The directory of the files about it that only the cell reads and writes.
    fn record_dir(&self, instance: InstanceId) -> PathBuf;
}

/// A running instance.
#[async_trait]
pub(crate) trait Process: Send + Sync {
    /// Who it is, for the ledger.
    fn started(&self) -> &Started;

    /// Waits until its main process has ended, so that it serves no longer, whatever else of it is still to be ended. Cancel-safe;
    /// may be called again.
    async fn main_has_ended(&self);

    /// Waits until the instance and all that it forked have ended. Cancel-safe; may be called again.
    async fn wait(&self) -> Exit;

    /// Asks it to end: SIGTERM to its process group.
    async fn terminate(&self);

    /// Adds a line of the cell's to its log, if that can be done while it runs.
    async fn note(&self, text: &str);

    /// Ends it and all that it forked by force.
    async fn kill(&self);
}

/// What a driver needs to start an instance.
#[derive(Debug, Clone)]
pub(crate) struct StartRequest {
    /// Which.
    pub(crate) instance: InstanceId,
    /// Run by `/bin/sh -c`.
    pub(crate) command: String,
    /// Its whole environment.
    pub(crate) env: BTreeMap<String, String>,
    /// Secret variables besides; what is in `env` goes before.
    pub(crate) secrets: BTreeMap<String, Secret>,
    /// The user that [`Driver::prepare`] was told.
    pub(crate) user: Option<u32>,
    /// Memory limit of its process tree.
    pub(crate) memory: ByteSize,
    /// Open files.
    pub(crate) files: u64,
    /// Processes and threads.
    pub(crate) processes: u64,
}

/// What [`Driver::adopt`] found.
pub(crate) enum Adopted {
    /// It runs.
    Running(Box<dyn Process>),
    /// It ran, and has ended meanwhile.
    Ended(Exit),
    /// Nothing that can be known again; whatever was left of a start that nobody recorded has been ended.
    Nothing,
}

/// How an instance ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    /// How.
    pub(crate) how: ExitHow,
    /// How long it ran, if that is known.
    pub(crate) ran: Option<Duration>,
}

/// The ways to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitHow {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Killed because it used more than its memory limit.
    OutOfMemory,
    /// Its supervisor, or the machine, went away.
    Lost,
}

/// What a running instance uses.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Usage {
    /// Cores.
    pub(crate) cores: f64,
    /// Bytes.
    pub(crate) memory: u64,
    /// Block device bytes a second.
    pub(crate) io: f64,
}

/// Why a driver could not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    /// Files could not be made ready or removed.
    #[error("{doing} failed: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The program could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// Nobody to run it as.
    #[error("no user id is free for it")]
    NoUser,
}

impl DriverError {
    /// For `map_err`.
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}
