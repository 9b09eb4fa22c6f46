//! What the cell remembers on disk: what it should run, and what it has started.

use crate::desired::Desired;
use crate::kept::Troubles;
use crate::launch::Started;
use crate::{CellError, disk};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use towpath_types::InstanceId;
use towpath_wire::cell::InstanceSpec;

/// Version of the file's form.
const FORM: u32 = 1;

/// The content of `ledger.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ledger {
    form: u32,
    /// What should run.
    pub(crate) desired: Desired,
    /// What was started.
    pub(crate) instances: BTreeMap<InstanceId, Entry>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { form: FORM, desired: Desired::default(), instances: BTreeMap::new() }
    }
}

/// One instance in the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// What it is; the ledger's wish may be newer, or no longer hold it.
    pub(crate) spec: InstanceSpec,
    /// Its port in the present start.
    pub(crate) port: u16,
    /// Its user.
    pub(crate) user: Option<u32>,
    /// The present start.
    pub(crate) started: Option<Started>,
    /// Whether it was ready in the present start.
    pub(crate) ready: bool,
    /// Bytes that its directory took before the present start wrote anything; `None`: nobody looked. What cells wrote as
    /// `disk_base` was measured without what each inode counts at least: measured anew, or the release's own empty files
    /// and symlinks would count as the instance's.
    #[serde(default, rename = "disk_base_with_inodes")]
    pub(crate) disk_base: Option<u64>,
    /// Starts after the first.
    pub(crate) restarts: u32,
    /// Ends in a row without a healthy stretch between.
    pub(crate) crashes: u32,
}

/// How the ledger was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// None yet.
    New,
    /// Whole.
    Whole,
    /// Unreadable; it was put aside.
    Broken,
}

/// The ledger in memory and its writer.
#[derive(Clone)]
pub(crate) struct LedgerFile {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    ledger: Mutex<(Ledger, u64)>,
    /// Version in memory, and version on disk.
    changed: watch::Sender<u64>,
    written: watch::Sender<u64>,
}

impl LedgerFile {
    /// Reads the ledger. A broken one is put aside, and the cell goes on with an empty one.
    pub(crate) fn open(data_dir: &Path) -> Result<(Self, Found), CellError> {
        let path = data_dir.join("ledger.json");
        let (ledger, found) = match std::fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice::<Ledger>(&bytes) {
                Ok(ledger) if ledger.form == FORM => (ledger, Found::Whole),
                other => {
                    let why =
                        other.map_or_else(|e| e.to_string(), |l| format!("form {} is not known", l.form));
                    let aside = data_dir.join("ledger.json.bad");
                    std::fs::rename(&path, &aside).map_err(CellError::io(&aside))?;
                    tracing::error!(why, kept = %aside.display(), "the ledger is unreadable; waiting for a manager's word");
                    (Ledger::default(), Found::Broken)
                }
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (Ledger::default(), Found::New),
            Err(error) => return Err(CellError::io(path)(error)),
        };
        let shared = Shared {
            path,
            ledger: Mutex::new((ledger, 0)),
            changed: watch::Sender::new(0),
            written: watch::Sender::new(0),
        };
        Ok((Self { shared: Arc::new(shared) }, found))
    }

    /// A copy of what it says now.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.shared.ledger.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Changes it in memory; it is on disk soon after. Says the version, for [`LedgerFile::written`].
    pub(crate) fn change(&self, change: impl FnOnce(&mut Ledger)) -> u64 {
        let mut ledger = self.shared.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut ledger.0);
        ledger.1 += 1;
        let version = ledger.1;
        self.shared.changed.send_replace(version);
        version
    }

    /// Changes one instance's entry, if it is there.
    pub(crate) fn change_entry(&self, instance: InstanceId, change: impl FnOnce(&mut Entry)) -> u64 {
        self.change(|ledger| {
            if let Some(entry) = ledger.instances.get_mut(&instance) {
                change(entry);
            }
        })
    }

    /// Waits until the version is on disk. A disk that refuses is said once a second and does not hold this up for ever.
    pub(crate) async fn written(&self, version: u64) {
        let mut written = self.shared.written.subscribe();
        let waiting = written.wait_for(|on_disk| *on_disk >= version);
        if tokio::time::timeout(std::time::Duration::from_secs(2), waiting).await.is_err() {
            tracing::warn!("the ledger is not on disk yet; going on without");
        }
    }

    /// Writes whatever changes until the task is dropped.
    pub(crate) async fn run_writer(self, troubles: Troubles) {
        let (mut changed, written) = (self.shared.changed.subscribe(), self.shared.written.subscribe());
        while changed.wait_for(|version| *version > *written.borrow()).await.is_ok() {
            let saved = self.save().await;
            match saved {
                Ok(()) => troubles.clear("ledger file"),
                Err(error) => {
                    tracing::error!(%error, "the ledger cannot be written");
                    troubles.note("ledger file", format!("it cannot be written: {error}"));
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Writes it now.
    pub(crate) async fn save(&self) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let write = move || {
            let (ledger, version) = shared.ledger.lock().unwrap_or_else(PoisonError::into_inner).clone();
            disk::write_json(&shared.path, &ledger)?;
            shared.written.send_if_modified(|written| {
                let is_newer = version > *written;
                *written = version.max(*written);
                is_newer
            });
            Ok(())
        };
        tokio::task::spawn_blocking(write).await.map_err(std::io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_types::Revision;

    #[test]
    fn what_was_measured_the_old_way_is_measured_anew() {
        let entry = Entry {
            spec: crate::plan::tests::spec(1),
            port: 1,
            user: None,
            started: None,
            ready: true,
            disk_base: Some(8192),
            restarts: 0,
            crashes: 0,
        };
        let mut text = serde_json::to_value(&entry).unwrap();
        assert_eq!(serde_json::from_value::<Entry>(text.clone()).unwrap(), entry);
        let fields = text.as_object_mut().unwrap();
        fields.remove("disk_base_with_inodes").unwrap();
        fields.insert("disk_base".into(), 4096.into());
        let known = serde_json::from_value::<Entry>(text).unwrap();
        assert_eq!(known, Entry { disk_base: None, ..entry });
    }

    #[tokio::test]
    async fn it_comes_back_and_a_broken_one_is_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let (ledger, found) = LedgerFile::open(dir.path()).unwrap();
        assert_eq!(found, Found::New);
        let writer = tokio::spawn(ledger.clone().run_writer(Troubles::default()));
        let version = ledger.change(|l| l.desired.revision = Revision(7));
        ledger.written(version).await;
        writer.abort();
        let (again, found) = LedgerFile::open(dir.path()).unwrap();
        assert_eq!(found, Found::Whole);
        assert_eq!(again.read(|l| l.desired.revision), Revision(7));

        let path = dir.path().join("ledger.json");
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let (empty, found) = LedgerFile::open(dir.path()).unwrap();
        assert_eq!(found, Found::Broken);
        assert_eq!(empty.read(Ledger::clone), Ledger::default());
        assert_eq!(std::fs::read(dir.path().join("ledger.json.bad")).unwrap().len(), whole.len() / 2);
        std::fs::write(
            &path,
            r#"{"form":9,"desired":{"epoch":0,"revision":0,"instances":[]},"instances":{}}"#,
        )
        .unwrap();
        assert_eq!(LedgerFile::open(dir.path()).unwrap().1, Found::Broken);
    }
}
