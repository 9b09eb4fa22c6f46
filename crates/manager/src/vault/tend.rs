//! Reading the key file, agreeing with the store on keys, and going on with rotations.

use super::{CHECK, Held, PEPPER, check_place, gateway_keys, lacks, rotation};
use crate::core::{Core, keys};
use crate::error::CommitError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use towpath_secrets::{Key, Keyring, SealError, Secret};
use towpath_store::{Expect, StoreError, Write};
use towpath_types::Record;
use towpath_types::secret::{KeyId, KeyringSpec, KeyringStatus, RotationSpec};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is looked at whether anything is sealed with another than the active key, besides the first look.
const SWEEP: Duration = Duration::from_secs(60);

/// Why keys were not agreed on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TendError {
    /// The store did not take it.
    #[error("the keyring could not be stored")]
    Commit(#[from] CommitError),
    /// A value could not be sealed.
    #[error("the keyring could not be sealed")]
    Seal(#[from] SealError),
}

/// The first look, if the hard state is in memory; it comes later otherwise: what the store says of keys has to be known
/// before one is made.
pub(crate) async fn begin(core: &Core) {
    if !is_ready(core) {
        return;
    }
    if let Err(error) = tend(core).await {
        tracing::warn!(%error, "secrets cannot be set yet");
    }
    let key_file = core.settings.secrets_key_file.as_deref();
    if let (None, Some(spec)) = (key_file, core.keyring()) {
        tracing::error!(key = %spec.active, "the store holds secrets, and this manager has no key file; it can neither set nor hand out any");
    }
}

/// Whether this manager is a member and knows what the store says.
fn is_ready(core: &Core) -> bool {
    core.fence().is_some() && *core.cache_loaded().borrow()
}

/// Looks again and again. Does nothing where no key file is set.
pub(crate) fn spawn(core: &Arc<Core>, tasks: &mut JoinSet<()>) {
    if core.settings.secrets_key_file.is_none() {
        return;
    }
    let core = core.clone();
    tasks.spawn(async move {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut swept = None;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = core.stopped() => return,
            }
            if !is_ready(&core) {
                continue;
            }
            if let Err(error) = tend(&core).await {
                tracing::debug!(%error, "keys are not agreed on yet");
            }
            if !is_due(&core, &mut swept) {
                continue;
            }
            let Some(spec) = core.keyring() else { continue };
            if let Err(error) = rotation::go_on(&core, &spec).await {
                tracing::debug!(%error, "a rotation of keys goes on later");
            }
        }
    });
}

/// Whether this manager is to look for what is sealed with other keys now. A rotation that was asked for is an operation's work.
fn is_due(core: &Core, swept: &mut Option<Instant>) -> bool {
    let Some(spec) = core.keyring() else { return false };
    let ours = core.ownership.is_mine("keyring");
    if !ours || core.vault.ring().find(&spec.active).is_none() {
        return false;
    }
    if swept.is_some_and(|swept| swept.elapsed() < SWEEP) {
        return false;
    }
    *swept = Some(Instant::now());
    true
}

async fn tend(core: &Core) -> Result<(), TendError> {
    let Some(file) = core.vault.file.clone() else { return Ok(()) };
    let present = core.keyring();
    if present.is_none() && core.settings.make_secrets_key && !file.exists() {
        match towpath_secrets::create(&file) {
            Ok(ring) => {
                tracing::info!(file = %file.display(), key = ?ring.newest(), "a key for secrets was made")
            }
            Err(error) => tracing::error!(error = ?error, "no key for secrets could be made"),
        }
    }
    read_file(core, &file);
    let ring = core.vault.ring();
    let Some(newest) = ring.newest() else { return Ok(()) };
    let spec = match present {
        None => {
            register(core, newest).await?;
            core.keyring()
        }
        Some(spec) => {
            let found = ring.find(&spec.active).is_some();
            let trouble = (!found).then(|| lacks(&spec.active));
            say(core, trouble);
            present_keys(core, &ring).await?;
            Some(spec)
        }
    };
    if let Some(spec) = spec
        && !gateway_keys::is_settled(core, &spec)
        && (core.gateway_keys().keys.is_empty() || core.ownership.is_mine("keyring"))
    {
        gateway_keys::settle(core, &spec, |_| true).await?;
    }
    Ok(())
}

/// Reads the file if it is not as it was. Keys of a file that became unreadable stay in memory.
fn read_file(core: &Core, file: &Path) {
    let about = std::fs::metadata(file).ok();
    let seen = about.and_then(|about| Some((about.modified().ok()?, about.len())));
    let same = |held: &Held| held.seen == seen && held.ring.newest().is_some();
    let mut known = false;
    core.vault.hold(|held| known = same(held));
    if known {
        return;
    }
    match towpath_secrets::load(file) {
        Ok(Some(ring)) => {
            tracing::info!(file = %file.display(), keys = ?ring.keys(), "keys for secrets were read");
            core.vault.hold(|held| *held = Held { ring: Arc::new(ring), seen, trouble: None });
        }
        Ok(None) => say(core, Some(format!("the key file {} is not there", file.display()))),
        Err(error) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            say(core, Some(format!("{error}{}", source.unwrap_or_default())));
        }
    }
}

