//! The manager's side of secrets: which keys it has, which of them seals, and what is sealed with it (see ADR 0095).
//!
//! Invariants: the store says which key is active, so that all managers seal with the same one; a manager without that key
//! seals nothing, and never puts another one in its place; what cannot be opened is left as it is.
//!
//! Must not: give a plain value to anything but an answer to a cell.

mod gateway_keys;
mod merge;
mod resources;
mod rotation;
mod size;
mod tend;

pub(crate) use merge::{given_place, merge_env};
pub(crate) use resources::{Unopened, masked, shown};
pub(crate) use rotation::{Pass, noted_done, reseal_left, tally};
pub(crate) use size::Sizes;
pub(crate) use tend::{add_key, begin, rotated, spawn};

use crate::core::{Core, keys};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;
use towpath_secrets::{Keyring, OpenError, Place, SealError, Secret};
use towpath_types::secret::{KeyId, KeyringSpec, KeyringStatus, Sealed, SecretVar};
use towpath_types::{ErrorCode, ManagerId};

/// Why a secret could not be sealed or opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// This manager cannot seal.
    #[error("secrets cannot be set: {0}")]
    NotReady(String),
    /// Sealing failed.
    #[error("secret {name} could not be sealed")]
    Seal {
        /// The variable.
        name: String,
        /// Why.
        #[source]
        source: SealError,
    },
    /// Opening failed.
    #[error("secret {name} cannot be opened: {source}")]
    Open {
        /// The variable.
        name: String,
        /// Why.
        #[source]
        source: OpenError,
    },
    /// An environment would become larger than permitted.
    #[error("the environment (env) would have {bytes} bytes in JSON; at most {} are permitted", size::MOST)]
    TooLarge {
        /// So many bytes.
        bytes: usize,
    },
}

impl VaultError {
    /// The code for clients.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::TooLarge { .. } => ErrorCode::Invalid,
            Self::NotReady(_) | Self::Seal { .. } | Self::Open { .. } => ErrorCode::SecretsUnavailable,
        }
    }
}

impl From<VaultError> for crate::api::problem::Problem {
    fn from(error: VaultError) -> Self {
        match error {
            VaultError::TooLarge { .. } => Self::field("env", error.to_string()),
            error => Self::new(error.code(), error.to_string()),
        }
    }
}

/// The keys that this manager has.
#[derive(Debug, Default)]
pub struct Vault {
    file: Option<PathBuf>,
    held: RwLock<Held>,
    /// Up to where all is known to be sealed with the newest keys.
    swept: Mutex<Option<rotation::Swept>>,
    /// Keys are added one after another.
    adding: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Held {
    ring: Arc<Keyring>,
    /// How the file was when it was read.
    seen: Option<(SystemTime, u64)>,
    /// What is wrong with the file, or with the keys in it.
    trouble: Option<String>,
}

impl Vault {
    /// With the keys of this file, once it is read.
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        Self { file, ..Self::default() }
    }

