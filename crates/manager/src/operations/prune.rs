//! Housekeeping: old operations, and blobs that nothing refers to.

use super::input::Asked;
use super::{Input, Operations};
use crate::blobs::BlobKind;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::JoinHandle;
use towpath_store::{Expect, Query, StoreError, Write};
use towpath_types::spec::{GroupStatus, OperationPhase, OperationSpec, OperationStatus, ReleaseSpec};
use towpath_types::{AppRef, Kind, Record};

/// Time between two rounds.
const EVERY: Duration = Duration::from_secs(600);
/// Ended operations of an app that are kept.
const KEPT: usize = 50;
/// Ended operations are gone after so long, milliseconds.
const OLD_MS: u64 = 7 * 24 * 3600 * 1000;

/// Does a round now and then, until the manager stops.
pub(crate) fn spawn(operations: Arc<Operations>) -> JoinHandle<()> {
    let core = operations.core.clone();
    crate::vitals::spawn(&core, async move {
        let mut every = tokio::time::interval(EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                () = operations.core.stopped() => return,
            }
            if let Err(error) = operations.prune_operations().await {
                tracing::debug!(%error, "old operations could not be pruned now");
            }
            if let Err(error) = operations.collect_blobs().await {
                tracing::debug!(%error, "unused blobs could not be collected now");
            }
        }
    })
}

/// The operation without the values of variables; `None` = it has none.
fn blanked(spec: OperationSpec) -> Option<OperationSpec> {
    let asked: Asked = serde_json::from_value(spec.input.clone()).ok()?;
    let input = serde_json::to_value(asked.has_values().then(|| asked.blanked())?).ok()?;
    Some(OperationSpec { input, ..spec })
}

impl Operations {
    async fn list_all(&self, kind: Kind) -> Result<Vec<Record>, StoreError> {
        Ok(self.core.store.list(&Query { kind: Some(kind), ..Query::default() }).await?.records)
    }

    /// Deletes ended operations beyond the newest of each app, and old ones. Values of variables that an earlier version
    /// left in the others are taken out.
    pub(crate) async fn prune_operations(&self) -> Result<usize, crate::CommitError> {
        let now_ms = self.core.now_ms();
        let mut per_app: HashMap<AppRef, usize> = HashMap::new();
        let mut gone = Vec::new();
        let mut records = self.list_all(Kind::Operation).await?;
        records.sort_by(|a, b| b.key.name.cmp(&a.key.name));
        for record in records {
            let (Ok(spec), Ok(status)) = (record.spec::<OperationSpec>(), record.status::<OperationStatus>())
            else {
                continue;
            };
            if !matches!(status.phase, OperationPhase::Succeeded | OperationPhase::Failed) {
                continue;
            }
            let count = per_app.entry(spec.app.clone()).or_default();
            *count += 1;
            if *count > KEPT || now_ms.saturating_sub(record.updated_ms) > OLD_MS {
                gone.push(Write::Delete { key: record.key, expect: Expect::Any });
            } else if let Some(spec) = blanked(spec) {
                gone.push(Write::Put {
                    key: record.key,
                    id: record.id,
                    expect: Expect::At(record.revision),
                    spec: serde_json::to_value(spec).ok(),
                    status: None,
                });
            }
        }
        let count = gone.len();
        for part in gone.chunks(200) {
            self.core.commit(part.to_vec()).await?;
        }
        Ok(count)
    }

    /// Removes blobs that no kept release and no running push refers to.
    pub(crate) async fn collect_blobs(&self) -> Result<(), StoreError> {
        let mut keep = HashSet::new();
        // Operations first: a push that ends in between has its release in the second list.
        for record in self.list_all(Kind::Operation).await? {
            let ended = record.status::<OperationStatus>().is_ok_and(|status| {
                matches!(status.phase, OperationPhase::Succeeded | OperationPhase::Failed)
            });
            let input =
                record.spec::<OperationSpec>().ok().and_then(|spec| serde_json::from_value(spec.input).ok());
            if let (false, Some(Input::Push(push))) = (ended, input) {
                keep.extend(push.source.map(|source| (BlobKind::Source, source.hex())));
            }
        }
        for record in self.list_all(Kind::Release).await? {
            let release: ReleaseSpec =
                record.spec().map_err(|error| StoreError::Corrupt(error.to_string()))?;
            keep.insert((BlobKind::Source, release.source.hex()));
            keep.insert((BlobKind::Artifact, release.artifact.hex()));
        }
        // What runs may be of a release that is no longer kept.
        for record in self.list_all(Kind::Group).await? {
            let status: GroupStatus =
                record.status().map_err(|error| StoreError::Corrupt(error.to_string()))?;
            keep.extend(status.releases.values().map(|release| (BlobKind::Artifact, release.artifact.hex())));
        }
        let blobs = self.blobs.clone();
        let collected = self.core.settings.file_work(move || blobs.collect(&keep, SystemTime::now())).await;
        match collected {
            Ok(Ok(collected)) if collected.files > 0 => {
                tracing::info!(files = collected.files, bytes = collected.bytes, "unused blobs were removed");
            }
            Ok(Err(error)) => tracing::warn!(%error, "unused blobs could not be removed"),
            _ => {}
        }
        Ok(())
    }
}
