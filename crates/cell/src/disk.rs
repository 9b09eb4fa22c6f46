//! Trees of files: copied, owned, measured, removed. All of it blocks.

use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

/// Directories of installed dependencies: many files, which apps read but do not change.
const DEPENDENCIES: [&str; 2] = ["node_modules", "site-packages"];

/// Copies a tree. The copy belongs to `owner`, and its top directory is closed to all others. Symlinks stay symlinks; anything
/// that is no file, directory or symlink is refused.
///
/// With an `owner`, who cannot write to files of this process, dependencies are shared with the original by hard links: an app
/// can replace and add files there, but not change one in place.
pub(crate) fn copy_tree(from: &Path, to: &Path, owner: Option<u32>) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(to)?;
    let mut waiting = vec![(PathBuf::new(), false)];
    while let Some((dir, is_shared)) = waiting.pop() {
        for entry in fs::read_dir(from.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            let (kind, target) = (entry.file_type()?, to.join(&path));
            if kind.is_dir() {
                fs::create_dir(&target)?;
                let is_dependencies = DEPENDENCIES.iter().any(|name| entry.file_name() == *name);
                waiting.push((path, is_shared || (is_dependencies && owner.is_some())));
            } else if kind.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(entry.path())?, &target)?;
            } else if kind.is_file() {
                if is_shared && fs::hard_link(entry.path(), &target).is_ok() {
                    continue;
                }
                fs::copy(entry.path(), &target)?;
            } else {
                return Err(io::Error::other(format!("{} is neither file nor directory", path.display())));
            }
            if let Some(owner) = owner {
                lchown(&target, Some(owner), Some(owner))?;
            }
        }
    }
    if let Some(owner) = owner {
        lchown(to, Some(owner), Some(owner))?;
    }
    Ok(())
}

/// Gives a whole tree to a user; symlinks are given, not followed.
pub(crate) fn own_tree(tree: &Path, uid: u32) -> io::Result<()> {
    lchown(tree, Some(uid), Some(uid))?;
    if !fs::symlink_metadata(tree)?.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(tree)? {
        own_tree(&entry?.path(), uid)?;
    }
    Ok(())
}

/// Removes a tree, also one whose owner took away rights; one that is not there is fine.
pub(crate) fn remove_tree(tree: &Path) -> io::Result<()> {
    match fs::remove_dir_all(tree) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_dirs(tree)?;
            fs::remove_dir_all(tree)
        }
        done => done,
    }
}

/// Makes every directory of a tree writable for its owner.
fn open_dirs(dir: &Path) -> io::Result<()> {
    if fs::symlink_metadata(dir)?.is_dir() {
        set_mode(dir, 0o700)?;
        for entry in fs::read_dir(dir)? {
            open_dirs(&entry?.path())?;
        }
    }
    Ok(())
}

/// Removes a file; one that is not there is fine.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Sets a mode.
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Replaces a JSON file so that after a crash at any moment either the old or the new one is there, whole.
pub(crate) fn write_json(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut temporary = tempfile::NamedTempFile::new_in(dir)?;
    temporary.write_all(&serde_json::to_vec(content)?)?;
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    File::open(dir)?.sync_all()
}

/// Bytes that a tree takes; what cannot be read counts as nothing.
pub(crate) fn tree_size(tree: &Path) -> u64 {
    let Ok(about) = fs::symlink_metadata(tree) else { return 0 };
    if !about.is_dir() {
        return about.len();
    }
    let entries = fs::read_dir(tree).into_iter().flatten().flatten();
    entries.map(|entry| tree_size(&entry.path())).sum::<u64>() + 4096
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
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_copied_with_links_and_modes_and_removed_whatever_its_rights() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/run"), "x").unwrap();
        set_mode(&from.join("a/b/run"), 0o755).unwrap();
        std::os::unix::fs::symlink("a/b/run", from.join("link")).unwrap();
        copy_tree(&from, &to, None).unwrap();
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("a/b/run"));
        assert_eq!(fs::metadata(to.join("a/b/run")).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(tree_size(&to) > 4096);
        set_mode(&to.join("a"), 0o000).unwrap();
        remove_tree(&to).unwrap();
        assert!(!to.exists());
        remove_tree(&to).unwrap();
    }

    #[test]
    fn dependencies_are_shared_with_an_owner_who_cannot_change_them() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::create_dir_all(from.join("node_modules/left-pad")).unwrap();
        fs::write(from.join("node_modules/left-pad/index.js"), "x").unwrap();
        fs::write(from.join("app.js"), "x").unwrap();
        let me = nix::unistd::geteuid();
        let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
        copy_tree(&from, &dir.path().join("own"), None).unwrap();
        let file = "node_modules/left-pad/index.js";
        assert_ne!(inode(dir.path().join("own").join(file)), inode(from.join(file)));
        let other = if me.is_root() { 200_000 } else { me.as_raw() };
        let to = dir.path().join("to");
        copy_tree(&from, &to, Some(other)).unwrap();
        assert_eq!(inode(to.join(file)), inode(from.join(file)));
        assert_eq!(fs::metadata(to.join(file)).unwrap().uid(), me.as_raw(), "still the cell's");
        assert_eq!(fs::metadata(to.join("app.js")).unwrap().uid(), other);
        assert_eq!(fs::metadata(to.join("node_modules/left-pad")).unwrap().uid(), other);
    }

    #[test]
    fn json_is_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        write_json(&path, &[1, 2]).unwrap();
        write_json(&path, &[3]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[3]");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_closed_parent_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o700).unwrap();
        assert!(!is_open_to_all(dir.path()));
        set_mode(dir.path(), 0o711).unwrap();
        assert!(is_open_to_all(dir.path()));
        assert!(free_space(dir.path()).unwrap() > 0);
    }
}
