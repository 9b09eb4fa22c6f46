//! Sealing anew what is sealed with another than the active key.
//!
//! Level-triggered: what is left is read from the records themselves, so a rotation that is cut off anywhere goes on where it
//! was, by whoever does it then. Each record is changed by compare-and-set. Normally the operation does it that was asked for
//! ([`crate::operations`]); what comes late, or was left by one that failed, is found by the owner of the keyring.

use super::gateway_keys::{self, GatewayRing};
use super::tend::TendError;
use super::{place_of, resources};
use crate::core::{Core, keys};
use crate::error::CommitError;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use towpath_secrets::Keyring;
use towpath_store::{Expect, Write};
use towpath_types::resource::Key;
use towpath_types::secret::{KeyId, KeyringSpec, KeyringStatus, RotationProgress, Sealed};
use towpath_types::spec::{OperationPhase, OperationStatus};
use towpath_types::{Kind, Record, Revision};

/// Kinds whose records hold sealed values of their own.
const KINDS: [Kind; 3] = [Kind::App, Kind::Group, Kind::Resource];
/// Since this protocol of managers what was stored plain is sealed.
const SEALS_STORED: u16 = 2;
/// Records after which the progress is told.
const TELL: u64 = 50;

/// Whether secrets that an earlier version stored as they are are sealed: not while one of that version is a member, nor while
/// the protocol is held for its gateways, which could not read them.
fn seals_stored(core: &Core) -> bool {
    core.protocol() >= SEALS_STORED
}

/// How many values are sealed with which key. Those of resources count for the key that theirs belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// In apps, groups and resources of the gateway.
    pub(crate) values: BTreeMap<KeyId, u64>,
    /// In operations that have not made their change yet; they seal anew themselves when they do.
    pub(crate) waiting: BTreeMap<KeyId, u64>,
    /// Apps and resources with values whose key is not here.
    pub(crate) closed: BTreeMap<KeyId, Vec<String>>,
    /// Secrets of resources that an earlier version stored as they are, once they are to be sealed.
    plain: u64,
}

impl Tally {
    /// Values that are not sealed with this key.
    fn besides(&self, active: &KeyId) -> u64 {
        let all = self.values.iter().chain(&self.waiting);
        self.plain + all.filter(|(id, _)| *id != active).map(|(_, count)| count).sum::<u64>()
    }

    fn close(&mut self, key: KeyId, what: String) {
        let closed = self.closed.entry(key).or_default();
        if !closed.contains(&what) {
            closed.push(what);
        }
    }
}

/// Up to where nothing is sealed with other keys than these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Swept {
    active: KeyId,
    gateway: Option<KeyId>,
    /// A store that was set back may have any of it again at the same revisions.
    epoch: u64,
    /// Whether secrets that were stored as they are were looked for.
    plain: bool,
    to: Revision,
}

