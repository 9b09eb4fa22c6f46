//! What is secret in resources of the gateway: sealed in the store and on the bus, shown sealed, opened to be judged.

use super::VaultError;
use super::gateway_keys::GatewayRing;
use crate::core::Core;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use towpath_resources::{Fault, Id, Key, Kind, each_secret, has_secret, sealed_text, sealed_value};
use towpath_secrets::{OpenError, Place, Secret};
use towpath_types::Record;
use towpath_types::secret::{KeyId, Sealed};

/// The resource that a record holds.
pub(crate) fn resource_of(record: &Record) -> Option<Key> {
    let (kind, id) = record.key.name.split_once('/')?;
    let kind: Kind = kind.parse().ok()?;
    Some(Key::new(kind, Id::new(kind, id).ok()?))
}

/// The sealed form of a secret: as it is stored, or as clients are shown it and send it back.
fn sealed_in(value: &Value) -> Option<Sealed> {
    sealed_text(value).or_else(|| value.as_str()).and_then(|text| text.parse().ok())
}

/// A document whose secrets are texts, or why it cannot be had.
pub(crate) enum Unopened {
    /// Fields that are not this document's.
    Faults(Vec<Fault>),
    /// This manager cannot open anything.
    Vault(VaultError),
}

/// As clients are shown it: secrets sealed. What is not sealed yet is left out.
pub(crate) fn shown(key: &Key, stored: &Value) -> Value {
    let mut shown = stored.clone();
    let mut bare = false;
    each_secret(key, &mut shown, |_, place| match sealed_text(place).map(str::to_owned) {
        Some(text) => *place = Value::String(text),
        None => {
            bare = true;
            *place = Value::Null;
        }
    });
    if bare {
        without_nulls(&mut shown);
    }
    shown
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// As the audit log is shown it. `other`: the version that comes after it; a secret that is another one there is told apart.
pub(crate) fn masked(key: &Key, value: &Value, other: Option<&Value>) -> Value {
    let mut others = Vec::new();
    if let Some(other) = other {
        each_secret(key, &mut other.clone(), |path, place| others.push((path.to_owned(), place.clone())));
    }
    let mut masked = value.clone();
    each_secret(key, &mut masked, |path, place| {
        let same = other.is_none() || others.iter().any(|(at, text)| at == path && text == place);
        *place = Value::String(if same { "(secret)" } else { "(another secret)" }.to_owned());
    });
    masked
}

impl Core {
    /// The document with its secrets as texts, as gateways judge and use it. `sent`: as a client sent it, or as it is stored.
    pub(crate) fn opened_resource(&self, key: &Key, sent: &Value) -> Result<Value, Unopened> {
        let mut plain = sent.clone();
        let (mut faults, mut trouble, mut ring) = (Vec::new(), None, None);
        let id = key.to_string();
        each_secret(key, &mut plain, |path, place| {
            let Some(sealed) = sealed_in(place) else { return };
            if ring.is_none() {
                ring = Some(self.gateway_ring());
            }
            let opened = match &ring {
                Some(Ok(ring)) => ring.ring.open(Place::in_resource(&id, path), &sealed),
                Some(Err(error)) => return trouble = Some(error.clone()),
                None => return,
            };
            match opened {
                Ok(text) => *place = Value::String(text.expose().to_owned()),
                Err(OpenError::Tampered) => faults.push(Fault::new(
                    path,
                    "is the sealed form of another resource's secret, or was changed: give the value itself, or what was read of this resource",
                )),
                Err(OpenError::UnknownKey(key)) => faults.push(Fault::new(
                    path,
                    format!("is sealed with key {key}, which is not here any more: give the value itself"),
                )),
            }
        });
        match trouble {
            Some(error) => Err(Unopened::Vault(error)),
            None if faults.is_empty() => Ok(plain),
            None => Err(Unopened::Faults(faults)),
        }
    }

    /// The document with its secrets sealed, as it is stored. Those that are as they were in `before` keep their sealed form, so that
    /// what did not change is the same.
    pub(crate) fn sealed_resource(
        &self,
        key: &Key,
        plain: &Value,
        before: Option<&Value>,
    ) -> Result<Value, VaultError> {
        let mut sealed = plain.clone();
        if !has_secret(key, plain) {
            return Ok(sealed);
        }
        let (ring, id) = (self.gateway_ring()?, key.to_string());
        let mut present = self.present(key, &id, &ring, before);
        let mut failed = None;
        each_secret(key, &mut sealed, |path, place| {
            let Some(text) = place.as_str() else { return };
            let kept = present.get_mut(path).and_then(|all| {
                let at = all.iter().position(|(plain, _)| plain.expose() == text)?;
                all.remove(at).map(|(_, sealed)| sealed)
            });
            let made = kept.map(Ok).unwrap_or_else(|| {
                ring.newest().seal(Place::in_resource(&id, path), &Secret::new(text.to_owned()))
            });
            match made {
                Ok(made) => *place = sealed_value(made.into()),
                Err(source) => failed = Some(VaultError::Seal { name: path.to_owned(), source }),
            }
        });
        failed.map_or(Ok(sealed), Err)
    }

    /// The secrets that are there, by their places.
    fn present(
        &self,
        key: &Key,
        id: &str,
        ring: &GatewayRing,
        before: Option<&Value>,
    ) -> BTreeMap<String, VecDeque<(Secret, Sealed)>> {
        let mut present: BTreeMap<String, VecDeque<(Secret, Sealed)>> = BTreeMap::new();
        let Some(before) = before else { return present };
        each_secret(key, &mut before.clone(), |path, place| {
            let sealed = sealed_text(place).and_then(|text| text.parse::<Sealed>().ok());
            // One that is sealed with an earlier key is sealed anew.
            let sealed = sealed.filter(|sealed| sealed.key_id().as_ref() == Some(ring.newest().id()));
            if let Some(sealed) = sealed
                && let Ok(plain) = ring.ring.open(Place::in_resource(id, path), &sealed)
            {
                present.entry(path.to_owned()).or_default().push_back((plain, sealed));
            }
        });
        present
    }
}

/// Keys of gateways by which the secrets of a stored document are sealed; `None` = one is not sealed.
pub(super) fn keys_in(key: &Key, stored: &Value, mut found: impl FnMut(Option<KeyId>)) {
    each_secret(key, &mut stored.clone(), |_, place| {
        found(sealed_text(place).and_then(|text| text.parse::<Sealed>().ok()?.key_id()));
    });
}

/// Seals a stored document anew, and, with `bare`, what is not sealed yet; how many were, and how many could not be opened.
pub(super) fn reseal(key: &Key, stored: &mut Value, ring: &GatewayRing, bare: bool) -> (u64, u64) {
    let (mut done, mut stuck) = (0, 0);
    let id = key.to_string();
    each_secret(key, stored, |path, place| {
        let where_ = Place::in_resource(&id, path);
        let plain = match sealed_text(place) {
            Some(text) => {
                let Ok(sealed) = text.parse::<Sealed>() else { return stuck += 1 };
                if sealed.key_id().as_ref() == Some(ring.newest().id()) {
                    return;
                }
                ring.ring.open(where_, &sealed).ok()
            }
            None if !bare => return,
            None => place.as_str().map(|text| Secret::new(text.to_owned())),
        };
        match plain.and_then(|plain| ring.newest().seal(where_, &plain).ok()) {
            Some(sealed) => {
                *place = sealed_value(sealed.into());
                done += 1;
            }
            None => stuck += 1,
        }
    });
    (done, stuck)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(kind: Kind, id: &str) -> Key {
        Key::new(kind, Id::new(kind, id).unwrap())
    }

    #[test]
    fn what_is_shown_has_no_plain_secret() {
        let consumer = key(Kind::Consumer, "jack");
        let stored = json!({"username": "jack", "plugins": {"key-auth": {"key": {"$sealed": "tps1.aa.bb"}}, "basic-auth": {"username": "j", "password": "plain"}}});
        let shown = shown(&consumer, &stored);
        assert_eq!(shown["plugins"]["key-auth"]["key"], "tps1.aa.bb");
        assert_eq!(shown["plugins"]["basic-auth"], json!({"username": "j"}));
    }

    #[test]
    fn the_audit_log_is_told_that_a_secret_changed_and_not_to_what() {
        let ssl = key(Kind::Ssl, "1");
        let (before, after) =
            (json!({"key": "old", "keys": ["a", "b"]}), json!({"key": "new", "keys": ["a"]}));
        let told = json!({"key": "(another secret)", "keys": ["(secret)", "(another secret)"]});
        assert_eq!(masked(&ssl, &before, Some(&after)), told);
        assert_eq!(masked(&ssl, &after, None), json!({"key": "(secret)", "keys": ["(secret)"]}));
    }
}
