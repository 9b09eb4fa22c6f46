//! Ids that the platform makes. Each kind of id is a type of its own, so that they cannot be mixed up.

use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
        #[schema(value_type = String, format = "uuid")]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new id (UUIDv7) for the given wall-clock time in milliseconds since 1970 and 10 random bytes.
            pub fn mint(unix_ms: u64, random: [u8; 10]) -> Self {
                Self(uuid::Builder::from_unix_timestamp_millis(unix_ms, &random).into_uuid())
            }

            /// The first eight and last four digits: enough for a person to tell two apart.
            pub fn short(&self) -> String {
                let text = self.0.simple().to_string();
                format!("{}{}", text.get(4..8).unwrap_or_default(), text.get(24..).unwrap_or_default())
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                Uuid::parse_str(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }
    };
}

id!(
    /// One running copy of a release.
    InstanceId
);
id!(
    /// The copies of one app in one lane of one region.
    GroupId
);
id!(
    /// A node agent, the same for the life of its data directory.
    CellId
);
id!(
    /// A data-plane process, the same for the life of its data directory.
    GatewayId
);
id!(
    /// A control-plane process, the same for the life of its data directory.
    ManagerId
);
id!(
    /// A long piece of work that a client can follow.
    OperationId
);

impl InstanceId {
    /// An id that follows from 128 bits alone (UUIDv8), for endpoints that nobody started: the same bits, the same id.
    pub fn derived(bits: u128) -> Self {
        Self(uuid::Builder::from_custom_bytes(bits.to_be_bytes()).into_uuid())
    }
}

/// Counts the starts of a process with a lasting id; a higher one supersedes a lower. It is the wall-clock time of the
/// start in milliseconds, raised above the last one on disk, so that it only grows even if the clock goes back.
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
pub struct Incarnation(pub u64);
