//! This gateway's parts of limits that several gateways share.
//!
//! A request takes from the part that its gateway has, which is a lock for a moment and nothing else. When the part is used up, the key is
//! handed to the control thread, which asks the key's owner (see `towpath_route::limit::lease`), and the request waits for its word.
//! Where no owner answers in time, or there is no bus, the gateway takes an even part of the limit for itself.
//!
//! Bound: as long as gateways hear each other nothing is admitted beyond a limit. Each loss of a key's owner within a window may admit
//! what the lost one had granted to itself, and each gateway that hears nobody its even part.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use towpath_route::limit::lease::{Ask, Grant, Sort, part};

const SHARDS: usize = 16;
/// Keys of a shard; beyond that those that are idle are forgotten, and where there are none, new keys are not shared.
const MOST: usize = 8192;
/// Longest wait for an owner's word.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);
/// How long an owner that did not answer is not waited for again.
const DOUBT_MS: u64 = 1_000;
/// Held places are given up so much before their owner does.
const MARGIN_MS: u64 = 500;
/// How soon an owner that had nothing left is asked again for a window, or for places.
const AGAIN_MS: [u64; 2] = [100, 5];
/// A key that nobody asked for is forgotten after this.
const IDLE_MS: u64 = 10_000;

/// What is limited, and by how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) key: u128,
    pub(crate) sort: Sort,
    pub(crate) limit: u64,
}

/// What comes of asking for one.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It is there: so many are left as far as this gateway knows, and the window ends then.
    Yes { remaining: u64, reset_ms: u64 },
    /// There is none.
    No { reset_ms: u64 },
    /// The owner is being asked.
    Wait(oneshot::Receiver<()>),
    /// Too many keys: this one cannot be shared.
    Full,
}

/// See the module.
pub(crate) struct Shares {
    shards: Vec<Mutex<HashMap<u128, Share>>>,
    asks: mpsc::UnboundedSender<u128>,
    asked: Mutex<Option<mpsc::UnboundedReceiver<u128>>>,
    gateways: AtomicUsize,
    connected: AtomicBool,
    number: AtomicU64,
    /// Something is shared.
    begun: Notify,
}

#[derive(Debug)]
struct Share {
    sort: Sort,
    limit: u64,
    /// What the owner granted.
    total: u64,
    /// What is used of it, or beyond it while no owner answers.
    used: u64,
    until_ms: u64,
    window: u64,
    /// What nobody had when the owner last answered.
    free: u64,
    heard_ms: u64,
    /// Used since then.
    demand: u64,
    waiting: Vec<oneshot::Sender<()>>,
    /// The control thread knows that it is to be asked for, or asks.
    queued: bool,
    number: u64,
    sent_ms: u64,
    doubtful_ms: u64,
    touched_ms: u64,
}

impl Default for Shares {
    fn default() -> Self {
        let (asks, asked) = mpsc::unbounded_channel();
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            asks,
            asked: Mutex::new(Some(asked)),
            gateways: AtomicUsize::new(1),
            connected: AtomicBool::new(false),
            number: AtomicU64::new(0),
            begun: Notify::new(),
        }
    }
}

impl Shares {
    /// Some limit is shared.
    pub(crate) fn begin(&self) {
        self.begun.notify_one();
    }

    /// Waits until some limit is shared.
    pub(crate) async fn begun(&self) {
        self.begun.notified().await;
    }

    /// The keys that owners are to be asked for; there is one who asks.
    pub(crate) fn asked(&self) -> Option<mpsc::UnboundedReceiver<u128>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// How many gateways there are, and whether they are heard.
    pub(crate) fn set_crowd(&self, gateways: usize, connected: bool) {
        self.gateways.store(gateways.max(1), Relaxed);
        self.connected.store(connected, Relaxed);
    }

    /// This gateway's even part of a limit.
    pub(crate) fn part(&self, limit: u64) -> u64 {
        part(limit, self.gateways.load(Relaxed))
    }

