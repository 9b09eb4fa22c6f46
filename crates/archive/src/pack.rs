//! Making archives.

use crate::error::PackError;
use crate::hash::HashWriter;
use crate::limits::Limits;
use crate::walk::{Item, Kind, Sizes, WalkOptions, walk};
use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use towpath_types::Digest;

/// How a source is packed.
#[derive(Debug, Clone)]
pub struct PackOptions {
    /// Most bytes of all files together.
    pub max_bytes: u64,
    /// Most files, links and directories.
    pub max_entries: u64,
    /// zstd level, 1 to 19. The digest does not depend on it.
    pub level: i32,
}

impl Default for PackOptions {
    fn default() -> Self {
        Self { max_bytes: 1 << 30, max_entries: 100_000, level: 3 }
    }
}

/// How far packing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Files done.
    pub files: u64,
    /// Bytes of files done.
    pub bytes: u64,
    /// All files.
    pub total_files: u64,
    /// All bytes.
    pub total_bytes: u64,
}

/// Something that was left out or not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Relative to the packed directory.
    pub path: PathBuf,
    /// For people.
    pub why: String,
}

/// What was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackSummary {
    /// SHA-256 of the uncompressed tar.
    pub digest: Digest,
    /// Files and links.
    pub files: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of the uncompressed tar.
    pub tar_bytes: u64,
    /// What was left out although no rule says so.
    pub warnings: Vec<Warning>,
}

/// How an artifact is packed.
#[derive(Debug, Clone, Copy, Default)]
pub struct ArtifactOptions {
    /// Pack only what belongs to this user. So a build cannot make a privileged packer read what the build could not.
    pub owner: Option<u32>,
}

/// What [`pack_artifact`] made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactSummary {
    /// SHA-256 of the stored bytes.
    pub digest: Digest,
    /// Number of stored bytes.
    pub stored_bytes: u64,
    /// Files and links.
    pub files: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// What was left out.
    pub warnings: Vec<Warning>,
}

/// Packs `dir` as a source into `writer`. The same content gives the same [`PackSummary::digest`] everywhere.
pub fn pack<W: Write>(
    dir: &Path,
    options: &PackOptions,
    writer: W,
    progress: &mut dyn FnMut(Progress),
) -> Result<PackSummary, PackError> {
    let encoder = zstd::Encoder::new(writer, options.level).map_err(PackError::Write)?;
    let (summary, encoder) = write_source(dir, options, encoder, progress)?;
    let mut writer = encoder.finish().map_err(PackError::Write)?;
    writer.flush().map_err(PackError::Write)?;
    Ok(summary)
}

