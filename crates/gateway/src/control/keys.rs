//! The keys that open what is secret in resources. Managers give them to whoever shows a gateways' token; they are kept in a file of
//! their own, so that a gateway that starts without managers can serve its snapshot, in which secrets are sealed.
//!
//! A resource that is sealed with a key that is not here waits for it, and its version from before serves on meanwhile.

use super::Identity;
use crate::settings::GatewaySettings;
use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use towpath_bus::Bus;
use towpath_resources::{Key, each_secret, is_sealed, sealed_text};
use towpath_secrets::{Keyring, OpenError, Place, Recipient};
use towpath_telemetry::SeldomHere;
use towpath_types::Digest;
use towpath_types::secret::{KeyId, Sealed};
use towpath_wire::gateway::{GatewayKeys, GatewayKeysRequest};
use towpath_wire::{decode, encode, subject};

/// The file's name in the data directory.
const NAME: &str = "resource.keys";
/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Pauses between questions that were not answered.
const FIRST_MS: u64 = 250;
const LONGEST_MS: u64 = 10_000;
/// Keys that managers do not give any more are kept for the snapshot from before, so many.
const KEPT: usize = 4;

/// What came of a question.
pub(super) type Asked = Result<Keyring, String>;

/// Why a resource cannot be opened.
pub(super) enum Closed {
    /// A key is missing, which may come.
    Waits(KeyId),
    /// It was changed, or belongs to another resource.
    Wrong(String),
}

/// The keys, and who waits for one.
pub(crate) struct Keys {
    file: PathBuf,
    asker: Option<Asker>,
    ring: Keyring,
    waiting: BTreeSet<(String, String)>,
    asking_since_ms: Option<u64>,
    due_ms: u64,
    tries: u32,
    answers: mpsc::Sender<Asked>,
}

/// What it takes to ask.
#[derive(Clone)]
pub(super) struct Asker {
    token_file: PathBuf,
    identity: Identity,
}

impl Keys {
    /// Those of an earlier start. Answers go to `answers`.
    pub(super) fn load(settings: &GatewaySettings, identity: Identity, answers: mpsc::Sender<Asked>) -> Self {
        let file = settings.data_dir.join(NAME);
        let ring = towpath_secrets::load(&file).unwrap_or_else(|error| {
            tracing::warn!(error = ?error, "keys of resources cannot be read; managers will be asked");
            None
        });
        Self {
            asker: settings.token_file.clone().map(|token_file| Asker { token_file, identity }),
            file,
            ring: ring.unwrap_or_default(),
            waiting: BTreeSet::new(),
            asking_since_ms: None,
            due_ms: 0,
            tries: 0,
            answers,
        }
    }

    /// Who asks before the first table is loaded, so that nothing in it has to wait.
    pub(super) fn first_asker(&self) -> Option<Asker> {
        self.asker.clone().filter(|_| self.ring.newest().is_none())
    }

    /// The resource with its secrets opened.
    pub(super) fn open<'a>(&self, key: &Key, value: &'a Value) -> Result<Cow<'a, Value>, Closed> {
        // Most have none, and are not copied.
        if !is_sealed(value) {
            return Ok(Cow::Borrowed(value));
        }
        let (mut plain, id, mut closed) = (value.clone(), key.to_string(), None);
        each_secret(key, &mut plain, |path, place| {
            let Some(text) = sealed_text(place) else { return };
            let Ok(sealed) = text.parse::<Sealed>() else {
                return closed = Some(Closed::Wrong(format!("{path}: is no sealed value")));
            };
            match self.ring.open(Place::in_resource(&id, path), &sealed) {
                Ok(text) => *place = Value::String(text.expose().to_owned()),
                Err(OpenError::UnknownKey(key)) => closed = Some(Closed::Waits(key)),
                Err(error) => closed = Some(Closed::Wrong(format!("{path}: {error}"))),
            }
        });
        closed.map_or(Ok(Cow::Owned(plain)), Err)
    }

    /// A resource waits for a key; what is said of it until then.
    pub(super) fn wait_for(&mut self, kind: &str, id: &str, key: &KeyId) -> String {
        self.waiting.insert((kind.to_owned(), id.to_owned()));
        match self.asker {
            Some(_) => format!("its secrets are sealed with key {key}, which no manager has given to this gateway yet"),
            None => "it has secrets, and this gateway has no token to ask for their key with: set gateway.token_file".to_owned(),
        }
    }

    /// A resource waits no more, as it is gone or another one.
    pub(super) fn forget(&mut self, kind: &str, id: &str) {
        if !self.waiting.is_empty() {
            self.waiting.remove(&(kind.to_owned(), id.to_owned()));
        }
    }

    /// Asks if somebody waits, and it is time.
    pub(super) fn ask_when_due(&mut self, bus: &Arc<dyn Bus>, now_ms: u64) {
        let Some(asker) = self.asker.clone() else { return };
        if self.waiting.is_empty() || self.asking_since_ms.is_some() || now_ms < self.due_ms {
            return;
        }
        self.asking_since_ms = Some(now_ms);
        let (bus, answers) = (bus.clone(), self.answers.clone());
        tokio::task::spawn_local(async move {
            let _ = answers.send(asker.ask(bus.as_ref()).await).await;
        });
    }

    /// Whether an answer is about to come for what managers may be waiting for.
    pub(super) fn is_asking(&self) -> bool {
        self.asking_since_ms.is_some() && self.tries == 0
    }

    /// Takes an answer; those who can be tried again.
    pub(super) fn take(&mut self, asked: Asked, now_ms: u64) -> BTreeSet<(String, String)> {
        self.asking_since_ms = None;
        let given = match asked {
            Ok(given) => given,
            Err(why) => {
                static TOLD: SeldomHere = SeldomHere::new();
                if let Some(more) = TOLD.now() {
                    tracing::warn!(
                        why,
                        waiting = self.waiting.len(),
                        "keys of resources are not to be had now{more}"
                    );
                }
                return self.pause(now_ms);
            }
        };
        let ids = |ring: &Keyring| ring.keys().iter().map(|key| key.id().clone()).collect::<Vec<_>>();
        let all = given.keys().iter().chain(self.ring.keys()).take(KEPT.max(given.keys().len()));
        let ring = Keyring::new(all.cloned().collect());
        if ids(&ring) == ids(&self.ring) {
            return self.pause(now_ms);
        }
        tracing::info!(keys = ?ring.keys(), "keys of resources were given");
        if let Err(error) = towpath_secrets::save(&self.file, &ring) {
            tracing::warn!(error = ?error, "keys of resources cannot be kept; they are asked for again at the next start");
        }
        (self.ring, self.tries, self.due_ms) = (ring, 0, now_ms);
        std::mem::take(&mut self.waiting)
    }

    /// Nothing new: it is asked again later.
    fn pause(&mut self, now_ms: u64) -> BTreeSet<(String, String)> {
        self.due_ms = now_ms + (FIRST_MS << self.tries.min(10)).min(LONGEST_MS);
        self.tries += 1;
        BTreeSet::new()
    }
}

