//! What lies where in a data directory, and who may read it.
//!
//! It is closed (0700). Instances of a root cell run as other users and have to pass through the directory to their own
//! files: one that root has just made, and the cell's part in it, may be passed (0711) but not listed. The mode of a
//! directory that was there before is its owner's: the cell finds another place for its instances then. The other parts
//! are closed, secrets are 0600.

use crate::exit::{Exit, Failure, Outcome, reason};
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The parts of a data directory.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// The whole.
    pub(super) root: PathBuf,
}

impl Layout {
    /// The parts of `root`.
    pub(super) fn new(root: &Path) -> Self {
        let absolute = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        Self { root: absolute }
    }

    /// The operator's token.
    pub(super) fn token(&self) -> PathBuf {
        self.root.join("token")
    }

    /// The cells' token.
    pub(super) fn cell_token(&self) -> PathBuf {
        self.root.join("cell-token")
    }

    /// The gateways' token.
    pub(super) fn gateway_token(&self) -> PathBuf {
        self.root.join("gateway-token")
    }

    /// The keys of secrets.
    pub(super) fn secrets_key(&self) -> PathBuf {
        self.root.join("secrets.key")
    }

    /// A part that nobody else may enter; made if it is not there.
    pub(super) fn closed(&self, name: &str) -> Outcome<PathBuf> {
        self.part(name, 0o700)
    }

    /// The cell's part; made if it is not there.
    pub(super) fn cell(&self, fresh: bool) -> Outcome<PathBuf> {
        if fresh && nix::unistd::geteuid().is_root() {
            std::fs::set_permissions(&self.root, Permissions::from_mode(0o711))
                .map_err(|error| not_writable(&self.root, &error))?;
        }
        self.part("cell", if nix::unistd::geteuid().is_root() { 0o711 } else { 0o700 })
    }

    fn part(&self, name: &str, mode: u32) -> Outcome<PathBuf> {
        let dir = self.root.join(name);
        DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(&dir)
            .map_err(|error| not_writable(&dir, &error))?;
        Ok(dir)
    }

    /// The SQLite file; made (mode 0600, which its side files take over) if it is not there.
    pub(super) fn store(&self) -> Outcome<PathBuf> {
        let file = self.root.join("store.db");
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&file)
            .map_err(|error| not_writable(&file, &error))?;
        Ok(file)
    }
}

fn not_writable(path: &Path, error: &std::io::Error) -> Failure {
    let what = format!("{} is not writable: {}", path.display(), reason(error));
    Failure::hinted(Exit::Usage, what, "choose another directory with --data-dir")
}
