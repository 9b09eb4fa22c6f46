//! What there is in a store, and what goes first when there is no room.

use super::{Digest, Entry};
use http::{HeaderMap, HeaderName};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Most variants of one key.
const VARIANTS: usize = 64;
/// Most entries of a store.
const ENTRIES: usize = 200_000;
/// An entry moves to the end of the queue no more often than this, milliseconds.
const TOUCH_MS: u64 = 1000;

/// Sixteen bytes of the SHA-256 of these parts, with their lengths, so that no two lists of parts look the same.
pub(crate) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut digest = Digest::default();
    digest.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
    digest
}

/// Which variant a request with these headers is for.
pub(crate) fn variant(vary: &[HeaderName], headers: &HeaderMap) -> Digest {
    if vary.is_empty() {
        return Digest::default();
    }
    let values: Vec<Vec<u8>> = vary
        .iter()
        .map(|name| {
            let mut values = headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii());
            let mut joined = vec![u8::from(headers.contains_key(name))];
            joined.extend_from_slice(values.next().unwrap_or_default());
            values.for_each(|value| joined.extend([b",", value].concat()));
            joined
        })
        .collect();
    digest(values.iter().map(Vec::as_slice))
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Index {
    slots: HashMap<Digest, Slot>,
    /// The one that was not asked for longest goes first.
    order: BTreeMap<u64, (Digest, Digest)>,
    next: u64,
    bytes: u64,
    most: u64,
}

#[derive(Debug, Default)]
struct Slot {
    vary: Arc<[HeaderName]>,
    variants: Vec<Held>,
}

#[derive(Debug)]
struct Held {
    variant: Digest,
    entry: Entry,
    place: u64,
    touched: u64,
}

impl Index {
    /// Of at most so many bytes.
    pub(crate) fn new(most: u64) -> Self {
        Self { most, ..Self::default() }
    }

    /// The variant that a request is for, and what there is of it.
    pub(crate) fn find(&mut self, key: &Digest, headers: &HeaderMap, now: u64) -> (Digest, Option<Entry>) {
        let Some(slot) = self.slots.get_mut(key) else { return (Digest::default(), None) };
        let wanted = variant(&slot.vary, headers);
        let Some(held) = slot.variants.iter_mut().find(|held| held.variant == wanted) else {
            return (wanted, None);
        };
        if now.saturating_sub(held.touched) >= TOUCH_MS {
            held.touched = now;
            self.order.remove(&held.place);
            held.place = self.next;
            self.order.insert(self.next, (*key, wanted));
            self.next += 1;
        }
        (wanted, Some(held.entry.clone()))
    }

    /// Puts an entry, and gives back all that goes for it.
    pub(crate) fn put(
        &mut self,
        key: Digest,
        variant: Digest,
        vary: &[HeaderName],
        entry: Entry,
        now: u64,
    ) -> Vec<Entry> {
        let mut gone = Vec::new();
        if entry.size > self.most {
            gone.extend(self.remove_one(&key, &variant));
            gone.push(entry);
            return gone;
        }
        if self.slots.get(&key).is_some_and(|slot| *slot.vary != *vary) {
            gone.extend(self.remove(&key));
        }
        gone.extend(self.remove_one(&key, &variant));
        let slot = self.slots.entry(key).or_default();
        if *slot.vary != *vary {
            slot.vary = vary.into();
        }
        self.bytes += entry.size;
        slot.variants.push(Held { variant, entry, place: self.next, touched: now });
        let oldest = (slot.variants.len() > VARIANTS)
            .then(|| slot.variants.iter().min_by_key(|held| held.place).map(|held| held.variant));
        self.order.insert(self.next, (key, variant));
        self.next += 1;
        if let Some(oldest) = oldest.flatten() {
            gone.extend(self.remove_one(&key, &oldest));
        }
        while self.bytes > self.most || self.order.len() > ENTRIES {
            let Some((_, (key, variant))) = self.order.pop_first() else { break };
            gone.extend(self.remove_one(&key, &variant));
        }
        gone
    }

