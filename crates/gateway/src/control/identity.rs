//! Who this gateway is: an id for the life of its data directory, and a number for each start.

use crate::clock;
use crate::files;
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
    /// Reads the identity, or makes one, and notes this start. Where there is no room to note it, a known gateway goes on all
    /// the same: it can serve its snapshot, and its clock makes the next number as well.
    pub(crate) fn load(data_dir: &Path) -> io::Result<Self> {
        Self::load_with(data_dir, files::write_private)
    }

    fn load_with(data_dir: &Path, write: impl Fn(&Path, &[u8]) -> io::Result<()>) -> io::Result<Self> {
        let path = data_dir.join("gateway.json");
        let before: Option<Identity> = files::read_own(&path)?
            .map(|bytes| serde_json::from_slice(&bytes))
            .transpose()
            .map_err(|error| {
                files::not_ours(
                    &path,
                    &format!("no identity of a gateway ({error})"),
                    "the gateway gets a new id",
                )
            })?;
        let now = clock::unix_ms();
        let identity = match before {
            Some(before) => Self { incarnation: Incarnation(now.max(before.incarnation.0 + 1)), ..before },
            None => Self { gateway: GatewayId(uuid::Uuid::now_v7()), incarnation: Incarnation(now) },
        };
        let written = write(&path, &serde_json::to_vec(&identity).map_err(io::Error::other)?);
        match written {
            Err(error) if before.is_some() && has_no_room(&error) => {
                tracing::warn!(%error, path = %path.display(), "this start of the gateway could not be noted");
                Ok(identity)
            }
            written => written.map(|()| identity),
        }
    }
}

fn has_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
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

    #[test]
    fn a_full_disk_keeps_a_new_gateway_from_starting_and_no_known_one() {
        let dir = tempfile::tempdir().unwrap();
        let full = |_: &Path, _: &[u8]| Err(io::ErrorKind::StorageFull.into());
        assert!(Identity::load_with(dir.path(), full).is_err());
        let first = Identity::load(dir.path()).unwrap();
        let second = Identity::load_with(dir.path(), full).unwrap();
        assert_eq!(second.gateway, first.gateway);
        assert!(second.incarnation > first.incarnation);
        let broken = |_: &Path, _: &[u8]| Err(io::ErrorKind::Other.into());
        assert!(Identity::load_with(dir.path(), broken).is_err());
    }

    #[test]
    fn an_emptied_file_is_made_again_and_a_foreign_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.json");
        std::fs::write(&path, "").unwrap();
        let made = Identity::load(dir.path()).unwrap();
        assert_eq!(Identity::load(dir.path()).unwrap().gateway, made.gateway);
        std::fs::write(&path, "{\"gateway\": 5}").unwrap();
        let text = Identity::load(dir.path()).unwrap_err().to_string();
        assert!(text.contains("gateway.json") && text.contains("delete it"), "{text}");
        assert_eq!(std::fs::read(&path).unwrap(), b"{\"gateway\": 5}", "it is left as it was");
    }
}
