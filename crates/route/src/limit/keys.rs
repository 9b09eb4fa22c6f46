//! A table of fixed size from keys to small states, for several workers.
//!
//! A key belongs to one bucket and stands in any of its places. A state is 60 bits, changed by compare-and-swap together
//! with 4 bits that count how often the place went to another key; so a worker that found a key just before that cannot
//! write into the state of another. Only a key that is new takes the bucket's latch, for a few stores. When all
//! places of a bucket are taken the least worthy key goes: each place has a *stake*, which says until when its loss would permit
//! how large a share of its limit anew. In a table of what is held, those that somebody holds stay, and then new keys share the
//! bucket's common place until that is empty again: they are limited together, which may refuse too much and never too little.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Places of a bucket; the state of the last is common to all keys that found no other.
const PLACES: usize = 7;
/// Bits of a state.
const STATE_BITS: u32 = 60;
/// Largest state.
pub(crate) const STATE_MAX: u64 = (1 << STATE_BITS) - 1;
/// Times that a new key looks at the latch before it lets others run first.
const LATCH_TRIES: usize = 64;

/// What a state is worth that says: never give this to another key.
const HELD: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Keys {
    buckets: Box<[Bucket]>,
    /// States are counts of holders: one that is not 0 is never given away.
    holding: bool,
}

/// A new state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct New {
    pub(crate) state: u64,
    pub(crate) stake: Stake,
}

/// What would be lost with a state: a share of a limit, in parts of 65,535, until a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stake(u64);

impl Stake {
    /// Nothing, or it is not told by this.
    pub(crate) const NONE: Self = Self(0);

    /// Until `until_ms`, so much of a limit.
    pub(crate) fn new(until_ms: u64, used: u64, limit: u64) -> Self {
        let limit = limit.clamp(1, 1 << 47);
        let share = used.min(limit) * 0xffff / limit;
        Self(until_ms.min((1 << 48) - 1) << 16 | share)
    }

    fn worth(self, now_ms: u64) -> u64 {
        if self.0 >> 16 > now_ms { 1 + (self.0 & 0xffff) } else { 0 }
    }
}

/// Three cache lines: keys and latch, states, stakes.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    /// 0 = free.
    keys: [AtomicU64; PLACES],
    latch: AtomicU64,
    words: [AtomicU64; PLACES],
    common: AtomicU64,
    stakes: [AtomicU64; PLACES],
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
    /// Room for at least `keys` keys that may be forgotten: 28 bytes and a little each.
    pub(crate) fn new(keys: usize) -> Self {
        let buckets = keys.div_ceil(PLACES).max(1).next_power_of_two();
        Self { buckets: (0..buckets).map(|_| Bucket::default()).collect(), holding: false }
    }

    /// The same for states that count holders.
    pub(crate) fn holding(keys: usize) -> Self {
        Self { holding: true, ..Self::new(keys) }
    }

    /// How many keys there is room for.
    pub(crate) fn room(&self) -> usize {
        self.buckets.len() * PLACES
    }

    /// Changes the state of a key. `next` is given the state (`None` for a new key) and gives the new one (`None` = leave it,
    /// and a new key stays unknown); it may be called several times.
    pub(crate) fn change<R>(
        &self,
        key: u64,
        now_ms: u64,
        next: impl Fn(Option<u64>) -> (Option<New>, R),
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
                    if let Some((place, result)) = bucket.enter(key, self.holding, now_ms, &next) {
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
        let word = bucket.words.get(bucket.find(key)?)?.load(SeqCst);
        Some(word & STATE_MAX)
    }

    /// Changes the state at a place that is held.
    pub(crate) fn change_at(&self, at: At, next: impl Fn(u64) -> u64) {
        let Some(bucket) = self.buckets.get(at.bucket) else { return };
        let word = bucket.words.get(at.place).unwrap_or(&bucket.common);
        let state = |state: Option<u64>| New { state: next(state.unwrap_or_default()), stake: Stake::NONE };
        change(word, &|now| (Some(state(now)), ()));
    }
}

