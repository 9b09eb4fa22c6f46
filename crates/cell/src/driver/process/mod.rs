//! The `process` driver: plain processes with few rights, each below a shim.
//!
//! Isolates: user (when root), files (private directory), environment, open files, processes, memory and disk space (both watched), process
//! tree. Does not isolate: network, process list, CPU. Layout of `instances/<id>/`:
//! `app/` the writable copy, `control/` words of the shim, `logs/` segments.

mod handle;
mod leftovers;
mod sampler;

use super::{Adopted, Driver, DriverError, Exit, ExitHow, Process, StartRequest, Usage};
use crate::disk;
use crate::launch::{ENDED_FILE, Ended, Launch, Mode, STARTED_FILE, Started};
use crate::procfs;
use crate::records;
use crate::settings::{LogSettings, ShimProgram};
use crate::shim::spawn::spawn_shim;
use async_trait::async_trait;
use handle::ShimHandle;
use leftovers::Whose;
use std::collections::HashMap;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use towpath_types::InstanceId;

pub(crate) use crate::disk::own_tree;

/// Releases that are copied at the same time: more would only wait for the disk.
const COPIES: usize = 4;

/// Runs instances as processes.
pub(crate) struct ProcessDriver {
    root: PathBuf,
    shim: ShimProgram,
    logs: LogSettings,
    separate_users: bool,
    sampler: sampler::Sampler,
    copies: tokio::sync::Semaphore,
}

impl ProcessDriver {
    /// A driver whose instances live below `root`, which must exist.
    pub(crate) fn new(root: PathBuf, shim: ShimProgram, logs: LogSettings, separate_users: bool) -> Self {
        Self {
            root,
            shim,
            logs,
            separate_users,
            sampler: sampler::Sampler::default(),
            copies: tokio::sync::Semaphore::new(COPIES),
        }
    }

    fn control_dir(&self, instance: InstanceId) -> PathBuf {
        self.record_dir(instance).join("control")
    }

    async fn whose(&self, instance: InstanceId) -> Whose {
        Whose::of(instance, self.app_dir(instance)).await
    }

    fn launch(&self, start: &StartRequest) -> Launch {
        let mut env = start.env.clone();
        for (name, value) in &start.secrets {
            env.entry(name.clone()).or_insert_with(|| value.expose().to_owned());
        }
        Launch {
            mode: Mode::Instance {
                control: self.control_dir(start.instance),
                logs: self.log_dir(start.instance),
                bounds: self.logs,
            },
            program: "/bin/sh".into(),
            args: vec!["-c".into(), start.command.clone().into()],
            dir: self.app_dir(start.instance),
            env,
            user: start.user,
            files: start.files,
            processes: start.processes,
            memory: Some(start.memory.0),
        }
    }
}

