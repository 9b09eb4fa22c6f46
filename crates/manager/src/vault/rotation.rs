//! Sealing anew what is sealed with another than the active key.
//!
//! Level-triggered: what is left is read from the records themselves, so a rotation that is cut off anywhere goes on where it
//! was, by whoever owns it then. Each record is changed by compare-and-set.

use super::place_of;
use crate::core::{Core, keys};
use crate::error::CommitError;
use serde_json::Value;
use std::collections::BTreeMap;
use towpath_secrets::Keyring;
use towpath_store::{Expect, Write};
use towpath_types::resource::Key;
use towpath_types::secret::{KeyId, KeyringSpec, KeyringStatus, RotationProgress, Sealed};
use towpath_types::spec::{OperationPhase, OperationStatus};
use towpath_types::{Kind, Record};

/// Kinds whose records hold sealed values of their own.
const KINDS: [Kind; 2] = [Kind::App, Kind::Group];
/// Records after which the progress is told.
const TELL: u64 = 50;

/// How many values are sealed with which key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// In apps and groups.
    pub(crate) values: BTreeMap<KeyId, u64>,
    /// In operations that have not made their change yet; they seal anew themselves when they do.
    pub(crate) waiting: BTreeMap<KeyId, u64>,
    /// Apps with values whose key is not here.
    pub(crate) closed: BTreeMap<KeyId, Vec<String>>,
}

impl Tally {
    /// Values that are not sealed with this key.
    fn besides(&self, active: &KeyId) -> u64 {
        let all = self.values.iter().chain(&self.waiting);
        all.filter(|(id, _)| *id != active).map(|(_, count)| count).sum()
    }
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
    inner.get("sealed").and_then(Value::as_str)?.parse().ok()
}

fn keys_in(value: &Value, mut found: impl FnMut(KeyId)) {
    // Most records have none: no copy for those.
    if !value.to_string().contains("\"sealed\"") {
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
    for record in KINDS.iter().flat_map(|kind| core.cache.list(*kind, None, None)) {
        let mut count = |id: KeyId| {
            if ring.find(&id).is_none() {
                let apps = tally.closed.entry(id.clone()).or_default();
                let app = app_of(&record.key);
                if !apps.contains(&app) {
                    apps.push(app);
                }
            }
            *tally.values.entry(id).or_default() += 1;
        };
        keys_in(&record.spec, &mut count);
        keys_in(&record.status, &mut count);
    }
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

/// Seals anew what is left, as far as it can be opened; how much was done, and how much could not be.
async fn reseal_all(core: &Core, spec: &KeyringSpec, tell: bool) -> Result<(u64, u64), CommitError> {
    let (mut done, mut stuck, mut records) = (0, 0, 0_u64);
    let ring = core.vault.ring();
    let other = |record: &Record| {
        let mut found = false;
        let mut look = |id: KeyId| found |= id != spec.active;
        keys_in(&record.spec, &mut look);
        keys_in(&record.status, &mut look);
        found
    };
    for kind in KINDS {
        for record in core.cache.list(kind, None, None).iter().filter(|record| other(record)) {
            let mut this = (0, 0);
            core.update::<CommitError, _>(&record.key, |present| {
                let Some(present) = present else { return Ok(None) };
                let (mut of_spec, mut of_status) = (present.spec.clone(), present.status.clone());
                let (in_spec, in_status) =
                    (reseal(&mut of_spec, &ring, &spec.active), reseal(&mut of_status, &ring, &spec.active));
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
            (done, stuck, records) = (done + this.0, stuck + this.1, records + 1);
            if tell && records.is_multiple_of(TELL) {
                note(core, spec, done, stuck, false).await?;
                done = 0;
            }
        }
    }
    Ok((done, stuck))
}

/// Notes how far it is. `done` is what came to it since the last note.
async fn note(
    core: &Core,
    spec: &KeyringSpec,
    done: u64,
    stuck: u64,
    may_end: bool,
) -> Result<(), CommitError> {
    let Some(rotation) = &spec.rotation else { return Ok(()) };
    let left = tally(core).besides(&spec.active);
    let now = core.now_ms();
    core.update(&keys::keyring_key(), |record| {
        let Some(record) = record else { return Ok(None) };
        let mut status: KeyringStatus = record.status().unwrap_or_default();
        let before = status.progress.clone().filter(|progress| progress.asked_ms == rotation.asked_ms);
        let before = before.unwrap_or_default();
        let progress = RotationProgress {
            asked_ms: rotation.asked_ms,
            done: before.done + done,
            left,
            stuck,
            ended_ms: before.ended_ms.or((may_end && left <= stuck).then_some(now)),
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

/// Goes on with whatever is to be sealed anew, and notes how far it is.
pub(super) async fn go_on(core: &Core, spec: &KeyringSpec) -> Result<(), CommitError> {
    let status: Option<KeyringStatus> =
        core.cache.get(&keys::keyring_key()).and_then(|record| record.status().ok());
    let ended = spec.rotation.as_ref().is_none_or(|rotation| {
        let progress = status.and_then(|status| status.progress);
        progress.is_some_and(|progress| progress.asked_ms == rotation.asked_ms && progress.ended_ms.is_some())
    });
    let (done, stuck) = reseal_all(core, spec, !ended).await?;
    if !ended {
        note(core, spec, done, stuck, true).await?;
    }
    Ok(())
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
