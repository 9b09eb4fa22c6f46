//! Trees of files: copied, owned, measured, removed. All of it blocks.
//!
//! What works on a tree holds directories by their descriptors and never follows a link: a process of an app or a build may have
//! survived, and may rename, swap and nest what it owns while the cell, as root, works in it. See `docs/adr/0044`.

mod copy;
mod dir;
mod walk;

pub(crate) use copy::{copy_tree, reset_tree};
pub(crate) use dir::{Dir, kind};
pub(crate) use walk::{own_tree, remove_tree, tree_size};

use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes a file; one that is not there is fine.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Sets the mode of something that only the cell can replace.
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Replaces a JSON file so that after a crash at any moment either the old or the new one is there, whole.
pub(crate) fn write_json(path: &Path, content: &impl Serialize) -> io::Result<()> {
    write_whole(path, &serde_json::to_vec(content)?)
}

/// Replaces a file in the same way.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut temporary = tempfile::NamedTempFile::new_in(dir)?;
    temporary.write_all(content)?;
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    File::open(dir)?.sync_all()
}

/// Bytes that may still be written to the file system of `path`.
pub(crate) fn free_space(path: &Path) -> io::Result<u64> {
    let about = nix::sys::statvfs::statvfs(path)?;
    Ok(about.blocks_available() * about.fragment_size())
}

/// Whether every user may pass through this directory and all above it.
pub(crate) fn is_open_to_all(path: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|path| {
        path.ancestors()
            .all(|dir| fs::metadata(dir).is_ok_and(|about| about.permissions().mode() & 0o001 != 0))
    })
}

#[cfg(test)]
mod tests;