    /// Removes all variants of a key.
    pub(crate) fn remove(&mut self, key: &Digest) -> Vec<Entry> {
        let Some(slot) = self.slots.remove(key) else { return Vec::new() };
        let mut gone = Vec::new();
        for held in slot.variants {
            self.order.remove(&held.place);
            self.bytes = self.bytes.saturating_sub(held.entry.size);
            gone.push(held.entry);
        }
        gone
    }

    fn remove_one(&mut self, key: &Digest, variant: &Digest) -> Option<Entry> {
        let slot = self.slots.get_mut(key)?;
        let at = slot.variants.iter().position(|held| held.variant == *variant)?;
        let held = slot.variants.swap_remove(at);
        if slot.variants.is_empty() {
            self.slots.remove(key);
        }
        self.order.remove(&held.place);
        self.bytes = self.bytes.saturating_sub(held.entry.size);
        Some(held.entry)
    }

    /// Removes a variant if its body is this one.
    pub(crate) fn remove_broken(&mut self, key: &Digest, variant: &Digest, name: &str) -> Option<Entry> {
        let held = self.slots.get(key)?.variants.iter().find(|held| held.variant == *variant)?;
        matches!(&held.entry.body, super::Body::Disk(known) if **known == *name).then_some(())?;
        self.remove_one(key, variant)
    }

    /// Bytes that are used.
    #[cfg(test)]
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Times;
    use super::*;
    use crate::cache::{Body, Head};
    use bytes::Bytes;

    fn entry(size: u64) -> Entry {
        let head = Arc::new(Head { status: 200, headers: HeaderMap::new() });
        let times = Times { stored: 0, age: 0, life: 1, while_fetched: 0, if_error: 0 };
        Entry { body: Body::Memory(head, Bytes::new()), length: 0, size, times }
    }

    fn key(n: u8) -> Digest {
        digest([&[n][..]])
    }

    #[test]
    fn the_one_that_was_not_asked_for_longest_makes_room() {
        let mut index = Index::new(30);
        let none = HeaderMap::new();
        for n in 0..3 {
            assert!(index.put(key(n), Digest::default(), &[], entry(10), 0).is_empty());
        }
        assert!(index.find(&key(0), &none, 5000).1.is_some());
        assert_eq!(index.put(key(3), Digest::default(), &[], entry(15), 6000).len(), 2);
        let there: Vec<bool> = (0..4).map(|n| index.find(&key(n), &none, 6000).1.is_some()).collect();
        assert_eq!((there, index.bytes()), (vec![true, false, false, true], 25));
        assert_eq!(index.put(key(0), Digest::default(), &[], entry(31), 0).len(), 2);
        assert_eq!(
            (index.bytes(), index.remove(&key(3)).len(), index.bytes(), index.order.len()),
            (15, 1, 0, 0)
        );
    }

    #[test]
    fn variants_are_told_apart_and_bounded() {
        let mut index = Index::new(u64::MAX);
        let by = [HeaderName::from_static("accept")];
        let asks =
            |text: &str| -> HeaderMap { [(by[0].clone(), text.parse().unwrap())].into_iter().collect() };
        for n in 0..200 {
            let headers = asks(&n.to_string());
            index.put(key(0), variant(&by, &headers), &by, entry(1), 0);
        }
        assert_eq!(index.bytes(), VARIANTS as u64);
        assert!(index.find(&key(0), &asks("199"), 0).1.is_some());
        assert!(index.find(&key(0), &HeaderMap::new(), 0).1.is_none());
        // Another list of headers: what was known by the old one can be found no more.
        assert_eq!(index.put(key(0), Digest::default(), &[], entry(1), 0).len(), VARIANTS);
        assert!(index.find(&key(0), &asks("5"), 0).1.is_some());
    }

    #[test]
    fn no_two_lists_of_parts_are_the_same() {
        assert_ne!(digest([&b"ab"[..], b"c"]), digest([&b"a"[..], b"bc"]));
        let by = [HeaderName::from_static("a")];
        let empty: HeaderMap = [(by[0].clone(), "".parse().unwrap())].into_iter().collect();
        assert_ne!(variant(&by, &empty), variant(&by, &HeaderMap::new()));
    }
}
