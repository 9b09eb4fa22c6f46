//! Arithmetic of limits, shared by all workers: no locks where a key is known, no allocation, no clock.
//!
//! All limiters of a process keep their keys in the two tables of one [`Limits`], which are of fixed size (see `keys`): one for what may be
//! forgotten (counts, rates, breakers), one for what somebody holds. A limiter is a name under which keys are hashed;
//! so two of the same name count together, and one that is made anew finds what was counted. Settings come with each call.

mod conn;
mod count;
mod keys;
pub mod lease;
mod req;
mod sliding;

pub use conn::{Conn, ConnSlot};
pub use count::{Count, Taken};
pub use req::Req;
pub use sliding::Sliding;

pub(crate) use keys::{Keys, New, STATE_MAX, Stake};

use crate::hash::hash_bytes;
use std::sync::Arc;

/// What all limiters of a process count in.
#[derive(Debug)]
pub struct Limits {
    secret: u64,
    pub(crate) counts: Keys,
    pub(crate) held: Keys,
}

impl Limits {
    /// Room for so many keys that are counted, and a quarter as many that are held at a time. Keys are hashed under a secret of the process, so that
    /// nobody can choose some that fall together.
    pub fn new(secret: u64, keys: usize) -> Arc<Self> {
        Arc::new(Self { secret, counts: Keys::new(keys), held: Keys::holding(keys / 4) })
    }

    /// How many keys can be counted.
    pub fn room(&self) -> usize {
        self.counts.room()
    }
}

/// A limiter's part of the tables.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) limits: Arc<Limits>,
    salt: u64,
}

impl Part {
    pub(crate) fn new(limits: &Arc<Limits>, kind: &str, name: &str) -> Self {
        let salt = hash_bytes(hash_bytes(limits.secret, kind.as_bytes()), name.as_bytes());
        Self { limits: limits.clone(), salt }
    }

    /// The key of a text; `sort` = which one of several limits under one name.
    pub(crate) fn key(&self, sort: u64, text: &[u8]) -> u64 {
        hash_bytes(hash_bytes(self.salt, &sort.to_le_bytes()), text)
    }
}

/// Milliseconds, rounded up.
fn ms_up(ns: u64) -> u64 {
    ns.div_ceil(crate::MS)
}

#[cfg(test)]
mod tests;
