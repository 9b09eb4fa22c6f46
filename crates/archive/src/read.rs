//! The stream of an archive: stored bytes in, bounded and hashed tar bytes out.

use crate::error::UnpackError;
use crate::limits::Limits;
use sha2::{Digest as _, Sha256};
use std::cell::{Cell, RefCell};
use std::io::{self, BufReader, Read};
use std::rc::Rc;
use towpath_types::Digest;

/// Which bytes make the digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DigestOf {
    /// The uncompressed tar (sources).
    Content,
    /// What is stored (artifacts).
    Stored,
}

/// A window larger than 32 MiB is refused: whoever reads must hold it in memory.
const WINDOW_LOG_MAX: u32 = 25;

/// Counters and faults of one reading, shared by its layers.
#[derive(Default)]
pub(crate) struct Meter {
    stored: Cell<u64>,
    content: Cell<u64>,
    zero_tail: Cell<u64>,
    fault: RefCell<Option<UnpackError>>,
    hash: RefCell<Sha256>,
}

impl Meter {
    pub(crate) fn stored(&self) -> u64 {
        self.stored.get()
    }

    pub(crate) fn content(&self) -> u64 {
        self.content.get()
    }

    /// How many bytes at the end of the content read so far are zero.
    pub(crate) fn zero_tail(&self) -> u64 {
        self.zero_tail.get()
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::from_bytes(self.hash.borrow().clone().finalize().into())
    }

    /// The error to report for an I/O error that came up through the layers.
    pub(crate) fn explain(&self, error: io::Error) -> UnpackError {
        self.fault.borrow_mut().take().unwrap_or(UnpackError::Read(error))
    }
}

/// The uncompressed tar of an archive.
pub(crate) struct Content<'a> {
    inner: zstd::Decoder<'a, BufReader<Stored<'a>>>,
    meter: Rc<Meter>,
    limits: Limits,
    hashed: bool,
}

impl<'a> Content<'a> {
    pub(crate) fn new(
        reader: &'a mut dyn Read,
        limits: Limits,
        of: DigestOf,
    ) -> Result<(Self, Rc<Meter>), UnpackError> {
        let meter = Rc::new(Meter::default());
        let stored = Stored { inner: reader, meter: Rc::clone(&meter), hashed: of == DigestOf::Stored };
        let buffered = BufReader::with_capacity(128 << 10, stored);
        let mut inner = zstd::Decoder::with_buffer(buffered).map_err(UnpackError::Read)?;
        inner.window_log_max(WINDOW_LOG_MAX).map_err(UnpackError::Read)?;
        let content = Self { inner, meter: Rc::clone(&meter), limits, hashed: of == DigestOf::Content };
        Ok((content, meter))
    }

    fn refuse(&self, what: &'static str, limit: u64) -> io::Error {
        *self.meter.fault.borrow_mut() = Some(UnpackError::OverLimit { what, limit });
        io::Error::other("over a limit")
    }
}

impl Read for Content<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        let Some(part) = buf.get(..n) else { return Ok(n) };
        let content = self.meter.content.get().saturating_add(n as u64);
        self.meter.content.set(content);
        if content > self.limits.bytes {
            return Err(self.refuse("bytes when uncompressed", self.limits.bytes));
        }
        let stored = self.meter.stored.get();
        if content > Limits::RATIO_FREE.saturating_add(stored.saturating_mul(self.limits.ratio)) {
            return Err(self.refuse("uncompressed bytes for each stored byte", self.limits.ratio));
        }
        if self.hashed {
            self.meter.hash.borrow_mut().update(part);
        }
        let zeros = part.iter().rev().take_while(|b| **b == 0).count() as u64;
        let before = if zeros == n as u64 { self.meter.zero_tail.get() } else { 0 };
        self.meter.zero_tail.set(before.saturating_add(zeros));
        Ok(n)
    }
}

/// The stored bytes.
struct Stored<'a> {
    inner: &'a mut dyn Read,
    meter: Rc<Meter>,
    hashed: bool,
}

impl Read for Stored<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.meter.stored.set(self.meter.stored.get().saturating_add(n as u64));
        if let (true, Some(part)) = (self.hashed, buf.get(..n)) {
            self.meter.hash.borrow_mut().update(part);
        }
        Ok(n)
    }
}
