//! Reading an app's directory, which its owner may have shaped to deceive.

use crate::disk::{Dir, kind};
use rustix::fs::{FileType, Stat};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Files larger than this are not read by recipes.
const MAX_READ: u64 = 1 << 20;

/// An app's directory. Links are never followed, and each directory is held while the next one is looked up in it: so nothing outside
/// is ever read on the app's behalf, whatever a process of the build that has survived swaps meanwhile. Blocks.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    root: PathBuf,
    owner: Option<u32>,
}

impl Source {
    /// The directory `root`; with `owner` only that user's files are seen.
    pub(crate) fn new(root: &Path, owner: Option<u32>) -> Self {
        Self { root: root.to_path_buf(), owner }
    }

    /// The directory that something is in, and its name there; of the app's directory itself, no name.
    fn find<'a>(&self, relative: &'a str) -> Option<(Dir, Option<&'a OsStr>)> {
        let (mut dir, mut last) = (Dir::at(&self.root).ok()?, None);
        for part in Path::new(relative).components() {
            let Component::Normal(name) = part else {
                if part == Component::CurDir {
                    continue;
                }
                return None;
            };
            if let Some(above) = last.replace(name) {
                dir = dir.open(above).ok()?;
                self.is_owned(dir.about().ok()?.st_uid).then_some(())?;
            }
        }
        Some((dir, last))
    }

    fn is_owned(&self, uid: u32) -> bool {
        self.owner.is_none_or(|owner| owner == uid)
    }

    /// What it is, if it and everything above it are the app's and no links.
    fn about(&self, relative: &str) -> Option<Stat> {
        let (dir, name) = self.find(relative)?;
        let Some(name) = name else { return dir.about().ok() };
        dir.look(name).ok()?.filter(|about| self.is_owned(about.st_uid))
    }

    /// Whether it is a regular file.
    pub(crate) fn has_file(&self, relative: &str) -> bool {
        self.about(relative).is_some_and(|about| kind(&about) == FileType::RegularFile)
    }

    /// Whether it is a directory.
    pub(crate) fn has_dir(&self, relative: &str) -> bool {
        self.about(relative).is_some_and(|about| kind(&about) == FileType::Directory)
    }

    /// Whether it is there, as a file or as a link (which is not followed): for what tools install.
    pub(crate) fn has_program(&self, relative: &str) -> bool {
        self.about(relative)
            .is_some_and(|about| matches!(kind(&about), FileType::RegularFile | FileType::Symlink))
    }

    /// Its bytes, at most the first MiB.
    pub(crate) fn read_bytes(&self, relative: &str) -> Option<Vec<u8>> {
        let (dir, name) = self.find(relative)?;
        let file = dir.open_file(name?).ok()?;
        self.is_owned(file.metadata().ok()?.uid()).then_some(())?;
        let mut bytes = Vec::new();
        file.take(MAX_READ).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Its text; bytes that are not UTF-8 are replaced, a byte order mark is dropped.
    pub(crate) fn read(&self, relative: &str) -> Option<String> {
        let bytes = self.read_bytes(relative)?;
        let text = String::from_utf8_lossy(&bytes);
        Some(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned())
    }

    /// What is directly in a directory, by name, at most 10,000.
    pub(crate) fn list(&self, relative: &str) -> Vec<Entry> {
        let open = || {
            let (dir, name) = self.find(relative)?;
            let dir = match name {
                Some(name) => dir.open(name).ok()?,
                None => dir,
            };
            self.is_owned(dir.about().ok()?.st_uid).then_some(dir)
        };
        let Some(dir) = open() else { return Vec::new() };
        let mut names = dir.names().unwrap_or_default();
        names.truncate(10_000);
        let mut entries: Vec<Entry> = names
            .into_iter()
            .filter_map(|name| {
                let about = dir.look(&name).ok().flatten()?;
                let kind = kind(&about);
                let file = kind == FileType::RegularFile;
                Some(Entry {
                    name: name.into_string().ok()?,
                    file,
                    dir: kind == FileType::Directory,
                    executable: file && about.st_mode & 0o111 != 0,
                    bytes: u64::try_from(about.st_size).unwrap_or(0),
                })
            })
            .collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries
    }

    /// Names of files in a directory with this ending.
    pub(crate) fn files_ending(&self, relative: &str, ending: &str) -> Vec<String> {
        let files =
            self.list(relative).into_iter().filter(|entry| entry.file && entry.name.ends_with(ending));
        files.map(|entry| entry.name).collect()
    }
}

/// Something in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) file: bool,
    pub(crate) dir: bool,
    pub(crate) executable: bool,
    pub(crate) bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn links_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/a"), "\u{feff}text").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("leak")).unwrap();
        std::os::unix::fs::symlink("sub", dir.path().join("alias")).unwrap();
        let source = Source::new(dir.path(), None);
        assert_eq!(source.read("sub/a").as_deref(), Some("text"));
        for path in ["leak", "alias/a", "../x", "/etc/passwd", "sub", "none"] {
            assert_eq!(source.read(path), None, "{path}");
        }
        assert!(!source.has_file("alias/a") && !source.has_dir("alias") && source.has_program("leak"));
        assert_eq!(source.list("alias"), []);
        let nobody = Source::new(dir.path(), Some(fs::metadata(dir.path()).unwrap().uid() + 1));
        assert!(!nobody.has_file("sub/a"));
    }
}
