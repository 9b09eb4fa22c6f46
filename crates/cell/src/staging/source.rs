//! Reading an app's directory, which its owner may have shaped to deceive.

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

/// Files larger than this are not read by recipes.
const MAX_READ: u64 = 1 << 20;

/// An app's directory. Links are never followed, so nothing outside it is ever read on the app's behalf.
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

    /// The file's metadata, if it and everything above it are the app's and no links.
    fn metadata(&self, relative: &str) -> Option<(PathBuf, fs::Metadata)> {
        let mut path = self.root.clone();
        let mut metadata = fs::symlink_metadata(&path).ok()?;
        for part in Path::new(relative).components() {
            match part {
                Component::Normal(name) if metadata.is_dir() => path.push(name),
                Component::CurDir => continue,
                _ => return None,
            }
            metadata = fs::symlink_metadata(&path).ok()?;
            if self.owner.is_some_and(|uid| uid != metadata.uid()) {
                return None;
            }
        }
        Some((path, metadata))
    }

    /// Whether it is a regular file.
    pub(crate) fn has_file(&self, relative: &str) -> bool {
        self.metadata(relative).is_some_and(|(_, metadata)| metadata.is_file())
    }

    /// Whether it is a directory.
    pub(crate) fn has_dir(&self, relative: &str) -> bool {
        self.metadata(relative).is_some_and(|(_, metadata)| metadata.is_dir())
    }

    /// Whether it is there, as a file or as a link (which is not followed): for what tools install.
    pub(crate) fn has_program(&self, relative: &str) -> bool {
        self.metadata(relative).is_some_and(|(_, metadata)| metadata.is_file() || metadata.is_symlink())
    }

    /// Its bytes, at most the first MiB.
    pub(crate) fn read_bytes(&self, relative: &str) -> Option<Vec<u8>> {
        let (path, metadata) = self.metadata(relative)?;
        if !metadata.is_file() {
            return None;
        }
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .ok()
            .filter(|file| file.metadata().is_ok_and(|now| now.ino() == metadata.ino() && now.is_file()))?;
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
        let Some((path, metadata)) = self.metadata(relative) else { return Vec::new() };
        if !metadata.is_dir() {
            return Vec::new();
        }
        let Ok(read) = fs::read_dir(path) else { return Vec::new() };
        let mut entries: Vec<Entry> = read
            .take(10_000)
            .filter_map(Result::ok)
            .filter_map(|entry| {
                let metadata = entry.metadata().ok()?;
                let name = entry.file_name().into_string().ok()?;
                let file = metadata.is_file();
                let executable = file && metadata.permissions().mode() & 0o111 != 0;
                Some(Entry { name, file, dir: metadata.is_dir(), executable, bytes: metadata.len() })
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
