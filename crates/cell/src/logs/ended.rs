//! Logs of instances that are gone, kept for a while: why a release did not come up is mostly asked afterwards.

use crate::disk;
use std::io;
use std::path::{Path, PathBuf};
use towpath_types::InstanceId;

/// So many instances' logs are kept; with the default bounds they take at most 300 MB.
const KEPT: usize = 30;

/// The directory of them.
#[derive(Debug, Clone)]
pub(crate) struct EndedLogs {
    dir: PathBuf,
}

impl EndedLogs {
    /// They are in `dir`, which must exist.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Where the log of an instance that is gone would be.
    pub(crate) fn of(&self, instance: InstanceId) -> PathBuf {
        self.dir.join(instance.to_string())
    }

    /// Takes over the log of an instance whose files are about to be removed.
    pub(crate) async fn keep(&self, instance: InstanceId, log: PathBuf) {
        let (dir, to) = (self.dir.clone(), self.of(instance));
        let work = move || -> io::Result<()> {
            disk::remove_tree(&to)?;
            std::fs::rename(&log, &to)?;
            prune(&dir, KEPT)
        };
        if let Ok(Err(error)) = tokio::task::spawn_blocking(work).await
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(%instance, %error, "the log of an ended instance was not kept");
        }
    }
}

/// Removes all but the newest.
fn prune(dir: &Path, keep: usize) -> io::Result<()> {
    let mut logs: Vec<_> = std::fs::read_dir(dir)?
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    logs.sort_unstable_by(|a, b| b.cmp(a));
    logs.iter().skip(keep).try_for_each(|(_, path)| disk::remove_tree(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[tokio::test]
    async fn logs_are_kept_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let (ended, log) = (dir.path().join("ended"), dir.path().join("log"));
        std::fs::create_dir(&ended).unwrap();
        std::fs::create_dir(&log).unwrap();
        let logs = EndedLogs::new(ended.clone());
        let id = InstanceId::mint(1, [1; 10]);
        logs.keep(id, log.clone()).await;
        assert!(logs.of(id).is_dir() && !log.exists());
        for n in 0..3 {
            let path = ended.join(format!("{n}"));
            std::fs::create_dir(&path).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(n);
            std::fs::File::open(&path).unwrap().set_modified(time).unwrap();
        }
        prune(&ended, 2).unwrap();
        assert!(logs.of(id).exists() && ended.join("2").exists());
        assert_eq!(std::fs::read_dir(&ended).unwrap().count(), 2);
        logs.keep(id, log).await;
    }
}
