//! Where a cell keeps its files.
//!
//! `data_dir/`: `cell.json`, `ledger.json`, `artifacts/`.
//! `runtime_dir/` (others may pass through): `instances/<id>/`, `ended-logs/`, `builds/`, `build-cache/`, `bin/`.

use crate::{CellError, CellSettings, disk};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use towpath_types::CellId;

/// Runtime directories of cells whose data directory is closed to other users.
const SHARED: &str = "/var/lib/towpath/cells";
/// In such a directory: the data directory that it belongs to.
const OWNER_FILE: &str = "data-dir";

/// All directories, made.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) instances: PathBuf,
    pub(crate) artifacts: PathBuf,
    pub(crate) builds: PathBuf,
    pub(crate) build_cache: PathBuf,
    pub(crate) ended_logs: PathBuf,
    /// Runtime directories of cells whose data directory is gone.
    pub(crate) orphans: Vec<PathBuf>,
    /// The running binary, at a path where every user can run it.
    pub(crate) binary: PathBuf,
}

impl Places {
    /// Makes what is missing. With `separate_users` the runtime directory must be one that every user can pass through.
    pub(crate) fn make(
        settings: &CellSettings,
        cell: CellId,
        separate_users: bool,
    ) -> Result<Self, CellError> {
        let data = std::path::absolute(&settings.data_dir).map_err(CellError::io(&settings.data_dir))?;
        let runtime = match &settings.runtime_dir {
            Some(dir) => std::path::absolute(dir).map_err(CellError::io(dir))?,
            None => choose_runtime(&data, cell, separate_users)?,
        };
        let make = |path: PathBuf, mode| -> Result<PathBuf, CellError> {
            std::fs::create_dir_all(&path)
                .and_then(|()| disk::set_mode(&path, mode))
                .map_err(CellError::io(&path))?;
            Ok(path)
        };
        make(runtime.clone(), 0o711)?;
        let binary = match separate_users {
            true => offer_binary(&settings.shim.program, &make(runtime.join("bin"), 0o711)?)
                .map_err(CellError::io(runtime.join("bin")))?,
            false => std::fs::read_link(&settings.shim.program).unwrap_or(settings.shim.program.clone()),
        };
        Ok(Self {
            instances: make(runtime.join("instances"), 0o711)?,
            builds: make(runtime.join("builds"), 0o711)?,
            artifacts: make(data.join("artifacts"), 0o700)?,
            build_cache: make(runtime.join("build-cache"), 0o711)?,
            ended_logs: make(runtime.join("ended-logs"), 0o700)?,
            orphans: if separate_users { find_orphans(Path::new(SHARED)) } else { Vec::new() },
            binary,
        })
    }
}

fn choose_runtime(data: &Path, cell: CellId, separate_users: bool) -> Result<PathBuf, CellError> {
    if !separate_users {
        return Ok(data.join("run"));
    }
    // Opening directories that others may have closed on purpose is not ours to do.
    if disk::is_open_to_all(data) {
        return Ok(data.join("run"));
    }
    let dir = Path::new(SHARED).join(cell.to_string());
    std::fs::create_dir_all(&dir).map_err(CellError::io(&dir))?;
    let owner = dir.join(OWNER_FILE);
    std::fs::write(&owner, data.as_os_str().as_encoded_bytes()).map_err(CellError::io(&owner))?;
    tracing::info!(dir = %dir.display(), "instances run as other users, who cannot reach the data directory: they live here");
    Ok(dir)
}

/// Runtime directories whose data directory is gone: no cell will ever look after what is there.
fn find_orphans(shared: &Path) -> Vec<PathBuf> {
    let is_orphan = |dir: &PathBuf| {
        std::fs::read_to_string(dir.join(OWNER_FILE)).is_ok_and(|owner| !Path::new(&owner).exists())
    };
    std::fs::read_dir(shared)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(is_orphan)
        .collect()
}

/// A hard link to the running binary, or a copy where none can be made.
fn offer_binary(program: &Path, dir: &Path) -> io::Result<PathBuf> {
    let source = std::fs::canonicalize(program)?;
    let offered = dir.join("towpath");
    let is_same = |a: &std::fs::Metadata, b: &std::fs::Metadata| {
        (a.dev(), a.ino()) == (b.dev(), b.ino()) || (a.len() == b.len() && a.mtime() == b.mtime())
    };
    let about = std::fs::metadata(&source)?;
    if std::fs::metadata(&offered).is_ok_and(|old| is_same(&old, &about)) {
        return Ok(offered);
    }
    let new = dir.join("towpath.new");
    disk::remove_if_there(&new)?;
    // Only a file that others may execute anyway can be shared as it is.
    let can_link = about.mode() & 0o005 == 0o005;
    if !(can_link && std::fs::hard_link(&source, &new).is_ok()) {
        std::fs::copy(&source, &new)?;
        disk::set_mode(&new, 0o755)?;
        std::fs::File::open(&new)?.set_modified(about.modified()?)?;
    }
    std::fs::rename(&new, &offered)?;
    Ok(offered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_offered_once() {
        let dir = tempfile::tempdir().unwrap();
        let first = offer_binary(Path::new("/bin/sh"), dir.path()).unwrap();
        let inode = std::fs::metadata(&first).unwrap().ino();
        assert_eq!(offer_binary(Path::new("/bin/sh"), dir.path()).unwrap(), first);
        assert_eq!(std::fs::metadata(&first).unwrap().ino(), inode);
    }

    #[test]
    fn runtime_directories_of_vanished_cells_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for (name, owner) in [("gone", "/no/such/dir"), ("here", "/")] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join(OWNER_FILE), owner).unwrap();
        }
        std::fs::create_dir(dir.path().join("unknown")).unwrap();
        assert_eq!(find_orphans(dir.path()), [dir.path().join("gone")]);
        assert_eq!(find_orphans(&dir.path().join("none")), Vec::<PathBuf>::new());
    }
}
