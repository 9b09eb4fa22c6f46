//! What an instance writes on the disk, watched like its memory: above its limit it is ended and begun anew.

use crate::disk;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use tokio_util::task::AbortOnDropHandle;

/// After a look, the next one (of whichever instance) comes no sooner than so many times what it took.
const SHARE: u32 = 4;
/// But no later than this.
const LONGEST: Duration = Duration::from_secs(10);

/// One look at a time, so that many instances with many files never take more than a part of one core.
#[derive(Debug, Clone)]
pub(crate) struct Looks {
    slot: Arc<Semaphore>,
    interval: Duration,
}

impl Looks {
    /// Each instance is looked at this often, if all looks together leave the time.
    pub(crate) fn new(interval: Duration) -> Self {
        Self { slot: Arc::new(Semaphore::new(1)), interval }
    }
}

/// Bytes that a tree takes; does not block the caller.
pub(crate) async fn measure(tree: PathBuf) -> u64 {
    tokio::task::spawn_blocking(move || disk::tree_size(&tree)).await.unwrap_or(0)
}

/// How an instance stands with its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There is room.
    Fine,
    /// Nine tenths are used; so many bytes.
    Near(u64),
    /// More is used than it may.
    Over(u64),
}

/// What a look says.
fn judge(size: u64, base: u64, limit: u64) -> Standing {
    let used = size.saturating_sub(base);
    match used {
        used if used > limit => Standing::Over(used),
        used if used >= limit / 10 * 9 => Standing::Near(used),
        _ => Standing::Fine,
    }
}

/// Watches one instance's directory while it is held.
pub(crate) struct DiskWatch {
    standing: watch::Receiver<Standing>,
    _task: AbortOnDropHandle<()>,
}

impl DiskWatch {
    /// Watches `tree`, which took `base` bytes before the instance wrote anything.
    pub(crate) fn start(looks: Looks, tree: PathBuf, base: u64, limit: u64) -> Self {
        let (tell, standing) = watch::channel(Standing::Fine);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(looks.interval).await;
                let Ok(_slot) = looks.slot.acquire().await else { return };
                let began = Instant::now();
                let now = judge(measure(tree.clone()).await, base, limit);
                tell.send_if_modified(|before| {
                    let is_news = std::mem::discriminant(before) != std::mem::discriminant(&now);
                    *before = now;
                    is_news
                });
                tokio::time::sleep((began.elapsed() * SHARE).min(LONGEST)).await;
            }
        });
        Self { standing, _task: AbortOnDropHandle::new(task) }
    }

    /// Waits for the next change of the standing. Cancel-safe.
    pub(crate) async fn changed(&mut self) -> Standing {
        if self.standing.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        *self.standing.borrow_and_update()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_release_takes_is_not_held_against_it() {
        assert_eq!(judge(5_000, 5_000, 1_000), Standing::Fine);
        assert_eq!(judge(5_899, 5_000, 1_000), Standing::Fine);
        assert_eq!(judge(5_900, 5_000, 1_000), Standing::Near(900));
        assert_eq!(judge(6_000, 5_000, 1_000), Standing::Near(1_000));
        assert_eq!(judge(6_001, 5_000, 1_000), Standing::Over(1_001));
        assert_eq!(judge(10, 5_000, 1_000), Standing::Fine, "it may remove what it got");
    }

    #[tokio::test]
    async fn a_growing_directory_is_told_once_for_each_standing() {
        let dir = tempfile::tempdir().unwrap();
        let base = measure(dir.path().to_owned()).await;
        let looks = Looks::new(Duration::from_millis(5));
        let mut watch = DiskWatch::start(looks, dir.path().to_owned(), base, 1 << 20);
        std::fs::write(dir.path().join("near"), vec![1; 1_000 << 10]).unwrap();
        assert!(matches!(watch.changed().await, Standing::Near(_)));
        std::fs::write(dir.path().join("over"), vec![1; 100 << 10]).unwrap();
        assert!(matches!(watch.changed().await, Standing::Over(used) if used > 1 << 20));
        std::fs::remove_file(dir.path().join("near")).unwrap();
        assert_eq!(watch.changed().await, Standing::Fine);
    }

    #[tokio::test]
    async fn things_without_content_count_too() {
        use std::os::unix::fs::symlink;
        type Make = fn(&std::path::Path);
        let kinds: [Make; 4] = [
            |at| drop(std::fs::File::create(at).unwrap()),
            |at| symlink("nowhere", at).unwrap(),
            |at| std::fs::create_dir(at).unwrap(),
            |at| {
                rustix::fs::mknodat(
                    rustix::fs::CWD,
                    at,
                    rustix::fs::FileType::Fifo,
                    rustix::fs::Mode::RUSR,
                    0,
                )
                .unwrap()
            },
        ];
        for make in kinds {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("release")).unwrap();
            for n in 0..50 {
                make(&dir.path().join(format!("release/{n}")));
            }
            let base = measure(dir.path().to_owned()).await;
            assert!(base >= 50 * 4096, "{base}");
            let mut watch =
                DiskWatch::start(Looks::new(Duration::from_millis(5)), dir.path().to_owned(), base, 1 << 20);
            for n in 0..300 {
                make(&dir.path().join(n.to_string()));
            }
            while !matches!(watch.changed().await, Standing::Over(used) if used > 1 << 20) {}
        }
    }
}
