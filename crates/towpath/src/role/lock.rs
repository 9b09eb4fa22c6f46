//! The data directory belongs to one process: a lock on `<data-dir>/lock`, with its process id in it.

use crate::exit::{Exit, Failure, Outcome, reason};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use towpath_gateway::TakeOver;

/// By which a lock is known that is handed over.
pub(super) const NAME: &str = "lock";

/// The lock. It ends with the last process that has it, however that ends; the file stays. A process to which it is handed over
/// has the same lock: it must not be unlocked, only closed.
#[derive(Debug)]
pub(super) struct DataDirLock {
    held: File,
    /// Whether the directory was made just now.
    pub(super) fresh: bool,
}

/// Makes the directory (mode 0700) if it is not there, and locks it.
pub(super) fn lock(dir: &Path) -> Outcome<DataDirLock> {
    let shown = dir.display();
    let refused = |error: &std::io::Error| {
        let what = format!("data directory {shown} is not writable: {}", reason(error));
        Failure::hinted(Exit::Usage, what, "choose another with --data-dir")
    };
    let fresh = !dir.exists();
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| refused(&error))?;
    let path = dir.join("lock");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|error| refused(&error))?;
    let mut file = file;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let by = match holder.trim() {
                "" => "another Towpath process".to_owned(),
                pid => format!("the Towpath process {pid}"),
            };
            let what = format!("data directory {shown} is in use by {by}");
            return Err(Failure::hinted(
                Exit::Conflict,
                what,
                "stop that one, or choose another with --data-dir",
            ));
        }
        Err(TryLockError::Error(error)) => {
            let what = format!("data directory {shown} cannot be locked: {}", reason(&error));
            return Err(Failure::hinted(
                Exit::Failed,
                what,
                "choose one on a local file system with --data-dir",
            ));
        }
    }
    let lock = DataDirLock { held: file, fresh };
    lock.note_process().map_err(|error| refused(&error))?;
    Ok(lock)
}

/// The lock that a running gateway has handed over.
pub(super) fn taken(dir: &Path, taken: &TakeOver) -> Outcome<DataDirLock> {
    match taken.kept(NAME) {
        Some(held) => Ok(DataDirLock { held: held.into(), fresh: false }),
        None => {
            let what = format!("the gateway that runs in {} keeps its directory", dir.display());
            Err(Failure::new(Exit::Conflict, what))
        }
    }
}

impl DataDirLock {
    /// Writes down that this process has it.
    pub(super) fn note_process(&self) -> std::io::Result<()> {
        let mut file = &self.held;
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes())
    }

    /// The lock, for a process that takes over.
    pub(super) fn copy(&self) -> std::io::Result<Arc<OwnedFd>> {
        Ok(Arc::new(self.held.try_clone()?.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_told_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("a/b");
        let held = lock(&data).unwrap();
        assert!(held.fresh);
        let failure = lock(&data).unwrap_err();
        assert_eq!(failure.exit, Exit::Conflict);
        assert!(failure.lines[0].contains(&format!("process {}", std::process::id())), "{failure:?}");
        drop(held);
        assert!(!lock(&data).unwrap().fresh);
    }

    #[test]
    fn a_directory_that_cannot_be_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let failure = lock(&file.join("data")).unwrap_err();
        assert!(failure.lines[0].contains("is not writable"), "{failure:?}");
    }
}
