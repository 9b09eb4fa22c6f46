//! What the cell tells a shim, and what the shim tells back.

use crate::procfs::ProcessRef;
use crate::settings::LogSettings;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// One JSON line on the shim's standard input. Not to be printed: its environment holds secrets.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// What sort of process it is.
    pub(crate) mode: Mode,
    /// Program to run.
    pub(crate) program: OsString,
    /// Its arguments.
    pub(crate) args: Vec<OsString>,
    /// Working directory.
    pub(crate) dir: PathBuf,
    /// Its whole environment.
    pub(crate) env: BTreeMap<String, String>,
    /// User and group to become. `None` = stay.
    pub(crate) user: Option<u32>,
    /// Open files.
    pub(crate) files: u64,
    /// Processes and threads of the user; only set where the user is its own.
    pub(crate) processes: u64,
    /// Memory of the whole tree in bytes.
    pub(crate) memory: Option<u64>,
}

/// The two sorts of process that a shim looks after.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// Outlives the cell; its output goes into files.
    Instance {
        /// Directory of [`STARTED_FILE`] and [`ENDED_FILE`].
        control: PathBuf,
        /// Directory of log segments.
        logs: PathBuf,
        /// Bounds on them.
        bounds: LogSettings,
    },
    /// Ends with the cell; its output goes to the shim's standard error.
    Build,
}

/// Written by the shim of an instance once the app runs: a [`Started`].
pub(crate) const STARTED_FILE: &str = "started.json";
/// Written by the cell: a line for the log, which only the shim may write while it lives. SIGHUP says that it is there.
pub(crate) const NOTICE_FILE: &str = "notice";
/// Written by the shim of an instance when all has ended: an [`Ended`].
pub(crate) const ENDED_FILE: &str = "ended.json";

/// One JSON line on the shim's standard output.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ShimSays {
    /// The program runs.
    Started(Started),
    /// It could not be started.
    Refused(String),
    /// It has ended (builds only; instances use [`ENDED_FILE`]).
    Ended(Ended),
}

/// Who runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Started {
    /// The shim.
    pub(crate) shim: ProcessRef,
    /// The program, leader of a session and process group of its own.
    pub(crate) app: ProcessRef,
    /// Boot of the machine in which that was.
    pub(crate) boot: String,
}

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// How.
    pub(crate) how: HowEnded,
    /// How long it ran, milliseconds.
    pub(crate) ran_ms: u64,
}

/// The ways to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HowEnded {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Killed by the shim: the tree used more than its memory limit.
    OutOfMemory,
}
