//! Reading a response from its files. Every block is checked before a byte of it goes out.

use super::Digest;
use super::disk_format::{self, Meta};
use super::store::{Loaded, LoadedBody};
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::task::JoinHandle;

/// Bodies up to this length are read in one go.
const WHOLE: u64 = 256 * 1024;
/// Longest head.
const HEAD_MAX: u64 = 1 << 20;

/// The file with the head of the response of this name.
pub(crate) fn head_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(name.get(..2).unwrap_or("xx")).join(format!("{name}.head"))
}

/// The file with its body.
pub(crate) fn body_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(name.get(..2).unwrap_or("xx")).join(format!("{name}.body"))
}

/// Reads a head.
pub(crate) fn read_head(path: &Path) -> io::Result<Meta> {
    if std::fs::metadata(path)?.len() > HEAD_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the head is too long"));
    }
    Meta::read(&std::fs::read(path)?)
}

/// Opens a response, and reads all of a short one, the beginning of a long one.
pub(crate) fn open(dir: &Path, name: &str, key: &Digest, variant: &Digest) -> io::Result<Loaded> {
    let meta = read_head(&head_path(dir, name))?;
    if meta.of_what() != (*key, *variant) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the head is another response's"));
    }
    let mut file = File::open(body_path(dir, name))?;
    if file.metadata()?.len() != disk_format::file_bytes(meta.length) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the body's file has the wrong length"));
    }
    let first = meta.length.min(if meta.length <= WHOLE { WHOLE } else { 1 });
    let mut read = Vec::new();
    while (read.len() as u64) < first {
        read.extend(disk_format::read_block(&mut file, meta.length - read.len() as u64)?);
    }
    let first = Bytes::from(read);
    let left = meta.length - first.len() as u64;
    let body = if left == 0 {
        LoadedBody::Whole(first)
    } else {
        LoadedBody::File(Box::new(FileBody { first: Some(first), left, state: State::Idle(file) }))
    };
    Ok(Loaded { head: Arc::new(meta.head()), body })
}

/// A body that is read as fast as the client takes it.
pub(crate) struct FileBody {
    first: Option<Bytes>,
    /// Bytes that are still in the file.
    left: u64,
    state: State,
}

enum State {
    Idle(File),
    Reading(JoinHandle<(File, io::Result<Vec<u8>>)>),
    Ended,
}

impl FileBody {
    /// Bytes that are to come.
    pub(crate) fn left(&self) -> u64 {
        self.left + self.first.as_ref().map_or(0, Bytes::len) as u64
    }

    /// The next piece.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Idle(mut file) if self.left > 0 => {
                    let left = self.left;
                    self.state = State::Reading(tokio::task::spawn_blocking(move || {
                        let block = disk_format::read_block(&mut file, left);
                        (file, block)
                    }));
                }
                State::Idle(_) | State::Ended => return Poll::Ready(None),
                State::Reading(mut reading) => {
                    let Poll::Ready(read) = Pin::new(&mut reading).poll(cx) else {
                        self.state = State::Reading(reading);
                        return Poll::Pending;
                    };
                    return Poll::Ready(Some(match read {
                        Ok((file, Ok(block))) => {
                            self.left = self.left.saturating_sub(block.len() as u64);
                            self.state = State::Idle(file);
                            Ok(Bytes::from(block))
                        }
                        Ok((_, Err(error))) => Err(error),
                        Err(error) => Err(io::Error::other(error)),
                    }));
                }
            }
        }
    }
}
