//! Uploaded sources and staged artifacts, as files named by their digest.
//!
//! Layout under the manager's data directory: `blobs/sources/<hex>`, `blobs/artifacts/<hex>`, `blobs/uploads/*.part`.
//!
//! Invariants: a file under its digest is complete, checked and synced (it gets there by rename alone); an upload that
//! fails, is given up or is cut off by a crash leaves nothing; memory per upload is a few chunks (a slow disk slows the
//! client down); what a kept release refers to is never collected.
//!
//! Must not: know about apps, HTTP or the store.

mod collect;
mod disk;
mod upload;

pub use disk::{Disk, DiskFile, RealDisk};
pub use upload::{Stored, Upload, UploadError};

use async_trait::async_trait;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;
use tokio::sync::Semaphore;
use towpath_types::{ByteSize, Digest};

/// The two sorts of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlobKind {
    /// A zstd stream of a canonical tar; the digest is that of the tar.
    Source,
    /// A staged app; the digest is that of the stored bytes.
    Artifact,
}

impl BlobKind {
    fn directory(self) -> &'static str {
        match self {
            BlobKind::Source => "sources",
            BlobKind::Artifact => "artifacts",
        }
    }
}

/// Limits on uploads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobLimits {
    /// Largest upload of a source, as sent.
    pub source: ByteSize,
    /// Largest source, unpacked.
    pub source_unpacked: ByteSize,
    /// Largest artifact, as sent.
    pub artifact: ByteSize,
    /// Uploads at once; further ones are told to come back.
    pub uploads: usize,
    /// An upload that sends nothing for so long is given up.
    pub idle: std::time::Duration,
    /// Unreferenced content younger than this stays: it may belong to a push that is just being made.
    pub keep_unreferenced: std::time::Duration,
}

impl Default for BlobLimits {
    fn default() -> Self {
        Self {
            source: ByteSize::mib(512),
            source_unpacked: ByteSize::mib(2048),
            artifact: ByteSize::mib(4096),
            uploads: 32,
            idle: std::time::Duration::from_secs(30),
            keep_unreferenced: std::time::Duration::from_secs(3600),
        }
    }
}

/// Where else a blob may be.
#[async_trait]
pub trait Elsewhere: Send + Sync {
    /// Brings a blob here, if it is anywhere; says whether it is here now.
    async fn fetch(&self, blobs: &Blobs, kind: BlobKind, digest: Digest) -> bool;
}

/// The blob store of one manager. Cheap to clone.
#[derive(Clone)]
pub struct Blobs {
    inner: Arc<Inner>,
}

struct Inner {
    root: PathBuf,
    limits: BlobLimits,
    disk: Arc<dyn Disk>,
    slots: Arc<Semaphore>,
    elsewhere: OnceLock<Arc<dyn Elsewhere>>,
}

impl Blobs {
    /// Opens the store under `data_dir`, and removes what earlier uploads left. Blocks.
    pub fn open(data_dir: &Path, limits: BlobLimits) -> io::Result<Self> {
        Self::open_on(data_dir, limits, Arc::new(RealDisk))
    }

    /// As [`Blobs::open`], on another disk (tests: one that is full).
    pub fn open_on(data_dir: &Path, limits: BlobLimits, disk: Arc<dyn Disk>) -> io::Result<Self> {
        let root = data_dir.join("blobs");
        for directory in ["sources", "artifacts", "uploads"] {
            std::fs::create_dir_all(root.join(directory))?;
        }
        // Instances on this machine run as other users: sources are none of their business.
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o700))?;
        for left in std::fs::read_dir(root.join("uploads"))?.flatten() {
            if let Err(error) = std::fs::remove_file(left.path()) {
                tracing::warn!(%error, file = %left.path().display(), "a left-over upload could not be removed");
            }
        }
        let slots = Arc::new(Semaphore::new(limits.uploads.max(1)));
        Ok(Self { inner: Arc::new(Inner { root, limits, disk, slots, elsewhere: OnceLock::new() }) })
    }

    /// The limits.
    pub fn limits(&self) -> &BlobLimits {
        &self.inner.limits
    }

    fn path(&self, kind: BlobKind, digest: &Digest) -> PathBuf {
        self.inner.root.join(kind.directory()).join(digest.hex())
    }

    /// Has blobs that are not here looked for there.
    pub fn look_elsewhere(&self, elsewhere: Arc<dyn Elsewhere>) {
        // Set once, when the manager starts.
        let _ = self.inner.elsewhere.set(elsewhere);
    }

    async fn fetch(&self, kind: BlobKind, digest: &Digest) -> bool {
        match self.inner.elsewhere.get() {
            Some(elsewhere) => elsewhere.fetch(self, kind, *digest).await,
            None => false,
        }
    }

    /// Size of a blob, if it is here or can be fetched.
    pub async fn find(&self, kind: BlobKind, digest: &Digest) -> Option<u64> {
        match self.find_here(kind, digest).await {
            None if self.fetch(kind, digest).await => self.find_here(kind, digest).await,
            found => found,
        }
    }

    /// Size of a blob, if it is here. Counts as use: the grace before collection begins anew.
    pub async fn find_here(&self, kind: BlobKind, digest: &Digest) -> Option<u64> {
        let path = self.path(kind, digest);
        tokio::task::spawn_blocking(move || {
            let file = std::fs::File::open(&path).ok()?;
            let bytes = file.metadata().ok()?.len();
            if let Err(error) = file.set_modified(SystemTime::now()) {
                tracing::debug!(%error, "the time of a blob could not be set");
            }
            Some(bytes)
        })
        .await
        .ok()
        .flatten()
    }

    /// Opens a blob for reading, if it is here or can be fetched; with its size.
    pub async fn read(&self, kind: BlobKind, digest: &Digest) -> io::Result<Option<(tokio::fs::File, u64)>> {
        match self.read_here(kind, digest).await? {
            None if self.fetch(kind, digest).await => self.read_here(kind, digest).await,
            found => Ok(found),
        }
    }

    /// Opens a blob for reading, if it is here; with its size.
    pub async fn read_here(
        &self,
        kind: BlobKind,
        digest: &Digest,
    ) -> io::Result<Option<(tokio::fs::File, u64)>> {
        match tokio::fs::File::open(self.path(kind, digest)).await {
            Ok(file) => {
                let bytes = file.metadata().await?.len();
                Ok(Some((file, bytes)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
