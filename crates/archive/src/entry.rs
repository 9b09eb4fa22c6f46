//! The entries of a tar, checked one by one and handed to a sink.

use crate::error::UnpackError;
use crate::limits::Limits;
use crate::read::{Content, DigestOf};
use crate::tree::Tree;
use crate::unpack::UnpackSummary;
use std::io::{self, Read};
use tar::EntryType;
use towpath_types::Digest;

/// What is done with entries that passed all checks. Paths are clean and relative; parents were made before.
pub(crate) trait Sink {
    fn dir(&mut self, path: &[u8]) -> Result<(), UnpackError>;
    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), UnpackError>;
    fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), UnpackError>;
    /// Takes one piece of a file after another.
    fn begin_file(&mut self, path: &[u8], executable: bool) -> Result<(), UnpackError>;
    fn file_bytes(&mut self, bytes: &[u8]) -> Result<(), UnpackError>;
    fn end_file(&mut self) -> Result<(), UnpackError>;
}

/// Names that extension headers give to the next entry.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

/// Extension headers are small; a larger one is hostile.
const EXTENSION_MAX: u64 = 16 << 10;

/// Reads the whole archive, checks everything, and feeds `sink`.
pub(crate) fn process(
    reader: &mut dyn Read,
    limits: &Limits,
    of: DigestOf,
    expected: Option<&Digest>,
    sink: &mut dyn Sink,
) -> Result<UnpackSummary, UnpackError> {
    let (content, meter) = Content::new(reader, *limits, of)?;
    let mut archive = tar::Archive::new(content);
    let mut state = State { tree: Tree::new(*limits), files: 0, bytes: 0, end: 0, extension: None };
    let entries = archive.entries().map_err(|error| meter.explain(error))?;
    for entry in entries.raw(true) {
        let mut entry = entry.map_err(|error| meter.explain(error))?;
        state.entry(&mut entry, sink, &|error| meter.explain(error))?;
    }
    let mut content = archive.into_inner();
    let mut rest = vec![0; 64 << 10];
    while content.read(&mut rest).map_err(|error| meter.explain(error))? > 0 {}
    if state.extension.is_some() {
        return Err(UnpackError::Broken("a long name without an entry"));
    }
    let tail = meter.content().saturating_sub(state.end);
    if tail < 1_024 {
        return Err(UnpackError::Broken("its end is missing"));
    }
    if meter.zero_tail() < tail {
        return Err(UnpackError::Broken("something follows its end"));
    }
    let digest = meter.digest();
    if let Some(expected) = expected.filter(|expected| **expected != digest) {
        return Err(UnpackError::WrongDigest { expected: *expected, found: digest });
    }
    Ok(UnpackSummary {
        digest,
        files: state.files,
        entries: state.tree.entries(),
        bytes: state.bytes,
        stored_bytes: meter.stored(),
    })
}

struct State {
    tree: Tree,
    files: u64,
    bytes: u64,
    /// Where the last entry's data end, padding included.
    end: u64,
    extension: Option<Extension>,
}

type Explain<'a> = &'a dyn Fn(io::Error) -> UnpackError;

