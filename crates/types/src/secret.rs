//! Secrets as they are stored: sealed. What opens them is not here.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Fingerprint of a key: 8 hex digits.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
pub struct KeyId(String);

impl KeyId {
    /// With this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How the text of a sealed value begins: the form's version.
const FORM: &str = "tps1";

/// A sealed value: `tps1.<key id>.<base64url>`. It is of no use without the key, yet it is not printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String)]
pub struct Sealed(String);

/// Why a text is no sealed value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not a sealed value")]
pub struct SealedError;

impl Sealed {
    /// Of a key's id and what it made, base64url.
    pub fn from_parts(key: &KeyId, body: &str) -> Self {
        Self(format!("{FORM}.{key}.{body}"))
    }

    /// Nothing, for comparisons in which what is sealed does not count.
    pub fn blank() -> Self {
        Self(format!("{FORM}.."))
    }

    /// The key's id and what it made.
    pub fn parts(&self) -> Option<(KeyId, &str)> {
        let (id, body) = self.0.strip_prefix(FORM)?.strip_prefix('.')?.split_once('.')?;
        Some((KeyId::new(id), body))
    }

    /// The key that it is sealed with.
    pub fn key_id(&self) -> Option<KeyId> {
        self.parts().map(|(id, _)| id)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Sealed {
    type Err = SealedError;

    fn from_str(text: &str) -> Result<Self, SealedError> {
        let sealed = Self(text.to_owned());
        if sealed.parts().is_some() { Ok(sealed) } else { Err(SealedError) }
    }
}

impl TryFrom<String> for Sealed {
    type Error = SealedError;

    fn try_from(text: String) -> Result<Self, SealedError> {
        text.parse()
    }
}

impl From<Sealed> for String {
    fn from(sealed: Sealed) -> Self {
        sealed.0
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({})", self.key_id().map_or_else(String::new, |id| id.0))
    }
}

/// A secret variable. Its version changes when its value does, and stays when it is sealed anew with another key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SecretVar {
    /// The value, sealed for (kind and id of `of`, name of the variable).
    pub sealed: Sealed,
    /// The resource that it belongs to, as `app:<id>` or `group:<id>`.
    pub of: String,
    /// Random.
    pub version: String,
    /// When it was set, store clock, milliseconds since 1970.
    #[serde(default)]
    pub set_ms: u64,
}

/// The value of a variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum EnvValue {
    /// As it is.
    Plain(String),
    /// Sealed.
    Secret(SecretVar),
}

/// Variables by name.
pub type Env = BTreeMap<String, EnvValue>;

impl EnvValue {
    /// The value, unless it is a secret.
    pub fn plain(&self) -> Option<&str> {
        match self {
            Self::Plain(value) => Some(value),
            Self::Secret(_) => None,
        }
    }

    /// The secret, if it is one.
    pub fn secret(&self) -> Option<&SecretVar> {
        match self {
            Self::Plain(_) => None,
            Self::Secret(secret) => Some(secret),
        }
    }

    /// The same for comparisons: which key a secret is sealed with does not count.
    pub fn without_seal(&self) -> Self {
        match self {
            Self::Plain(value) => Self::Plain(value.clone()),
            Self::Secret(secret) => Self::Secret(SecretVar { sealed: Sealed::blank(), ..secret.clone() }),
        }
    }
}

impl From<String> for EnvValue {
    fn from(value: String) -> Self {
        Self::Plain(value)
    }
}

impl From<&str> for EnvValue {
    fn from(value: &str) -> Self {
        Self::Plain(value.to_owned())
    }
}

/// Spec of the keyring: which key seals, and what tells whether a manager has the right keys. One for the whole platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyringSpec {
    /// The key that new values are sealed with.
    pub active: KeyId,
    /// A known text, sealed with each key that was ever active: whoever has the key can open it.
    pub checks: BTreeMap<KeyId, Sealed>,
    /// Key of the digests by which repeated requests are known, sealed.
    pub pepper: Sealed,
    /// The last rotation.
    #[serde(default)]
    pub rotation: Option<RotationSpec>,
}

/// Spec of the record of gateways' keys: what is secret in resources of the gateway is sealed with the newest of them. Gateways are given
/// these keys and no others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayKeysSpec {
    /// By their ids.
    pub keys: BTreeMap<KeyId, GatewayKey>,
}

/// A key of gateways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayKey {
    /// The key in hex, sealed with the active key.
    pub sealed: Sealed,
    /// The key that was active when this one was made: what is sealed with this one counts as sealed with that one.
    pub of: KeyId,
    /// When it was made, store clock, milliseconds since 1970.
    #[serde(default)]
    pub made_ms: u64,
}

impl GatewayKeysSpec {
    /// The one that belongs to the active key.
    pub fn newest(&self, active: &KeyId) -> Option<&KeyId> {
        self.keys.iter().find(|(_, key)| key.of == *active).map(|(id, _)| id)
    }
}

/// A rotation that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RotationSpec {
    /// To which key.
    pub to: KeyId,
    /// Who asked.
    pub by: String,
    /// When, store clock, milliseconds since 1970.
    pub asked_ms: u64,
}

/// Status of the keyring.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyringStatus {
    /// Keys that each manager has, by its id.
    pub managers: BTreeMap<String, Vec<KeyId>>,
    /// How far the last rotation is.
    pub progress: Option<RotationProgress>,
}

/// How far a rotation is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct RotationProgress {
    /// When it was asked for; tells rotations apart.
    pub asked_ms: u64,
    /// Values sealed anew.
    pub done: u64,
    /// Values that are left.
    pub left: u64,
    /// Values that could not be opened; they stay as they are.
    pub stuck: u64,
    /// When nothing was left that could be done, store clock, milliseconds since 1970.
    pub ended_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_values_are_strings_as_ever_and_secrets_are_not_printed() {
        let env: Env = serde_json::from_str(
            r#"{"A":"1","B":{"sealed":"tps1.0011aabb.AAAA","of":"app:x","version":"v","set_ms":3}}"#,
        )
        .unwrap();
        assert_eq!(env["A"].plain(), Some("1"));
        assert_eq!(env["B"].secret().unwrap().sealed.key_id(), Some(KeyId::new("0011aabb")));
        let shown = format!("{env:?}");
        assert!(shown.contains("Sealed(0011aabb)") && !shown.contains("AAAA"), "{shown}");
        assert_eq!(serde_json::to_value(&env).unwrap()["A"], "1");
        assert!(serde_json::from_str::<Env>(r#"{"A":{"sealed":"plain","of":"","version":""}}"#).is_err());
        assert_eq!(env["B"].without_seal().secret().unwrap().version, "v");
    }
}
