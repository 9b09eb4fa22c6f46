//! Digests of what flows by.

use sha2::{Digest as _, Sha256};
use std::io::{self, Write};
use towpath_types::Digest;

/// Hashes and counts all that is written through it.
pub(crate) struct HashWriter<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> HashWriter<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), bytes: 0 }
    }

    /// The digest, the number of bytes, and what was written to.
    pub(crate) fn finish(self) -> (Digest, u64, W) {
        (Digest::from_bytes(self.hash.finalize().into()), self.bytes, self.inner)
    }
}

impl<W: Write> Write for HashWriter<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        if let Some(written) = buf.get(..n) {
            self.hash.update(written);
        }
        self.bytes = self.bytes.saturating_add(n as u64);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
