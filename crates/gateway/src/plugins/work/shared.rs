//! Limits of several gateways together, as `limit-count` and `limit-conn` use them.

use crate::plugins::make::Scope;
use crate::plugins::shares::Shares;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The keys of one limiter, the same in all gateways.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) shares: Arc<Shares>,
    begun: Sha256,
}

impl Shared {
    /// The limiter of this kind and name.
    pub(super) fn new(scope: &Scope<'_>, kind: &str, name: &str) -> Self {
        let shares = scope.plugins.states.shares.clone();
        shares.begin();
        Self { shares, begun: Sha256::new_with_prefix(format!("{kind}\0{name}\0")) }
    }

    /// The key of a text: 128 bits, which nobody can make fall together. `sort` = which limit of the limiter.
    pub(super) fn key(&self, sort: u64, text: &str) -> u128 {
        let hash = self.begun.clone().chain_update(sort.to_le_bytes()).chain_update(text).finalize();
        hash.iter().take(16).fold(0, |key, byte| key << 8 | u128::from(*byte))
    }
}
