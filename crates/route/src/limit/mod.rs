//! Arithmetic of limits, shared by all workers: no locks where a key is known, no allocation, no clock.
//!
//! Each limiter keeps its keys in a table of fixed size (see `keys`). A key is a hash that the caller makes, with
//! [`key`]. Settings come with each call, so that a change of configuration keeps what was counted.

mod conn;
mod count;
mod keys;
mod req;
mod sliding;

pub use conn::{Conn, ConnSlot};
pub use count::{Count, Taken};
pub use req::Req;
pub use sliding::Sliding;

pub(crate) use keys::{Keys, STATE_MAX};

/// The key of a limiter for a text, under a secret of this process so that nobody can choose keys that fall together.
pub fn key(secret: u64, text: &[u8]) -> u64 {
    crate::hash::hash_bytes(secret, text)
}

/// Milliseconds, rounded up.
fn ms_up(ns: u64) -> u64 {
    ns.div_ceil(crate::MS)
}

#[cfg(test)]
mod tests;
