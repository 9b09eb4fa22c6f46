//! What fuzz targets need of the inside; in no other build.

pub use crate::upstream::h1::read_answer;

use crate::stream_proxy::sniff::{self, Hello};

/// What is found in the beginning of a connection: nothing yet, no TLS, or TLS with or without a name.
pub fn server_name(bytes: &[u8]) -> Option<Result<Option<String>, ()>> {
    match sniff::read(bytes) {
        Hello::Incomplete => None,
        Hello::Foreign => Some(Err(())),
        Hello::Nameless => Some(Ok(None)),
        Hello::Named(name) => Some(Ok(Some(name))),
    }
}