/// The summary that [`pack`] would give, without compressing or writing.
pub fn digest(
    dir: &Path,
    options: &PackOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<PackSummary, PackError> {
    write_source(dir, options, io::sink(), progress).map(|(summary, _)| summary)
}

/// Packs everything in `dir` as an artifact into `writer`.
pub fn pack_artifact<W: Write>(
    dir: &Path,
    options: &ArtifactOptions,
    writer: W,
) -> Result<ArtifactSummary, PackError> {
    let limits = Limits::artifact();
    let walk_options = WalkOptions {
        ignores: false,
        owner: options.owner,
        entries: limits.entries,
        depth: limits.depth,
        path: limits.path,
    };
    let stored = HashWriter::new(writer);
    let encoder = zstd::Encoder::new(stored, 3).map_err(PackError::Write)?;
    let mut tar = Tar::new(dir, encoder, limits.bytes, options.owner);
    let mut warnings = Vec::new();
    walk(dir, walk_options, &mut warnings, &mut |item| tar.append(&item))?;
    let (counts, encoder) = tar.finish()?;
    let stored = encoder.finish().map_err(PackError::Write)?;
    let (digest, stored_bytes, mut writer) = stored.finish();
    writer.flush().map_err(PackError::Write)?;
    Ok(ArtifactSummary { digest, stored_bytes, files: counts.files, bytes: counts.bytes, warnings })
}

fn write_source<W: Write>(
    dir: &Path,
    options: &PackOptions,
    writer: W,
    progress: &mut dyn FnMut(Progress),
) -> Result<(PackSummary, W), PackError> {
    let limits = Limits::source();
    let walk_options = WalkOptions {
        ignores: true,
        owner: None,
        entries: options.max_entries,
        depth: limits.depth,
        path: limits.path,
    };
    let total = measure(dir, options, walk_options)?;
    let mut tar = Tar::new(dir, HashWriter::new(writer), options.max_bytes, None);
    let mut warnings = Vec::new();
    walk(dir, walk_options, &mut warnings, &mut |item| {
        tar.append(&item)?;
        let Counts { files, bytes } = tar.counts;
        progress(Progress { files, bytes, total_files: total.files, total_bytes: total.bytes });
        Ok(())
    })?;
    let (counts, hash) = tar.finish()?;
    let (digest, tar_bytes, writer) = hash.finish();
    Ok((PackSummary { digest, files: counts.files, bytes: counts.bytes, tar_bytes, warnings }, writer))
}

/// Counts without reading files; over the limit it says what is large.
fn measure(dir: &Path, options: &PackOptions, walk_options: WalkOptions) -> Result<Counts, PackError> {
    let mut counts = Counts::default();
    let mut sizes = Sizes::default();
    walk(dir, walk_options, &mut Vec::new(), &mut |item| {
        if let Kind::File { bytes, .. } = item.kind {
            counts.bytes = counts.bytes.saturating_add(bytes);
            sizes.add(&item.path, bytes);
        }
        counts.add_entry(&item.kind);
        Ok(())
    })?;
    if counts.bytes > options.max_bytes {
        let largest = sizes.largest();
        return Err(PackError::TooLarge { bytes: counts.bytes, limit: options.max_bytes, largest });
    }
    Ok(counts)
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    files: u64,
    bytes: u64,
}

impl Counts {
    fn add_entry(&mut self, kind: &Kind) {
        if !matches!(kind, Kind::Dir) {
            self.files = self.files.saturating_add(1);
        }
    }
}

/// A canonical tar being written.
struct Tar<'a, W: Write> {
    root: &'a Path,
    builder: tar::Builder<W>,
    counts: Counts,
    max_bytes: u64,
    /// Only files of this user are read.
    owner: Option<u32>,
}

impl<'a, W: Write> Tar<'a, W> {
    fn new(root: &'a Path, writer: W, max_bytes: u64, owner: Option<u32>) -> Self {
        Self { root, builder: tar::Builder::new(writer), counts: Counts::default(), max_bytes, owner }
    }

    fn append(&mut self, item: &Item<'_>) -> Result<(), PackError> {
        match &item.kind {
            Kind::Dir => {
                let mut header = header(tar::EntryType::Directory, 0o755, 0);
                self.name(&mut header, &item.path, None)?;
                self.builder.append(&header, io::empty()).map_err(PackError::Write)?;
            }
            Kind::Link { target } => {
                let mut header = header(tar::EntryType::Symlink, 0o777, 0);
                self.name(&mut header, &item.path, Some(target))?;
                self.builder.append(&header, io::empty()).map_err(PackError::Write)?;
            }
            Kind::File { executable, .. } => self.append_file(item, *executable)?,
        }
        self.counts.add_entry(&item.kind);
        Ok(())
    }

