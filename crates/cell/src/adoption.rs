//! What an earlier cell process left, at the start of a new one.

use crate::driver::{Adopted, Driver};
use crate::ledger::{Entry, Found};
use crate::supervisor::{Beginning, ENTRY_FILE, Supervisors};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use towpath_types::InstanceId;

/// How long something that nobody knows gets to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// Takes over what is known, ends what is not. Afterwards every instance that is anywhere on the machine has a supervisor or is
/// about to be gone.
///
/// With a whole ledger, its word holds. With a broken or missing one, each instance's own record does, and nothing is ended for not being
/// wanted until a manager has said what is.
pub(crate) async fn adopt(supervisors: &Arc<Supervisors>, found: Found) {
    let context = supervisors.context();
    let mut all: BTreeSet<InstanceId> =
        context.ledger.read(|ledger| ledger.instances.keys().copied().collect());
    all.extend(context.driver.found().await);
    let mut unknown = Vec::new();
    for instance in all {
        let known = context.ledger.read(|ledger| ledger.instances.get(&instance).cloned());
        let entry = match known {
            Some(entry) => Some(entry),
            None if found != Found::Whole => load_record(&*context.driver, instance).await,
            None => None,
        };
        match entry {
            Some(entry) => take_over(supervisors, instance, entry, found).await,
            None => {
                tracing::warn!(%instance, "found an instance that nobody knows; ending it");
                unknown.push(end_unknown(&*context.driver, instance));
            }
        }
    }
    // Waited for: a manager may want one of them to be begun anew.
    futures::future::join_all(unknown).await;
}

async fn take_over(supervisors: &Supervisors, instance: InstanceId, entry: Entry, found: Found) {
    let context = supervisors.context();
    let newest = context
        .ledger
        .read(|ledger| ledger.desired.instances.iter().find(|s| s.instance == instance).cloned());
    let spec = Arc::new(newest.unwrap_or_else(|| entry.spec.clone()));
    let beginning = match context.driver.adopt(instance).await {
        Adopted::Running(process) => {
            let was_ready = entry.ready || found != Found::Whole;
            Beginning::Running(process, was_ready)
        }
        Adopted::Ended(exit) => Beginning::Ended(exit),
        Adopted::Nothing => Beginning::Fresh,
    };
    tracing::info!(%instance, app = %spec.app, runs = matches!(beginning, Beginning::Running(..)), "instance adopted");
    context.ledger.change(|ledger| {
        if found != Found::Whole && !ledger.desired.instances.contains(&spec) {
            ledger.desired.instances.push((*spec).clone());
        }
        ledger.instances.insert(instance, entry);
    });
    supervisors.begin(spec, beginning);
}

async fn load_record(driver: &dyn Driver, instance: InstanceId) -> Option<Entry> {
    let bytes = tokio::fs::read(driver.record_dir(instance).join(ENTRY_FILE)).await.ok()?;
    serde_json::from_slice(&bytes).ok()
}

async fn end_unknown(driver: &dyn Driver, instance: InstanceId) {
    if let Adopted::Running(process) = driver.adopt(instance).await {
        process.terminate().await;
        let _ = tokio::time::timeout(GRACE, process.wait()).await;
    }
    if let Err(error) = driver.remove(instance).await {
        tracing::warn!(%instance, %error, "what nobody knows could not be removed");
    }
}
