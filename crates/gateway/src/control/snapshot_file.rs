//! The last known state on disk: a gateway that starts with no manager and no bus serves from it.

use super::incoming::Items;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use towpath_types::Revision;
use towpath_wire::cell::CellAnnounce;
use towpath_wire::gateway::Item;

/// The file's name in the data directory.
const NAME: &str = "snapshot.json";
/// Version of its form.
const VERSION: u32 = 1;

/// What is written. Shares its parts with the state, so that it can be made into bytes elsewhere.
#[derive(Serialize)]
pub(crate) struct Snapshot {
    version: u32,
    revision: Revision,
    items: Vec<Arc<Item>>,
    cells: Vec<Arc<CellAnnounce>>,
}

/// The file with its parts still closed.
#[derive(Deserialize)]
struct RawSnapshot {
    version: u32,
    revision: Revision,
    items: Vec<Box<RawValue>>,
    cells: Vec<Box<RawValue>>,
}

/// What is read.
pub(crate) struct StoredSnapshot {
    /// Revision of the items.
    pub(crate) revision: Revision,
    /// Hard state.
    pub(crate) items: Items,
    /// The last announcement of every cell.
    pub(crate) cells: Vec<CellAnnounce>,
}

impl Snapshot {
    /// Of these parts.
    pub(crate) fn of(
        revision: Revision,
        items: impl Iterator<Item = Arc<Item>>,
        cells: impl Iterator<Item = Arc<CellAnnounce>>,
    ) -> Self {
        Self { version: VERSION, revision, items: items.collect(), cells: cells.collect() }
    }

    /// Writes the file, whole or not at all.
    pub(crate) fn write(&self, data_dir: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(self).map_err(io::Error::other)?;
        crate::files::write_private(&path(data_dir), &bytes)
    }
}

/// The file in a data directory.
fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(NAME)
}

/// Reads the file; `None` = there is none, or it cannot be used, which is logged: a gateway starts all the same.
pub(crate) fn load(data_dir: &Path) -> Option<StoredSnapshot> {
    let path = path(data_dir);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the snapshot cannot be read");
            return None;
        }
    };
    match serde_json::from_slice::<RawSnapshot>(&bytes) {
        Ok(stored) if stored.version == VERSION => Some(read(stored)),
        Ok(stored) => {
            tracing::warn!(path = %path.display(), version = stored.version, "the snapshot is of another version");
            None
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the snapshot is damaged");
            None
        }
    }
}

/// Reads each part for itself: one that cannot be read (the file may be of another build) costs no other.
fn read(raw: RawSnapshot) -> StoredSnapshot {
    let cell = |cell: &RawValue| match serde_json::from_str(cell.get()) {
        Ok(cell) => Some(cell),
        Err(error) => {
            tracing::warn!(%error, "a cell in the snapshot cannot be read");
            None
        }
    };
    let cells = raw.cells.iter().filter_map(|raw| cell(raw)).collect();
    StoredSnapshot { revision: raw.revision, items: Items::read(raw.items), cells }
}
