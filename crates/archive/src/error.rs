//! What can go wrong, for people and as codes.

use std::io;
use std::path::PathBuf;
use towpath_types::{Digest, ErrorCode};

/// Why a directory was not packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// A file could not be read.
    #[error("cannot read {path}", path = path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The archive could not be written.
    #[error("cannot write the archive")]
    Write(#[source] io::Error),
    /// There is more than may be packed.
    #[error("{}", too_large(*bytes, *limit, largest))]
    TooLarge {
        /// Bytes of all files.
        bytes: u64,
        /// Bytes that are permitted.
        limit: u64,
        /// The largest files and directories, largest first, relative to the packed directory.
        largest: Vec<(PathBuf, u64)>,
    },
    /// There are more files than may be packed.
    #[error(
        "the directory has more than {limit} files and directories; leave out what can be made again with a line in .towpathignore"
    )]
    TooMany {
        /// Entries that are permitted.
        limit: u64,
    },
    /// A path is deeper or longer than an archive may hold.
    #[error("{path} is too deep or too long to be packed", path = path.display())]
    TooDeep {
        /// The path.
        path: PathBuf,
    },
    /// A file became shorter while it was read.
    #[error("{path} changed while it was being packed; try again when nothing writes to it", path = path.display())]
    Changed {
        /// The file, relative to the packed directory.
        path: PathBuf,
    },
}

fn too_large(bytes: u64, limit: u64, largest: &[(PathBuf, u64)]) -> String {
    let mut text = format!(
        "the files are {} together, the limit is {}; the largest are",
        crate::walk::human(bytes),
        crate::walk::human(limit)
    );
    for (index, (path, size)) in largest.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        text.push_str(&format!("{comma} {} ({})", path.display(), crate::walk::human(*size)));
    }
    text.push_str("; leave out what is not needed with lines in .towpathignore (same rules as .gitignore)");
    text
}

/// Why an archive was refused or could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// It is no zstd stream, or a broken or truncated one, or its source failed.
    #[error("the archive cannot be read: it is broken, truncated, or no zstd-compressed tar")]
    Read(#[source] io::Error),
    /// Something in the tar is not as it must be.
    #[error("the archive is broken: {0}")]
    Broken(&'static str),
    /// An entry is not permitted.
    #[error("the archive holds {entry:?}, {why}")]
    Refused {
        /// The entry's path, made printable, cut to 200 characters.
        entry: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// It is over a limit.
    #[error("the archive has more than {limit} {what}")]
    OverLimit {
        /// What there is too much of.
        what: &'static str,
        /// How much is permitted.
        limit: u64,
    },
    /// It is not the content that was announced.
    #[error("the archive's digest is {found}, announced was {expected}")]
    WrongDigest {
        /// What was announced.
        expected: Digest,
        /// What it is.
        found: Digest,
    },
    /// A file could not be written.
    #[error("cannot write {path}", path = path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl UnpackError {
    /// The stable code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            UnpackError::Write { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::StorageFull,
                _ => ErrorCode::Internal,
            },
            UnpackError::OverLimit { .. } => ErrorCode::UploadTooLarge,
            _ => ErrorCode::BadArchive,
        }
    }

    pub(crate) fn refused(path: &[u8], why: &'static str) -> Self {
        let entry = String::from_utf8_lossy(path).chars().take(200).collect();
        UnpackError::Refused { entry, why }
    }
}
