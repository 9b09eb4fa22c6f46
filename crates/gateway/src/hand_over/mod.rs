//! The hand-over of a running gateway to another process: its sockets, what else its starter keeps (the lock of the data
//! directory), and the word of the platform.
//!
//! The new process connects to a unix socket in the data directory:
//!
//! ```text
//! new → old  hello
//! old → new  what is kept, every socket, all
//!            (the new one starts: settings, table, threads; nothing is accepted yet)
//! new → old  ready
//! old → new  go
//!            (the new one accepts, of the same queues)
//! new → old  serving
//!            (the old one accepts no more and drains)
//! old → new  status, again and again, until its end
//! ```
//!
//! Until *serving* the old one does all that it did before, so that the new one may fail at any point. From then on the new one
//! speaks for the gateway, of which the old one is still a part: what it says of itself is merged with what the old one
//! tells it.

mod channel;
mod giver;
mod status;
mod taker;
#[cfg(test)]
mod tests;

pub(crate) use giver::{Giver, listen};
pub(crate) use status::{Duty, Status, Word};
pub use taker::{TakeOver, TakeOverError};
pub(crate) use taker::{Taken, Way};

use crate::listeners::Transport;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What both sides speak. Another number is another language.
const VERSION: u32 = 1;

/// The socket's name in the data directory.
const NAME: &str = "hand-over.sock";

/// Longest path that a unix socket can have.
const PATH_MAX: usize = 100;

/// What is said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "lowercase")]
enum Message {
    Hello {
        version: u32,
        pid: u32,
        build: String,
    },
    Refused {
        why: String,
    },
    /// With a descriptor.
    Kept {
        name: String,
    },
    /// With a descriptor.
    Socket {
        transport: Transport,
        address: SocketAddr,
    },
    All {
        count: usize,
    },
    Ready,
    Go,
    Serving,
    Status(Status),
}

impl Message {
    /// Whether a descriptor comes with it.
    fn carries(&self) -> bool {
        matches!(self, Self::Kept { .. } | Self::Socket { .. })
    }
}

/// The socket's path, by way of the directory's descriptor where it is too long itself.
struct SocketPath {
    path: PathBuf,
    _dir: Option<std::fs::File>,
}

impl SocketPath {
    fn new(data_dir: &Path) -> std::io::Result<Self> {
        use std::os::fd::AsRawFd;
        let path = data_dir.join(NAME);
        if path.as_os_str().len() <= PATH_MAX {
            return Ok(Self { path, _dir: None });
        }
        let dir = std::fs::File::open(data_dir)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{NAME}", dir.as_raw_fd()));
        Ok(Self { path, _dir: Some(dir) })
    }
}
