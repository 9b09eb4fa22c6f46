//! Walks over trees of any depth that another process may change meanwhile.

use super::dir::{Dir, Id, give, is_swap, kind, moved};
use rustix::fs::{FileType, Stat, fstat};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Descriptors that one walk keeps open, however deep the tree is.
const OPEN: usize = 32;
/// Directories in one walk: more are no tree but a process that makes them while they are walked.
const DIRS: u64 = 5_000_000;
/// A removal begins anew so often when something appears behind it.
const ROUNDS: u32 = 16;

/// The directories from the top of a walk down to where it is. Only the deepest are open; one above is found again as the parent of
/// the one below it, and is refused when it is not the same any more.
pub(super) struct Levels {
    levels: Vec<(Option<Dir>, Id)>,
}

impl Levels {
    pub(super) fn new(top: Dir) -> io::Result<Self> {
        let id = Id::of(&top.about()?);
        Ok(Self { levels: vec![(Some(top), id)] })
    }

    /// The deepest.
    pub(super) fn here(&self) -> io::Result<&Dir> {
        self.levels.last().and_then(|(dir, _)| dir.as_ref()).ok_or_else(moved)
    }

    pub(super) fn enter(&mut self, dir: Dir) -> io::Result<()> {
        let id = Id::of(&dir.about()?);
        self.levels.push((Some(dir), id));
        // The top stays open: what is below it may be moved away.
        let far = self.levels.len().checked_sub(OPEN).filter(|far| *far > 0);
        if let Some((dir, _)) = far.and_then(|far| self.levels.get_mut(far)) {
            *dir = None;
        }
        Ok(())
    }

    /// Goes up, and gives back the directory that was left.
    pub(super) fn leave(&mut self) -> io::Result<Dir> {
        let (left, _) = self.levels.pop().ok_or_else(moved)?;
        let left = left.ok_or_else(moved)?;
        if let Some((dir @ None, id)) = self.levels.last_mut() {
            let above = left.up()?;
            if Id::of(&above.about()?) != *id {
                return Err(moved());
            }
            *dir = Some(above);
        }
        Ok(left)
    }
}

/// What is done on a walk.
trait Visit {
    /// An entry that is no directory.
    fn file(&mut self, dir: &Dir, name: &OsStr, about: &Stat) -> io::Result<()>;

    /// Opens a directory to walk through it; `None`: it is passed over.
    fn open(&mut self, dir: &Dir, name: &OsStr, about: &Stat) -> io::Result<Option<Dir>>;

    /// A directory, after all that is in it. `above` is where it was found, under this name.
    fn dir(&mut self, above: &Dir, name: &OsStr, dir: &Dir) -> io::Result<()>;
}

/// Walks through everything in `top`, itself not included.
fn walk(top: Dir, visit: &mut impl Visit) -> io::Result<()> {
    let mut levels = Levels::new(top)?;
    let mut names: Vec<OsString> = Vec::new();
    let mut waiting = vec![look_in(levels.here()?, visit)?];
    for _ in 0..DIRS {
        let Some(here) = waiting.last_mut() else { return Ok(()) };
        let Some(name) = here.pop() else {
            waiting.pop();
            if let Some(name) = names.pop() {
                let left = levels.leave()?;
                visit.dir(levels.here()?, &name, &left)?;
            }
            continue;
        };
        let dir = levels.here()?;
        let Some(about) = dir.look(&name)? else { continue };
        let opened = match visit.open(dir, &name, &about) {
            Err(error) if is_swap(&error) => None,
            done => done?,
        };
        if let Some(dir) = opened {
            waiting.push(look_in(&dir, visit)?);
            names.push(name);
            levels.enter(dir)?;
        }
    }
    Err(moved())
}

/// Visits all that is directly in a directory but directories, whose names it gives back.
fn look_in(dir: &Dir, visit: &mut impl Visit) -> io::Result<Vec<OsString>> {
    let mut dirs = Vec::new();
    for name in dir.names()? {
        match dir.look(&name)? {
            None => {}
            Some(about) if kind(&about) == FileType::Directory => dirs.push(name),
            Some(about) => match visit.file(dir, &name, &about) {
                Err(error) if is_swap(&error) => {}
                done => done?,
            },
        }
    }
    Ok(dirs)
}

/// Removes a tree, also one whose owner took away rights; one that is not there is fine. Nothing outside of it is touched, whatever
/// another process does in it meanwhile; one that never stops adding to it makes this fail.
pub(crate) fn remove_tree(tree: &Path) -> io::Result<()> {
    let (above, name) = match Dir::above(tree) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    remove_in(&above, name)
}

