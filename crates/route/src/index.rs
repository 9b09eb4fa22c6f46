//! A persistent map: copies share all shards, and a change copies the one shard that it touches.
//!
//! A shard is an open-addressed array of (hash, pointer), so that a look-up touches one cache line of it and then the
//! entry itself.

use std::sync::Arc;

/// A map of entries that carry their own key; the caller gives hash and key comparison.
#[derive(Debug)]
pub(crate) struct Index<T> {
    shards: Arc<Vec<Arc<Shard<T>>>>,
    len: usize,
}

#[derive(Debug)]
struct Shard<T> {
    slots: Vec<Option<(u64, Arc<T>)>>,
    len: usize,
}

impl<T> Clone for Index<T> {
    fn clone(&self) -> Self {
        Self { shards: Arc::clone(&self.shards), len: self.len }
    }
}

impl<T> Clone for Shard<T> {
    fn clone(&self) -> Self {
        Self { slots: self.slots.clone(), len: self.len }
    }
}

impl<T> Index<T> {
    /// With so many shards (rounded up to a power of two).
    pub(crate) fn new(shards: usize) -> Self {
        let empty = Arc::new(Shard { slots: Vec::new(), len: 0 });
        Self { shards: Arc::new(vec![empty; shards.max(1).next_power_of_two()]), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn at(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }

    pub(crate) fn find(&self, hash: u64, same: impl Fn(&T) -> bool) -> Option<&Arc<T>> {
        self.shards.get(self.at(hash))?.find(hash, same)
    }

    /// Puts `entry` in the place of the one that is the same, which is returned.
    pub(crate) fn put(&mut self, hash: u64, entry: Arc<T>, same: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let at = self.at(hash);
        let shard = Arc::make_mut(Arc::make_mut(&mut self.shards).get_mut(at)?);
        let old = shard.put(hash, entry, same);
        self.len += usize::from(old.is_none());
        old
    }

    pub(crate) fn remove(&mut self, hash: u64, same: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let at = self.at(hash);
        self.shards.get(at)?.find(hash, &same)?;
        let shard = Arc::make_mut(Arc::make_mut(&mut self.shards).get_mut(at)?);
        let old = shard.remove(hash, same);
        self.len -= usize::from(old.is_some());
        old
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.shards.iter().flat_map(|shard| shard.slots.iter().flatten().map(|(_, entry)| entry))
    }
}

impl<T> Shard<T> {
    /// Slots from the hash's own on, once around.
    fn probe(&self, hash: u64) -> impl Iterator<Item = usize> + use<T> {
        let mask = self.slots.len().wrapping_sub(1);
        let start = hash as usize;
        (0..self.slots.len()).map(move |step| start.wrapping_add(step) & mask)
    }

    fn find(&self, hash: u64, same: impl Fn(&T) -> bool) -> Option<&Arc<T>> {
        for at in self.probe(hash) {
            match self.slots.get(at) {
                Some(Some((other, entry))) if *other == hash && same(entry) => return Some(entry),
                Some(Some(_)) => {}
                _ => return None,
            }
        }
        None
    }

    fn put(&mut self, hash: u64, entry: Arc<T>, same: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        if (self.len + 1) * 2 > self.slots.len() {
            self.rebuild((self.slots.len() * 2).max(4));
        }
        for at in self.probe(hash) {
            match self.slots.get_mut(at) {
                Some(Some((other, old))) if *other == hash && same(old) => {
                    return Some(std::mem::replace(old, entry));
                }
                Some(slot @ None) => {
                    *slot = Some((hash, entry));
                    self.len += 1;
                    return None;
                }
                _ => {}
            }
        }
        None
    }

    fn remove(&mut self, hash: u64, same: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let at = self.probe(hash).find(
            |at| matches!(self.slots.get(*at), Some(Some((other, entry))) if *other == hash && same(entry)),
        )?;
        let (_, old) = self.slots.get_mut(at)?.take()?;
        self.len -= 1;
        let size = if self.len * 8 < self.slots.len() { self.slots.len() / 2 } else { self.slots.len() };
        self.rebuild(size);
        Some(old)
    }

    fn rebuild(&mut self, size: usize) {
        let old = std::mem::replace(&mut self.slots, vec![None; size]);
        for (hash, entry) in old.into_iter().flatten() {
            let free = self.probe(hash).find(|at| matches!(self.slots.get(*at), Some(None)));
            if let Some(slot) = free.and_then(|at| self.slots.get_mut(at)) {
                *slot = Some((hash, entry));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Few distinct hashes, so that entries collide all the time.
        #[test]
        fn it_is_a_map_and_copies_do_not_change(steps in prop::collection::vec((0_u16..40, any::<bool>()), 0..200)) {
            let hash = |key: u16| u64::from(key % 5) << 32 | u64::from(key % 3);
            let mut index = Index::new(4);
            let mut oracle = BTreeMap::new();
            for (at, (key, put)) in steps.into_iter().enumerate() {
                let (copy, before) = (index.clone(), oracle.clone());
                let old = if put {
                    index.put(hash(key), Arc::new((key, at)), |entry: &(u16, usize)| entry.0 == key);
                    oracle.insert(key, at)
                } else {
                    index.remove(hash(key), |entry| entry.0 == key);
                    oracle.remove(&key)
                };
                let _ = old;
                for (index, oracle) in [(&index, &oracle), (&copy, &before)] {
                    prop_assert_eq!(index.len(), oracle.len());
                    let all: BTreeMap<_, _> = index.iter().map(|entry| **entry).collect();
                    prop_assert_eq!(&all, oracle);
                    for key in 0..40 {
                        let found = index.find(hash(key), |entry| entry.0 == key).map(|entry| entry.1);
                        prop_assert_eq!(found, oracle.get(&key).copied());
                    }
                }
            }
        }
    }
}
