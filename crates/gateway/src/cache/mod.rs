//! A cache of responses (RFC 9111), shared by all workers: in memory and on disk, each with a bound of its own.
//!
//! [`Store`] is one of the two. What a request finds there is decided by its key and, where responses vary, by those of its
//! headers that they vary by ([`index`]). Who finds nothing takes the *turn* to fill it; others wait for that for a while. A
//! turn is a guard: whatever ends the request that has it wakes those who wait.
//!
//! Nothing is kept of a response that did not come whole. On disk a response is two files, its head and its body; both are
//! written under other names first, and what is read is checked, so that a crash leaves nothing that is half of something.

pub(crate) mod control;
pub(crate) mod disk;
pub(crate) mod disk_format;
pub(crate) mod entry;
pub(crate) mod index;
pub(crate) mod keep;
pub(crate) mod store;
pub(crate) mod writer;

pub(crate) use entry::{Body, Entry, Head};
pub(crate) use store::{Store, Turn};

use crate::config::CacheConfig;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Sixteen bytes of a SHA-256: of what makes requests the same, or of the headers that responses vary by.
pub(crate) type Digest = [u8; 16];

/// Both stores. What is not used is not there.
pub(crate) struct Cache {
    memory: Arc<Store>,
    disk: OnceLock<Arc<Store>>,
    disk_bytes: u64,
    dir: PathBuf,
}

impl Cache {
    /// With these bounds.
    pub(crate) fn new(config: &CacheConfig, data_dir: &Path) -> Arc<Self> {
        Arc::new(Self {
            memory: Store::in_memory(config.memory.0),
            disk: OnceLock::new(),
            disk_bytes: config.disk.0,
            dir: config.dir.clone().unwrap_or_else(|| data_dir.join("cache")),
        })
    }

    /// The one in memory.
    pub(crate) fn memory(&self) -> &Arc<Store> {
        &self.memory
    }

    /// The one on disk; at its first use a thread begins to look what is there from before.
    pub(crate) fn disk(&self) -> &Arc<Store> {
        self.disk.get_or_init(|| Store::on_disk(&self.dir, self.disk_bytes))
    }
}
