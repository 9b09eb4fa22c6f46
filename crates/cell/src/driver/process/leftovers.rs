//! Ending what has lost its shim, and finding shims that the ledger does not know.
//!
//! Every process of an instance carries `TOWPATH_INSTANCE=<id>` in its first environment. The id is unique in the world, so
//! that no process of another cell is hit; a process that hides it is still hit by its group, and where instances have users of
//! their own, by its user.

use crate::launch::Started;
use crate::procfs;
use nix::sys::signal::{Signal, kill as send, killpg};
use nix::unistd::Pid;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use towpath_types::InstanceId;

/// Rounds of killing; a process that forks faster than this is caught by none.
const ROUNDS: u32 = 50;

/// What belongs to an instance.
#[derive(Debug, Clone)]
pub(super) struct Whose {
    pub(super) instance: InstanceId,
    /// Its user, if nobody else has it.
    pub(super) user: Option<u32>,
}

impl Whose {
    /// As the instance's directory says: what an app writes belongs to its user.
    pub(super) async fn of(instance: InstanceId, app_dir: PathBuf) -> Self {
        let owner = move || std::fs::symlink_metadata(app_dir).ok().map(|about| about.uid());
        let owner = tokio::task::spawn_blocking(owner).await.ok().flatten();
        let own = nix::unistd::geteuid();
        Self { instance, user: owner.filter(|uid| own.is_root() && *uid != own.as_raw()) }
    }

    fn has(&self, pid: u32, mark: &str) -> bool {
        (procfs::has_environment(pid, mark) || self.user.is_some_and(|user| procfs::user(pid) == Some(user)))
            && is_no_zombie(pid)
    }
}

/// Kills the app's group, if its leader is still the one that was started, and everything else of the instance.
pub(super) async fn kill(whose: &Whose, started: &Started) {
    let app = started.app;
    if started.boot == procfs::boot_id()
        && app.is_alive()
        && let Ok(pid) = i32::try_from(app.pid)
    {
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    kill_all(whose, None).await;
}

/// Kills every process of the instance until none is left. With `root`: its shims too.
pub(super) async fn kill_all(whose: &Whose, root: Option<PathBuf>) {
    let instance = whose.instance;
    for _ in 0..ROUNDS {
        let (root, whose) = (root.clone(), whose.clone());
        let round = move || {
            let marked = processes_of(&whose);
            let shims = root.map(|root| shims_of(&root, instance)).unwrap_or_default();
            for pid in marked.iter().chain(&shims).filter_map(|pid| i32::try_from(*pid).ok()) {
                let _ = send(Pid::from_raw(pid), Signal::SIGKILL);
            }
            marked.len() + shims.len()
        };
        if tokio::task::spawn_blocking(round).await.unwrap_or(0) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tracing::warn!(%instance, "processes of the instance do not end");
}

fn processes_of(whose: &Whose) -> Vec<u32> {
    let mark = format!("TOWPATH_INSTANCE={}", whose.instance);
    procfs::pids().into_iter().filter(|pid| whose.has(*pid, &mark)).collect()
}

fn is_no_zombie(pid: u32) -> bool {
    procfs::stat(pid).is_some_and(|stat| stat.state != b'Z' && stat.state != b'X')
}

/// The control directory in a shim's command line.
fn control_of(pid: u32) -> Option<PathBuf> {
    let words = procfs::command_line(pid)?;
    let at = words.iter().position(|word| word == crate::SHIM_COMMAND.as_bytes())?;
    (words.get(at + 1)? == b"instance").then_some(())?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(words.get(at + 2)?)))
}

fn shims_of(root: &Path, instance: InstanceId) -> Vec<u32> {
    let control = root.join(instance.to_string()).join("control");
    procfs::pids()
        .into_iter()
        .filter(|pid| control_of(*pid).as_ref() == Some(&control) && is_no_zombie(*pid))
        .collect()
}

/// Instances whose shims run below `root`, whatever files are there.
pub(super) fn shims_below(root: &Path) -> Vec<InstanceId> {
    let instance = |pid: u32| {
        let control = control_of(pid)?;
        let below = control.strip_prefix(root).ok()?;
        below.components().next()?.as_os_str().to_str()?.parse().ok()
    };
    procfs::pids().into_iter().filter_map(instance).collect()
}
