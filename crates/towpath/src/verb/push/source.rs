//! The directory that is packed: the app's own, or one made for an app that is a single file.

use crate::exit::{Exit, Failure, Outcome, reason};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Where the app's files are.
#[derive(Debug)]
pub(super) enum Source {
    /// A directory.
    Directory(PathBuf),
    /// A directory with a copy of a single file, removed again.
    File(TempDir),
}

impl Source {
    /// The source at a path.
    pub(super) fn find(path: &Path) -> Outcome<Self> {
        let about = std::fs::metadata(path).map_err(|error| {
            let what = format!("{}: {}", path.display(), reason(&error).to_lowercase());
            Failure::hinted(Exit::Usage, what, "name the directory with the app, or build it first")
        })?;
        if about.is_dir() {
            return Ok(Self::Directory(path.to_owned()));
        }
        let copy = || -> std::io::Result<TempDir> {
            let dir = tempfile::Builder::new().prefix("towpath-push-").tempdir()?;
            std::fs::copy(path, dir.path().join(path.file_name().unwrap_or_default()))?;
            Ok(dir)
        };
        copy().map(Self::File).map_err(|error| Failure::io(path.display(), &error))
    }

    /// The directory to pack.
    pub(super) fn dir(&self) -> &Path {
        match self {
            Self::Directory(dir) => dir,
            Self::File(dir) => dir.path(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_file_gets_a_directory_for_as_long_as_it_is_packed() {
        let dir = tempfile::tempdir().unwrap();
        let jar = dir.path().join("app.jar");
        std::fs::write(&jar, "PK").unwrap();
        let source = Source::find(&jar).unwrap();
        let made = source.dir().to_owned();
        assert_eq!(std::fs::read(made.join("app.jar")).unwrap(), b"PK");
        drop(source);
        assert!(!made.exists());
        assert_eq!(Source::find(dir.path()).unwrap().dir(), dir.path());
        let failure = Source::find(&dir.path().join("none")).unwrap_err();
        assert!(failure.lines[0].contains("no such file"), "{failure:?}");
    }
}
