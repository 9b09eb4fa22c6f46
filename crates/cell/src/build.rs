//! Build tools, run with an instance's restrictions and gone with the cell.

use crate::driver::process::own_tree;
use crate::launch::{Ended, HowEnded, Launch, Mode, ShimSays};
use crate::settings::ShimProgram;
use crate::shim::spawn::{SpawnError, spawn_shim};
use crate::users::Users;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use towpath_types::ByteSize;

/// Starts build tools. Cheap to clone.
#[derive(Debug, Clone)]
pub struct BuildLauncher {
    shim: ShimProgram,
    users: Arc<Users>,
}

/// The user of one build, given back when this is dropped.
#[derive(Debug)]
pub struct BuildUser {
    uid: u32,
    users: Arc<Users>,
}

/// A build tool to run. Nothing but this is inherited.
#[derive(Debug, Clone)]
pub struct BuildCommand {
    /// Program; looked up in the `PATH` of `env` when it has no slash.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Working directory.
    pub dir: PathBuf,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// User to run as. `None` = the cell's own.
    pub user: Option<u32>,
    /// Memory of the whole process tree.
    pub memory: Option<ByteSize>,
    /// Open files.
    pub files: u64,
    /// Processes and threads of the user.
    pub processes: u64,
}

/// Why a build tool could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the build tool could not be started")]
pub struct BuildError(#[from] SpawnError);

/// A running build tool. Dropping it kills its whole process tree.
pub struct BuildProcess {
    /// Kept open: its end tells the shim to kill the tree.
    lifeline: Option<ChildStdin>,
    shim: Child,
    says: Lines<BufReader<ChildStdout>>,
    output: Option<ChildStderr>,
}

/// How a build tool ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildExit {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Killed because its tree used more than its memory limit.
    OutOfMemory,
    /// Its shim was killed.
    Lost,
}

impl BuildLauncher {
    pub(crate) fn new(shim: ShimProgram, users: Arc<Users>) -> Self {
        Self { shim, users }
    }

    /// Whether builds get users of their own.
    pub(crate) fn is_separate(&self) -> bool {
        self.users.are_separate()
    }

    /// A user for one build job; looks through `/proc`, so it blocks. `None`: builds run as the cell's own user.
    pub fn user(&self) -> Option<BuildUser> {
        self.users.take().map(|uid| BuildUser { uid, users: Arc::clone(&self.users) })
    }

    /// Starts a build tool.
    pub async fn spawn(&self, command: BuildCommand) -> Result<BuildProcess, BuildError> {
        let (program, env) = (command.program.clone(), command.env.get("PATH").cloned());
        let found = tokio::task::spawn_blocking(move || find_program(program, env.as_deref())).await;
        let program = found.map_err(|error| SpawnError::Shim(io::Error::other(error)))?;
        let launch = Launch {
            mode: Mode::Build,
            program,
            args: command.args,
            dir: command.dir,
            env: command.env,
            user: command.user,
            files: command.files,
            processes: command.processes,
            memory: command.memory.map(|size| size.0),
        };
        let spawned = spawn_shim(&self.shim, &launch, Stdio::piped()).await?;
        let mut shim = spawned.child;
        let output = shim.stderr.take();
        Ok(BuildProcess { lifeline: spawned.stdin, shim, says: spawned.says, output })
    }
}

/// The shim has no `PATH`, so the search is done here, in the one that the tool gets.
fn find_program(program: OsString, path: Option<&str>) -> OsString {
    if program.as_encoded_bytes().contains(&b'/') {
        return program;
    }
    let dirs = path.unwrap_or_default().split(':').filter(|dir| !dir.is_empty());
    let found = dirs.map(|dir| Path::new(dir).join(&program)).find(|candidate| candidate.is_file());
    found.map_or(program, PathBuf::into_os_string)
}

impl BuildUser {
    /// Its number.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Gives it a tree of files; symlinks are not followed. Blocks.
    pub fn own(&self, tree: &Path) -> io::Result<()> {
        own_tree(tree, self.uid)
    }
}

impl Drop for BuildUser {
    fn drop(&mut self) {
        self.users.free(self.uid);
    }
}

impl BuildProcess {
    /// The next piece of output, both streams in the order in which they came. `None`: every process that could write has ended.
    pub async fn next_output(&mut self) -> Option<Vec<u8>> {
        let output = self.output.as_mut()?;
        let mut chunk = Vec::with_capacity(16 << 10);
        match output.read_buf(&mut chunk).await {
            Ok(n) if n > 0 => Some(chunk),
            _ => {
                self.output = None;
                None
            }
        }
    }

    /// Waits for the end of the tool and of everything that it started.
    pub async fn wait(&mut self) -> BuildExit {
        let mut exit = BuildExit::Lost;
        while let Ok(Some(line)) = self.says.next_line().await {
            if let Ok(ShimSays::Ended(Ended { how, .. })) = serde_json::from_str(&line) {
                exit = match how {
                    HowEnded::Code(code) => BuildExit::Code(code),
                    HowEnded::Signal(signal) => BuildExit::Signal(signal),
                    HowEnded::OutOfMemory => BuildExit::OutOfMemory,
                };
            }
        }
        let _ = self.shim.wait().await;
        exit
    }

    /// Kills the whole tree and waits until it is gone.
    pub async fn kill(&mut self) {
        self.lifeline = None;
        let _ = self.wait().await;
    }
}
