//! What tools downloaded and compiled, kept from one build of an app to the next.

use crate::disk;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A larger cache is thrown away.
const ONE_MAX: u64 = 2 << 30;
/// Caches that are kept; the one that was used longest ago goes first.
const COUNT_MAX: usize = 32;
/// Bytes of all of them.
const ALL_MAX: u64 = 8 << 30;

/// Beside a cache: how large it was when it was put back.
const SIZE: &str = "size";

/// The caches, one directory an app. A build takes its app's away and puts it back, so two builds never share one: neither of one
/// app at the same time, nor ever of two apps, who need not trust each other. Blocks.
#[derive(Debug, Clone)]
pub(crate) struct Caches {
    dir: PathBuf,
    reserve: u64,
    most: u64,
}

impl Caches {
    /// Caches in `dir`; with less than twice `reserve` bytes free none is kept.
    pub(crate) fn new(dir: &Path, reserve: u64) -> Self {
        Self { dir: dir.to_path_buf(), reserve, most: ALL_MAX }
    }

    /// Moves an app's cache to `to`. `false`: there is none.
    pub(crate) fn take(&self, key: &str, to: &Path) -> bool {
        self.make_room(COUNT_MAX);
        fs::rename(self.dir.join(key), to).is_ok()
    }

    /// Moves it back, unless it has become too large or another build was faster.
    pub(crate) fn put_back(&self, key: &str, from: &Path) {
        let bytes = disk::tree_size(from);
        let kept = bytes <= ONE_MAX
            && fs::create_dir_all(&self.dir).is_ok()
            && fs::rename(from, self.dir.join(key)).is_ok();
        if kept {
            // The directory's own time says when it was last used.
            let now = fs::FileTimes::new().set_modified(SystemTime::now());
            let _ = fs::File::open(self.dir.join(key)).and_then(|dir| dir.set_times(now));
            let _ = fs::write(self.size_file(&self.dir.join(key)), bytes.to_string());
        }
        self.make_room(COUNT_MAX);
    }

    /// Removes an app's cache.
    pub(crate) fn forget(&self, key: &str) {
        let path = self.dir.join(key);
        if path.exists()
            && let Err(error) = disk::remove_tree(&path)
        {
            tracing::warn!(%error, dir = %path.display(), "a build cache could not be removed");
        }
        let _ = fs::remove_file(self.size_file(&path));
    }

    fn size_file(&self, cache: &Path) -> PathBuf {
        cache.with_extension(SIZE)
    }

    /// What is there, the one that was used longest ago first.
    fn list(&self) -> Vec<Kept> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().filter_map(Result::ok);
        let mut found: Vec<Kept> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| {
                let (path, used) = (entry.path(), entry.metadata().ok()?.modified().ok()?);
                let noted = fs::read_to_string(self.size_file(&path)).ok().and_then(|text| text.parse().ok());
                let bytes = noted.unwrap_or_else(|| disk::tree_size(&path));
                Some(Kept { used, path, bytes })
            })
            .collect();
        found.sort_by_key(|kept| kept.used);
        found
    }

    /// Removes the oldest beyond `count` and beyond the bytes of all, and all while space is short.
    fn make_room(&self, count: usize) {
        let caches = self.list();
        let (mut left, mut bytes) = (caches.len(), caches.iter().map(|kept| kept.bytes).sum::<u64>());
        for Kept { path, bytes: its, .. } in caches {
            let short = disk::free_space(&self.dir).is_ok_and(|free| free < self.reserve.saturating_mul(2));
            if left <= count && bytes <= self.most && !short {
                return;
            }
            if let Some(key) = path.file_name().and_then(|name| name.to_str()) {
                self.forget(key);
            }
            left = left.saturating_sub(1);
            bytes = bytes.saturating_sub(its);
        }
    }
}

/// A cache that waits for its app's next build.
struct Kept {
    used: SystemTime,
    path: PathBuf,
    bytes: u64,
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
        caches.put_back("app", &one);
        caches.forget("app");
        assert!(!caches.take("app", &one));
        fs::create_dir(&one).unwrap();
        let short = Caches::new(&dir.path().join("caches"), u64::MAX / 4);
        short.put_back("app", &one);
        assert!(!short.take("app", &two), "no cache is kept while space is short");
    }

    #[test]
    fn all_together_stay_within_their_bytes_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let caches = Caches { most: 3 << 20, ..Caches::new(&dir.path().join("caches"), 0) };
        for key in ["one", "two", "three"] {
            let from = dir.path().join(key);
            fs::create_dir(&from).unwrap();
            fs::write(from.join("file"), vec![1; 1 << 20]).unwrap();
            caches.put_back(key, &from);
        }
        let there: Vec<bool> =
            ["one", "two", "three"].map(|key| caches.take(key, &dir.path().join(key))).into();
        assert_eq!(there, [false, true, true]);
    }
}
