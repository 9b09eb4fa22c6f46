//! Packs directories into zstd-compressed tars and unpacks them again.
//!
//! Two kinds of archive: a *source* is known by the SHA-256 of its uncompressed tar, so the level of compression does
//! not matter; an *artifact* is known by the SHA-256 of its stored bytes.
//!
//! Invariants: the same content packs to the same bytes on every machine (sorted, no times, no owners, modes 0644 or
//! 0755); nothing is held in memory whole; an archive of whatever origin never makes a file outside the directory that
//! it is unpacked into, nor a device, nor a setuid file; a failed unpack leaves nothing behind.
//!
//! Must not: know about apps, talk to a network, start threads other than [`verify::Verifier`]'s.
//! Everything here blocks; async callers use a blocking thread.

mod entry;
pub mod error;
mod hash;
mod ignores;
pub mod limits;
mod link;
pub mod pack;
mod read;
mod tree;
pub mod unpack;
pub mod verify;
mod walk;

pub use error::{PackError, UnpackError};
pub use limits::Limits;
pub use pack::{
    ArtifactOptions, ArtifactSummary, PackOptions, PackSummary, Progress, Warning, digest, pack,
    pack_artifact,
};
pub use unpack::{UnpackSummary, unpack, unpack_artifact};
pub use verify::{Verifier, verify, verify_artifact};
