//! The secrets of this cell's instances: in memory, and sealed on disk with a key of the cell's own, so that an instance
//! can be started again while no manager answers. Ledger, records and specs hold their names alone.
//!
//! What an instance was given once stays: another value comes with another instance.

use crate::disk;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use towpath_secrets::{Keyring, Place, Secret};
use towpath_types::InstanceId;
use towpath_types::secret::Sealed;

/// Values by variable.
type Values = BTreeMap<String, Secret>;

/// All instances' secrets.
#[derive(Clone)]
pub(crate) struct Secrets {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    ring: Keyring,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    values: BTreeMap<InstanceId, Values>,
    /// Why there are none.
    withheld: BTreeMap<InstanceId, String>,
    /// Whether the disk has other values.
    unsaved: bool,
}

/// What a manager said of secrets.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Values.
    pub(crate) values: BTreeMap<InstanceId, Values>,
    /// Why there are none.
    pub(crate) withheld: BTreeMap<InstanceId, String>,
}

impl Told {
    /// Takes the plain text of a parcel.
    pub(crate) fn add(&mut self, text: &Secret) -> Result<(), serde_json::Error> {
        let plain: BTreeMap<InstanceId, Values> = serde_json::from_str(text.expose())?;
        self.values.extend(plain);
        Ok(())
    }
}

fn place(instance: &str) -> Place<'_> {
    Place { kind: "instance", id: instance, name: "secrets" }
}

