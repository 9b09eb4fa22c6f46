//! The space that a build takes.

use super::stop::Stop;
use crate::disk;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio_util::task::AbortOnDropHandle;
use towpath_types::{ByteSize, ErrorCode};

/// Shortest pause between looks.
const PAUSE: Duration = Duration::from_secs(2);
/// A look may take one part in so many of the time.
const SHARE: u32 = 10;

/// Ends a build when it takes too much space, or when the file system has too little left.
pub(crate) struct DiskWatch {
    pub(crate) root: PathBuf,
    pub(crate) most: u64,
    pub(crate) reserve: u64,
}

impl DiskWatch {
    /// Looks again and again until the handle is dropped.
    pub(crate) fn spawn(self, stop: Stop) -> AbortOnDropHandle<()> {
        let watch = std::sync::Arc::new(self);
        AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let (watch, stop, began) = (std::sync::Arc::clone(&watch), stop.clone(), Instant::now());
                if tokio::task::spawn_blocking(move || watch.look(&stop)).await.is_err() {
                    return;
                }
                tokio::time::sleep(PAUSE.max(began.elapsed() * SHARE)).await;
            }
        }))
    }

    /// Looks once. Blocks.
    fn look(&self, stop: &Stop) {
        if disk::tree_size(&self.root) > self.most {
            let message = format!("the build took more than {} of disk and was ended", ByteSize(self.most));
            stop.end(ErrorCode::BuildFailed, &message);
        }
        if disk::free_space(&self.root).is_ok_and(|free| free < self.reserve) {
            stop.end(ErrorCode::StorageFull, "the cell's disk is nearly full; the build was ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_fills_the_disk_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let look = |most, reserve| {
            let stop = Stop::new();
            DiskWatch { root: dir.path().to_path_buf(), most, reserve }.look(&stop);
            stop.check().map_err(|why| (why.code, why.message))
        };
        assert_eq!(look(1 << 20, 0), Ok(()));
        std::fs::write(dir.path().join("large"), vec![0; 2 << 20]).unwrap();
        let (code, message) = look(1 << 20, 0).unwrap_err();
        assert_eq!(code, ErrorCode::BuildFailed);
        assert!(message.contains("more than 1M of disk"), "{message}");
        assert_eq!(look(1 << 30, u64::MAX).unwrap_err().0, ErrorCode::StorageFull);
    }
}