    fn shard(&self, key: u128) -> Option<MutexGuard<'_, HashMap<u128, Share>>> {
        let shard = self.shards.get(key as usize % SHARDS)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes one. `patient` = the request may wait for the owner.
    pub(crate) fn take(&self, now_ms: u64, spec: Spec, patient: bool) -> Taken {
        let Some(mut shard) = self.shard(spec.key) else { return Taken::Full };
        if !shard.contains_key(&spec.key) && shard.len() >= MOST {
            shard.retain(|_, share| !share.is_idle(now_ms));
            if shard.len() >= MOST {
                return Taken::Full;
            }
        }
        let share = shard.entry(spec.key).or_insert_with(|| Share::new(spec, now_ms));
        (share.limit, share.touched_ms) = (spec.limit, now_ms);
        share.roll(now_ms);
        let connected = self.connected.load(Relaxed);
        if share.used < share.total {
            share.demand += 1;
            let taken = share.take(now_ms);
            let is_low =
                matches!(share.sort, Sort::Window(_)) && share.total - share.used <= share.demand / 4;
            if connected && is_low && share.free > 0 {
                self.queue(spec.key, share);
            }
            return taken;
        }
        if !connected || now_ms < share.doubtful_ms {
            let most = self.part(spec.limit).max(share.total);
            return if share.used < most { share.take(now_ms) } else { share.refuse(now_ms) };
        }
        if !patient || share.is_exhausted(now_ms) {
            return share.refuse(now_ms);
        }
        let (wake, woken) = oneshot::channel();
        share.waiting.push(wake);
        self.queue(spec.key, share);
        Taken::Wait(woken)
    }

    /// Takes one, and waits for the owner's word where that is needed.
    pub(crate) async fn settle(&self, now_ms: impl Fn() -> u64, spec: Spec) -> Taken {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let woken = match self.take(now_ms(), spec, true) {
                Taken::Wait(woken) => woken,
                taken => return taken,
            };
            if tokio::time::timeout_at(end, woken).await.is_err() {
                self.doubt(now_ms(), spec.key);
                return self.take(now_ms(), spec, false);
            }
            match self.take(now_ms(), spec, false) {
                Taken::No { .. } if tokio::time::Instant::now() < end => {}
                taken => return taken,
            }
        }
    }

    /// A place is free again.
    pub(crate) fn release(&self, now_ms: u64, key: u128) {
        let Some(mut shard) = self.shard(key) else { return };
        let Some(share) = shard.get_mut(&key) else { return };
        share.used = share.used.saturating_sub(1);
        share.touched_ms = now_ms;
        if share.free == 0 && share.total > share.used && self.connected.load(Relaxed) {
            self.queue(key, share);
        }
    }

    fn queue(&self, key: u128, share: &mut Share) {
        if !std::mem::replace(&mut share.queued, true) {
            let _ = self.asks.send(key);
        }
    }

    fn doubt(&self, now_ms: u64, key: u128) {
        let Some(mut shard) = self.shard(key) else { return };
        if let Some(share) = shard.get_mut(&key) {
            share.doubtful_ms = now_ms + DOUBT_MS;
            share.queued = false;
        }
    }

    /// The number of the next message.
    pub(crate) fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Relaxed) + 1
    }

    /// What the owner of a key is asked in the message of this number; `more` = also for more than is had.
    pub(crate) fn ask(&self, now_ms: u64, key: u128, number: u64, more: bool) -> Option<Ask> {
        let mut shard = self.shard(key)?;
        let share = shard.get_mut(&key)?;
        share.roll(now_ms);
        (share.number, share.sent_ms, share.queued) = (number, now_ms, true);
        share.waiting.retain(|waiting| !waiting.is_closed());
        let waiting = share.waiting.len() as u64;
        let most_spare = share.limit / (4 * self.gateways.load(Relaxed).max(1) as u64);
        let (have, want) = match share.sort {
            Sort::Window(_) => {
                let have = share.total.max(share.used);
                (have, have + if more { waiting + share.demand.min(most_spare) } else { 0 })
            }
            Sort::Places => {
                let spare = if share.free == 0 { 0 } else { (share.used / 8 + 1).min(most_spare) };
                (share.total.max(share.used), share.used + waiting + spare)
            }
        };
        // what is given back is not used from now on
        share.total = share.total.min(want);
        let left_ms = share.until_ms.saturating_sub(now_ms);
        let (window, sort, limit) = (share.window, share.sort, share.limit);
        Some(Ask { key, sort, limit, have, want, need: waiting, window, left_ms })
    }

    /// The owner's word. An older one than the last question's says nothing any more.
    pub(crate) fn grant(&self, now_ms: u64, number: u64, grant: &Grant) {
        let Some(mut shard) = self.shard(grant.key) else { return };
        let Some(share) = shard.get_mut(&grant.key).filter(|share| share.number == number) else { return };
        if matches!(share.sort, Sort::Window(_)) {
            if share.window != 0 && share.window != grant.window {
                share.used = 0;
            }
            share.window = grant.window;
            share.until_ms = share.sent_ms + grant.left_ms;
        } else {
            share.until_ms = share.sent_ms + grant.left_ms.saturating_sub(MARGIN_MS);
        }
        (share.total, share.free, share.heard_ms) = (grant.total, grant.free, now_ms);
        (share.queued, share.doubtful_ms, share.demand) = (false, 0, 0);
        for waiting in share.waiting.drain(..) {
            let _ = waiting.send(());
        }
    }

    /// Keys that their owners are to be told of: all of which this gateway has something, or (`places`) only held places.
    pub(crate) fn held(&self, now_ms: u64, places: bool) -> Vec<u128> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, share| !share.is_idle(now_ms));
            let held = shard.iter().filter(|(_, share)| {
                let is_places = share.sort == Sort::Places;
                (is_places || !places) && (share.total > 0 || share.used > 0)
            });
            keys.extend(held.map(|(key, _)| *key));
        }
        keys
    }
}

