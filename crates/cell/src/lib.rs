//! The node agent: runs instances on one machine, keeps them as wanted, and says on the bus what is there.
//!
//! Invariants:
//! - What should run comes from the ledger and from complete answers of a manager, never from half of one; a manager that
//!   cannot be reached changes nothing.
//! - Instances outlive this process. Each has a shim (the same binary, re-executed, single-threaded) as its parent, which keeps
//!   its output, reaps it and records how it ended; the next cell process adopts it by pid *and* start time.
//! - Decisions are pure functions (`plan_…`, `verdict`, `backoff`); effects are elsewhere.
//! - Time is monotonic everywhere but in log lines.
//!
//! Must not: talk to other services but through the bus and the blob endpoint, decide where or how many instances run,
//! block the runtime with disk work, trust anything that an instance wrote.

mod adoption;
mod announce;
mod artifact;
mod backoff;
mod blob;
mod board;
mod build;
mod cell;
mod commands;
mod desired;
mod disk;
mod disk_limit;
mod driver;
mod error;
mod health;
mod identity;
mod instance;
mod kept;
mod kernel;
mod launch;
mod ledger;
mod logs;
mod managers;
mod places;
mod plan;
mod ports;
mod procfs;
mod reason;
mod records;
mod sample;
mod secrets;
mod settings;
mod shim;
mod staging;
mod static_server;
mod supervisor;
mod sync;
mod users;

pub use blob::{BlobClient, BlobError};
pub use build::{BuildCommand, BuildError, BuildExit, BuildLauncher, BuildProcess, BuildUser};
pub use cell::{Cell, StopMode};
pub use error::CellError;
pub use settings::{CellSettings, LogSettings, RestartSettings, ShimProgram};
pub use shim::{SHIM_COMMAND, shim_main};
pub use staging::{BuildEnvironment, BuildFile};
pub use static_server::{STATIC_COMMAND, static_main};
