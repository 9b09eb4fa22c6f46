//! Who a manager is: an id that lasts as long as its data directory, and an incarnation for each start.

use crate::error::ManagerError;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use towpath_types::{Incarnation, ManagerId};

/// Id and last incarnation, with the files that keep them.
#[derive(Debug)]
pub(crate) struct Identity {
    manager: ManagerId,
    last: Incarnation,
    file: PathBuf,
}

/// The highest incarnation that both databases can hold, with room above it.
const HIGHEST: u64 = i64::MAX as u64 / 2;

impl Identity {
    fn damaged(&self, why: &str) -> ManagerError {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidData, why);
        ManagerError::File { path: self.file.clone(), source }
    }

    /// The id.
    pub(crate) fn manager(&self) -> ManagerId {
        self.manager
    }

    /// The next incarnation: the given wall time, raised above the last one and above `floor`. It is on disk when this returns.
    pub(crate) fn next_incarnation(
        &mut self,
        now_ms: u64,
        floor: Incarnation,
    ) -> Result<Incarnation, ManagerError> {
        let above = self.last.max(floor).0.checked_add(1).filter(|above| *above <= HIGHEST);
        let above =
            above.ok_or_else(|| self.damaged("the incarnation in it, or in the store, is too high"))?;
        let next = Incarnation(now_ms.min(HIGHEST).max(above));
        write(&self.file, &next.0.to_string())?;
        self.last = next;
        Ok(next)
    }
}

/// Reads the identity, or makes one.
pub(crate) fn load(data_dir: &Path) -> Result<Identity, ManagerError> {
    std::fs::create_dir_all(data_dir)
        .map_err(|source| ManagerError::File { path: data_dir.to_owned(), source })?;
    let id_file = data_dir.join("manager-id");
    let found = read(&id_file)?.map(|text| text.trim().to_owned());
    let manager = match found.as_deref().map(str::parse::<ManagerId>) {
        Some(Ok(id)) => id,
        // What fills or breaks a disk leaves empty files. The old id is lost with it; its row is evicted like that of any
        // manager that is gone, and what it left is taken up by this one.
        None | Some(Err(_)) if found.as_deref().is_none_or(str::is_empty) => {
            if found.is_some() {
                tracing::warn!(file = %id_file.display(), "the manager's id is gone from its file; it gets a new one");
            }
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            let mut random = [0; 10];
            fastrand::fill(&mut random);
            let id = ManagerId::mint(u64::try_from(now).unwrap_or_default(), random);
            write(&id_file, &id.to_string())?;
            id
        }
        Some(Err(_)) | None => {
            let why = "it holds no manager id; restore it from a backup, or remove it to get a new one";
            let source = std::io::Error::new(std::io::ErrorKind::InvalidData, why);
            return Err(ManagerError::File { path: id_file, source });
        }
    };
    let file = data_dir.join("manager-incarnation");
    let last = read(&file)?.and_then(|text| text.trim().parse().ok()).unwrap_or_default();
    Ok(Identity { manager, last: Incarnation(last), file })
}

fn read(path: &Path) -> Result<Option<String>, ManagerError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ManagerError::File { path: path.to_owned(), source }),
    }
}

/// Writes beside, then renames, so that a crash leaves the old or the new text, even one of the whole machine.
fn write(path: &Path, text: &str) -> Result<(), ManagerError> {
    let beside = path.with_extension("new");
    let write = || {
        let mut file = File::create(&beside)?;
        file.write_all(format!("{text}\n").as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    };
    write().map_err(|source| ManagerError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_lasts_and_incarnations_only_grow() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = load(dir.path()).unwrap();
        let a = first.next_incarnation(1000, Incarnation(0)).unwrap();
        let b = first.next_incarnation(10, Incarnation(0)).unwrap();
        assert_eq!((a, b), (Incarnation(1000), Incarnation(1001)));
        let mut again = load(dir.path()).unwrap();
        assert_eq!(again.manager(), first.manager());
        assert_eq!(again.next_incarnation(5, Incarnation(7000)).unwrap(), Incarnation(7001));
    }

    #[test]
    fn an_incarnation_that_has_no_next_one_is_an_error_and_no_overflow() {
        let dir = tempfile::tempdir().unwrap();
        load(dir.path()).unwrap();
        std::fs::write(dir.path().join("manager-incarnation"), u64::MAX.to_string()).unwrap();
        let error = load(dir.path()).unwrap().next_incarnation(1000, Incarnation(0)).unwrap_err();
        assert!(error.to_string().contains("manager-incarnation"), "{error}");
        std::fs::remove_file(dir.path().join("manager-incarnation")).unwrap();
        let mut identity = load(dir.path()).unwrap();
        assert!(identity.next_incarnation(1000, Incarnation(u64::MAX)).is_err());
        assert_eq!(identity.next_incarnation(1000, Incarnation(0)).unwrap(), Incarnation(1000));
    }

    #[test]
    fn a_damaged_id_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("manager-id"), "nonsense").unwrap();
        let error = load(dir.path()).unwrap_err();
        assert!(error.to_string().contains("manager-id"), "{error}");
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("remove it to get a new one"), "{why}");
        std::fs::remove_file(dir.path().join("manager-id")).unwrap();
        load(dir.path()).unwrap();
    }

    #[test]
    fn an_emptied_id_is_made_anew_and_incarnations_grow_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = load(dir.path()).unwrap();
        first.next_incarnation(5000, Incarnation(0)).unwrap();
        std::fs::write(dir.path().join("manager-id"), "\n").unwrap();
        let mut second = load(dir.path()).unwrap();
        assert_ne!(first.manager(), second.manager());
        assert!(second.next_incarnation(10, Incarnation(0)).unwrap() > Incarnation(5000));
        assert_eq!(load(dir.path()).unwrap().manager(), second.manager(), "it lasts");
        std::fs::write(dir.path().join("manager-incarnation"), "").unwrap();
        let mut third = load(dir.path()).unwrap();
        assert_eq!(third.next_incarnation(7, Incarnation(0)).unwrap(), Incarnation(7), "the store raises it");
    }
}