/// Calls `f` with name and object of each secret variable below `value`. Variables stand in objects under `env`, wherever
/// those are; inside one all names are clients' own, and mean nothing here.
fn each(value: &mut Value, f: &mut impl FnMut(&str, &mut serde_json::Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            for (name, child) in fields.iter_mut() {
                match child {
                    Value::Object(variables) if name == "env" => {
                        for (name, variable) in variables.iter_mut() {
                            if let Value::Object(secret) = variable {
                                f(name, secret);
                            }
                        }
                    }
                    other => each(other, f),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| each(item, f)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn sealed_in(inner: &serde_json::Map<String, Value>) -> Option<Sealed> {
    let text = inner.get("sealed").or_else(|| inner.get("hidden"));
    text.and_then(Value::as_str)?.parse().ok()
}

fn keys_in(value: &Value, mut found: impl FnMut(KeyId)) {
    // Most records have none: no copy for those.
    let text = value.to_string();
    if !text.contains("\"sealed\"") && !text.contains("\"hidden\"") {
        return;
    }
    each(&mut value.clone(), &mut |_, inner| {
        if let Some(id) = sealed_in(inner).and_then(|sealed| sealed.key_id()) {
            found(id);
        }
    });
}

/// Counts, from memory.
pub(crate) fn tally(core: &Core) -> Tally {
    let (mut tally, ring) = (Tally::default(), core.vault.ring());
    for record in [Kind::App, Kind::Group].iter().flat_map(|kind| core.cache.list(*kind, None, None)) {
        let mut count = |id: KeyId| {
            if ring.find(&id).is_none() {
                tally.close(id.clone(), app_of(&record.key));
            }
            *tally.values.entry(id).or_default() += 1;
        };
        keys_in(&record.spec, &mut count);
        keys_in(&record.status, &mut count);
    }
    tally_resources(core, &mut tally);
    for record in core.cache.list(Kind::Operation, None, None) {
        let ended = record
            .status::<OperationStatus>()
            .is_ok_and(|status| matches!(status.phase, OperationPhase::Succeeded | OperationPhase::Failed));
        if !ended {
            keys_in(&record.spec, |id| *tally.waiting.entry(id).or_default() += 1);
        }
    }
    tally
}

fn tally_resources(core: &Core, tally: &mut Tally) {
    let keys = core.gateway_keys().keys;
    let (ring, plain) = (core.vault.ring(), seals_stored(core));
    for record in core.cache.list(Kind::Resource, None, None) {
        let Some(key) = resources::resource_of(&record) else { continue };
        resources::keys_in(&key, &record.spec, |id| {
            let Some(id) = id else { return tally.plain += u64::from(plain) };
            let known = keys.get(&id);
            let of = known.map_or_else(|| id.clone(), |known| known.of.clone());
            // The key that opens it is another one than the key that it counts for once that was rotated.
            let opened_by = known.and_then(|known| known.sealed.key_id()).unwrap_or(id);
            if ring.find(&opened_by).is_none() {
                tally.close(opened_by, format!("resource {key}"));
            }
            *tally.values.entry(of).or_default() += 1;
        });
    }
}

fn app_of(key: &Key) -> String {
    let app = key.name.split(':').next().unwrap_or_default();
    let part = |name: Option<&str>| name.unwrap_or_default().to_owned();
    let (org, space) =
        (part(key.org.as_ref().map(|o| o.as_str())), part(key.space.as_ref().map(|s| s.as_str())));
    format!("{org}/{space}/{app}")
}

/// Seals anew all values below `value`; how many were, and how many could not be opened.
fn reseal(value: &mut Value, ring: &Keyring, active: &KeyId) -> (u64, u64) {
    let (mut done, mut stuck) = (0, 0);
    each(value, &mut |name, inner| {
        let Some(sealed) = sealed_in(inner).filter(|sealed| sealed.key_id().as_ref() != Some(active)) else {
            return;
        };
        let of = inner.get("of").and_then(Value::as_str).unwrap_or_default().to_owned();
        let place = place_of(&of, name);
        let again = ring
            .open(place, &sealed)
            .ok()
            .and_then(|plain| ring.find(active).and_then(|key| key.seal(place, &plain).ok()));
        match again {
            Some(again) => {
                inner.insert("sealed".into(), Value::String(again.into()));
                done += 1;
            }
            None => stuck += 1,
        }
    });
    (done, stuck)
}

/// What one look at everything came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Values sealed anew.
    pub(crate) done: u64,
    /// Values that could not be opened; they stay as they are.
    pub(crate) stuck: u64,
    /// Values that are left, those included.
    pub(crate) left: u64,
}

/// Seals anew what is left, once, and notes in the keyring how far it is; `tell` is told, too. `done`: by earlier looks.
pub(crate) async fn reseal_left(
    core: &Core,
    spec: &KeyringSpec,
    done: u64,
    tell: &(dyn Fn(Pass) + Send + Sync),
) -> Result<Pass, TendError> {
    if !gateway_keys::is_settled(core, spec) {
        gateway_keys::settle(core, spec, |_| true).await?;
    }
    let noted = is_under_way(core, spec);
    let mut pass = Pass { done, stuck: 0, left: tally(core).besides(&spec.active) };
    tell(pass);
    let (gateway, mut records) = (core.gateway_ring().ok(), 0_u64);
    let plain = seals_stored(core);
    // The epoch first: with a later one goes no revision of an earlier one.
    let (epoch, from) = (core.epoch(), core.cache.revision());
    let swept = Swept {
        active: spec.active.clone(),
        gateway: gateway.as_ref().map(|ring| ring.newest().id().clone()),
        epoch,
        plain,
        to: from,
    };
    let clean = core.vault.clean_to(&swept);
    for kind in KINDS {
        for record in core.cache.list(kind, None, None) {
            if record.revision <= clean || !is_left(&record, spec, gateway.as_ref(), plain) {
                continue;
            }
            let (done, stuck) = reseal_record(core, &record.key, spec, gateway.as_ref(), plain).await?;
            (pass.done, pass.stuck, records) = (pass.done + done, pass.stuck + stuck, records + 1);
            pass.left = pass.left.saturating_sub(done);
            tell(pass);
            if noted && records.is_multiple_of(TELL) {
                note(core, spec, pass, false).await?;
            }
        }
    }
    if pass.stuck == 0 {
        core.vault.note_swept(swept);
    }
    pass.left = tally(core).besides(&spec.active);
    if noted {
        note(core, spec, pass, true).await?;
    }
    tell(pass);
    Ok(pass)
}

/// Whether a record has a value that is sealed with another key.
fn is_left(record: &Record, spec: &KeyringSpec, gateway: Option<&GatewayRing>, plain: bool) -> bool {
    let mut found = false;
    if record.key.kind == Kind::Resource {
        let newest = gateway.map(|ring| ring.newest().id());
        if let Some(key) = resources::resource_of(record) {
            resources::keys_in(&key, &record.spec, |id| {
                found |= if id.is_none() { plain && newest.is_some() } else { id.as_ref() != newest };
            });
        }
        return found;
    }
    let mut look = |id: KeyId| found |= id != spec.active;
    keys_in(&record.spec, &mut look);
    keys_in(&record.status, &mut look);
    found
}

/// Seals the values of one record anew; how many were, and how many could not be opened.
async fn reseal_record(
    core: &Core,
    key: &Key,
    spec: &KeyringSpec,
    gateway: Option<&GatewayRing>,
    plain: bool,
) -> Result<(u64, u64), CommitError> {
    let (mut this, ring) = ((0, 0), core.vault.ring());
    core.update::<CommitError, _>(key, |present| {
        this = (0, 0);
        let Some(present) = present else { return Ok(None) };
        let (mut of_spec, mut of_status) = (present.spec.clone(), present.status.clone());
        let (in_spec, in_status) = match (resources::resource_of(present), gateway) {
            (Some(key), Some(gateway)) if present.key.kind == Kind::Resource => {
                (resources::reseal(&key, &mut of_spec, gateway, plain), (0, 0))
            }
            (Some(key), None) if present.key.kind == Kind::Resource => {
                let mut stuck = 0;
                resources::keys_in(&key, &present.spec, |_| stuck += 1);
                ((0, stuck), (0, 0))
            }
            _ => (reseal(&mut of_spec, &ring, &spec.active), reseal(&mut of_status, &ring, &spec.active)),
        };
        this = (in_spec.0 + in_status.0, in_spec.1 + in_status.1);
        Ok((this.0 > 0).then(|| {
            vec![Write::Put {
                key: present.key.clone(),
                id: present.id.clone(),
                expect: Expect::At(present.revision),
                spec: (in_spec.0 > 0).then_some(of_spec),
                status: (in_status.0 > 0).then_some(of_status),
            }]
        }))
    })
    .await?;
    Ok(this)
}

/// Whether the end of the rotation that was asked for is not noted yet.
fn is_under_way(core: &Core, spec: &KeyringSpec) -> bool {
    let record = core.cache.get(&keys::keyring_key());
    let status: Option<KeyringStatus> = record.and_then(|record| record.status().ok());
    let progress = status.and_then(|status| status.progress);
    spec.rotation.as_ref().is_some_and(|rotation| {
        progress.is_none_or(|progress| progress.asked_ms != rotation.asked_ms || progress.ended_ms.is_none())
    })
}

/// Notes how far it is.
async fn note(core: &Core, spec: &KeyringSpec, pass: Pass, may_end: bool) -> Result<(), CommitError> {
    let Some(rotation) = &spec.rotation else { return Ok(()) };
    let now = core.now_ms();
    core.update(&keys::keyring_key(), |record| {
        let Some(record) = record else { return Ok(None) };
        let mut status: KeyringStatus = record.status().unwrap_or_default();
        let before = status.progress.clone().filter(|progress| progress.asked_ms == rotation.asked_ms);
        let before = before.unwrap_or_default();
        let progress = RotationProgress {
            asked_ms: rotation.asked_ms,
            // What was sealed anew before somebody else went on counts as well.
            done: before.done.max(pass.done),
            left: pass.left,
            stuck: pass.stuck,
            ended_ms: before.ended_ms.or((may_end && pass.left <= pass.stuck).then_some(now)),
        };
        if status.progress.as_ref() == Some(&progress) {
            return Ok(None);
        }
        status.progress = Some(progress);
        Ok(Some(vec![super::tend::put_status(record, &status)]))
    })
    .await
    .map(drop)
}

/// Goes on with whatever is to be sealed anew though no operation does it, and drops keys of gateways that are not used.
pub(super) async fn go_on(core: &Core, spec: &KeyringSpec) -> Result<(), TendError> {
    let before = noted_done(core, spec);
    reseal_left(core, spec, before, &|_| {}).await?;
    if core.gateway_keys().keys.len() > 1 {
        let mut used = BTreeSet::new();
        for record in core.cache.list(Kind::Resource, None, None) {
            if let Some(key) = resources::resource_of(&record) {
                resources::keys_in(&key, &record.spec, |id| used.extend(id));
            }
        }
        gateway_keys::settle(core, spec, |id| used.contains(id)).await?;
    }
    Ok(())
}

/// What the rotation that was asked for has done, as far as it is noted.
pub(crate) fn noted_done(core: &Core, spec: &KeyringSpec) -> u64 {
    let record = core.cache.get(&keys::keyring_key());
    let status: Option<KeyringStatus> = record.and_then(|record| record.status().ok());
    let asked = spec.rotation.as_ref().map(|rotation| rotation.asked_ms);
    let progress = status.and_then(|status| status.progress);
    progress.filter(|progress| Some(progress.asked_ms) == asked).map_or(0, |progress| progress.done)
}

impl super::Vault {
    /// Up to where a look with these keys has nothing to find.
    fn clean_to(&self, keys: &Swept) -> Revision {
        let swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |swept: &Swept| (swept.active.clone(), swept.gateway.clone(), swept.epoch, swept.plain);
        let same = |swept: &&Swept| of(swept) == of(keys);
        swept.as_ref().filter(same).map_or(Revision(0), |swept| swept.to)
    }

    fn note_swept(&self, swept: Swept) {
        *self.swept.lock().unwrap_or_else(PoisonError::into_inner) = Some(swept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use towpath_secrets::{Key, Secret};
    use towpath_types::spec::{AppSpec, GroupStatus, InstanceSettings};

    fn record(key: &Key, of: &str) -> Value {
        let sealed = key.seal(place_of(of, "TOKEN"), &Secret::new("hunter2".into())).unwrap();
        json!({"env": {"A": "1", "TOKEN": {"sealed": sealed, "of": of, "version": "v", "set_ms": 1}}})
    }

    #[test]
    fn values_are_sealed_anew_in_place_and_keep_their_version() {
        let (old, new) = (Key::generate().unwrap(), Key::generate().unwrap());
        let mut value =
            json!({"settings": {"sha256:00": record(&old, "app:a1")}, "x": [record(&old, "group:g")]});
        let ring = Keyring::new(vec![new.clone(), old.clone()]);
        assert_eq!(reseal(&mut value, &ring, new.id()), (2, 0));
        assert_eq!(reseal(&mut value, &ring, new.id()), (0, 0), "nothing is left");
        let variable = &value["settings"]["sha256:00"]["env"]["TOKEN"];
        assert_eq!(variable["version"], "v");
        let sealed: Sealed = variable["sealed"].as_str().unwrap().parse().unwrap();
        assert_eq!(sealed.key_id().as_ref(), Some(new.id()));
        let only_new = Keyring::new(vec![new]);
        assert_eq!(only_new.open(place_of("app:a1", "TOKEN"), &sealed).unwrap().expose(), "hunter2");
    }

    #[test]
    fn what_cannot_be_opened_stays_as_it_is() {
        let (lost, new) = (Key::generate().unwrap(), Key::generate().unwrap());
        let mut value = record(&lost, "app:a1");
        let before = value.clone();
        assert_eq!(reseal(&mut value, &Keyring::new(vec![new.clone()]), new.id()), (0, 1));
        assert_eq!(value, before);
        let mut keys = Vec::new();
        keys_in(&value, |id| keys.push(id));
        assert_eq!(keys, [lost.id().clone()]);
    }
    #[test]
    fn no_name_of_a_variable_hides_another() {
        let (old, new) = (Key::generate().unwrap(), Key::generate().unwrap());
        let ring = Keyring::new(vec![new.clone(), old.clone()]);
        let names = ["TOKEN", "env", "of", "sealed", "secret", "settings", "version"];
        let secret = |name: &str| json!({"sealed": old.seal(place_of("app:a1", name), &Secret::new("hunter2".into())).unwrap(), "of": "app:a1", "version": "v", "set_ms": 1});
        // Each of them plain in its turn, the others secret.
        for plain in names {
            let env: BTreeMap<&str, Value> = names
                .iter()
                .map(|name| (*name, if *name == plain { json!("x") } else { secret(name) }))
                .collect();
            let settings = InstanceSettings {
                env: serde_json::from_value(json!(env)).unwrap(),
                ..InstanceSettings::default()
            };
            let (sealed, count) = (settings.env.clone(), names.len() as u64 - 1);
            let group = GroupStatus {
                settings: [(towpath_types::Digest::from_bytes([1; 32]), settings)].into(),
                ..GroupStatus::default()
            };
            let app = AppSpec { env: sealed, ..AppSpec::default() };
            // As an operation holds them.
            let given: BTreeMap<&str, Value> = env
                .iter()
                .map(|(name, value)| {
                    (
                        *name,
                        if value.is_string() {
                            value.clone()
                        } else {
                            json!({"sealed": value["sealed"], "mark": "m"})
                        },
                    )
                })
                .collect();
            let input = json!({"verb": "env", "env": given});
            for mut value in [json!(app), json!(group), json!({"input": input})] {
                let mut found = 0;
                keys_in(&value, |id| found += u64::from(id == *old.id()));
                assert_eq!(found, count, "{plain}: {value}");
                if value.get("input").is_none() {
                    assert_eq!(reseal(&mut value, &ring, new.id()), (count, 0), "{plain}");
                    keys_in(&value, |id| assert_eq!(id, *new.id(), "{plain}"));
                }
            }
        }
    }
}