impl Bucket {
    fn find(&self, key: u64) -> Option<usize> {
        self.keys.iter().position(|known| known.load(SeqCst) == key)
    }

    /// Changes the state of a key that was found; nothing if it is no longer there.
    fn change_known<R>(
        &self,
        key: u64,
        at: usize,
        next: &impl Fn(Option<u64>) -> (Option<New>, R),
    ) -> Option<R> {
        let (held, place, stake) = (self.keys.get(at)?, self.words.get(at)?, self.stakes.get(at)?);
        loop {
            let word = place.load(SeqCst);
            if held.load(SeqCst) != key {
                return None;
            }
            let (new, result) = next(Some(word & STATE_MAX));
            let Some(new) = new else { return Some(result) };
            let next_word = word & !STATE_MAX | new.state & STATE_MAX;
            if place.compare_exchange(word, next_word, SeqCst, SeqCst).is_ok() {
                stake.store(new.stake.0, Relaxed);
                return Some(result);
            }
        }
    }

    /// What the key at a place is worth; 0 = there is none.
    fn worth(&self, at: usize, holding: bool, now_ms: u64) -> u64 {
        let (Some(key), Some(word), Some(stake)) =
            (self.keys.get(at), self.words.get(at), self.stakes.get(at))
        else {
            return HELD;
        };
        match (key.load(SeqCst), holding) {
            (0, _) => 0,
            (_, true) if word.load(SeqCst) & STATE_MAX != 0 => HELD,
            (_, true) => 1,
            (_, false) => Stake(stake.load(Relaxed)).worth(now_ms) + 1,
        }
    }

    /// Changes the state of a new key, and says where that is now; nothing if somebody else is just entering a key or was
    /// faster.
    fn enter<R>(
        &self,
        key: u64,
        holding: bool,
        now_ms: u64,
        next: &impl Fn(Option<u64>) -> (Option<New>, R),
    ) -> Option<(usize, R)> {
        self.latch.compare_exchange(0, 1, SeqCst, SeqCst).ok()?;
        let _latched = Latched(&self.latch);
        if self.find(key).is_some() {
            return None;
        }
        let worths = (0..PLACES).map(|at| (self.worth(at, holding, now_ms), at));
        let (least, at) = worths.min()?;
        // a key in the common place must not be in another one at the same time
        if least == HELD || self.common.load(SeqCst) & STATE_MAX != 0 {
            return Some((PLACES, change(&self.common, next)));
        }
        let (held, place, stake) = (self.keys.get(at)?, self.words.get(at)?, self.stakes.get(at)?);
        let (new, result) = next(None);
        let Some(new) = new else { return Some((at, result)) };
        // first nobody finds the old key any more, then its state goes, unless somebody has just changed it
        let old = held.swap(0, SeqCst);
        let word = place.load(SeqCst);
        let turn = (word >> STATE_BITS).wrapping_add(1) << STATE_BITS;
        let free = old == 0 || !holding || word & STATE_MAX == 0;
        if free && place.compare_exchange(word, turn | new.state & STATE_MAX, SeqCst, SeqCst).is_ok() {
            stake.store(new.stake.0, Relaxed);
            held.store(key, SeqCst);
            return Some((at, result));
        }
        held.store(old, SeqCst);
        None
    }
}

fn change<R>(word: &AtomicU64, next: &impl Fn(Option<u64>) -> (Option<New>, R)) -> R {
    let mut now = word.load(SeqCst);
    loop {
        let (new, result) = next(Some(now & STATE_MAX));
        let Some(new) = new else { return result };
        let new = now & !STATE_MAX | new.state & STATE_MAX;
        match word.compare_exchange_weak(now, new, SeqCst, SeqCst) {
            Ok(_) => return result,
            Err(other) => now = other,
        }
    }
}
