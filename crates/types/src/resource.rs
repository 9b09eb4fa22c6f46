//! A resource as the store keeps it: one JSON document with identity, generation, revision, spec and status.

use crate::{Kind, OrgName, SpaceName};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::fmt;

/// Position in the store-wide order of writes. The first write has 1.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    Default,
)]
pub struct Revision(pub u64);

/// Counts changes of a resource's spec; the first is 1.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    Default,
)]
pub struct Generation(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Kind and name of a resource inside its tenant: unique in the store. `org`/`space` are `None` for kinds above them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// What it is.
    pub kind: Kind,
    /// Its tenant.
    pub org: Option<OrgName>,
    /// Its space.
    pub space: Option<SpaceName>,
    /// Its name, unique in the three above; composite for some kinds (see [`Kind`]).
    pub name: String,
}

/// A resource as stored. `spec` and `status` are typed by [`crate::spec`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// UUIDv7 text, never reused.
    pub id: String,
    /// Kind, tenant and name.
    #[serde(flatten)]
    pub key: Key,
    /// Rises when the spec changes.
    pub generation: Generation,
    /// Revision of the last write to it.
    pub revision: Revision,
    /// When it was made, by the store's clock, milliseconds since 1970.
    pub created_ms: u64,
    /// When it was last written, by the store's clock, milliseconds since 1970.
    pub updated_ms: u64,
    /// What is wanted.
    pub spec: serde_json::Value,
    /// What is.
    pub status: serde_json::Value,
}

impl Record {
    /// The spec as a type.
    pub fn spec<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&self.spec)
    }

    /// The status as a type.
    pub fn status<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&self.status)
    }
}