    /// Names an entry. Names that do not fit into a header go into GNU's entries before it; any bytes are good.
    fn name(&mut self, entry: &mut tar::Header, path: &Path, link: Option<&Path>) -> Result<(), PackError> {
        let link = link.map(|link| link.as_os_str().as_bytes()).unwrap_or_default();
        let path = path.as_os_str().as_bytes();
        for (name, kind) in [(link, tar::EntryType::GNULongLink), (path, tar::EntryType::GNULongName)] {
            if name.len() > NAME {
                let mut long = header(kind, 0o644, name.len() as u64 + 1);
                copy_name(&mut long.as_old_mut().name, b"././@LongLink");
                long.set_cksum();
                self.builder.append(&long, name.chain(&[0_u8][..])).map_err(PackError::Write)?;
            }
        }
        copy_name(&mut entry.as_old_mut().name, path);
        copy_name(&mut entry.as_old_mut().linkname, link);
        entry.set_cksum();
        Ok(())
    }

    fn append_file(&mut self, item: &Item<'_>, executable: bool) -> Result<(), PackError> {
        let relative = item.path.as_path();
        let path = self.root.join(relative);
        let changed = || PackError::Changed { path: relative.to_path_buf() };
        let name = relative.file_name().ok_or_else(changed)?;
        let read_error = |source| PackError::Read { path: path.clone(), source };
        // Not through a link, and not waiting for the other end of a pipe, whatever has taken the file's place.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(item.dir, name, flags, Mode::empty()).map_err(|error| read_error(error.into()))?;
        let file = File::from(file);
        let metadata = file.metadata().map_err(read_error)?;
        if !metadata.is_file() || self.owner.is_some_and(|owner| owner != metadata.uid()) {
            return Err(changed());
        }
        let bytes = metadata.len();
        self.counts.bytes = self.counts.bytes.saturating_add(bytes);
        if self.counts.bytes > self.max_bytes {
            let largest = vec![(relative.to_path_buf(), bytes)];
            return Err(PackError::TooLarge { bytes: self.counts.bytes, limit: self.max_bytes, largest });
        }
        let mut header = header(tar::EntryType::Regular, if executable { 0o755 } else { 0o644 }, bytes);
        // What is appended to the file from now on is not taken; what is cut off is an error.
        let mut exact = Exact { file, left: bytes, fault: None };
        self.name(&mut header, relative, None)?;
        let result = self.builder.append(&header, &mut exact);
        match exact.fault {
            Some(Fault::Short) => Err(PackError::Changed { path: relative.to_path_buf() }),
            Some(Fault::Read(source)) => Err(PackError::Read { path, source }),
            None => result.map_err(PackError::Write),
        }
    }

    fn finish(self) -> Result<(Counts, W), PackError> {
        let counts = self.counts;
        let writer = self.builder.into_inner().map_err(PackError::Write)?;
        Ok((counts, writer))
    }
}

/// Bytes of a name that a header holds.
const NAME: usize = 100;

fn copy_name(field: &mut [u8; NAME], name: &[u8]) {
    for (to, from) in field.iter_mut().zip(name) {
        *to = *from;
    }
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

enum Fault {
    Short,
    Read(io::Error),
}

/// Reads exactly `left` bytes of a file.
struct Exact {
    file: std::fs::File,
    left: u64,
    fault: Option<Fault>,
}

impl Read for Exact {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        let Some(part) = buf.get_mut(..want) else { return Ok(0) };
        if part.is_empty() {
            return Ok(0);
        }
        match self.file.read(part) {
            Ok(0) => {
                self.fault = Some(Fault::Short);
                Err(io::Error::from(io::ErrorKind::UnexpectedEof))
            }
            Ok(n) => {
                self.left = self.left.saturating_sub(n as u64);
                Ok(n)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let kind = error.kind();
                self.fault = Some(Fault::Read(error));
                Err(io::Error::from(kind))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_became_shorter_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("short"), "12345").unwrap();
        let file = std::fs::File::open(dir.path().join("short")).unwrap();
        let mut exact = Exact { file, left: 10, fault: None };
        assert!(io::copy(&mut exact, &mut io::sink()).is_err());
        assert!(matches!(exact.fault, Some(Fault::Short)));
        let error = PackError::Changed { path: "short".into() };
        assert!(error.to_string().contains("short changed while"), "{error}");
    }
}
