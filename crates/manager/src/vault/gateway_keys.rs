//! The keys of gateways: what is secret in resources is sealed with them, and gateways are given them (see ADR 0130).
//!
//! They are a layer between the installation's keys and resources, so that a gateway is given nothing that opens secrets of apps,
//! and what managers tell gateways is what the store holds. Each belongs to the installation's key that was active when it was
//! made; a rotation makes another one, and what is sealed with the one before is sealed anew.

use super::VaultError;
use crate::core::{Core, keys};
use crate::error::CommitError;
use towpath_secrets::{Key, Keyring, Place, SealError};
use towpath_store::{Expect, StoreError, Write};
use towpath_types::secret::{GatewayKey, GatewayKeysSpec, KeyId, KeyringSpec};

/// A key that nothing is sealed with any more is dropped this long after its successor was made, milliseconds: a manager that is
/// behind may seal with it until then.
const DROPPED_AFTER_MS: u64 = 10 * 60 * 1000;

/// The keys of gateways, opened.
pub(crate) struct GatewayRing {
    /// The one that seals.
    newest: Key,
    /// All that could be opened, the newest first.
    pub(crate) ring: Keyring,
}

impl GatewayRing {
    /// The key that seals.
    pub(crate) fn newest(&self) -> &Key {
        &self.newest
    }
}

fn place(key: &KeyId) -> Place<'_> {
    Place { kind: "keyring", id: key.as_str(), name: "gateway" }
}

impl Core {
    /// What the store says of the keys of gateways.
    pub(crate) fn gateway_keys(&self) -> GatewayKeysSpec {
        let record = self.cache.get(&keys::gateway_keys_key());
        record.and_then(|record| record.spec().ok()).unwrap_or_default()
    }

    /// The keys of gateways, as far as this manager can open them.
    pub(crate) fn gateway_ring(&self) -> Result<GatewayRing, VaultError> {
        let (spec, _) = self.sealing()?;
        let stored = self.gateway_keys();
        let mut opened = Vec::new();
        for (id, key) in &stored.keys {
            match self.open_secret(place(id), &key.sealed).map(|hex| Key::from_hex(hex.expose())) {
                Ok(Some(key)) => opened.push(key),
                Ok(None) => tracing::error!(key = %id, "a key of gateways is not one"),
                Err(error) => tracing::debug!(key = %id, %error, "a key of gateways cannot be opened"),
            }
        }
        // Right after a rotation the new one may not be there yet; what is sealed with another is sealed anew.
        let newest = stored.newest(&spec.active);
        let at = opened.iter().position(|key| Some(key.id()) == newest).unwrap_or(0);
        let Some(key) = opened.get(at).cloned() else {
            return Err(VaultError::NotReady(
                "the keys of gateways are not in the store yet; try again in a moment".into(),
            ));
        };
        opened.swap(0, at);
        Ok(GatewayRing { newest: key, ring: Keyring::new(opened) })
    }
}

/// Whether the record of keys is as it should be: there is one for the active key, and all are sealed with that.
pub(super) fn is_settled(core: &Core, spec: &KeyringSpec) -> bool {
    let stored = core.gateway_keys();
    let sealed = |key: &GatewayKey| key.sealed.key_id().as_ref() == Some(&spec.active);
    stored.newest(&spec.active).is_some() && stored.keys.values().all(sealed)
}

/// Makes the key that belongs to the active one, seals the others with the active one, drops those that are not used.
/// `used`: whether something is sealed with a key.
pub(super) async fn settle(
    core: &Core,
    spec: &KeyringSpec,
    used: impl Fn(&KeyId) -> bool,
) -> Result<(), super::tend::TendError> {
    let key = keys::gateway_keys_key();
    let (now, ring) = (core.now_ms(), core.vault.ring());
    let Some(active) = ring.find(&spec.active) else { return Ok(()) };
    let wanted = |before: &GatewayKeysSpec| -> Result<Option<GatewayKeysSpec>, SealError> {
        let mut after = before.clone();
        for (id, key) in &mut after.keys {
            if key.sealed.key_id().as_ref() == Some(&spec.active) {
                continue;
            }
            // One that cannot be opened stays as it is; so does what it sealed.
            if let Ok(hex) = ring.open(place(id), &key.sealed) {
                key.sealed = active.seal(place(id), &hex)?;
            }
        }
        match after.newest(&spec.active).cloned() {
            None => {
                let new = Key::generate()?;
                let sealed = active.seal(place(new.id()), &new.to_hex())?;
                let made = GatewayKey { sealed, of: spec.active.clone(), made_ms: now };
                after.keys.insert(new.id().clone(), made);
            }
            Some(newest) => {
                let made_ms = after.keys.get(&newest).map_or(now, |key| key.made_ms);
                let old = now.saturating_sub(made_ms) >= DROPPED_AFTER_MS;
                after.keys.retain(|id, _| *id == newest || !old || used(id));
            }
        }
        Ok((after != *before).then_some(after))
    };
    let present = core.store.get(&key).await.map_err(CommitError::from)?;
    let before: GatewayKeysSpec = match &present {
        // Never over one that is not understood.
        Some(record) => match record.spec() {
            Ok(spec) => spec,
            Err(_) => return Ok(()),
        },
        None => GatewayKeysSpec::default(),
    };
    let Some(after) = wanted(&before)? else { return Ok(()) };
    let write = Write::Put {
        key,
        id: present.as_ref().map_or_else(|| core.mint_record_id(), |record| record.id.clone()),
        expect: present.as_ref().map_or(Expect::Absent, |record| Expect::At(record.revision)),
        spec: serde_json::to_value(&after).ok(),
        status: None,
    };
    match core.commit(vec![write]).await {
        // Another manager was faster.
        Ok(_) | Err(CommitError::Store(StoreError::Conflict { .. })) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
