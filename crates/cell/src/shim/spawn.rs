//! The cell's side of starting a shim.

use crate::launch::{Launch, Mode, ShimSays, Started};
use crate::settings::ShimProgram;
use std::ffi::OsStr;
use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Longest time from the shim's start to its first word.
const FIRST_WORD: Duration = Duration::from_secs(20);

/// Why no program runs.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The shim itself could not be started.
    #[error("its supervisor could not be started")]
    Shim(#[from] io::Error),
    /// The shim could not start the program; its words.
    #[error("{0}")]
    Refused(String),
    /// The shim said nothing, or nonsense.
    #[error("its supervisor did not answer")]
    Silent,
}

/// A shim that has started its program.
pub(crate) struct SpawnedShim {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) says: Lines<BufReader<ChildStdout>>,
    pub(crate) started: Started,
}

/// Starts a shim and waits until its program runs.
pub(crate) async fn spawn_shim(
    shim: &ShimProgram,
    launch: &Launch,
    stderr: Stdio,
) -> Result<SpawnedShim, SpawnError> {
    // For people who look at a process list, and for the sweep of leftovers.
    let (kind, place) = match &launch.mode {
        Mode::Instance { control, .. } => ("instance", control.as_os_str()),
        Mode::Build => ("build", OsStr::new("")),
    };
    let mut child = Command::new(&shim.program)
        .args(&shim.args)
        .arg(kind)
        .arg(place)
        .arg0("towpath")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()?;
    let (mut stdin, Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(SpawnError::Silent);
    };
    if let Some(stdin) = &mut stdin {
        let mut line = serde_json::to_vec(launch).map_err(io::Error::other)?;
        line.push(b'\n');
        stdin.write_all(&line).await?;
        stdin.flush().await?;
    }
    let mut says = BufReader::new(stdout).lines();
    let first = tokio::time::timeout(FIRST_WORD, says.next_line()).await;
    let word = first.ok().and_then(Result::ok).flatten().and_then(|line| serde_json::from_str(&line).ok());
    match word {
        Some(ShimSays::Started(started)) => Ok(SpawnedShim { child, stdin, says, started }),
        other => {
            // It has nothing to look after; without its life line and program it ends by itself, or now.
            let _ = child.start_kill();
            let _ = child.wait().await;
            Err(match other {
                Some(ShimSays::Refused(why)) => SpawnError::Refused(why),
                _ => SpawnError::Silent,
            })
        }
    }
}
