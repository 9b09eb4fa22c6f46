//! The directories of one build.

use super::Refusal;
use super::cache::Caches;
use super::recipe::Places;
use super::report::broken;
use crate::build::BuildUser;
use crate::disk;
use sha2::{Digest as _, Sha256};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use towpath_types::AppRef;

/// A build's directories. What they are called depends on the app alone, so that paths which a compiler writes into a program are
/// the same each time. Blocks.
pub(crate) struct BuildDir {
    root: PathBuf,
    caches: Caches,
    key: String,
    pub(crate) places: Places,
}

impl BuildDir {
    /// Makes them, empty but for the cache of the app's last build. `anew`: the cache is empty too.
    pub(crate) fn create(work: &Path, caches: Caches, app: &AppRef, anew: bool) -> Result<Self, Refusal> {
        let key = key(app);
        if anew {
            caches.forget(&key);
        }
        let root = (0..1000)
            .map(|n| if n == 0 { work.join(&key) } else { work.join(format!("{key}-{n}")) })
            .find(|path| DirBuilder::new().mode(0o711).create(path).is_ok())
            .ok_or_else(|| {
                broken("no directory for the build could be made", &std::io::Error::last_os_error())
            })?;
        let places = Places {
            app: root.join("app"),
            home: root.join("home"),
            scratch: root.join("tmp"),
            cache: root.join("cache"),
        };
        let dir = Self { root, caches, key, places };
        let make = || -> std::io::Result<()> {
            // The mode of the first is subject to the umask.
            disk::set_mode(&dir.root, 0o711)?;
            for path in [&dir.places.home, &dir.places.scratch] {
                DirBuilder::new().mode(0o700).create(path)?;
            }
            if !dir.caches.take(&dir.key, &dir.places.cache) {
                DirBuilder::new().mode(0o700).create(&dir.places.cache)?;
            }
            Ok(())
        };
        make().map_err(|error| broken("the build's directories could not be made", &error))?;
        Ok(dir)
    }

    /// Where the downloaded source and the packed artifact lie.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// All of it, to be measured.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Gives all of it to the build's user.
    pub(crate) fn own(&self, user: Option<&BuildUser>) -> std::io::Result<()> {
        let Places { app, home, scratch, cache } = &self.places;
        disk::set_mode(app, 0o700)?;
        for path in [app, home, scratch, cache] {
            if let Some(user) = user {
                user.own(path)?;
            }
        }
        Ok(())
    }
}

impl Drop for BuildDir {
    /// Keeps the cache, removes the rest.
    fn drop(&mut self) {
        self.caches.put_back(&self.key, &self.places.cache);
        if let Err(error) = disk::remove_tree(&self.root) {
            tracing::warn!(%error, dir = %self.root.display(), "a build's directory could not be removed");
        }
    }
}

/// A short name of an app, its org and space among it, that is safe as a file name, and that nobody finds a second app for.
fn key(app: &AppRef) -> String {
    let hash = Sha256::digest(app.to_string());
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
