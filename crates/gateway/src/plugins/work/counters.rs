//! What limiters remember for each value of a key, shared by all workers, in bounded memory.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

const SHARDS: usize = 64;
/// Most values of a shard; beyond that those that say nothing any more are forgotten, and if that frees nothing, all.
const MOST: usize = if cfg!(test) { 64 } else { 16 * 1024 };

/// By key, of which only a keyed hash of 128 bits is held: clients choose how long keys are.
#[derive(Debug)]
pub(super) struct Counters<V> {
    shards: Vec<Mutex<HashMap<Hashed, V>>>,
    keys: [RandomState; 2],
}

type Hashed = [u64; 2];

impl<V> Default for Counters<V> {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), keys: Default::default() }
    }
}

impl<V: Default> Counters<V> {
    fn hashed(&self, key: &str) -> Hashed {
        self.keys.each_ref().map(|state| state.hash_one(key))
    }

    /// Works on the value of a key, a fresh one if there is none. `spent` = a value that says nothing any more.
    pub(super) fn with<R>(&self, key: &str, spent: impl Fn(&V) -> bool, work: impl FnOnce(&mut V) -> R) -> R {
        let key = self.hashed(key);
        let Some(shard) = self.shards.get(key[0] as usize % SHARDS) else {
            return work(&mut V::default());
        };
        let mut values = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = values.get_mut(&key) {
            return work(value);
        }
        if values.len() >= MOST {
            values.retain(|_, value| !spent(value));
            if values.len() >= MOST {
                values.clear();
            }
        }
        work(values.entry(key).or_default())
    }

    /// Works on the value of a key if there is one, and forgets it if `work` says so.
    pub(super) fn finish(&self, key: &str, work: impl FnOnce(&mut V) -> bool) {
        let key = self.hashed(key);
        let Some(shard) = self.shards.get(key[0] as usize % SHARDS) else { return };
        let mut values = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if values.get_mut(&key).is_some_and(work) {
            values.remove(&key);
        }
    }

    /// How many values there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_whatever_keys_come() {
        let counters = Counters::<u64>::default();
        for n in 0..3 * MOST * SHARDS {
            counters.with(&n.to_string(), |value| *value == 0, |value| *value += 1);
        }
        assert!(counters.len() <= MOST * SHARDS, "{}", counters.len());
    }
}
