//! A table of fixed size from keys to small states, for several workers.
//!
//! A key belongs to one bucket and stands in any of its places. A state is 60 bits, changed by compare-and-swap together
//! with 4 bits that count how often the place went to another key; so a worker that found a key just before that cannot
//! write into the state of another. Only a key that is new takes the bucket's latch, for a few stores. When all
//! places of a bucket are taken the least worthy key goes. Those that somebody holds stay, and then new keys share the
//! bucket's common place until that is empty again: they are limited together, which may refuse too much and never too little.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Places of a bucket; the state of the last is common to all keys that found no other.
const PLACES: usize = 7;
/// Bits of a state.
const STATE_BITS: u32 = 60;
/// Largest state.
pub(crate) const STATE_MAX: u64 = (1 << STATE_BITS) - 1;
/// Times that a new key looks at the latch before it lets others run first.
const LATCH_TRIES: usize = 64;

/// What a state is worth that says: never give this to another key.
pub(crate) const HELD: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Keys {
    buckets: Box<[Bucket]>,
}

/// Two neighbouring cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Bucket {
    places: [Place; PLACES],
    common: AtomicU64,
    latch: AtomicU64,
}

#[derive(Debug, Default)]
struct Place {
    /// 0 = free.
    key: AtomicU64,
    word: AtomicU64,
}

/// Where a state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    bucket: usize,
    /// [`PLACES`] is the common one.
    place: usize,
}

/// Opens the latch again.
struct Latched<'a>(&'a AtomicU64);

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        self.0.store(0, SeqCst);
    }
}

impl Keys {
    /// Room for at least `keys` keys: 18 bytes and a little each.
    pub(crate) fn new(keys: usize) -> Self {
        let buckets = keys.div_ceil(PLACES).max(1).next_power_of_two();
        Self { buckets: (0..buckets).map(|_| Bucket::default()).collect() }
    }

    /// How many keys there is room for.
    pub(crate) fn room(&self) -> usize {
        self.buckets.len() * PLACES
    }

    /// Changes the state of a key. `next` is given the state (`None` for a new key) and gives the new one (`None` = leave it,
    /// and a new key stays unknown); it may be called several times. `worth` says of a state how bad its loss would
    /// be: of keys with 0 nothing is lost.
    pub(crate) fn change<R>(
        &self,
        key: u64,
        worth: impl Fn(u64) -> u64,
        next: impl Fn(Option<u64>) -> (Option<u64>, R),
    ) -> (At, R) {
        // no key is 0, which means free
        let key = key.max(1);
        let at = (key >> 32) as usize & (self.buckets.len() - 1);
        let Some(bucket) = self.buckets.get(at) else {
            return (At { bucket: 0, place: PLACES }, next(None).1);
        };
        let mut tries = 0;
        loop {
            match bucket.find(key) {
                Some(place) => {
                    if let Some(result) = bucket.change_known(key, place, &next) {
                        return (At { bucket: at, place }, result);
                    }
                }
                None => {
                    if let Some((place, result)) = bucket.enter(key, &worth, &next) {
                        return (At { bucket: at, place }, result);
                    }
                    tries += 1;
                    if tries < LATCH_TRIES {
                        std::hint::spin_loop();
                    } else {
                        std::thread::yield_now();
                    }
                }
            }
        }
    }

    /// The state of a key, if it is known.
    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        let key = key.max(1);
        let bucket = self.buckets.get((key >> 32) as usize & (self.buckets.len() - 1))?;
        let word = bucket.places.get(bucket.find(key)?)?.word.load(SeqCst);
        Some(word & STATE_MAX)
    }

    /// Changes the state at a place that is held.
    pub(crate) fn change_at(&self, at: At, next: impl Fn(u64) -> u64) {
        let Some(bucket) = self.buckets.get(at.bucket) else { return };
        let word = bucket.places.get(at.place).map_or(&bucket.common, |place| &place.word);
        change(word, &|state| (Some(next(state.unwrap_or_default())), ()));
    }
}

impl Bucket {
    fn find(&self, key: u64) -> Option<usize> {
        self.places.iter().position(|place| place.key.load(SeqCst) == key)
    }

    /// Changes the state of a key that was found; nothing if it is no longer there.
    fn change_known<R>(
        &self,
        key: u64,
        at: usize,
        next: &impl Fn(Option<u64>) -> (Option<u64>, R),
    ) -> Option<R> {
        let place = self.places.get(at)?;
        loop {
            let word = place.word.load(SeqCst);
            if place.key.load(SeqCst) != key {
                return None;
            }
            let (new, result) = next(Some(word & STATE_MAX));
            let Some(new) = new else { return Some(result) };
            let new = word & !STATE_MAX | new & STATE_MAX;
            if place.word.compare_exchange(word, new, SeqCst, SeqCst).is_ok() {
                return Some(result);
            }
        }
    }

    /// Changes the state of a new key, and says where that is now; nothing if somebody else is just entering a key or was
    /// faster.
    fn enter<R>(
        &self,
        key: u64,
        worth: &impl Fn(u64) -> u64,
        next: &impl Fn(Option<u64>) -> (Option<u64>, R),
    ) -> Option<(usize, R)> {
        self.latch.compare_exchange(0, 1, SeqCst, SeqCst).ok()?;
        let _latched = Latched(&self.latch);
        if self.find(key).is_some() {
            return None;
        }
        let worth_of = |place: &Place| match place.key.load(SeqCst) {
            0 => 0,
            _ => worth(place.word.load(SeqCst) & STATE_MAX).saturating_add(1),
        };
        let least = self.places.iter().enumerate().map(|(at, place)| (worth_of(place), at, place));
        let (least, at, place) = least.min_by_key(|(worth, ..)| *worth)?;
        // a key in the common place must not be in another one at the same time
        if least == HELD || self.common.load(SeqCst) & STATE_MAX != 0 {
            return Some((PLACES, change(&self.common, next)));
        }
        let (new, result) = next(None);
        let Some(new) = new else { return Some((at, result)) };
        // first nobody finds the old key any more, then its state goes, unless somebody has just changed it
        let old = place.key.swap(0, SeqCst);
        let word = place.word.load(SeqCst);
        let turn = (word >> STATE_BITS).wrapping_add(1) << STATE_BITS;
        let free = old == 0 || worth(word & STATE_MAX) != HELD;
        if free && place.word.compare_exchange(word, turn | new & STATE_MAX, SeqCst, SeqCst).is_ok() {
            place.key.store(key, SeqCst);
            return Some((at, result));
        }
        place.key.store(old, SeqCst);
        None
    }
}

fn change<R>(word: &AtomicU64, next: &impl Fn(Option<u64>) -> (Option<u64>, R)) -> R {
    let mut now = word.load(SeqCst);
    loop {
        let (new, result) = next(Some(now & STATE_MAX));
        let Some(new) = new else { return result };
        let new = now & !STATE_MAX | new & STATE_MAX;
        match word.compare_exchange_weak(now, new, SeqCst, SeqCst) {
            Ok(_) => return result,
            Err(other) => now = other,
        }
    }
}
