//! Walks a directory in a fixed order.

use crate::error::PackError;
use crate::ignores::{DirRules, is_ignored};
use crate::link::stays_inside;
use crate::pack::Warning;
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What an entry is.
pub(crate) enum Kind {
    Dir,
    File { bytes: u64, executable: bool },
    Link { target: PathBuf },
}

/// One entry to pack.
pub(crate) struct Item {
    /// Relative to the walked directory.
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
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

/// Calls `visit` for each entry below `root`: directories before what is in them, names in byte order.
pub(crate) fn walk(
    root: &Path,
    options: WalkOptions,
    warnings: &mut Vec<Warning>,
    visit: &mut dyn FnMut(Item) -> Result<(), PackError>,
) -> Result<(), PackError> {
    let mut walk = Walk { root, options, warnings, visit, stack: Vec::new(), seen: 0 };
    walk.dir(&PathBuf::new(), 0)
}

struct Walk<'a> {
    root: &'a Path,
    options: WalkOptions,
    warnings: &'a mut Vec<Warning>,
    visit: &'a mut dyn FnMut(Item) -> Result<(), PackError>,
    stack: Vec<DirRules>,
    seen: u64,
}

impl Walk<'_> {
    fn dir(&mut self, relative: &Path, depth: usize) -> Result<(), PackError> {
        let dir = self.root.join(relative);
        let read_error = |source| PackError::Read { path: dir.clone(), source };
        let mut names = Vec::new();
        for entry in fs::read_dir(&dir).map_err(read_error)? {
            names.push(entry.map_err(read_error)?.file_name());
        }
        names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        if self.options.ignores {
            let (rules, faults) = DirRules::load(&dir);
            self.stack.push(rules);
            self.warnings.extend(faults.into_iter().map(|why| Warning { path: relative.to_path_buf(), why }));
        }
        for name in names {
            let path = dir.join(&name);
            let metadata = match fs::symlink_metadata(&path) {
                Ok(metadata) => metadata,
                // Gone since the directory was listed.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(source) => return Err(PackError::Read { path, source }),
            };
            if self.options.ignores && is_ignored(&self.stack, &path, &name, metadata.is_dir()) {
                continue;
            }
            self.entry(&path, relative.join(&name), &metadata, depth)?;
        }
        if self.options.ignores {
            self.stack.pop();
        }
        Ok(())
    }

    fn entry(
        &mut self,
        path: &Path,
        relative: PathBuf,
        metadata: &Metadata,
        depth: usize,
    ) -> Result<(), PackError> {
        if depth >= self.options.depth || relative.as_os_str().len() > self.options.path {
            return Err(PackError::TooDeep { path: relative });
        }
        if self.options.owner.is_some_and(|uid| uid != metadata.uid()) {
            self.warn(relative, "left out: it belongs to somebody else");
            return Ok(());
        }
        let kind = match self.kind(path, metadata, depth)? {
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
        (self.visit)(Item { path: relative.clone(), kind })?;
        if is_dir { self.dir(&relative, depth.saturating_add(1)) } else { Ok(()) }
    }

    /// The kind of an entry, or why it is left out.
    fn kind(
        &self,
        path: &Path,
        metadata: &Metadata,
        depth: usize,
    ) -> Result<Result<Kind, &'static str>, PackError> {
        let kind = metadata.file_type();
        Ok(if kind.is_dir() {
            Ok(Kind::Dir)
        } else if kind.is_file() {
            Ok(Kind::File { bytes: metadata.len(), executable: metadata.permissions().mode() & 0o111 != 0 })
        } else if kind.is_symlink() {
            let target =
                fs::read_link(path).map_err(|source| PackError::Read { path: path.to_path_buf(), source })?;
            if stays_inside(depth, target.as_os_str().as_bytes()) {
                Ok(Kind::Link { target })
            } else {
                Err("left out: a symbolic link that leads out of the directory")
            }
        } else if kind.is_socket() {
            Err("left out: a socket")
        } else if kind.is_fifo() {
            Err("left out: a named pipe")
        } else {
            Err("left out: a device")
        })
    }

    fn warn(&mut self, path: PathBuf, why: &str) {
        self.warnings.push(Warning { path, why: why.to_owned() });
    }
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