/// Notes what is wrong, and logs it when it is news.
fn say(core: &Core, trouble: Option<String>) {
    let mut news = false;
    core.vault.hold(|held| {
        news = held.trouble != trouble;
        held.trouble.clone_from(&trouble);
    });
    match trouble {
        Some(why) if news => tracing::error!(why, "secrets cannot be set, and perhaps not be handed out"),
        None if news => tracing::info!("secrets can be set"),
        _ => {}
    }
}

/// The first keyring of a store.
async fn register(core: &Core, key: &Key) -> Result<(), TendError> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|_| SealError::Failed)?;
    let pepper = Secret::new(URL_SAFE_NO_PAD.encode(random));
    let spec = KeyringSpec {
        active: key.id().clone(),
        checks: BTreeMap::from([(key.id().clone(), check_of(key)?)]),
        pepper: key.seal(PEPPER, &pepper)?,
        rotation: None,
    };
    let write = Write::Put {
        key: keys::keyring_key(),
        id: core.mint_record_id(),
        expect: Expect::Absent,
        spec: serde_json::to_value(&spec).ok(),
        status: None,
    };
    match core.commit(vec![write]).await {
        // Another manager was faster; with which key is looked at next time.
        Ok(_) | Err(CommitError::Store(StoreError::Conflict { .. })) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn check_of(key: &Key) -> Result<towpath_types::secret::Sealed, SealError> {
    key.seal(check_place(key.id()), &Secret::new(CHECK.into()))
}

/// The keys that this manager has and that the store's checks confirm.
fn own_keys(core: &Core, ring: &Keyring) -> Vec<KeyId> {
    let checks = core.keyring().map(|spec| spec.checks).unwrap_or_default();
    let right = |key: &&Key| {
        let opened = checks.get(key.id()).map(|check| ring.open(check_place(key.id()), check));
        opened.is_none_or(|opened| opened.is_ok_and(|text| text.expose() == CHECK))
    };
    ring.keys().iter().filter(right).map(|key| key.id().clone()).collect()
}

/// Tells the other managers, by the store, which keys this one has.
async fn present_keys(core: &Core, ring: &Keyring) -> Result<(), TendError> {
    let own = own_keys(core, ring);
    let me = core.manager.to_string();
    let members: Vec<String> = core.ownership.ring().members().iter().map(ToString::to_string).collect();
    let wanted = |before: &KeyringStatus| {
        let mut status = before.clone();
        status.managers.retain(|manager, _| members.contains(manager));
        status.managers.insert(me.clone(), own.clone());
        (status != *before).then_some(status)
    };
    let cached = core.cache.get(&keys::keyring_key()).and_then(|record| record.status().ok());
    if cached.is_some_and(|status| wanted(&status).is_none()) {
        return Ok(());
    }
    core.update::<CommitError, _>(&keys::keyring_key(), |record| {
        let Some(record) = record else { return Ok(None) };
        let status = wanted(&record.status().unwrap_or_default());
        Ok(status.map(|status| vec![put_status(record, &status)]))
    })
    .await?;
    Ok(())
}

/// Makes a new key in the file and reads it, unless one that another request has made waits to become active.
pub(crate) async fn add_key(core: &Core) -> Result<Arc<Keyring>, String> {
    let Some(file) = core.vault.file.clone() else { return Err("there is no key file".into()) };
    let _turn = core.vault.adding.lock().await;
    let ring = core.vault.ring();
    if ring.newest().map(Key::id) != core.keyring().map(|spec| spec.active).as_ref() {
        return Ok(ring);
    }
    let path = file.clone();
    let added = core.settings.file_work(move || towpath_secrets::prepend(&path)).await;
    match added {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            return Err(format!("{error}{}", source.unwrap_or_default()));
        }
        Err(_) => return Err("making a key broke off".into()),
    }
    read_file(core, &file);
    Ok(core.vault.ring())
}

/// The write of the keyring's status over what was read.
pub(super) fn put_status(record: &Record, status: &KeyringStatus) -> Write {
    Write::Put {
        key: record.key.clone(),
        id: record.id.clone(),
        expect: Expect::At(record.revision),
        spec: None,
        status: serde_json::to_value(status).ok(),
    }
}

/// The keyring with another active key.
pub(crate) fn rotated(
    core: &Core,
    spec: &KeyringSpec,
    key: &Key,
    by: &str,
) -> Result<KeyringSpec, super::VaultError> {
    let pepper = core.open_secret(PEPPER, &spec.pepper)?;
    let failed = |source| super::VaultError::Seal { name: "keyring".into(), source };
    let mut next = spec.clone();
    next.active = key.id().clone();
    next.checks.insert(key.id().clone(), check_of(key).map_err(failed)?);
    next.pepper = key.seal(PEPPER, &pepper).map_err(failed)?;
    next.rotation = Some(RotationSpec { to: key.id().clone(), by: by.to_owned(), asked_ms: core.now_ms() });
    Ok(next)
}
