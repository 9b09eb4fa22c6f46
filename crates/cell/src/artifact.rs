//! Artifacts on this machine: fetched, checked, unpacked once, kept while there is room.

use crate::disk;
use crate::{BlobClient, BlobError};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use towpath_archive::{Limits, UnpackError, unpack_artifact};
use towpath_types::{ByteSize, Digest};

/// An unpacked artifact takes about so many times the room of the stored one; only used to refuse early.
const UNPACKED_FACTOR: u64 = 5;

/// Why an artifact is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArtifactError {
    /// It could not be fetched.
    #[error("fetching the release failed: {0}")]
    Fetch(#[from] BlobError),
    /// It would fill the disk.
    #[error("the cell's disk is too full for the release: it needs about {needed}, and {free} are free")]
    NoRoom {
        /// What it takes, reserve included.
        needed: ByteSize,
        /// What is there.
        free: ByteSize,
    },
    /// It cannot be unpacked.
    #[error("unpacking the release failed: {0}")]
    Unpack(#[from] UnpackError),
    /// The cache's own files.
    #[error("the release cache cannot be used: {0}")]
    Io(#[from] io::Error),
}

/// The cache.
pub(crate) struct Artifacts {
    dir: PathBuf,
    blobs: BlobClient,
    room: ByteSize,
    reserve: ByteSize,
    /// One lock an artifact: held for writing by the one who unpacks or removes it, for reading by who uses it.
    locks: Mutex<HashMap<Digest, Arc<RwLock<()>>>>,
}

/// An unpacked artifact that stays while this is held.
pub(crate) struct Unpacked {
    pub(crate) tree: PathBuf,
    _lock: OwnedRwLockReadGuard<()>,
}

/// What stands beside an unpacked tree; its own time of change is the time of last use.
#[derive(Serialize, Deserialize)]
struct About {
    bytes: u64,
}

impl Artifacts {
    /// A cache in `dir`, which must exist and be closed to others. Half-made things of an earlier process are removed.
    pub(crate) fn open(
        dir: PathBuf,
        blobs: BlobClient,
        room: ByteSize,
        reserve: ByteSize,
    ) -> io::Result<Self> {
        for entry in std::fs::read_dir(&dir)?.flatten() {
            let path = entry.path();
            let is_whole = digest_of(&path).is_some_and(|digest| about_path(&dir, digest).exists());
            if !is_whole {
                let removed =
                    if path.is_dir() { disk::remove_tree(&path) } else { disk::remove_if_there(&path) };
                if let Err(error) = removed {
                    tracing::warn!(path = %path.display(), %error, "a leftover in the release cache cannot be removed");
                }
            }
        }
        Ok(Self { dir, blobs, room, reserve, locks: Mutex::default() })
    }

    /// Makes the artifact be there. Concurrent calls for one artifact fetch it once.
    pub(crate) async fn get(&self, digest: Digest, stored_bytes: u64) -> Result<Unpacked, ArtifactError> {
        let lock = self.lock(digest);
        let tree = self.dir.join(digest.hex());
        loop {
            let reading = Arc::clone(&lock).read_owned().await;
            if self.is_there(digest).await {
                return Ok(Unpacked { tree, _lock: reading });
            }
            drop(reading);
            let writing = Arc::clone(&lock).write_owned().await;
            if !self.is_there(digest).await {
                self.fetch(digest, stored_bytes).await?;
            }
            drop(writing);
        }
    }

    async fn fetch(&self, digest: Digest, stored_bytes: u64) -> Result<(), ArtifactError> {
        let needed = stored_bytes.saturating_mul(UNPACKED_FACTOR + 1).saturating_add(self.reserve.0);
        let dir = self.dir.clone();
        let free = blocking(move || disk::free_space(&dir)).await?;
        if free < needed {
            return Err(ArtifactError::NoRoom { needed: ByteSize(needed), free: ByteSize(free) });
        }
        let stored = self.dir.join(format!("{}.fetched", digest.hex()));
        self.blobs.get_artifact(digest, &stored).await?;
        let (dir, about, from) = (self.dir.join(digest.hex()), about_path(&self.dir, digest), stored.clone());
        let unpack = move || -> Result<(), ArtifactError> {
            disk::remove_tree(&dir)?;
            let done = unpack_artifact(std::fs::File::open(&from)?, &dir, &Limits::artifact(), Some(&digest));
            disk::remove_if_there(&from)?;
            let summary = done?;
            // Written last: it says that the tree is whole.
            disk::write_json(&about, &About { bytes: summary.bytes })?;
            Ok(())
        };
        tokio::task::spawn_blocking(unpack).await.map_err(io::Error::other)?
    }

    /// Removes what is not in `wanted`, longest unused first, until the rest fits. What is in use stays.
    pub(crate) async fn collect(&self, wanted: &HashSet<Digest>) {
        let dir = self.dir.clone();
        let kept = blocking(move || Ok(list(&dir))).await.unwrap_or_default();
        for digest in plan_collection(kept, wanted, self.room.0) {
            let Ok(_writing) = self.lock(digest).try_write_owned() else { continue };
            let (tree, about) = (self.dir.join(digest.hex()), about_path(&self.dir, digest));
            // The mark goes first: a half-removed tree never looks whole.
            let remove = move || disk::remove_if_there(&about).and_then(|()| disk::remove_tree(&tree));
            if let Ok(Err(error)) = tokio::task::spawn_blocking(remove).await {
                tracing::warn!(%digest, %error, "an unused release cannot be removed");
            }
        }
    }

    fn lock(&self, digest: Digest) -> Arc<RwLock<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        // Of those that nobody holds or waits for, nothing is lost.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(digest).or_default())
    }

    /// Whether it is there whole; if so it has been used now.
    async fn is_there(&self, digest: Digest) -> bool {
        let about = about_path(&self.dir, digest);
        let look = move || {
            let file = std::fs::File::open(&about)?;
            // Only costs the order in which unused ones go.
            let _ = file.set_times(std::fs::FileTimes::new().set_modified(SystemTime::now()));
            Ok(())
        };
        blocking(look).await.is_ok()
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// The artifacts that are there whole.
fn list(dir: &Path) -> Vec<Kept> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let kept = |entry: std::fs::DirEntry| {
        let digest = digest_of(&entry.path())?;
        let about = about_path(dir, digest);
        let used = std::fs::metadata(&about).ok()?.modified().ok()?;
        let bytes = serde_json::from_slice::<About>(&std::fs::read(&about).ok()?).ok()?.bytes;
        Some(Kept { digest, bytes, used })
    };
    entries.flatten().filter(|entry| entry.path().is_dir()).filter_map(kept).collect()
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    digest: Digest,
    bytes: u64,
    used: SystemTime,
}

/// Which artifacts to remove. Room is only counted for those that nobody wants.
fn plan_collection(mut kept: Vec<Kept>, wanted: &HashSet<Digest>, room: u64) -> Vec<Digest> {
    kept.retain(|kept| !wanted.contains(&kept.digest));
    kept.sort_by_key(|kept| std::cmp::Reverse(kept.used));
    let mut used = 0_u64;
    let is_too_much = |kept: &&Kept| {
        used = used.saturating_add(kept.bytes);
        used > room
    };
    kept.iter().filter(is_too_much).map(|kept| kept.digest).collect()
}

fn digest_of(path: &Path) -> Option<Digest> {
    let name = path.file_name()?.to_str()?;
    format!("sha256:{}", name.strip_suffix(".json").unwrap_or(name)).parse().ok()
}

fn about_path(dir: &Path, digest: Digest) -> PathBuf {
    dir.join(format!("{}.json", digest.hex()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_longest_unused_goes_and_the_wanted_stays() {
        let kept = |n: u8, bytes, age: u64| Kept {
            digest: Digest::from_bytes([n; 32]),
            bytes,
            used: SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - age),
        };
        let all = vec![kept(1, 10, 500), kept(2, 10, 5), kept(3, 10, 50), kept(4, 10, 900)];
        let wanted = HashSet::from([Digest::from_bytes([4; 32])]);
        let removed = plan_collection(all, &wanted, 20);
        assert_eq!(removed, [Digest::from_bytes([1; 32])]);
    }

    #[test]
    fn half_made_things_are_removed_at_start() {
        let dir = tempfile::tempdir().unwrap();
        let whole = Digest::from_bytes([1; 32]);
        let half = Digest::from_bytes([2; 32]);
        for digest in [whole, half] {
            std::fs::create_dir(dir.path().join(digest.hex())).unwrap();
        }
        std::fs::write(about_path(dir.path(), whole), r#"{"bytes":1}"#).unwrap();
        std::fs::write(dir.path().join("x.fetched"), "x").unwrap();
        let blobs = BlobClient::new("http://127.0.0.1:1", "t");
        Artifacts::open(dir.path().to_owned(), blobs, ByteSize(0), ByteSize(0)).unwrap();
        assert_eq!(list(dir.path()).len(), 1);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
