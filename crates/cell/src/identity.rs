//! Who this cell is: an id for the life of its data directory, and which start of it this is.

use crate::{CellError, disk};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};
use towpath_types::{CellId, Incarnation};

const FILE: &str = "cell.json";
const COPY: &str = "cell.json.copy";

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
    /// The identity on disk with the next incarnation, or a new one where there is none yet. A damaged file is kept aside and its
    /// copy is used; without a whole copy the cell does not start: as another cell it would lose its instances.
    pub(crate) fn load(data_dir: &Path, now_ms: u64) -> Result<Self, CellError> {
        let path = data_dir.join(FILE);
        let found = match (read(&path)?, read(&data_dir.join(COPY))?) {
            (OnDisk::Whole(identity), _) => Some(identity),
            (OnDisk::None, OnDisk::None) => None,
            (OnDisk::Damaged(why), OnDisk::Whole(copy)) => {
                let aside = path.with_extension("json.bad");
                std::fs::rename(&path, &aside).map_err(CellError::io(&aside))?;
                tracing::error!(why, kept = %aside.display(), "the cell's identity is damaged; using its copy");
                Some(copy)
            }
            (OnDisk::None, OnDisk::Whole(copy)) => {
                tracing::error!(path = %path.display(), "the cell's identity is gone; using its copy");
                Some(copy)
            }
            (OnDisk::Damaged(why), _) | (OnDisk::None, OnDisk::Damaged(why)) => {
                return Err(CellError::Identity { path, why });
            }
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

    /// Replaces the file, and then its copy: one of the two is whole at any moment, whatever happens to a disk block.
    pub(crate) fn save(&self) -> Result<(), CellError> {
        for path in [self.path.clone(), self.path.with_file_name(COPY)] {
            disk::write_json(&path, self).map_err(CellError::io(path))?;
        }
        Ok(())
    }
}

/// What a file of the identity holds.
enum OnDisk {
    None,
    Whole(Identity),
    Damaged(String),
}

fn read(path: &Path) -> Result<OnDisk, CellError> {
    match std::fs::read(path) {
        Ok(bytes) if bytes.is_empty() => Ok(OnDisk::Damaged("it is empty".into())),
        Ok(bytes) => {
            Ok(serde_json::from_slice(&bytes).map_or_else(|e| OnDisk::Damaged(e.to_string()), OnDisk::Whole))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(OnDisk::None),
        Err(error) => Err(CellError::io(path)(error)),
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
    nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock).map_err(|(_, error)| {
        match error {
            nix::errno::Errno::EWOULDBLOCK => CellError::InUse(data_dir.to_owned()),
            // A file system without locks, for example.
            other => CellError::io(&path)(other.into()),
        }
    })
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
    }

    #[test]
    fn a_damaged_identity_is_taken_from_its_copy_and_never_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (file, copy) = (dir.path().join(FILE), dir.path().join(COPY));
        let first = Identity::load(dir.path(), 1000).unwrap();
        for damage in ["", "{", "[]", "\0\0\0"] {
            std::fs::write(&file, damage).unwrap();
            let again = Identity::load(dir.path(), 10).unwrap();
            assert_eq!(again.cell, first.cell, "{damage:?}");
            assert!(again.incarnation > first.incarnation);
            assert_eq!(std::fs::read_to_string(dir.path().join("cell.json.bad")).unwrap(), damage);
        }
        std::fs::remove_file(&file).unwrap();
        assert_eq!(Identity::load(dir.path(), 10).unwrap().cell, first.cell);
        std::fs::write(&copy, "").unwrap();
        assert_eq!(Identity::load(dir.path(), 10).unwrap().cell, first.cell, "the copy is not needed");
        for path in [&file, &copy] {
            std::fs::write(path, "").unwrap();
        }
        let error = Identity::load(dir.path(), 10).unwrap_err().to_string();
        assert!(error.contains("cell.json") && error.contains("it is empty"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "", "nothing is written");
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
