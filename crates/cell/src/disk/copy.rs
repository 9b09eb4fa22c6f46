//! Copies of releases for instances: made, and made as new again.
//!
//! The original lies where only the cell can change anything, so it is read by paths. The copy belongs to an app of which a process
//! may have survived, so it is only touched through descriptors.

use super::dir::{Dir, give, kind, moved};
use super::walk::{Levels, remove_in};
use rustix::fs::{FileType, fstat};
use std::ffi::OsStr;
use std::fs::{self, DirEntry, File, Metadata};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

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
    let (above, name) = Dir::above(to)?;
    let mut copy = Copy { owner, levels: Levels::new(above.make(name)?)? };
    copy.fill(from, false)?;
    finish(copy.levels.here()?, 0o700, owner)
}

/// Makes a used copy be as [`copy_tree`] makes a new one, and writes only what differs: where an app has changed nothing, that needs
/// no room. Nothing should run in it any more; what does can spoil the copy, and nothing else.
pub(crate) fn reset_tree(from: &Path, to: &Path, owner: Option<u32>) -> io::Result<()> {
    let (above, name) = Dir::above(to)?;
    let mut copy = Copy { owner, levels: Levels::new(above.open_usable(name)?)? };
    copy.clear(from)?;
    copy.complete(from, false)?;
    finish(copy.levels.here()?, 0o700, owner)
}

/// Lets the owner in, last of all.
fn finish(dir: &Dir, mode: u32, owner: Option<u32>) -> io::Result<()> {
    dir.set_mode(mode)?;
    owner.map_or(Ok(()), |owner| dir.give(owner))
}

/// A copy being made, at the deepest of its levels.
struct Copy {
    owner: Option<u32>,
    levels: Levels,
}

impl Copy {
    /// Copies all that is in `from` to the empty directory here.
    fn fill(&mut self, from: &Path, is_shared: bool) -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            self.add(&entry?, is_shared)?;
        }
        Ok(())
    }

    /// Copies one entry to the directory here, where nothing has its name.
    fn add(&mut self, entry: &DirEntry, is_shared: bool) -> io::Result<()> {
        let (name, path, about) = (entry.file_name(), entry.path(), entry.metadata()?);
        let here = self.levels.here()?;
        if about.is_dir() {
            self.levels.enter(here.make(&name)?)?;
            self.fill(&path, self.shares(&name, is_shared))?;
            return finish(&self.levels.leave()?, mode_of(&about), self.owner);
        }
        if about.is_symlink() {
            here.make_link(&name, fs::read_link(&path)?.as_os_str())?;
            return self.owner.map_or(Ok(()), |owner| give_link(here, &name, owner));
        }
        if !about.is_file() {
            return Err(io::Error::other(format!("{} is neither file nor directory", path.display())));
        }
        if is_shared && is_safe_to_share(&about) && here.link_file(&name, &path).is_ok() {
            return Ok(());
        }
        let mut file = here.create_file(&name)?;
        io::copy(&mut File::open(&path)?, &mut file)?;
        if let Some(owner) = self.owner {
            give(file.as_fd(), owner)?;
        }
        file.set_permissions(fs::Permissions::from_mode(about.mode() & 0o777))
    }

    /// Whether files below a directory of this name are shared.
    fn shares(&self, name: &OsStr, is_shared: bool) -> bool {
        is_shared || (self.owner.is_some() && DEPENDENCIES.iter().any(|dependencies| name == *dependencies))
    }

    /// Removes what differs from the original in the directory here: what gives room comes before what takes it.
    fn clear(&mut self, from: &Path) -> io::Result<()> {
        for name in self.levels.here()?.names()? {
            let here = self.levels.here()?;
            let Some(about) = here.look(&name)? else { continue };
            let original = from.join(&name);
            match (kind(&about), metadata(&original)?) {
                (FileType::Directory, Some(known)) if known.is_dir() => {
                    self.levels.enter(here.open_usable(&name)?)?;
                    self.clear(&original)?;
                    self.levels.leave()?;
                }
                (FileType::Symlink, Some(known)) if known.is_symlink() => {
                    if fs::read_link(&original)?.as_os_str() != here.link_target(&name)? {
                        remove_in(here, &name)?;
                    }
                }
                (FileType::RegularFile, Some(known)) if known.is_file() => {
                    if !self.is_same_file(&original, &known, &name)? {
                        remove_in(here, &name)?;
                    }
                }
                _ => remove_in(here, &name)?,
            }
        }
        Ok(())
    }

    /// Adds what the directory here lacks.
    fn complete(&mut self, from: &Path, is_shared: bool) -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let (name, here) = (entry.file_name(), self.levels.here()?);
            if here.look(&name)?.is_none() {
                self.add(&entry, is_shared)?;
            } else if entry.file_type()?.is_dir() {
                self.levels.enter(here.open_usable(&name)?)?;
                self.complete(&entry.path(), self.shares(&name, is_shared))?;
                finish(&self.levels.leave()?, mode_of(&entry.metadata()?), self.owner)?;
            }
        }
        Ok(())
    }

    /// Whether a file is still as it was copied: the same file, or one of its own with the same mode and content.
    fn is_same_file(&self, original: &Path, known: &Metadata, name: &OsStr) -> io::Result<bool> {
        let mut copy = match self.levels.here()?.open_file(name) {
            Ok(file) => file,
            // Another thing now, or one that its owner closed.
            Err(_) => return Ok(false),
        };
        let about = copy.metadata()?;
        if (known.dev(), known.ino()) == (about.dev(), about.ino()) {
            return Ok(is_safe_to_share(known));
        }
        let is_owned = self.owner.is_none_or(|owner| about.uid() == owner);
        if !is_owned || known.len() != about.len() || known.mode() != about.mode() || about.nlink() != 1 {
            return Ok(false);
        }
        let mut original = File::open(original)?;
        let (mut here, mut there) = (vec![0; COMPARED], vec![0; COMPARED]);
        loop {
            let read = original.read(&mut here)?;
            if read == 0 {
                return Ok(true);
            }
            let (Some(here), Some(there)) = (here.get(..read), there.get_mut(..read)) else {
                return Ok(false);
            };
            match copy.read_exact(there) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                done => done?,
            }
            if *here != *there {
                return Ok(false);
            }
        }
    }
}

/// Gives a link that was just made; what has taken its place meanwhile is not given away.
fn give_link(dir: &Dir, name: &OsStr, owner: u32) -> io::Result<()> {
    let node = dir.node(name)?;
    if kind(&fstat(&node)?) == FileType::Symlink { give(node.as_fd(), owner) } else { Err(moved()) }
}

/// Whether nobody but this process's user can change a file through another name of it.
fn is_safe_to_share(about: &Metadata) -> bool {
    about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o7022 == 0
}

/// The mode of a directory, usable for its owner.
fn mode_of(about: &Metadata) -> u32 {
    about.mode() & 0o777 | 0o700
}

fn metadata(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(about) => Ok(Some(about)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
