//! Why a cell could not start.

use std::path::PathBuf;

/// Why [`crate::Cell::start`] failed.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// The settings are not valid.
    #[error("the cell's settings are not valid: {}", .0.join("; "))]
    Settings(Vec<String>),
    /// Another cell process holds the data directory.
    #[error("another cell process runs on the data directory {0}: stop it first, or give this one another")]
    InUse(PathBuf),
    /// A file or directory of its own could not be used.
    #[error("the cell cannot use {path}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Who this cell is cannot be read, and the copy of it neither.
    #[error(
        "the cell's identity {path} is damaged ({why}), and so is its copy beside it: put one of them back, or remove both to make this a new cell, which does not know the instances of the old one"
    )]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The bus refused a subscription.
    #[error("the cell cannot subscribe on the bus")]
    Bus(#[from] towpath_bus::BusError),
}

impl CellError {
    /// For `map_err`: an I/O error at `path`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