impl State {
    fn entry<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        sink: &mut dyn Sink,
        explain: Explain<'_>,
    ) -> Result<(), UnpackError> {
        let size = entry.size();
        self.end = size
            .checked_next_multiple_of(512)
            .and_then(|padded| padded.checked_add(entry.raw_file_position()))
            .ok_or(UnpackError::Broken("a size that cannot be"))?;
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() || kind.is_gnu_longlink() || kind.is_pax_local_extensions() {
            return self.extend(kind, entry, explain);
        }
        if kind.is_pax_global_extensions() {
            // Comments (git archive writes one); nothing in them may name files.
            let pax = read_small(entry, explain)?;
            let named = parse_pax(&pax)?;
            return match named.path.is_some() || named.link.is_some() || named.size.is_some() {
                true => Err(UnpackError::Broken("a global header that renames entries")),
                false => Ok(()),
            };
        }
        let extension = self.extension.take().unwrap_or_default();
        if extension.size.is_some_and(|said| said != size) {
            return Err(UnpackError::Broken("two headers that disagree about a size"));
        }
        let path = extension.path.unwrap_or_else(|| entry.path_bytes().into_owned());
        let link = extension.link.or_else(|| entry.link_name_bytes().map(|name| name.into_owned()));
        if kind != EntryType::Regular && size != 0 {
            return Err(refuse_kind(kind, &path)
                .unwrap_or_else(|| UnpackError::refused(&path, "which has content but is no file")));
        }
        match kind {
            EntryType::Regular => self.file(&path, entry, sink, explain),
            EntryType::Directory => {
                let place = self.tree.add_dir(&path)?;
                make_dirs(&place.new_dirs, sink)
            }
            EntryType::Symlink => {
                let target = link.unwrap_or_default();
                let place = self.tree.add_link(&path, &target)?;
                make_dirs(&place.new_dirs, sink)?;
                self.files = self.files.saturating_add(1);
                sink.link(&place.path, &target)
            }
            EntryType::Link => {
                let (place, target) = self.tree.add_hard_link(&path, &link.unwrap_or_default())?;
                make_dirs(&place.new_dirs, sink)?;
                self.files = self.files.saturating_add(1);
                sink.hard_link(&place.path, &target)
            }
            _ => Err(refuse_kind(kind, &path)
                .unwrap_or_else(|| UnpackError::refused(&path, "an entry of an unknown kind"))),
        }
    }

    fn file<R: Read>(
        &mut self,
        path: &[u8],
        entry: &mut tar::Entry<'_, R>,
        sink: &mut dyn Sink,
        explain: Explain<'_>,
    ) -> Result<(), UnpackError> {
        let executable = entry.header().mode().map_err(explain)? & 0o111 != 0;
        let place = self.tree.add_file(path)?;
        make_dirs(&place.new_dirs, sink)?;
        sink.begin_file(&place.path, executable)?;
        let mut left = entry.size();
        let mut buffer = vec![0; 64 << 10];
        while left > 0 {
            let n = match entry.read(&mut buffer) {
                Ok(0) => return Err(UnpackError::Broken("a file in it is cut off")),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(explain(error)),
            };
            sink.file_bytes(buffer.get(..n).unwrap_or_default())?;
            left = left.saturating_sub(n as u64);
        }
        self.files = self.files.saturating_add(1);
        self.bytes = self.bytes.saturating_add(entry.size());
        sink.end_file()
    }

    /// Reads an extension header and keeps it for the next entry.
    fn extend<R: Read>(
        &mut self,
        kind: EntryType,
        entry: &mut tar::Entry<'_, R>,
        explain: Explain<'_>,
    ) -> Result<(), UnpackError> {
        let data = read_small(entry, explain)?;
        let extension = self.extension.get_or_insert_default();
        if kind.is_pax_local_extensions() {
            let pax = parse_pax(&data)?;
            merge(&mut extension.path, pax.path)?;
            merge(&mut extension.link, pax.link)?;
            return merge(&mut extension.size, pax.size);
        }
        let mut name = data;
        if name.last() == Some(&0) {
            name.pop();
        }
        let slot = if kind.is_gnu_longname() { &mut extension.path } else { &mut extension.link };
        merge(slot, Some(name))
    }
}

/// A name that is given twice could be read in two ways.
fn merge<T>(slot: &mut Option<T>, value: Option<T>) -> Result<(), UnpackError> {
    match (slot.is_some(), value) {
        (true, Some(_)) => Err(UnpackError::Broken("an entry that is named twice")),
        (false, Some(value)) => {
            *slot = Some(value);
            Ok(())
        }
        (_, None) => Ok(()),
    }
}

fn make_dirs(dirs: &[Vec<u8>], sink: &mut dyn Sink) -> Result<(), UnpackError> {
    dirs.iter().try_for_each(|dir| sink.dir(dir))
}

fn read_small<R: Read>(entry: &mut tar::Entry<'_, R>, explain: Explain<'_>) -> Result<Vec<u8>, UnpackError> {
    let size = entry.size();
    if size > EXTENSION_MAX {
        return Err(UnpackError::OverLimit { what: "bytes in a name", limit: EXTENSION_MAX });
    }
    let mut data = Vec::new();
    entry.take(EXTENSION_MAX).read_to_end(&mut data).map_err(explain)?;
    if data.len() as u64 != size {
        return Err(UnpackError::Broken("a name in it is cut off"));
    }
    Ok(data)
}

fn parse_pax(data: &[u8]) -> Result<Extension, UnpackError> {
    const BAD: UnpackError = UnpackError::Broken("an extension header that cannot be read");
    let mut extension = Extension::default();
    for item in tar::PaxExtensions::new(data) {
        let item = item.map_err(|_| BAD)?;
        let value = item.value_bytes();
        match item.key_bytes() {
            b"path" => merge(&mut extension.path, Some(value.to_vec()))?,
            b"linkpath" => merge(&mut extension.link, Some(value.to_vec()))?,
            b"size" => {
                let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or(BAD)?;
                merge(&mut extension.size, Some(size))?;
            }
            key if key.starts_with(b"GNU.sparse.") => {
                return Err(UnpackError::Broken("sparse files are not supported"));
            }
            _ => {}
        }
    }
    Ok(extension)
}

fn refuse_kind(kind: EntryType, path: &[u8]) -> Option<UnpackError> {
    let why = match kind {
        EntryType::Char | EntryType::Block => "a device",
        EntryType::Fifo => "a named pipe",
        EntryType::GNUSparse => "a sparse file",
        EntryType::Continuous => "a contiguous file",
        _ => return None,
    };
    Some(UnpackError::refused(path, why))
}
