//! Who this gateway is: an id for the life of its data directory, and a number for each start.

use crate::clock;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use towpath_types::{GatewayId, Incarnation};

/// Id and start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) gateway: GatewayId,
    pub(crate) incarnation: Incarnation,
}

impl Identity {
    /// Reads the identity, or makes one, and notes this start.
    pub(crate) fn load(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join("gateway.json");
        let before: Option<Identity> = match std::fs::read(&path) {
            Ok(bytes) => Some(serde_json::from_slice(&bytes).map_err(io::Error::other)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let now = clock::unix_ms();
        let identity = match before {
            Some(before) => Self { incarnation: Incarnation(now.max(before.incarnation.0 + 1)), ..before },
            None => Self { gateway: GatewayId(uuid::Uuid::now_v7()), incarnation: Incarnation(now) },
        };
        crate::files::write_private(&path, &serde_json::to_vec(&identity).map_err(io::Error::other)?)?;
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_stays_and_starts_only_count_up() {
        let dir = tempfile::tempdir().unwrap();
        let first = Identity::load(dir.path()).unwrap();
        let later = Identity { incarnation: Incarnation(u64::MAX - 5), ..first };
        std::fs::write(dir.path().join("gateway.json"), serde_json::to_vec(&later).unwrap()).unwrap();
        let second = Identity::load(dir.path()).unwrap();
        assert_eq!(second.gateway, first.gateway);
        assert_eq!(second.incarnation.0, u64::MAX - 4, "the clock going back does not bring the number back");
    }
}