impl Share {
    fn new(spec: Spec, now_ms: u64) -> Self {
        Self {
            sort: spec.sort,
            limit: spec.limit,
            total: 0,
            used: 0,
            until_ms: 0,
            window: 0,
            free: 0,
            heard_ms: 0,
            demand: 0,
            waiting: Vec::new(),
            queued: false,
            number: 0,
            sent_ms: 0,
            doubtful_ms: 0,
            touched_ms: now_ms,
        }
    }

    /// What holds no longer ends; a window that nobody has named begins.
    fn roll(&mut self, now_ms: u64) {
        if now_ms < self.until_ms {
            return;
        }
        self.total = 0;
        if let Sort::Window(length) = self.sort {
            (self.used, self.window, self.free, self.heard_ms) = (0, 0, 0, 0);
            self.until_ms = now_ms.saturating_add(length);
        }
    }

    fn take(&mut self, now_ms: u64) -> Taken {
        self.used += 1;
        let remaining = self.total.saturating_sub(self.used) + self.free;
        Taken::Yes { remaining, reset_ms: self.until_ms.saturating_sub(now_ms) }
    }

    fn refuse(&self, now_ms: u64) -> Taken {
        Taken::No { reset_ms: self.until_ms.saturating_sub(now_ms) }
    }

    /// The owner had nothing left a moment ago.
    fn is_exhausted(&self, now_ms: u64) -> bool {
        let [window, places] = AGAIN_MS;
        let again = if self.sort == Sort::Places { places } else { window };
        self.heard_ms > 0 && self.free == 0 && now_ms < self.heard_ms + again
    }

    fn is_idle(&self, now_ms: u64) -> bool {
        let in_use = match self.sort {
            Sort::Places => self.used > 0,
            Sort::Window(_) => now_ms < self.until_ms && self.total.max(self.used) > 0,
        };
        !in_use && self.waiting.iter().all(oneshot::Sender::is_closed) && now_ms >= self.touched_ms + IDLE_MS
    }
}

