//! One upload: chunks come in over a bounded queue, a blocking thread checks and writes them, a rename publishes them.

use super::disk::DiskFile;
use super::{BlobKind, Blobs};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use towpath_archive::{Limits, UnpackError};
use towpath_types::{Digest, ErrorCode};

/// Chunks that may wait for the disk.
const QUEUE: usize = 4;

/// Why an upload was not stored. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// More bytes than permitted.
    #[error("the upload has more than {limit} bytes, which is the limit")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// The content is another than its address says.
    #[error("the content has digest {actual}, not {expected}")]
    WrongDigest {
        /// As addressed.
        expected: Digest,
        /// As sent.
        actual: Digest,
    },
    /// Broken, hostile, or too large when unpacked.
    #[error("the archive was refused")]
    Archive(#[source] UnpackError),
    /// No room on disk.
    #[error("the disk is full")]
    Full,
    /// The disk does not work.
    #[error("the upload could not be written")]
    Disk(#[source] io::Error),
    /// The client went away before the end.
    #[error("the upload ended before its end")]
    Aborted,
    /// Too many uploads at once.
    #[error("too many uploads at once")]
    Busy,
}

impl UploadError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            UploadError::TooLarge { .. } => ErrorCode::UploadTooLarge,
            UploadError::WrongDigest { .. } => ErrorCode::BadArchive,
            UploadError::Archive(error) => error.code(),
            UploadError::Full => ErrorCode::StorageFull,
            UploadError::Disk(_) => ErrorCode::Internal,
            UploadError::Aborted => ErrorCode::Malformed,
            UploadError::Busy => ErrorCode::Busy,
        }
    }

    fn of_disk(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::Full
            }
            _ => Self::Disk(error),
        }
    }
}

/// What was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Bytes on disk.
    pub bytes: u64,
    /// Bytes when unpacked (sources only, else 0).
    pub unpacked_bytes: u64,
    /// Entries of the archive (sources only, else 0).
    pub entries: u64,
}

/// An upload under way. Dropping it gives it up.
pub struct Upload {
    chunks: mpsc::Sender<Piece>,
    result: oneshot::Receiver<Result<Stored, UploadError>>,
}

enum Piece {
    Chunk(Bytes),
    End,
}

impl Blobs {
    /// Begins an upload. Must be called on a tokio runtime.
    pub fn begin_upload(&self, kind: BlobKind, digest: Digest) -> Result<Upload, UploadError> {
        let slot = self.inner.slots.clone().try_acquire_owned().map_err(|_| UploadError::Busy)?;
        let (chunks, pieces) = mpsc::channel(QUEUE);
        let (answer, result) = oneshot::channel();
        let blobs = self.clone();
        tokio::task::spawn_blocking(move || {
            let outcome = blobs.receive(kind, digest, pieces, slot);
            let _ = answer.send(outcome);
        });
        Ok(Upload { chunks, result })
    }

    /// The blocking side: checks, writes, syncs, publishes.
    fn receive(
        &self,
        kind: BlobKind,
        digest: Digest,
        pieces: mpsc::Receiver<Piece>,
        _slot: OwnedSemaphorePermit,
    ) -> Result<Stored, UploadError> {
        let name = format!("{}-{}.part", digest.short(), uuid::Uuid::new_v4().simple());
        let part = Part(self.inner.root.join("uploads").join(name));
        let file = self.inner.disk.create(&part.0).map_err(UploadError::of_disk)?;
        let limit = match kind {
            BlobKind::Source => self.inner.limits.source.0,
            BlobKind::Artifact => self.inner.limits.artifact.0,
        };
        let mut tee = Tee { pieces, file, rest: Bytes::new(), ended: false, bytes: 0, limit, failure: None };
        let checked = match kind {
            BlobKind::Source => {
                let limits = Limits { bytes: self.inner.limits.source_unpacked.0, ..Limits::source() };
                towpath_archive::verify(&mut tee, &limits, Some(&digest))
                    .map(|summary| (summary.bytes, summary.entries))
                    .map_err(UploadError::Archive)
            }
            BlobKind::Artifact => check_artifact(&mut tee, digest).map(|()| (0, 0)),
        };
        // What the tee saw (a full disk, the limit, a client that went) explains whatever the reader made of it.
        if let Some(failure) = tee.failure.take() {
            return Err(failure);
        }
        let (unpacked_bytes, entries) = checked?;
        if !tee.ended && !tee.at_end()? {
            return Err(UploadError::Aborted);
        }
        let bytes = tee.bytes;
        tee.file.flush().and_then(|()| tee.file.sync()).map_err(UploadError::of_disk)?;
        drop(tee);
        self.publish(&part.0, &self.path(kind, &digest)).map_err(UploadError::of_disk)?;
        Ok(Stored { bytes, unpacked_bytes, entries })
    }

