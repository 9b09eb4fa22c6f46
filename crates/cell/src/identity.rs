//! Who this cell is: an id for the life of its data directory, and which start of it this is.

use crate::{CellError, disk};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};
use towpath_types::{CellId, Incarnation};

/// What `cell.json` holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) cell: CellId,
    pub(crate) incarnation: Incarnation,
    /// Whether an operator said that it takes no new instances.
    #[serde(default)]
    pub(crate) cordoned: bool,
    #[serde(skip)]
    path: PathBuf,
}

impl Identity {
    /// The identity on disk with the next incarnation, or a new one. An unreadable file is kept aside.
    pub(crate) fn load(data_dir: &Path, now_ms: u64) -> Result<Self, CellError> {
        let path = data_dir.join("cell.json");
        let found = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<Identity>(&bytes)
                .map_err(|error| {
                    tracing::error!(path = %path.display(), %error, "the cell's identity is unreadable; making a new one");
                    let _ = std::fs::rename(&path, path.with_extension("json.bad"));
                })
                .ok(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(CellError::io(path)(error)),
        };
        let mut random = [0; 10];
        fastrand::fill(&mut random);
        let mut identity = found.unwrap_or_else(|| Identity {
            cell: CellId::mint(now_ms, random),
            incarnation: Incarnation(0),
            cordoned: false,
            path: PathBuf::new(),
        });
        identity.incarnation = next_incarnation(identity.incarnation, now_ms);
        identity.path = path;
        identity.save()?;
        Ok(identity)
    }

    pub(crate) fn save(&self) -> Result<(), CellError> {
        disk::write_json(&self.path, self).map_err(CellError::io(&self.path))
    }
}

/// Grows whatever the clock does.
fn next_incarnation(last: Incarnation, now_ms: u64) -> Incarnation {
    Incarnation(now_ms.max(last.0.saturating_add(1)))
}

/// Takes the lock on the data directory; held while the file is open, so that it cannot outlive the process.
pub(crate) fn lock(data_dir: &Path) -> Result<nix::fcntl::Flock<File>, CellError> {
    let path = data_dir.join("cell.lock");
    let file = File::options().create(true).append(true).open(&path).map_err(CellError::io(&path))?;
    nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock)
        .map_err(|_| CellError::InUse(data_dir.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_stays_and_the_incarnation_grows_even_if_the_clock_goes_back() {
        let dir = tempfile::tempdir().unwrap();
        let first = Identity::load(dir.path(), 1000).unwrap();
        let second = Identity::load(dir.path(), 10).unwrap();
        assert_eq!(first.cell, second.cell);
        assert_eq!(second.incarnation, Incarnation(1001));
        std::fs::write(dir.path().join("cell.json"), "{").unwrap();
        assert_ne!(Identity::load(dir.path(), 10).unwrap().cell, first.cell);
        assert!(dir.path().join("cell.json.bad").exists());
    }

    #[test]
    fn one_data_directory_is_for_one_cell() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        assert!(matches!(lock(dir.path()), Err(CellError::InUse(_))));
        drop(held);
        lock(dir.path()).unwrap();
    }
}
