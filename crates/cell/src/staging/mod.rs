//! Builds releases: source in, artifact out, by the recipes of the registry.
//!
//! Invariants: recipes are data and pure looks at the source (`recipe`, `recipes`); everything a build runs goes through the
//! launcher, as the build's own user; what the app's owner or a build wrote is never followed, executed or trusted here;
//! every accepted job ends with exactly one `Done` or `Failed`; nothing of a build is left but its cache.
//!
//! Must not: decide what is built or where.

mod cache;
mod command;
mod disk_watch;
mod environment;
mod job;
mod lines;
mod places;
mod procfile;
mod recipe;
mod recipes;
mod report;
mod runner;
mod source;
mod stop;
mod tools;

pub use environment::{BuildEnvironment, BuildFile};

use crate::blob::BlobClient;
use crate::build::BuildLauncher;
use report::Reporter;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stop::Stop;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tools::ToolBox;
use towpath_bus::Bus;
use towpath_types::{ByteSize, ErrorCode, OperationId};
use towpath_wire::staging::{StageJob, StageOutput};

/// Builds that may wait; more are refused.
const WAITING_MAX: usize = 64;
/// Longest wait for builds to end when the cell stops.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// What the cell gives to staging.
pub(crate) struct StagingSeam {
    /// Sources and artifacts.
    pub(crate) blobs: BlobClient,
    /// Where output goes.
    pub(crate) bus: Arc<dyn Bus>,
    /// Runs tools.
    pub(crate) launcher: BuildLauncher,
    /// Directory for builds that run; build users may pass through it. Emptied at start.
    pub(crate) work_dir: PathBuf,
    /// Directory for what lasts.
    pub(crate) cache_dir: PathBuf,
    /// `PATH` of builds.
    pub(crate) path: String,
    /// Builds that run at the same time.
    pub(crate) builds_at_once: usize,
    /// Space that stays free.
    pub(crate) disk_reserve: ByteSize,
    /// What builds take over from the machine.
    pub(crate) environment: BuildEnvironment,
}

/// Why something is not done, for people, with its stable code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The code.
    pub(crate) code: ErrorCode,
    /// For people.
    pub(crate) message: String,
}

/// Takes jobs and runs them, a few at a time.
#[derive(Clone)]
pub(crate) struct Stager {
    shared: Arc<Shared>,
}

struct Shared {
    seam: StagingSeam,
    slots: Semaphore,
    jobs: Mutex<HashMap<OperationId, Stop>>,
    tasks: TaskTracker,
}

impl Stager {
    /// Nothing runs yet.
    pub(crate) fn new(seam: StagingSeam) -> Self {
        let slots = Semaphore::new(seam.builds_at_once.max(1));
        let shared = Shared { seam, slots, jobs: Mutex::default(), tasks: TaskTracker::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Names of the builders whose tools are on this cell.
    pub(crate) async fn builders(&self) -> Vec<String> {
        let tools = self.shared.tools();
        tokio::task::spawn_blocking(move || recipes::available(&tools)).await.unwrap_or_default()
    }

    /// Queues a job. Its output goes to the bus. The same operation again changes nothing.
    pub(crate) async fn stage(&self, job: StageJob) -> Result<(), Refusal> {
        let stop = Stop::new();
        {
            let mut jobs = self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            if jobs.contains_key(&job.operation) {
                return Ok(());
            }
            if jobs.len() >= WAITING_MAX || self.shared.tasks.is_closed() {
                let message = "too many builds are waiting on this cell".to_owned();
                return Err(Refusal { code: ErrorCode::Busy, message });
            }
            jobs.insert(job.operation, stop.clone());
        }
        let shared = Arc::clone(&self.shared);
        self.shared.tasks.spawn(async move { shared.run(job, stop).await });
        Ok(())
    }

    /// Ends a build; one that has ended or is unknown changes nothing.
    pub(crate) async fn cancel(&self, operation: OperationId) {
        let jobs = self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stop) = jobs.get(&operation) {
            stop.end(ErrorCode::Superseded, "the build was cancelled");
        }
    }

    /// Ends all builds and waits until they are gone.
    pub(crate) async fn stop(&self) {
        self.shared.tasks.close();
        for stop in self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner).values() {
            stop.end(ErrorCode::Busy, "the cell that built it was stopped; push again");
        }
        if tokio::time::timeout(STOP_WAIT, self.shared.tasks.wait()).await.is_err() {
            tracing::warn!("builds did not end in time");
        }
    }
}

impl Shared {
    fn tools(&self) -> ToolBox {
        ToolBox::new(&self.seam.path, self.seam.launcher.is_separate())
    }

    async fn run(&self, job: StageJob, stop: Stop) {
        let operation = job.operation;
        let reporter = Reporter::start(Arc::clone(&self.seam.bus), operation);
        let outcome = self.queued(&job, &stop, &reporter).await;
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).remove(&operation);
        let last = match outcome {
            Ok(result) => StageOutput::Done(result),
            Err(Refusal { code, message }) => StageOutput::Failed { code, message },
        };
        reporter.end(last).await;
    }

    async fn queued(
        &self,
        job: &StageJob,
        stop: &Stop,
        reporter: &Reporter,
    ) -> Result<towpath_wire::staging::StageResult, Refusal> {
        let slot = match self.slots.try_acquire() {
            Ok(slot) => Ok(slot),
            Err(_) => {
                reporter.step("Waiting for other builds on this cell").await;
                tokio::select! {
                    slot = self.slots.acquire() => slot,
                    why = stop.wait() => return Err(why),
                }
            }
        };
        let _slot =
            slot.map_err(|_| Refusal { code: ErrorCode::Busy, message: "the cell stops".to_owned() })?;
        job::run(job, &self.seam, self.tools(), stop, reporter).await
    }
}