/// Removes whatever has this name in a directory.
pub(super) fn remove_in(above: &Dir, name: &OsStr) -> io::Result<()> {
    let mut fault = None;
    for _ in 0..ROUNDS {
        let Some(about) = above.look(name)? else { return Ok(()) };
        if kind(&about) != FileType::Directory {
            if above.unlink(name)? {
                return Ok(());
            }
            continue;
        }
        let walked = above.open_usable(name).and_then(|top| walk(top, &mut Remove));
        if above.remove_dir(name)? {
            return Ok(());
        }
        match walked {
            // What this process may not do it may not do in another round either.
            Err(error) if error.raw_os_error().is_some() && !is_swap(&error) => return Err(error),
            walked => fault = walked.err(),
        }
    }
    Err(fault.unwrap_or_else(|| io::Error::from(io::ErrorKind::DirectoryNotEmpty)))
}

struct Remove;

impl Visit for Remove {
    fn file(&mut self, dir: &Dir, name: &OsStr, _: &Stat) -> io::Result<()> {
        // What has become a directory meanwhile is for the next round.
        dir.unlink(name).map(|_| ())
    }

    fn open(&mut self, dir: &Dir, name: &OsStr, _: &Stat) -> io::Result<Option<Dir>> {
        dir.open_usable(name).map(Some)
    }

    fn dir(&mut self, above: &Dir, name: &OsStr, _: &Dir) -> io::Result<()> {
        above.remove_dir(name).map(|_| ())
    }
}

/// Gives a whole tree to a user. Links are given, not followed. A file that is neither the tree's owner's nor the user's was put there
/// by a hard link, and is taken out of the tree instead of being given away.
pub(crate) fn own_tree(tree: &Path, uid: u32) -> io::Result<()> {
    let top = Dir::at(tree)?;
    let before = top.about()?.st_uid;
    walk(Dir::at(tree)?, &mut Own { before, uid })?;
    top.give(uid)
}

struct Own {
    before: u32,
    uid: u32,
}

impl Visit for Own {
    fn file(&mut self, dir: &Dir, name: &OsStr, _: &Stat) -> io::Result<()> {
        let node = dir.node(name)?;
        let about = fstat(&node)?;
        if about.st_uid == self.before || about.st_uid == self.uid {
            return give(node.as_fd(), self.uid);
        }
        tracing::warn!(?name, owner = about.st_uid, "a file of another user is taken out of a directory");
        dir.unlink(name).map(|_| ())
    }

    fn open(&mut self, dir: &Dir, name: &OsStr, _: &Stat) -> io::Result<Option<Dir>> {
        dir.open_usable(name).map(Some)
    }

    fn dir(&mut self, _: &Dir, _: &OsStr, dir: &Dir) -> io::Result<()> {
        dir.give(self.uid)
    }
}

/// What an inode counts at least, in bytes. Empty files take no blocks, but a file system has only so many inodes: so every
/// limit in bytes is a limit of inodes too, no more than one for each 4 KiB of it.
const INODE: u64 = 4096;

/// Bytes that a tree takes on the disk, [`INODE`] at least for each thing in it, a file with several names once. What cannot be read counts as nothing; where another
/// process moves directories about, what was seen so far counts.
pub(crate) fn tree_size(tree: &Path) -> u64 {
    let mut measure = Measure::default();
    let Ok(top) = Dir::at(tree) else {
        let about = Dir::above(tree).and_then(|(above, name)| above.look(name)).ok().flatten();
        return about.map_or(0, |about| blocks(&about));
    };
    measure.bytes = top.about().map_or(0, |about| blocks(&about));
    if let Err(error) = walk(top, &mut measure) {
        tracing::debug!(dir = %tree.display(), %error, "a directory could not be measured whole");
    }
    measure.bytes
}

#[derive(Default)]
struct Measure {
    bytes: u64,
    /// Files with several names that were counted.
    seen: HashSet<Id>,
}

impl Visit for Measure {
    fn file(&mut self, _: &Dir, _: &OsStr, about: &Stat) -> io::Result<()> {
        if about.st_nlink < 2 || self.seen.insert(Id::of(about)) {
            self.bytes = self.bytes.saturating_add(blocks(about));
        }
        Ok(())
    }

    fn open(&mut self, dir: &Dir, name: &OsStr, about: &Stat) -> io::Result<Option<Dir>> {
        self.bytes = self.bytes.saturating_add(blocks(about));
        match dir.open(name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
            done => done.map(Some),
        }
    }

    fn dir(&mut self, _: &Dir, _: &OsStr, _: &Dir) -> io::Result<()> {
        Ok(())
    }
}

fn blocks(about: &Stat) -> u64 {
    u64::try_from(about.st_blocks).unwrap_or(0).saturating_mul(512).max(INODE)
}
