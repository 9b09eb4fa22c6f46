//! Walks a directory in a fixed order.

use crate::error::PackError;
use crate::ignores::{DirRules, is_ignored};
use crate::link::stays_inside;
use crate::pack::Warning;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What an entry is.
pub(crate) enum Kind {
    Dir,
    File { bytes: u64, executable: bool },
    Link { target: PathBuf },
}

/// One entry to pack.
pub(crate) struct Item<'a> {
    /// Relative to the walked directory.
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    /// The directory that it was found in, wherever that is now. Whoever opens the entry opens it there.
    pub(crate) dir: BorrowedFd<'a>,
}

/// How to walk.
#[derive(Clone, Copy)]
pub(crate) struct WalkOptions {
    /// Honour ignore files and defaults.
    pub(crate) ignores: bool,
    /// Take only what belongs to this uid.
    pub(crate) owner: Option<u32>,
    pub(crate) entries: u64,
    pub(crate) depth: usize,
    pub(crate) path: usize,
}

/// Calls `visit` for each entry below `root`: directories before what is in them, names in byte order. Each directory is held while
/// the next is opened in it, and no link is followed: whatever somebody swaps meanwhile, nothing outside is seen.
pub(crate) fn walk(
    root: &Path,
    options: WalkOptions,
    warnings: &mut Vec<Warning>,
    visit: &mut dyn FnMut(Item<'_>) -> Result<(), PackError>,
) -> Result<(), PackError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = openat(CWD, root, flags, Mode::empty()).map_err(|error| read_error(root, error))?;
    let mut walk = Walk { root, options, warnings, visit, stack: Vec::new(), seen: 0 };
    walk.dir(&top, Path::new(""), 0)
}

fn read_error(path: &Path, error: Errno) -> PackError {
    PackError::Read { path: path.to_path_buf(), source: error.into() }
}

struct Walk<'a> {
    root: &'a Path,
    options: WalkOptions,
    warnings: &'a mut Vec<Warning>,
    visit: &'a mut dyn FnMut(Item<'_>) -> Result<(), PackError>,
    stack: Vec<DirRules>,
    seen: u64,
}

impl Walk<'_> {
    fn dir(&mut self, dir: &OwnedFd, relative: &Path, depth: usize) -> Result<(), PackError> {
        let path = self.root.join(relative);
        let names = names(dir).map_err(|error| read_error(&path, error))?;
        if self.options.ignores {
            let (rules, faults) = DirRules::load(&path);
            self.stack.push(rules);
            self.warnings.extend(faults.into_iter().map(|why| Warning { path: relative.to_path_buf(), why }));
        }
        for name in names {
            let about = match statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(about) => about,
                // Gone since the directory was listed.
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(read_error(&path.join(&name), error)),
            };
            let is_dir = FileType::from_raw_mode(about.st_mode) == FileType::Directory;
            if self.options.ignores && is_ignored(&self.stack, &path.join(&name), &name, is_dir) {
                continue;
            }
            self.entry(dir, &name, relative.join(&name), &about, depth)?;
        }
        if self.options.ignores {
            self.stack.pop();
        }
        Ok(())
    }

    fn entry(
        &mut self,
        dir: &OwnedFd,
        name: &OsStr,
        relative: PathBuf,
        about: &Stat,
        depth: usize,
    ) -> Result<(), PackError> {
        if depth >= self.options.depth || relative.as_os_str().len() > self.options.path {
            return Err(PackError::TooDeep { path: relative });
        }
        if self.options.owner.is_some_and(|uid| uid != about.st_uid) {
            self.warn(relative, "left out: it belongs to somebody else");
            return Ok(());
        }
        let kind = match kind(dir, name, about, depth).map_err(|error| read_error(&relative, error))? {
            Ok(kind) => kind,
            Err(why) => {
                self.warn(relative, why);
                return Ok(());
            }
        };
        self.seen = self.seen.saturating_add(1);
        if self.seen > self.options.entries {
            return Err(PackError::TooMany { limit: self.options.entries });
        }
        let is_dir = matches!(kind, Kind::Dir);
        (self.visit)(Item { path: relative.clone(), kind, dir: dir.as_fd() })?;
        if !is_dir {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inside = match openat(dir, name, flags, Mode::empty()) {
            Ok(inside) => inside,
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {
                return Err(PackError::Changed { path: relative });
            }
            Err(error) => return Err(read_error(&self.root.join(&relative), error)),
        };
        let owner = fstat(&inside).map_err(|error| read_error(&relative, error))?.st_uid;
        if self.options.owner.is_some_and(|uid| uid != owner) {
            return Err(PackError::Changed { path: relative });
        }
        self.dir(&inside, &relative, depth.saturating_add(1))
    }

    fn warn(&mut self, path: PathBuf, why: &str) {
        self.warnings.push(Warning { path, why: why.to_owned() });
    }
}

/// Names in a directory, in byte order.
fn names(dir: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    Ok(names)
}

/// The kind of an entry, or why it is left out.
fn kind(
    dir: &OwnedFd,
    name: &OsStr,
    about: &Stat,
    depth: usize,
) -> Result<Result<Kind, &'static str>, Errno> {
    Ok(match FileType::from_raw_mode(about.st_mode) {
        FileType::Directory => Ok(Kind::Dir),
        FileType::RegularFile => Ok(Kind::File {
            bytes: u64::try_from(about.st_size).unwrap_or(0),
            executable: about.st_mode & 0o111 != 0,
        }),
        FileType::Symlink => {
            let target = readlinkat(dir, name, Vec::new())?;
            if stays_inside(depth, target.as_bytes()) {
                Ok(Kind::Link { target: PathBuf::from(OsStr::from_bytes(target.as_bytes())) })
            } else {
                Err("left out: a symbolic link that leads out of the directory")
            }
        }
        FileType::Socket => Err("left out: a socket"),
        FileType::Fifo => Err("left out: a named pipe"),
        _ => Err("left out: a device"),
    })
}

/// Sizes by first and second level, to say what is large.
#[derive(Default)]
pub(crate) struct Sizes {
    by_path: BTreeMap<PathBuf, u64>,
}

impl Sizes {
    pub(crate) fn add(&mut self, path: &Path, bytes: u64) {
        for levels in 1..=2 {
            let key: PathBuf = path.components().take(levels).collect();
            if levels == 2 && key.components().count() < 2 {
                return;
            }
            let sum = self.by_path.entry(key).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }

    /// The largest five; where one thing makes up nearly all of a directory, that thing is named.
    pub(crate) fn largest(&self) -> Vec<(PathBuf, u64)> {
        let mut top: Vec<(PathBuf, u64)> = self
            .by_path
            .iter()
            .filter(|(path, _)| path.components().count() == 1)
            .map(|(path, bytes)| {
                let part = self.by_path.iter().find(|(child, size)| {
                    child.parent() == Some(path.as_path())
                        && size.saturating_mul(10) >= bytes.saturating_mul(9)
                });
                part.map_or((path.clone(), *bytes), |(child, size)| (child.clone(), *size))
            })
            .collect();
        top.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        top.truncate(5);
        top
    }
}

/// `12.3 MiB`.
pub(crate) fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["bytes", "KiB", "MiB"] {
        if value < 1024.0 {
            return if unit == "bytes" { format!("{bytes} bytes") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} GiB")
}
