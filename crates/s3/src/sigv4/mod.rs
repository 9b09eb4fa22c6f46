//! AWS Signature Version 4: verifying requests, and signing them.
//!
//! As Amazon documents it for S3: the path is encoded once and not tidied, the query's arguments are sorted by their encoded
//! form, of headers the signed ones count, with spaces in a row as one.

mod canonical;
mod parse;
mod sign;
mod time;
#[cfg(test)]
mod vectors;
mod verify;

pub use canonical::Message;
pub use parse::Scope;
pub use sign::{Credentials, Outgoing, sign};
pub use time::Instant;
pub use verify::{Chunks, Policy, Verified, verify};

use ring::{digest, hmac};

/// The name of the algorithm.
pub const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The hash of nothing.
pub const EMPTY_SHA256: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27,
    0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// What the head says of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// Nothing.
    Unsigned,
    /// It has this hash.
    Hash([u8; 32]),
    /// It comes in chunks of `aws-chunked`.
    Chunked {
        /// Each has a signature.
        signed: bool,
        /// After the last there are trailers.
        trailer: bool,
    },
}

impl Payload {
    /// Reads `x-amz-content-sha256`.
    pub fn read(text: &[u8]) -> Option<Self> {
        Some(match text {
            b"UNSIGNED-PAYLOAD" => Self::Unsigned,
            b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Self::Chunked { signed: true, trailer: false },
            b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => Self::Chunked { signed: true, trailer: true },
            b"STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Self::Chunked { signed: false, trailer: true },
            hash => Self::Hash(crate::encode::read_hex32(hash)?),
        })
    }
}

/// SHA-256 of a text.
pub fn sha256(text: &[u8]) -> [u8; 32] {
    to_32(digest::digest(&digest::SHA256, text).as_ref())
}

pub(crate) fn to_32(bytes: &[u8]) -> [u8; 32] {
    <[u8; 32]>::try_from(bytes).unwrap_or_default()
}

pub(crate) fn hmac_of(key: &[u8], text: &[u8]) -> [u8; 32] {
    to_32(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref())
}

/// The key that signs for a day, region and service.
#[derive(Clone)]
pub struct SigningKey(hmac::Key);

impl SigningKey {
    /// Derives it from a secret key.
    pub fn derive(secret: &str, scope: &Scope) -> Self {
        let mut key = hmac_of(format!("AWS4{secret}").as_bytes(), scope.day.as_bytes());
        for part in [scope.region.as_str(), scope.service.as_str(), "aws4_request"] {
            key = hmac_of(&key, part.as_bytes());
        }
        Self(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }

    /// The signature of a text.
    pub fn sign(&self, text: &[u8]) -> [u8; 32] {
        to_32(hmac::sign(&self.0, text).as_ref())
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey")
    }
}