    /// The keys.
    pub(crate) fn ring(&self) -> Arc<Keyring> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).ring.clone()
    }

    /// What is wrong with the file, or with the keys in it.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).trouble.clone()
    }

    fn hold(&self, change: impl FnOnce(&mut Held)) {
        change(&mut self.held.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A resource, as [`SecretVar::of`] names it.
pub(crate) fn place_of<'a>(of: &'a str, name: &'a str) -> Place<'a> {
    let (kind, id) = of.split_once(':').unwrap_or((of, ""));
    Place { kind, id, name }
}

/// Where the check of a key is sealed for.
fn check_place(key: &KeyId) -> Place<'_> {
    Place { kind: "keyring", id: key.as_str(), name: "check" }
}

/// The known text of checks.
const CHECK: &str = "towpath";
/// Where the pepper is sealed for.
const PEPPER: Place<'static> = Place { kind: "keyring", id: "keyring", name: "pepper" };

impl Core {
    /// What the store says of keys; `None` = nothing was ever sealed.
    pub(crate) fn keyring(&self) -> Option<KeyringSpec> {
        self.cache.get(&keys::keyring_key())?.spec().ok()
    }

    /// What the store says of keys, when this manager can seal.
    fn sealing(&self) -> Result<(KeyringSpec, Arc<Keyring>), VaultError> {
        let not_ready = |why: String| Err(VaultError::NotReady(why));
        let ring = self.vault.ring();
        if ring.newest().is_none() {
            let none = || "this platform has no key file; see `manager.secrets_key_file`".to_owned();
            return not_ready(self.vault.trouble().unwrap_or_else(none));
        }
        let Some(spec) = self.keyring() else {
            return not_ready("the keys are not in the store yet; try again in a moment".into());
        };
        if ring.find(&spec.active).is_none() {
            return not_ready(lacks(&spec.active));
        }
        Ok((spec, ring))
    }

    /// Why this manager cannot seal; `None` = it can.
    pub(crate) fn sealing_trouble(&self) -> Option<String> {
        match self.sealing() {
            Ok(_) => None,
            Err(VaultError::NotReady(why)) => Some(why),
            Err(other) => Some(other.to_string()),
        }
    }

    /// Seals with the active key.
    pub(crate) fn seal_secret(&self, place: Place<'_>, plain: &Secret) -> Result<Sealed, VaultError> {
        let (spec, ring) = self.sealing()?;
        let failed = |source| VaultError::Seal { name: place.name.to_owned(), source };
        ring.find(&spec.active).ok_or(SealError::NoKey).and_then(|key| key.seal(place, plain)).map_err(failed)
    }

    /// Opens what is sealed with any key that is here.
    pub(crate) fn open_secret(&self, place: Place<'_>, sealed: &Sealed) -> Result<Secret, VaultError> {
        let failed = |source| VaultError::Open { name: place.name.to_owned(), source };
        self.vault.ring().open(place, sealed).map_err(failed)
    }

    /// A new secret variable of a resource.
    pub(crate) fn seal_variable(
        &self,
        of: &str,
        name: &str,
        plain: &Secret,
    ) -> Result<SecretVar, VaultError> {
        let sealed = self.seal_secret(place_of(of, name), plain)?;
        Ok(SecretVar { sealed, of: of.to_owned(), version: self.mint_record_id(), set_ms: self.now_ms() })
    }

    /// A digest that tells nothing to whoever has the store without the keys, and is the same whatever the active key.
    pub(crate) fn keyed_digest(&self, parts: &[&[u8]]) -> Result<String, VaultError> {
        let (spec, _) = self.sealing()?;
        let pepper = self.open_secret(PEPPER, &spec.pepper)?;
        let no_key = |_| VaultError::Seal { name: "pepper".into(), source: SealError::NoKey };
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(pepper.expose().as_bytes()).map_err(no_key)?;
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        Ok(URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }
}

/// Whether the body of a request to this path may hold a secret: any that can set variables. What stands in the body does not
/// tell, as a plain value that is set to a secret variable is one, too. Names are decoded, as the router reads them.
pub(crate) fn may_hold_secret(path: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let mut parts =
        path.split('/').map(|part| percent_encoding::percent_decode_str(part).decode_utf8_lossy());
    parts.next();
    parts.next().is_some_and(|part| part == "apisix") || parts.next().is_some_and(|part| part == "apps")
}

impl Core {
    /// A body on its way to another manager: as it is, or sealed when it may hold a secret and can be.
    pub(crate) fn sealed_body(&self, target: &str, body: &str) -> (String, Option<Sealed>) {
        let place = Place { kind: "call", id: target, name: "body" };
        let seal = || self.seal_secret(place, &Secret::new(body.to_owned())).ok();
        match (!body.is_empty() && may_hold_secret(target)).then(seal).flatten() {
            Some(sealed) => (String::new(), Some(sealed)),
            None => (body.to_owned(), None),
        }
    }

    /// Whether another manager reads sealed bodies: not in the first protocol, nor without the key.
    pub(crate) fn reads_sealed(&self, manager: ManagerId) -> bool {
        let Some(record) = self.cache.get(&keys::keyring_key()) else { return false };
        let (Ok(spec), Ok(status)) = (record.spec::<KeyringSpec>(), record.status::<KeyringStatus>()) else {
            return false;
        };
        let held = status.managers.get(&manager.to_string());
        self.protocol() >= 2 && held.is_some_and(|keys| keys.contains(&spec.active))
    }

    /// The body of a call.
    pub(crate) fn opened_body(&self, call: &towpath_wire::manager::ApiCall) -> Result<String, VaultError> {
        match &call.sealed {
            None => Ok(call.body.clone()),
            Some(sealed) => {
                let place = Place { kind: "call", id: &call.target, name: "body" };
                self.open_secret(place, sealed).map(|body| body.expose().to_owned())
            }
        }
    }
}

fn lacks(active: &KeyId) -> String {
    format!(
        "secrets are sealed with key {active}, which this manager's key file lacks; copy the file of a manager that has it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_says_whether_a_body_may_hold_a_secret() {
        for path in [
            "/v1/apps/shop/env",
            "/v1/apps/shop?org=o",
            "/v1/%61pps/shop/groups/base",
            "/v1/apps/a/releases",
            "/apisix/admin/ssls/1",
            "/%61pisix/admin/consumers",
        ] {
            assert!(may_hold_secret(path), "{path}");
        }
        for path in ["/v1/lanes/apps", "/v1/space", "/v1/routes?host=/v1/apps/", "/v1/tokens", "/", ""] {
            assert!(!may_hold_secret(path), "{path}");
        }
    }
}