/// A place that is held, given back when it is dropped.
pub(crate) struct Place {
    pub(crate) shares: Arc<Shares>,
    pub(crate) key: u128,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shares.release(crate::clock::now_ms(), self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Spec = Spec { key: 1, sort: Sort::Window(10_000), limit: 9 };
    const PLACES: Spec = Spec { key: 2, sort: Sort::Places, limit: 4 };

    fn admitted(taken: &Taken) -> bool {
        matches!(taken, Taken::Yes { .. })
    }

    #[test]
    fn a_gateway_without_others_has_the_whole_limit_and_without_a_word_of_them_its_part() {
        let shares = Shares::default();
        assert_eq!((0..20).filter(|_| admitted(&shares.take(1000, WINDOW, true))).count(), 9);
        assert_eq!((0..20).filter(|_| admitted(&shares.take(11_000, WINDOW, true))).count(), 9);
        shares.set_crowd(3, false);
        assert_eq!((0..20).filter(|_| admitted(&shares.take(21_000, WINDOW, true))).count(), 3);
        assert_eq!((0..20).filter(|_| admitted(&shares.take(21_000, PLACES, true))).count(), 2);
        shares.release(21_000, PLACES.key);
        assert!(admitted(&shares.take(21_000, PLACES, true)));
    }

    #[test]
    fn what_the_owner_grants_is_used_and_then_it_is_asked_again() {
        let shares = Shares::default();
        let mut asked = shares.asked().unwrap();
        shares.set_crowd(3, true);
        let Taken::Wait(mut woken) = shares.take(1000, WINDOW, true) else { panic!("nothing to take from") };
        assert!(matches!(shares.take(1000, WINDOW, true), Taken::Wait(_)));
        assert_eq!(asked.try_recv(), Ok(1));
        assert!(asked.try_recv().is_err(), "one question at a time");
        let ask = shares.ask(1000, 1, 1, true).unwrap();
        assert_eq!((ask.have, ask.want, ask.need), (0, 1, 1), "who waited and went is not counted");
        let grant = |total, free| Grant { key: 1, total, free, window: 5, left_ms: 9000 };
        shares.grant(1001, 0, &grant(9, 0));
        assert!(woken.try_recv().is_err(), "the answer to another question");
        shares.grant(1001, 1, &grant(2, 7));
        assert!(woken.try_recv().is_ok());
        assert!((0..2).all(|_| admitted(&shares.take(1002, WINDOW, true))));
        assert!(matches!(shares.take(1002, WINDOW, true), Taken::Wait(_)));
        shares.ask(1002, 1, 2, true).unwrap();
        shares.grant(1003, 2, &grant(2, 0));
        assert!(matches!(shares.take(1004, WINDOW, true), Taken::No { .. }));
        assert!(matches!(shares.take(1103, WINDOW, true), Taken::Wait(_)), "asked again after a moment");
        shares.doubt(1103, 1);
        assert!(admitted(&shares.take(1104, WINDOW, true)), "its even part is three");
        assert!(!admitted(&shares.take(1104, WINDOW, true)));
    }

    #[test]
    fn places_are_given_back_where_they_are_scarce_and_end_with_their_time() {
        let shares = Shares::default();
        let mut asked = shares.asked().unwrap();
        shares.set_crowd(2, true);
        let Taken::Wait(_woken) = shares.take(1000, PLACES, true) else { panic!() };
        asked.try_recv().unwrap();
        shares.ask(1000, 2, 1, true).unwrap();
        shares.grant(1000, 1, &Grant { key: 2, total: 2, free: 0, window: 0, left_ms: 5000 });
        assert!((0..2).all(|_| admitted(&shares.take(1001, PLACES, true))));
        shares.release(1002, 2);
        assert_eq!(asked.try_recv(), Ok(2));
        let ask = shares.ask(1002, 2, 2, true).unwrap();
        assert_eq!((ask.have, ask.want), (2, 1));
        assert!(!admitted(&shares.take(1002, PLACES, true)), "what is given back is not used");
        assert_eq!((shares.held(1002, true), shares.held(1002, false)), (vec![2], vec![2]));
        shares.grant(1002, 2, &Grant { key: 2, total: 4, free: 0, window: 0, left_ms: 5000 });
        assert!(!admitted(&shares.take(5503, PLACES, false)), "they are not held any more");
    }

    #[test]
    fn memory_is_bounded_and_idle_keys_go() {
        let shares = Shares::default();
        let of = |n: u64| Spec { key: u128::from(n) << 8, ..WINDOW };
        let full = (0..2 * MOST as u64).filter(|n| matches!(shares.take(1000, of(*n), true), Taken::Full));
        assert_eq!(full.count(), MOST);
        assert!(admitted(&shares.take(11_000, of(99_999), true)));
        assert_eq!(shares.held(21_000, false).len(), 0);
    }
}