impl Secrets {
    /// Reads what an earlier process was given. Nothing here keeps a cell from starting: what cannot be read is asked for again.
    pub(crate) fn open(data_dir: &Path) -> Self {
        let (key_file, path) = (data_dir.join("secrets.key"), data_dir.join("secrets.json"));
        let ring = load_key(&key_file);
        let mut known = Known::default();
        let sealed: BTreeMap<InstanceId, Sealed> = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(_) => BTreeMap::new(),
        };
        for (instance, sealed) in sealed {
            let opened = ring.open(place(&instance.to_string()), &sealed);
            match opened.map(|text| serde_json::from_str(text.expose())) {
                Ok(Ok(values)) => drop(known.values.insert(instance, values)),
                Ok(Err(_)) | Err(_) => {
                    tracing::warn!(%instance, "its kept secrets cannot be opened; a manager will be asked");
                }
            }
        }
        Self { shared: Arc::new(Shared { path, ring, known: Mutex::new(known) }) }
    }

    fn known<T>(&self, work: impl FnOnce(&mut Known) -> T) -> T {
        work(&mut self.shared.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over what a manager said. `wanted`: all instances that are to run; what is kept of others goes with them.
    /// Says whether anything is to be saved, be it that it could not be before.
    pub(crate) fn take(&self, told: Told, wanted: &BTreeSet<InstanceId>) -> bool {
        self.known(|known| {
            let before: BTreeSet<InstanceId> = known.values.keys().copied().collect();
            known.values.retain(|instance, _| wanted.contains(instance));
            for (instance, values) in told.values {
                known.values.entry(instance).or_insert(values);
            }
            known.withheld = told.withheld;
            known.unsaved |= !before.iter().eq(known.values.keys());
            known.unsaved
        })
    }

    /// The values of these variables of an instance, or why one is missing.
    pub(crate) fn of(&self, instance: InstanceId, names: &BTreeSet<String>) -> Result<Values, String> {
        if names.is_empty() {
            return Ok(Values::new());
        }
        self.known(|known| {
            let values = known.values.get(&instance);
            let found: Values =
                names.iter().filter_map(|name| Some((name.clone(), values?.get(name)?.clone()))).collect();
            let missing = names.iter().find(|name| !found.contains_key(*name));
            match (missing, known.withheld.get(&instance)) {
                (None, _) => Ok(found),
                (Some(_), Some(why)) => Err(why.clone()),
                (Some(name), None) => Err(format!("no manager has given the value of secret {name} yet")),
            }
        })
    }

    /// Writes it, sealed. What could not be written is to be saved yet; without a key it never can be.
    pub(crate) async fn save(&self) -> std::io::Result<()> {
        let this = self.clone();
        let write = move || {
            let Some(key) = this.shared.ring.newest() else {
                this.known(|known| known.unsaved = false);
                return Err(std::io::Error::other("there is no key"));
            };
            let sealed = this.known(|known| {
                known.unsaved = false;
                let seal = |(instance, values): (&InstanceId, &Values)| {
                    let plain: BTreeMap<&str, &str> =
                        values.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
                    let text = Secret::new(serde_json::to_string(&plain)?);
                    let sealed = key.seal(place(&instance.to_string()), &text);
                    sealed.map(|sealed| (*instance, sealed)).map_err(std::io::Error::other)
                };
                known.values.iter().map(seal).collect::<std::io::Result<BTreeMap<InstanceId, Sealed>>>()
            });
            let written = sealed.and_then(|sealed| disk::write_json(&this.shared.path, &sealed));
            if written.is_err() {
                this.known(|known| known.unsaved = true);
            }
            written
        };
        tokio::task::spawn_blocking(write).await.map_err(std::io::Error::other)?
    }
}

/// The cell's own key; made if there is none. Without one, secrets are kept in memory alone.
fn load_key(file: &Path) -> Keyring {
    let loaded = match towpath_secrets::load(file) {
        Ok(Some(ring)) => Ok(ring),
        Ok(None) => towpath_secrets::create(file),
        Err(error) => Err(error),
    };
    loaded.unwrap_or_else(|error| {
        tracing::warn!(error = ?error, "the cell has no key of its own; secrets are not kept over its restarts");
        Keyring::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(n: u8) -> InstanceId {
        InstanceId::mint(1, [n; 10])
    }

    fn told(n: u8, value: &str) -> Told {
        let mut told = Told::default();
        told.add(&Secret::new(format!(r#"{{"{}":{{"TOKEN":"{value}"}}}}"#, instance(n)))).unwrap();
        told
    }

    #[tokio::test]
    async fn values_outlive_the_process_sealed_and_go_with_their_instance() {
        let dir = tempfile::tempdir().unwrap();
        let names = BTreeSet::from(["TOKEN".to_owned()]);
        let secrets = Secrets::open(dir.path());
        assert!(secrets.of(instance(1), &names).unwrap_err().contains("TOKEN"));
        assert!(secrets.take(told(1, "hunter2"), &BTreeSet::from([instance(1)])));
        secrets.save().await.unwrap();
        let bytes = std::fs::read_to_string(dir.path().join("secrets.json")).unwrap();
        assert!(!bytes.contains("hunter2") && bytes.contains("tps1."), "{bytes}");

        let again = Secrets::open(dir.path());
        assert_eq!(again.of(instance(1), &names).unwrap()["TOKEN"].expose(), "hunter2");
        // What it was given first stays, even when a manager can give nothing now.
        let withheld = Told { withheld: BTreeMap::from([(instance(1), "no key".into())]), ..Told::default() };
        assert!(!again.take(withheld, &BTreeSet::from([instance(1)])));
        assert!(again.of(instance(1), &names).is_ok());
        assert!(again.take(Told::default(), &BTreeSet::new()), "it is gone");
        assert!(again.of(instance(1), &names).is_err());
    }

    #[tokio::test]
    async fn what_could_not_be_written_is_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = Secrets::open(dir.path());
        let wanted = BTreeSet::from([instance(1)]);
        // Nothing can be put in the place of a directory.
        let path = dir.path().join("secrets.json");
        std::fs::create_dir_all(path.join("in the way")).unwrap();
        assert!(secrets.take(told(1, "hunter2"), &wanted));
        assert!(secrets.save().await.is_err());
        assert!(secrets.take(Told::default(), &wanted), "the same set, and yet to be saved");
        std::fs::remove_dir_all(&path).unwrap();
        secrets.save().await.unwrap();
        assert!(!secrets.take(Told::default(), &wanted), "it is saved");
        let names = BTreeSet::from(["TOKEN".to_owned()]);
        assert!(Secrets::open(dir.path()).of(instance(1), &names).is_ok());
    }

    #[tokio::test]
    async fn what_is_withheld_is_said_and_a_lost_key_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let names = BTreeSet::from(["TOKEN".to_owned()]);
        let secrets = Secrets::open(dir.path());
        secrets.take(told(1, "x"), &BTreeSet::from([instance(1)]));
        secrets.save().await.unwrap();
        std::fs::remove_file(dir.path().join("secrets.key")).unwrap();
        let again = Secrets::open(dir.path());
        assert!(again.of(instance(1), &names).is_err());
        let why = Told { withheld: BTreeMap::from([(instance(1), "no key".into())]), ..Told::default() };
        again.take(why, &BTreeSet::from([instance(1)]));
        assert_eq!(again.of(instance(1), &names).unwrap_err(), "no key");
    }
}