    /// Moves the complete file to its name; the move lasts when this returns.
    fn publish(&self, part: &Path, target: &Path) -> io::Result<()> {
        std::fs::rename(part, target)?;
        match target.parent() {
            Some(directory) => std::fs::File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }
}

fn check_artifact(tee: &mut Tee, expected: Digest) -> Result<(), UploadError> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let n = tee.read(&mut buffer).map_err(UploadError::of_disk)?;
        if n == 0 {
            break;
        }
        hash.update(buffer.get(..n).unwrap_or_default());
    }
    let actual = Digest::from_bytes(hash.finalize().into());
    if actual == expected { Ok(()) } else { Err(UploadError::WrongDigest { expected, actual }) }
}

impl Upload {
    /// Hands over the next chunk; waits while the disk is behind. `false` = it was refused already: call `finish`.
    pub async fn write(&mut self, chunk: Bytes) -> bool {
        chunk.is_empty() || self.chunks.send(Piece::Chunk(chunk)).await.is_ok()
    }

    /// The body has ended: waits for the verdict.
    pub async fn finish(self) -> Result<Stored, UploadError> {
        let _ = self.chunks.send(Piece::End).await;
        drop(self.chunks);
        self.result.await.unwrap_or(Err(UploadError::Aborted))
    }
}

/// Removes its file when dropped; after the rename there is none.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, file = %self.0.display(), "an upload's remains could not be removed");
            }
            _ => {}
        }
    }
}

/// Reads from the queue and writes what it read to the file, so that what was checked is what is stored.
struct Tee {
    pieces: mpsc::Receiver<Piece>,
    file: Box<dyn DiskFile>,
    rest: Bytes,
    ended: bool,
    bytes: u64,
    limit: u64,
    failure: Option<UploadError>,
}

impl Tee {
    fn fail(&mut self, failure: UploadError) -> io::Error {
        let text = failure.to_string();
        self.failure = Some(failure);
        io::Error::other(text)
    }

    /// Whether the queue ends here as it should.
    fn at_end(&mut self) -> Result<bool, UploadError> {
        let mut byte = [0; 1];
        match self.read(&mut byte) {
            Ok(0) => Ok(self.ended),
            Ok(_) => Ok(false),
            Err(error) => Err(self.failure.take().unwrap_or(UploadError::Disk(error))),
        }
    }
}

impl Read for Tee {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.ended || out.is_empty() {
            return Ok(0);
        }
        if self.rest.is_empty() {
            match self.pieces.blocking_recv() {
                Some(Piece::Chunk(chunk)) => {
                    self.bytes += chunk.len() as u64;
                    if self.bytes > self.limit {
                        let limit = self.limit;
                        return Err(self.fail(UploadError::TooLarge { limit }));
                    }
                    if let Err(error) = self.file.write_all(&chunk) {
                        return Err(self.fail(UploadError::of_disk(error)));
                    }
                    self.rest = chunk;
                }
                Some(Piece::End) => {
                    self.ended = true;
                    return Ok(0);
                }
                None => return Err(self.fail(UploadError::Aborted)),
            }
        }
        let n = self.rest.len().min(out.len());
        let head = self.rest.split_to(n);
        if let Some(out) = out.get_mut(..n) {
            out.copy_from_slice(&head);
        }
        Ok(n)
    }
}
