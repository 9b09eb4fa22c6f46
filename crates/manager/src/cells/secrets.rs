//! The secrets of a page's instances: opened here, sealed for the cell that asked, and for nobody else.

use crate::core::Core;
use crate::core::cache::CachedGroup;
use crate::core::keys::{self, GroupRef};
use crate::vault::{VaultError, place_of};
use std::collections::BTreeMap;
use towpath_secrets::{OpenError, Secret, Sender};
use towpath_types::secret::{EnvValue, KeyId, KeyringStatus, SecretVar};
use towpath_types::spec::{InstanceSettings, Role, TokenSpec};
use towpath_types::{InstanceId, Kind};
use towpath_wire::cell::{SyncPage, SyncRequest};

/// An instance with secrets.
pub(super) struct WithSecrets {
    pub(super) instance: InstanceId,
    pub(super) group: CachedGroup,
    pub(super) name: GroupRef,
}

/// The secret variables of settings.
pub(super) fn secrets_of(settings: &InstanceSettings) -> impl Iterator<Item = (&String, &SecretVar)> {
    settings.env.iter().filter_map(|(name, value)| match value {
        EnvValue::Secret(secret) => Some((name, secret)),
        EnvValue::Plain(_) => None,
    })
}

/// Another manager should answer: it has a key that this one lacks.
pub(super) struct Elsewhere;

/// Adds their secrets to a page. One instance whose secrets cannot be opened holds up no other.
pub(super) fn pack(
    core: &Core,
    request: &SyncRequest,
    page: &mut SyncPage,
    found: &[WithSecrets],
) -> Result<(), Elsewhere> {
    if found.is_empty() {
        return Ok(());
    }
    let Some(proof) = &request.proof else {
        tracing::error!(cell = %request.cell, "a cell of an earlier version is told of no instance with secrets; upgrade it");
        page.instances.retain(|spec| spec.secrets.is_empty());
        return Ok(());
    };
    let who = request.who();
    let Some(sender) = cell_tokens(core).iter().find_map(|hash| Sender::check(&who, proof, hash)) else {
        tracing::error!(cell = %request.cell, "a cell's proof fits no cells' token; it gets no secrets");
        let why = || "this cell does not know a valid cells' token, so it gets no secrets".to_owned();
        page.withheld.extend(found.iter().map(|found| (found.instance, why())));
        return Ok(());
    };
    let mut opened: Vec<(InstanceId, Vec<(String, Secret)>)> = Vec::new();
    for found in found {
        match open_all(core, found) {
            Ok(values) => opened.push((found.instance, values)),
            Err(VaultError::Open { source: OpenError::UnknownKey(key), .. }) if others_have(core, &key) => {
                return Err(Elsewhere);
            }
            Err(error) => {
                tracing::error!(instance = %found.instance, group = %found.name, %error, "an instance's secrets cannot be given");
                page.withheld.insert(found.instance, error.to_string());
            }
        }
    }
    let plain: BTreeMap<InstanceId, BTreeMap<&str, &str>> = opened
        .iter()
        .map(|(instance, values)| {
            (*instance, values.iter().map(|(name, value)| (name.as_str(), value.expose())).collect())
        })
        .collect();
    let text = Secret::new(serde_json::to_string(&plain).unwrap_or_default());
    match sender.seal(&text) {
        Ok(parcel) => page.parcel = Some(parcel),
        Err(error) => {
            tracing::error!(cell = %request.cell, %error, "secrets could not be sealed for a cell");
            let why = || format!("its secrets could not be sent: {error}");
            page.withheld.extend(opened.iter().map(|(instance, _)| (*instance, why())));
        }
    }
    Ok(())
}

/// Opens an instance's secrets. Each has to belong to its group, or to the group's app.
fn open_all(core: &Core, found: &WithSecrets) -> Result<Vec<(String, Secret)>, VaultError> {
    let app = core.cache.app(&found.name.app).map(|app| format!("app:{}", app.record.id));
    let owners = [Some(format!("group:{}", found.group.record.id)), app];
    let assignment = found.group.status.assignments.iter().find(|a| a.instance == found.instance);
    let settings = assignment.and_then(|a| found.group.status.settings.get(&a.version.settings));
    let opened = settings.into_iter().flat_map(secrets_of).map(|(name, secret)| {
        if !owners.iter().flatten().any(|owner| *owner == secret.of) {
            return Err(VaultError::Open { name: name.clone(), source: OpenError::Tampered });
        }
        Ok((name.clone(), core.open_secret(place_of(&secret.of, name), &secret.sealed)?))
    });
    opened.collect()
}

/// Hashes of the tokens that cells may have.
fn cell_tokens(core: &Core) -> Vec<towpath_types::Digest> {
    let now = core.now_ms();
    let valid = |spec: &TokenSpec| spec.role == Role::Cell && spec.expires_ms.is_none_or(|end| now < end);
    let tokens = core.cache.list(Kind::Token, None, None);
    tokens.iter().filter_map(|record| record.spec().ok()).filter(valid).map(|spec| spec.hash).collect()
}

/// Whether another live manager has a key.
fn others_have(core: &Core, key: &KeyId) -> bool {
    let record = core.cache.get(&keys::keyring_key());
    let status: KeyringStatus = record.and_then(|record| record.status().ok()).unwrap_or_default();
    let live = core.ownership.ring();
    live.members()
        .iter()
        .filter(|manager| **manager != core.manager)
        .any(|manager| status.managers.get(&manager.to_string()).is_some_and(|keys| keys.contains(key)))
}