#[async_trait]
impl Driver for ProcessDriver {
    fn name(&self) -> &'static str {
        "process"
    }

    async fn prepare(&self, instance: InstanceId, tree: &Path, user: Option<u32>) -> Result<(), DriverError> {
        if self.separate_users && user.is_none() {
            return Err(DriverError::NoUser);
        }
        let (dir, app, tree) = (self.record_dir(instance), self.app_dir(instance), tree.to_owned());
        let (control, logs) = (self.control_dir(instance), self.log_dir(instance));
        // Never closed, so that this cannot fail.
        let _slot = self.copies.acquire().await;
        blocking(move || {
            // Others may pass through, to their own directory only; they may list nothing.
            make_dir(&dir, 0o711)?;
            make_dir(&control, 0o700)?;
            make_dir(&logs, 0o700)?;
            for stale in [STARTED_FILE, ENDED_FILE] {
                records::keep_spare(&control, stale);
                disk::remove_if_there(&control.join(stale))?;
            }
            if app.is_dir() {
                match disk::reset_tree(&tree, &app, user) {
                    Ok(()) => return Ok(()),
                    Err(error) => tracing::warn!(dir = %app.display(), %error, "the last start's directory is made anew"),
                }
            }
            disk::remove_tree(&app)?;
            disk::copy_tree(&tree, &app, user)
        })
        .await
        .map_err(DriverError::io("copying the release into the instance's directory"))
    }

    async fn start(&self, start: StartRequest) -> Result<Box<dyn Process>, DriverError> {
        if self.separate_users && start.user.is_none() {
            return Err(DriverError::NoUser);
        }
        let control = self.control_dir(start.instance);
        let path = control.join("shim.err");
        let errors = blocking(move || std::fs::File::create(path))
            .await
            .map_err(DriverError::io("opening the supervisor's error file"))?;
        let spawned = spawn_shim(&self.shim, &self.launch(&start), Stdio::from(errors)).await?;
        let mut child = spawned.child;
        let handle = ShimHandle::open(start.instance, control, spawned.started);
        // Reaps it; who waits for the instance watches the pidfd.
        tokio::spawn(async move { child.wait().await });
        Ok(Box::new(handle.map_err(DriverError::io("watching the supervisor"))?))
    }

    async fn adopt(&self, instance: InstanceId) -> Adopted {
        let control = self.control_dir(instance);
        let Some(started) = read_json::<Started>(&control.join(STARTED_FILE)).await else {
            // Its shim may be about to write that file: the cell was killed between a start and its record.
            leftovers::kill_all(&self.whose(instance).await, Some(self.root.clone())).await;
            return Adopted::Nothing;
        };
        if started.boot == procfs::boot_id()
            && started.shim.is_alive()
            && let Ok(handle) = ShimHandle::open(instance, control.clone(), started.clone())
            // Looked at again now that the pidfd fixes whom it means.
            && started.shim.is_alive()
        {
            return Adopted::Running(Box::new(handle));
        }
        match read_json::<Ended>(&control.join(ENDED_FILE)).await {
            // Written when nothing of the tree was left.
            Some(ended) => Adopted::Ended(ended.into()),
            None => {
                leftovers::kill(&self.whose(instance).await, &started).await;
                Adopted::Ended(Exit { how: ExitHow::Lost, ran: None })
            }
        }
    }

    async fn found(&self) -> Vec<InstanceId> {
        let root = self.root.clone();
        let list = move || {
            let mut found: Vec<InstanceId> = std::fs::read_dir(&root)?
                .flatten()
                .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
                .collect();
            found.extend(leftovers::shims_below(&root));
            found.sort_unstable();
            found.dedup();
            Ok(found)
        };
        blocking(list).await.unwrap_or_default()
    }

    async fn sample(&self, instances: &[(InstanceId, Started)]) -> HashMap<InstanceId, Usage> {
        let (sampler, instances) = (self.sampler.clone(), instances.to_vec());
        tokio::task::spawn_blocking(move || sampler.sample(&instances)).await.unwrap_or_default()
    }

    async fn remove(&self, instance: InstanceId) -> Result<(), DriverError> {
        self.sampler.forget(instance);
        match self.adopt(instance).await {
            Adopted::Running(process) => {
                process.kill().await;
                process.wait().await;
            }
            Adopted::Ended(exit) if exit.how != ExitHow::Lost => {}
            Adopted::Nothing => {}
            // Costs a look at every process of the machine, and is hardly ever needed.
            Adopted::Ended(_) => {
                leftovers::kill_all(&self.whose(instance).await, Some(self.root.clone())).await;
            }
        }
        let dir = self.record_dir(instance);
        blocking(move || disk::remove_tree(&dir))
            .await
            .map_err(DriverError::io("removing the instance's directory"))
    }

    fn log_dir(&self, instance: InstanceId) -> PathBuf {
        self.record_dir(instance).join("logs")
    }

    fn app_dir(&self, instance: InstanceId) -> PathBuf {
        self.record_dir(instance).join("app")
    }

    fn record_dir(&self, instance: InstanceId) -> PathBuf {
        self.root.join(instance.to_string())
    }
}

impl From<Ended> for Exit {
    fn from(ended: Ended) -> Self {
        use crate::launch::HowEnded;
        let how = match ended.how {
            HowEnded::Code(code) => ExitHow::Code(code),
            HowEnded::Signal(signal) => ExitHow::Signal(signal),
            HowEnded::OutOfMemory => ExitHow::OutOfMemory,
        };
        Exit { how, ran: Some(Duration::from_millis(ended.ran_ms)) }
    }
}

/// Makes a directory with exactly this mode; one that is there is fine.
fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(path)?;
    disk::set_mode(path, mode)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

async fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&tokio::fs::read(path).await.ok()?).ok()
}
