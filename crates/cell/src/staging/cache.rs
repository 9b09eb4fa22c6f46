//! What tools downloaded and compiled, kept from one build of an app to the next.

use crate::disk;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A larger cache is thrown away.
const ONE_MAX: u64 = 2 << 30;
/// Caches that are kept; the one that was used longest ago goes first.
const COUNT_MAX: usize = 32;

/// The caches, one directory an app. A build takes its app's away and puts it back, so two builds never share one. Blocks.
#[derive(Debug, Clone)]
pub(crate) struct Caches {
    dir: PathBuf,
    reserve: u64,
}

impl Caches {
    /// Caches in `dir`; with less than twice `reserve` bytes free none is kept.
    pub(crate) fn new(dir: &Path, reserve: u64) -> Self {
        Self { dir: dir.to_path_buf(), reserve }
    }

    /// Moves an app's cache to `to`. `false`: there is none.
    pub(crate) fn take(&self, key: &str, to: &Path) -> bool {
        self.make_room(COUNT_MAX);
        fs::rename(self.dir.join(key), to).is_ok()
    }

    /// Moves it back, unless it has become too large or another build was faster.
    pub(crate) fn put_back(&self, key: &str, from: &Path) {
        let too_large = disk::tree_size(from) > ONE_MAX;
        let kept = !too_large
            && fs::create_dir_all(&self.dir).is_ok()
            && fs::rename(from, self.dir.join(key)).is_ok();
        if kept {
            // The directory's own time says when it was last used.
            let now = fs::FileTimes::new().set_modified(SystemTime::now());
            let _ = fs::File::open(self.dir.join(key)).and_then(|dir| dir.set_times(now));
        }
        self.make_room(COUNT_MAX);
    }

    /// Removes the oldest beyond `count`, and all while space is short.
    fn make_room(&self, count: usize) {
        let Ok(read) = fs::read_dir(&self.dir) else { return };
        let mut caches: Vec<(SystemTime, PathBuf)> = read
            .filter_map(Result::ok)
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        caches.sort();
        let mut left = caches.len();
        for (_, path) in caches {
            let short = disk::free_space(&self.dir).is_ok_and(|free| free < self.reserve.saturating_mul(2));
            if left <= count && !short {
                return;
            }
            if let Err(error) = disk::remove_tree(&path) {
                tracing::warn!(%error, dir = %path.display(), "a build cache could not be removed");
            }
            left = left.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_goes_to_one_build_at_a_time_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let caches = Caches::new(&dir.path().join("caches"), 0);
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        assert!(!caches.take("app", &one));
        fs::create_dir(&one).unwrap();
        fs::write(one.join("file"), "x").unwrap();
        caches.put_back("app", &one);
        assert!(caches.take("app", &one) && one.join("file").exists());
        assert!(!caches.take("app", &two));
        let short = Caches::new(&dir.path().join("caches"), u64::MAX / 4);
        short.put_back("app", &one);
        assert!(!short.take("app", &two), "no cache is kept while space is short");
    }
}
