//! File descriptors: each client and each instance's connection takes one.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs::File;
use std::io;

/// Permits this process as many as the system lets it, and warns where that is fewer than its own limit of connections
/// needs. (The soft limit is 1024 on most systems, for the sake of programs that use `select`.)
pub(crate) fn raise_limit(connections: usize) {
    let (soft, hard) = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok(limits) => limits,
        Err(error) => return tracing::warn!(%error, "the limit of open files cannot be read"),
    };
    let permitted = match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(error) => {
            tracing::warn!(%error, soft, hard, "the limit of open files cannot be raised");
            soft
        }
    };
    if permitted < u64::try_from(connections).unwrap_or(u64::MAX) {
        tracing::warn!(
            permitted,
            connections,
            "fewer files may be open than limits.connections; clients may be turned away before that"
        );
    }
}

/// A descriptor that is kept for the moment when there is no other: with it a client can be told.
pub(crate) struct LastDescriptor(Option<File>);

impl LastDescriptor {
    /// Takes one.
    pub(crate) fn new() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Lets it go.
    pub(crate) fn free(&mut self) {
        self.0 = None;
    }

    /// Takes one again, if there is one.
    pub(crate) fn keep(&mut self) {
        *self = Self::new();
    }
}

/// Whether a connection could not be made because this machine, not the other side, has no more of something:
/// descriptors or local ports.
pub(crate) fn are_used_up(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::EMFILE | Errno::ENFILE | Errno::EADDRNOTAVAIL))
}
