//! Secrets: the type that holds one in memory, the sealed form that a store keeps, the keys that seal, and the box in
//! which a cell is sent what its instances need.
//!
//! Invariants: a plain value is a [`Secret`], which nothing prints or serializes and whose memory is wiped; a sealed value
//! opens only under the key that it names and in the [`Place`] that it was sealed for; no nonce repeats, since every
//! sealing derives a key of its own from 24 random bytes.
//!
//! Must not: read settings, know the store or the bus, log.

mod keyfile;
mod keyring;
mod parcel;
mod secret;

pub use keyfile::{KeyFileError, create, load, prepend, save};
pub use keyring::{Key, Keyring, OpenError, Place, SealError};
pub use parcel::{Parcel, ParcelError, Proof, Recipient, Sender};
pub use secret::Secret;
