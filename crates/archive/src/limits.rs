//! How much an archive may ask for when it is unpacked.

/// Upper bounds while an archive is read. All are checked before the bytes they bound are kept or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the uncompressed tar.
    pub bytes: u64,
    /// Entries, directories that are only implied included.
    pub entries: u64,
    /// Uncompressed bytes for each stored byte, beyond the first [`Limits::RATIO_FREE`].
    pub ratio: u64,
    /// Bytes of one path.
    pub path: usize,
    /// Directories above an entry.
    pub depth: usize,
}

impl Limits {
    /// Uncompressed bytes that are not held against [`Limits::ratio`]: small archives may compress as well as they like.
    pub const RATIO_FREE: u64 = 64 << 20;

    /// For what people upload.
    pub fn source() -> Self {
        Self { bytes: 2 << 30, entries: 200_000, ratio: 200, path: 1_024, depth: 64 }
    }

    /// For what builds make: dependencies are many and large.
    pub fn artifact() -> Self {
        Self { bytes: 8 << 30, entries: 1_000_000, ratio: 400, path: 2_048, depth: 128 }
    }
}
