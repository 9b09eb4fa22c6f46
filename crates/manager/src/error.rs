//! Errors of the manager.

use std::net::SocketAddr;
use std::path::PathBuf;
use towpath_bus::BusError;
use towpath_store::StoreError;

/// Why the manager could not start.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// Settings are not valid.
    #[error("the manager's settings are not valid: {}", .0.join("; "))]
    Settings(Vec<String>),
    /// The API's address cannot be bound.
    #[error("the API cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of the data directory cannot be read or written.
    #[error("{} cannot be used", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The store failed.
    #[error("the manager could not use the store")]
    Store(#[from] StoreError),
    /// The bus failed.
    #[error("the manager could not use the bus")]
    Bus(#[from] BusError),
}

/// Why a write did not take effect.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The manager is no member now: it is joining, or was evicted and joins anew. Trying again later works.
    #[error("this manager is not a member at the moment")]
    NotMember,
    /// A resource changed in the meantime, again and again.
    #[error("the resource kept changing")]
    Contended,
    /// The store said no.
    #[error("the store refused or failed")]
    Store(#[from] StoreError),
}

impl CommitError {
    /// Whether the same again may work after a while.
    pub fn is_transient(&self) -> bool {
        match self {
            CommitError::NotMember | CommitError::Contended => true,
            CommitError::Store(error) => {
                matches!(error, StoreError::Unavailable { .. } | StoreError::Fenced(_))
            }
        }
    }
}
