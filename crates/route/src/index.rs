//! A persistent map: copies share all shards, and a change copies the one shard that it touches.
//!
//! A shard is an open-addressed array that holds the entries themselves, so that a look-up costs one cache miss when the
//! entry has all that is needed in it.

use std::sync::Arc;

/// An entry that knows the hash of its key.
pub(crate) trait Keyed: Clone {
    /// The hash.
    fn hash(&self) -> u64;
}

impl<T: Keyed> Keyed for Arc<T> {
    fn hash(&self) -> u64 {
        T::hash(self)
    }
}

/// A map of entries that carry their own key; the caller compares keys.
#[derive(Debug, Clone)]
pub(crate) struct Index<T> {
    shards: Arc<Vec<Shard<T>>>,
    len: usize,
}

/// At most half full; its size is a power of two.
#[derive(Debug, Clone)]
struct Shard<T> {
    slots: Arc<[Option<T>]>,
    len: usize,
}

impl<T: Keyed> Index<T> {
    /// With so many shards (rounded up to a power of two).
    pub(crate) fn new(shards: usize) -> Self {
        let empty = Shard { slots: Arc::from(Vec::new()), len: 0 };
        Self { shards: Arc::new(vec![empty; shards.max(1).next_power_of_two()]), len: 0 }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn at(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }

    pub(crate) fn find(&self, hash: u64, same: impl Fn(&T) -> bool) -> Option<&T> {
        self.shards.get(self.at(hash))?.find(hash, same)
    }

    /// Puts `entry` in the place of the one that is the same, which is returned.
    pub(crate) fn put(&mut self, entry: T, same: impl Fn(&T) -> bool) -> Option<T> {
        let at = self.at(entry.hash());
        let old = Arc::make_mut(&mut self.shards).get_mut(at)?.put(entry, same);
        self.len += usize::from(old.is_none());
        old
    }

    /// The entry, to be changed in its place; its key stays.
    pub(crate) fn find_mut(&mut self, hash: u64, same: impl Fn(&T) -> bool) -> Option<&mut T> {
        let at = self.at(hash);
        self.shards.get(at)?.find(hash, &same)?;
        Arc::make_mut(&mut self.shards).get_mut(at)?.find_mut(hash, same)
    }

    pub(crate) fn remove(&mut self, hash: u64, same: impl Fn(&T) -> bool) -> Option<T> {
        let at = self.at(hash);
        self.shards.get(at)?.find(hash, &same)?;
        let old = Arc::make_mut(&mut self.shards).get_mut(at)?.remove(hash, same);
        self.len -= usize::from(old.is_some());
        old
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.shards.iter().flat_map(|shard| shard.slots.iter().flatten())
    }
}

/// Slots from the hash's own on, once around.
fn probe(hash: u64, size: usize) -> impl Iterator<Item = usize> {
    let (start, mask) = (hash as usize, size.wrapping_sub(1));
    (0..size).map(move |step| start.wrapping_add(step) & mask)
}

impl<T: Keyed> Shard<T> {
    fn find(&self, hash: u64, same: impl Fn(&T) -> bool) -> Option<&T> {
        for at in probe(hash, self.slots.len()) {
            match self.slots.get(at) {
                Some(Some(entry)) if entry.hash() == hash && same(entry) => return Some(entry),
                Some(Some(_)) => {}
                _ => return None,
            }
        }
        None
    }

    fn find_mut(&mut self, hash: u64, same: impl Fn(&T) -> bool) -> Option<&mut T> {
        let at = self.place(hash, same)?;
        Arc::make_mut(&mut self.slots).get_mut(at)?.as_mut()
    }

    /// The slot in which an entry is.
    fn place(&self, hash: u64, same: impl Fn(&T) -> bool) -> Option<usize> {
        probe(hash, self.slots.len()).find(
            |at| matches!(self.slots.get(*at), Some(Some(entry)) if entry.hash() == hash && same(entry)),
        )
    }

    fn put(&mut self, entry: T, same: impl Fn(&T) -> bool) -> Option<T> {
        if (self.len + 1) * 2 > self.slots.len() {
            self.rebuild((self.slots.len() * 2).max(4));
        }
        let hash = entry.hash();
        let slots = Arc::make_mut(&mut self.slots);
        for at in probe(hash, slots.len()) {
            match slots.get_mut(at) {
                Some(Some(old)) if old.hash() == hash && same(old) => {
                    return Some(std::mem::replace(old, entry));
                }
                Some(slot @ None) => {
                    *slot = Some(entry);
                    self.len += 1;
                    return None;
                }
                _ => {}
            }
        }
        None
    }

    fn remove(&mut self, hash: u64, same: impl Fn(&T) -> bool) -> Option<T> {
        let at = self.place(hash, same)?;
        let old = Arc::make_mut(&mut self.slots).get_mut(at)?.take()?;
        self.len -= 1;
        let size = if self.len * 8 < self.slots.len() { self.slots.len() / 2 } else { self.slots.len() };
        self.rebuild(size);
        Some(old)
    }

    fn rebuild(&mut self, size: usize) {
        let mut slots: Vec<Option<T>> = vec![None; size];
        for entry in self.slots.iter().flatten() {
            let free = probe(entry.hash(), size).find(|at| matches!(slots.get(*at), Some(None)));
            if let Some(slot) = free.and_then(|at| slots.get_mut(at)) {
                *slot = Some(entry.clone());
            }
        }
        self.slots = slots.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl Keyed for (u16, usize) {
        /// Few distinct hashes, so that entries collide all the time.
        fn hash(&self) -> u64 {
            u64::from(self.0 % 5) << 32 | u64::from(self.0 % 3)
        }
    }

    proptest! {
        #[test]
        fn it_is_a_map_and_copies_do_not_change(steps in prop::collection::vec((0_u16..40, any::<bool>()), 0..200)) {
            let mut index = Index::new(4);
            let mut oracle = BTreeMap::new();
            for (at, (key, put)) in steps.into_iter().enumerate() {
                let (copy, before) = (index.clone(), oracle.clone());
                let same = |entry: &(u16, usize)| entry.0 == key;
                let (old, oracle_old) = if put {
                    (index.put((key, at), same), oracle.insert(key, at))
                } else {
                    (index.remove((key, at).hash(), same), oracle.remove(&key))
                };
                prop_assert_eq!(old.map(|entry| entry.1), oracle_old);
                for (index, oracle) in [(&index, &oracle), (&copy, &before)] {
                    prop_assert_eq!(index.len(), oracle.len());
                    let all: BTreeMap<_, _> = index.iter().copied().collect();
                    prop_assert_eq!(&all, oracle);
                    for key in 0..40 {
                        let found = index.find((key, 0).hash(), |entry| entry.0 == key).map(|entry| entry.1);
                        prop_assert_eq!(found, oracle.get(&key).copied());
                    }
                }
            }
        }
    }
}
