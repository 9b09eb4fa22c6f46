//! Removing what no kept release refers to.

use super::{BlobKind, Blobs};
use std::collections::HashSet;
use std::io;
use std::time::{Duration, SystemTime};

/// What a collection did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Files removed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Blobs {
    /// Removes blobs that are not in `keep` (as kind and hex digest) and were not used for the grace time. The caller
    /// must have read `keep` from the store completely. Blocks.
    pub fn collect(&self, keep: &HashSet<(BlobKind, String)>, now: SystemTime) -> io::Result<Collected> {
        let mut collected = Collected::default();
        for kind in [BlobKind::Source, BlobKind::Artifact] {
            for entry in std::fs::read_dir(self.inner.root.join(kind.directory()))?.flatten() {
                let Ok(name) = entry.file_name().into_string() else { continue };
                if keep.contains(&(kind, name)) {
                    continue;
                }
                let Ok(meta) = entry.metadata() else { continue };
                let age =
                    meta.modified().ok().and_then(|at| now.duration_since(at).ok()).unwrap_or(Duration::ZERO);
                if age >= self.inner.limits.keep_unreferenced && std::fs::remove_file(entry.path()).is_ok() {
                    collected.files += 1;
                    collected.bytes += meta.len();
                }
            }
        }
        Ok(collected)
    }
}
