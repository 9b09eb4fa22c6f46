//! Trees of files: copied, owned, measured, removed. All of it blocks.

use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

/// Directories of installed dependencies: many files, which apps read but do not change.
const DEPENDENCIES: [&str; 2] = ["node_modules", "site-packages"];

/// Bytes of two files that are compared at a time.
const COMPARED: usize = 64 << 10;

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

/// Makes a used copy be as [`copy_tree`] makes a new one, and writes only what differs: where an app has changed nothing, that needs
/// no room. Nothing may run in it any more.
pub(crate) fn reset_tree(from: &Path, to: &Path, owner: Option<u32>) -> io::Result<()> {
    open_dirs(to)?;
    let mut waiting = vec![PathBuf::new()];
    let mut missing = Vec::new();
    while let Some(dir) = waiting.pop() {
        // First what gives room.
        for entry in fs::read_dir(to.join(&dir))? {
            let entry = entry?;
            let (path, kind) = (dir.join(entry.file_name()), entry.file_type()?);
            let original = from.join(&path);
            let is_same = match fs::symlink_metadata(&original) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) => return Err(error),
                Ok(about) if kind.is_dir() && about.is_dir() => {
                    waiting.push(path);
                    true
                }
                Ok(about) if kind.is_symlink() && about.is_symlink() => {
                    fs::read_link(&original)? == fs::read_link(entry.path())?
                }
                Ok(about) => {
                    kind.is_file() && about.is_file() && is_same_file(&original, &entry.path(), owner)?
                }
            };
            if !is_same {
                remove_any(&entry.path(), kind.is_dir())?;
            }
        }
        missing.push(dir);
    }
    for dir in missing {
        let mode = if dir.as_os_str().is_empty() { 0o700 } else { mode_of(&from.join(&dir))? };
        set_mode(&to.join(&dir), mode)?;
        if let Some(owner) = owner {
            lchown(to.join(&dir), Some(owner), Some(owner))?;
        }
        for entry in fs::read_dir(from.join(&dir))? {
            let entry = entry?;
            let (target, kind) = (to.join(&dir).join(entry.file_name()), entry.file_type()?);
            if fs::symlink_metadata(&target).is_ok() {
                continue;
            }
            if kind.is_dir() {
                copy_tree(&entry.path(), &target, owner)?;
                set_mode(&target, mode_of(&entry.path())?)?;
            } else if kind.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(entry.path())?, &target)?;
            } else {
                fs::copy(entry.path(), &target)?;
            }
            if let Some(owner) = owner {
                lchown(&target, Some(owner), Some(owner))?;
            }
        }
    }
    Ok(())
}

/// The mode of a directory, usable for its owner.
fn mode_of(dir: &Path) -> io::Result<u32> {
    Ok(fs::metadata(dir)?.permissions().mode() & 0o777 | 0o700)
}

/// Whether a file is still as it was copied: the same file, or one of its own with the same mode and content.
fn is_same_file(original: &Path, copy: &Path, owner: Option<u32>) -> io::Result<bool> {
    let (one, other) = (fs::symlink_metadata(original)?, fs::symlink_metadata(copy)?);
    if (one.dev(), one.ino()) == (other.dev(), other.ino()) {
        return Ok(true);
    }
    let is_owned = owner.is_none_or(|owner| other.uid() == owner);
    if !is_owned || one.len() != other.len() || one.mode() != other.mode() || other.nlink() != 1 {
        return Ok(false);
    }
    let (mut one, mut other) = (File::open(original)?, File::open(copy)?);
    let (mut here, mut there) = (vec![0; COMPARED], vec![0; COMPARED]);
    loop {
        let read = one.read(&mut here)?;
        if read == 0 {
            return Ok(true);
        }
        let (Some(here), Some(there)) = (here.get(..read), there.get_mut(..read)) else { return Ok(false) };
        other.read_exact(there)?;
        if *here != *there {
            return Ok(false);
        }
    }
}

fn remove_any(path: &Path, is_dir: bool) -> io::Result<()> {
    if is_dir { remove_tree(path) } else { remove_if_there(path) }
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
    fn a_used_copy_is_made_as_new_and_what_is_unchanged_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::create_dir_all(from.join("lost/deep")).unwrap();
        for name in
            ["same", "changed", "shorter", "mode", "linked", "a/b/gone", "lost/deep/file", "becomes-dir"]
        {
            fs::write(from.join(name), format!("content of {name}")).unwrap();
        }
        std::os::unix::fs::symlink("same", from.join("link")).unwrap();
        copy_tree(&from, &to, None).unwrap();
        let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
        let before = inode("same");
        fs::write(to.join("changed"), "CONTENT OF changed").unwrap();
        fs::write(to.join("shorter"), "").unwrap();
        set_mode(&to.join("mode"), 0o777).unwrap();
        fs::hard_link(to.join("linked"), to.join("second-name")).unwrap();
        fs::remove_file(to.join("a/b/gone")).unwrap();
        fs::remove_dir_all(to.join("lost")).unwrap();
        fs::remove_file(to.join("becomes-dir")).unwrap();
        fs::create_dir_all(to.join("becomes-dir/x")).unwrap();
        fs::remove_file(to.join("link")).unwrap();
        std::os::unix::fs::symlink("/etc", to.join("link")).unwrap();
        fs::create_dir(to.join("new")).unwrap();
        fs::write(to.join("new/file"), "x").unwrap();
        set_mode(&to.join("a"), 0o000).unwrap();
        reset_tree(&from, &to, None).unwrap();
        let listing = |root: &Path| {
            let mut found = Vec::new();
            let mut waiting = vec![PathBuf::new()];
            while let Some(dir) = waiting.pop() {
                for entry in fs::read_dir(root.join(&dir)).unwrap().flatten() {
                    let path = dir.join(entry.file_name());
                    let about = fs::symlink_metadata(entry.path()).unwrap();
                    let content = if about.is_dir() {
                        waiting.push(path.clone());
                        String::new()
                    } else if about.is_symlink() {
                        format!("-> {}", fs::read_link(entry.path()).unwrap().display())
                    } else {
                        fs::read_to_string(entry.path()).unwrap()
                    };
                    found.push((path, about.mode(), content));
                }
            }
            found.sort();
            found
        };
        assert_eq!(listing(&to), listing(&from));
        assert_eq!(inode("same"), before);
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o700);
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