impl Asker {
    /// Asks a manager.
    pub(super) async fn ask(&self, bus: &dyn Bus) -> Asked {
        let token = read_token(&self.token_file)?;
        let recipient = Recipient::new(token).map_err(|error| error.to_string())?;
        let Identity { gateway, incarnation } = self.identity;
        let mut request = GatewayKeysRequest { gateway, incarnation, proof: None };
        let who = request.who();
        request.proof = Some(recipient.proof(&who));
        let answer = bus.request(subject::GATEWAY_KEYS, Bytes::from(encode(&request)), TIMEOUT).await;
        let answer: GatewayKeys =
            decode(&answer.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
        let Some(parcel) = answer.parcel else { return Err(answer.withheld) };
        let text = recipient.open(&who, &parcel).map_err(|error| error.to_string())?;
        let keys: Vec<towpath_secrets::Secret> =
            serde_json::from_str(text.expose()).map_err(|_| "the keys cannot be read".to_owned())?;
        let keys: Option<Vec<_>> =
            keys.iter().map(|hex| towpath_secrets::Key::from_hex(hex.expose())).collect();
        keys.map(Keyring::new).ok_or_else(|| "the keys are none".to_owned())
    }
}

/// SHA-256 of the token in a file.
fn read_token(file: &Path) -> Result<Digest, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("the gateways' token {} cannot be read: {error}", file.display()))?;
    Ok(Digest::from_bytes(Sha256::digest(text.trim().as_bytes()).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use towpath_resources::{Id, Kind, sealed_value};
    use towpath_secrets::Secret;
    use towpath_types::{GatewayId, Incarnation};

    fn keys(dir: &Path) -> Keys {
        let settings =
            GatewaySettings { token_file: Some(dir.join("token")), ..GatewaySettings::in_dir(dir) };
        let identity = Identity { gateway: GatewayId::mint(1, [1; 10]), incarnation: Incarnation(1) };
        Keys::load(&settings, identity, mpsc::channel(1).0)
    }

    #[test]
    fn what_waits_is_tried_again_when_its_key_is_there_and_keys_outlive_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) =
            (towpath_secrets::Key::generate().unwrap(), towpath_secrets::Key::generate().unwrap());
        let jack = Key::new(Kind::Consumer, Id::new(Kind::Consumer, "jack").unwrap());
        let sealed = |key: &towpath_secrets::Key, of: &str| {
            let place = Place::in_resource(of, "plugins.key-auth.key");
            let sealed = key.seal(place, &Secret::new("hunter2".into())).unwrap();
            json!({"username": "jack", "plugins": {"key-auth": {"key": sealed_value(sealed.into())}}})
        };
        let mut keys = keys(dir.path());
        assert!(keys.first_asker().is_some());
        let Err(Closed::Waits(missing)) = keys.open(&jack, &sealed(&old, "consumers/jack")) else { panic!() };
        assert_eq!(&missing, old.id());
        assert!(keys.wait_for("consumers", "jack", &missing).contains(missing.as_str()));
        assert!(keys.take(Err("nobody is there".into()), 0).is_empty() && !keys.is_asking());
        let again = keys.take(Ok(Keyring::new(vec![old.clone()])), 1000);
        assert_eq!(again.into_iter().collect::<Vec<_>>(), [("consumers".to_owned(), "jack".to_owned())]);
        let stored = sealed(&old, "consumers/jack");
        let opened = keys.open(&jack, &stored).ok().unwrap();
        assert_eq!(opened["plugins"]["key-auth"]["key"], "hunter2");
        assert!(matches!(keys.open(&jack, &sealed(&old, "consumers/jim")), Err(Closed::Wrong(_))));
        // After a rotation the snapshot from before can still be read.
        keys.take(Ok(Keyring::new(vec![new.clone()])), 2000);
        let again = super::tests::keys(dir.path());
        for key in [&old, &new] {
            assert!(again.open(&jack, &sealed(key, "consumers/jack")).is_ok());
        }
        assert!(again.first_asker().is_none());
        assert!(!std::fs::read_to_string(dir.path().join(NAME)).unwrap().contains("hunter2"));
    }
}
