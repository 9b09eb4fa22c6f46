//! Unpacking archives of whatever origin.

use crate::entry::{Sink, process};
use crate::error::UnpackError;
use crate::limits::Limits;
use crate::read::DigestOf;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use towpath_types::Digest;

/// What an archive holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackSummary {
    /// Its digest: of the uncompressed tar for a source, of the stored bytes for an artifact.
    pub digest: Digest,
    /// Files and links.
    pub files: u64,
    /// Files, links and directories.
    pub entries: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Stored (compressed) bytes.
    pub stored_bytes: u64,
}

/// Unpacks a source into `dir`, which must not exist or be an empty directory. On failure nothing is left behind.
pub fn unpack<R: Read>(
    reader: R,
    dir: &Path,
    limits: &Limits,
    expected: Option<&Digest>,
) -> Result<UnpackSummary, UnpackError> {
    unpack_as(reader, dir, limits, DigestOf::Content, expected)
}

/// Unpacks an artifact, as [`unpack`] does a source.
pub fn unpack_artifact<R: Read>(
    reader: R,
    dir: &Path,
    limits: &Limits,
    expected: Option<&Digest>,
) -> Result<UnpackSummary, UnpackError> {
    unpack_as(reader, dir, limits, DigestOf::Stored, expected)
}

fn unpack_as<R: Read>(
    mut reader: R,
    dir: &Path,
    limits: &Limits,
    of: DigestOf,
    expected: Option<&Digest>,
) -> Result<UnpackSummary, UnpackError> {
    let partial = Partial::create(dir)?;
    let mut files = Files { root: partial.path.clone(), open: None };
    let summary = process(&mut reader, limits, of, expected, &mut files)?;
    partial.keep_as(dir)?;
    Ok(summary)
}

fn write_error(path: &Path) -> impl FnOnce(io::Error) -> UnpackError {
    let path = path.to_path_buf();
    |source| UnpackError::Write { path, source }
}

/// A directory beside the wanted one, closed to others, that vanishes unless it is kept.
struct Partial {
    path: PathBuf,
    kept: bool,
}

static COUNTER: AtomicU64 = AtomicU64::new(0);

impl Partial {
    fn create(dir: &Path) -> Result<Self, UnpackError> {
        let name = dir.file_name().unwrap_or_else(|| OsStr::new("unpack")).to_string_lossy();
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = dir.with_file_name(format!(".{name}.partial-{}-{number}", std::process::id()));
        // Of an earlier process with our number that was killed.
        if path.symlink_metadata().is_ok() {
            fs::remove_dir_all(&path).map_err(write_error(&path))?;
        }
        DirBuilder::new().mode(0o700).create(&path).map_err(write_error(&path))?;
        Ok(Self { path, kept: false })
    }

    fn keep_as(mut self, dir: &Path) -> Result<(), UnpackError> {
        fs::set_permissions(&self.path, Permissions::from_mode(0o755)).map_err(write_error(&self.path))?;
        fs::rename(&self.path, dir).map_err(write_error(dir))?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Writes below a directory that nobody else can enter. All paths were checked against what this archive has made.
struct Files {
    root: PathBuf,
    open: Option<(PathBuf, File)>,
}

impl Files {
    fn path(&self, relative: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(relative))
    }
}

impl Sink for Files {
    fn dir(&mut self, path: &[u8]) -> Result<(), UnpackError> {
        let path = self.path(path);
        DirBuilder::new().mode(0o700).create(&path).map_err(write_error(&path))?;
        fs::set_permissions(&path, Permissions::from_mode(0o755)).map_err(write_error(&path))
    }

    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), UnpackError> {
        let path = self.path(path);
        symlink(OsStr::from_bytes(target), &path).map_err(write_error(&path))
    }

    fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), UnpackError> {
        let path = self.path(path);
        fs::hard_link(self.path(target), &path).map_err(write_error(&path))
    }

    fn begin_file(&mut self, path: &[u8], executable: bool) -> Result<(), UnpackError> {
        let path = self.path(path);
        // `create_new` neither follows a link nor opens what is there.
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(write_error(&path))?;
        let mode = if executable { 0o755 } else { 0o644 };
        file.set_permissions(Permissions::from_mode(mode)).map_err(write_error(&path))?;
        self.open = Some((path, file));
        Ok(())
    }

    fn file_bytes(&mut self, bytes: &[u8]) -> Result<(), UnpackError> {
        match &mut self.open {
            Some((path, file)) => file.write_all(bytes).map_err(write_error(path)),
            None => Ok(()),
        }
    }

    fn end_file(&mut self) -> Result<(), UnpackError> {
        self.open = None;
        Ok(())
    }
}
