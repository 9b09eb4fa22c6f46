//! The checks of unpacking without writing anything.

use crate::entry::{Sink, process};
use crate::error::UnpackError;
use crate::limits::Limits;
use crate::read::DigestOf;
use crate::unpack::UnpackSummary;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use towpath_types::Digest;

/// Checks a source as [`crate::unpack()`] would.
pub fn verify<R: Read>(
    mut reader: R,
    limits: &Limits,
    expected: Option<&Digest>,
) -> Result<UnpackSummary, UnpackError> {
    process(&mut reader, limits, DigestOf::Content, expected, &mut Nothing)
}

/// Checks an artifact as [`crate::unpack_artifact()`] would.
pub fn verify_artifact<R: Read>(
    mut reader: R,
    limits: &Limits,
    expected: Option<&Digest>,
) -> Result<UnpackSummary, UnpackError> {
    process(&mut reader, limits, DigestOf::Stored, expected, &mut Nothing)
}

struct Nothing;

impl Sink for Nothing {
    fn dir(&mut self, _: &[u8]) -> Result<(), UnpackError> {
        Ok(())
    }
    fn link(&mut self, _: &[u8], _: &[u8]) -> Result<(), UnpackError> {
        Ok(())
    }
    fn hard_link(&mut self, _: &[u8], _: &[u8]) -> Result<(), UnpackError> {
        Ok(())
    }
    fn begin_file(&mut self, _: &[u8], _: bool) -> Result<(), UnpackError> {
        Ok(())
    }
    fn file_bytes(&mut self, _: &[u8]) -> Result<(), UnpackError> {
        Ok(())
    }
    fn end_file(&mut self) -> Result<(), UnpackError> {
        Ok(())
    }
}

/// Checks a source whose bytes are pushed, on a thread of its own. `write` and `finish` block for as long as the thread
/// is behind (at most four pieces are queued).
pub struct Verifier {
    pieces: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<Result<UnpackSummary, UnpackError>>>,
}

impl Verifier {
    /// Starts.
    pub fn new(limits: Limits, expected: Option<Digest>) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(4);
        let thread = std::thread::Builder::new().name("archive-verify".into()).spawn(move || {
            verify(Pieces { receiver, piece: io::Cursor::new(Vec::new()) }, &limits, expected.as_ref())
        })?;
        Ok(Self { pieces: Some(sender), thread: Some(thread) })
    }

    /// Checks some more. `false`: it was refused already; [`Verifier::finish`] says why.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        self.pieces.as_ref().is_some_and(|pieces| pieces.send(bytes.to_vec()).is_ok())
    }

    /// Says that all bytes were written, and answers the verdict.
    pub fn finish(mut self) -> Result<UnpackSummary, UnpackError> {
        self.pieces = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(verdict)) => verdict,
            _ => Err(UnpackError::Broken("the check of it was cut off")),
        }
    }
}

struct Pieces {
    receiver: Receiver<Vec<u8>>,
    piece: io::Cursor<Vec<u8>>,
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let n = self.piece.read(buf)?;
            if n > 0 || buf.is_empty() {
                return Ok(n);
            }
            match self.receiver.recv() {
                Ok(piece) => self.piece = io::Cursor::new(piece),
                Err(_) => return Ok(0),
            }
        }
    }
}
