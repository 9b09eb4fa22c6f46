//! A map that is cheap to clone with one entry changed: 100,000 routes may each have an upstream of their own.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

const SHARDS: usize = 256;

/// Values by text.
#[derive(Debug)]
pub(crate) struct ByKey<T> {
    shards: Vec<Arc<HashMap<Arc<str>, Arc<T>>>>,
}

impl<T> Clone for ByKey<T> {
    fn clone(&self) -> Self {
        Self { shards: self.shards.clone() }
    }
}

impl<T> Default for ByKey<T> {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Arc::default()).collect() }
    }
}

fn shard(key: &str) -> usize {
    let mut hash = DefaultHasher::new();
    key.hash(&mut hash);
    hash.finish() as usize % SHARDS
}

impl<T> ByKey<T> {
    pub(crate) fn get(&self, key: &str) -> Option<&Arc<T>> {
        self.shards.get(shard(key))?.get(key)
    }

    pub(crate) fn put(&mut self, key: &str, value: Arc<T>) {
        if let Some(shard) = self.shards.get_mut(shard(key)) {
            Arc::make_mut(shard).insert(key.into(), value);
        }
    }

    pub(crate) fn remove(&mut self, key: &str) {
        if let Some(shard) = self.shards.get_mut(shard(key))
            && shard.contains_key(key)
        {
            Arc::make_mut(shard).remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let mut map = ByKey::default();
        map.put("a", Arc::new(1));
        let before = map.clone();
        map.put("a", Arc::new(2));
        map.put("b", Arc::new(3));
        assert_eq!((before.get("a"), before.get("b")), (Some(&Arc::new(1)), None));
        map.remove("a");
        assert_eq!((map.get("a"), map.get("b")), (None, Some(&Arc::new(3))));
    }
}
