//! The data directory belongs to one process: a lock on `<data-dir>/lock`, with its process id in it.

use crate::exit::{Exit, Failure, Outcome, reason};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The lock. It ends with the process, however that ends; the file stays.
#[derive(Debug)]
pub(super) struct DataDirLock {
    _held: Flock<File>,
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
    let mut held = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(held) => held,
        Err((mut file, Errno::EWOULDBLOCK)) => {
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
        Err((_, error)) => {
            let what = format!("data directory {shown} cannot be locked: {}", error.desc());
            return Err(Failure::hinted(
                Exit::Failed,
                what,
                "choose one on a local file system with --data-dir",
            ));
        }
    };
    let written =
        held.set_len(0).and_then(|()| held.write_all(format!("{}\n", std::process::id()).as_bytes()));
    written.map_err(|error| refused(&error))?;
    Ok(DataDirLock { _held: held, fresh })
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
