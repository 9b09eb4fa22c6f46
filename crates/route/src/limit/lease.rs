//! Limits that several gateways share: who owns a key, and what its owner grants to whom.
//!
//! Each key has one owner among the gateways that are alive. Its [`Ledger`] grants parts of the limit: requests of a window, or
//! places that are held for as long as the holder asks again in time. All amounts are totals, not differences, so that a
//! message that is lost or comes twice changes nothing that the next one does not set right. Grants never exceed the limit.
//! An owner that has just become one does not know what the one before granted: until everybody could tell, it grants each
//! gateway no more than its even part of the limit.

use crate::hash::mix;
use std::collections::HashMap;

/// How long places are held without being asked for again.
pub const HOLD_MS: u64 = 5_000;
/// How long an owner that is new waits for others to tell what they have.
pub const SETTLE_MS: u64 = 2_000;
/// Most gateways that hold a part of one key.
const HOLDERS: usize = 1024;

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Requests in a window of so many milliseconds.
    Window(u64),
    /// Requests at the same time.
    Places,
}

/// What a gateway says that it has, and wants, of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Of what.
    pub key: u128,
    /// What is limited.
    pub sort: Sort,
    /// By how much.
    pub limit: u64,
    /// What it has of it, in total.
    pub have: u64,
    /// What it wants, in total: less gives back.
    pub want: u64,
    /// Of what it wants more, so much at least.
    pub need: u64,
    /// The window in which it has it; 0 = of its own.
    pub window: u64,
    /// What is left of that window, milliseconds.
    pub left_ms: u64,
}

/// What its owner says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Of what.
    pub key: u128,
    /// The gateway may have so much of it, in total.
    pub total: u64,
    /// What nobody has.
    pub free: u64,
    /// The window; 0 for places.
    pub window: u64,
    /// What is left of the window, or how long the places are held, milliseconds.
    pub left_ms: u64,
}

/// Who is alive, as an owner sees it.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    /// How many gateways, with this one.
    pub gateways: usize,
    /// Since when they are these, milliseconds.
    pub since_ms: u64,
}

/// The owner of a key among gateways; all that know the same gateways name the same. When one comes or goes only its own keys
/// move.
pub fn owner_of(key: u128, gateways: impl IntoIterator<Item = u128>) -> Option<u128> {
    let half = |word: u128| (word as u64, (word >> 64) as u64);
    let (low, high) = half(key);
    let weight = |gateway: u128| {
        let (first, second) = half(gateway);
        mix(mix(mix(first ^ low).wrapping_add(second)) ^ high)
    };
    gateways.into_iter().max_by_key(|gateway| (weight(*gateway), *gateway))
}

/// An even part of a limit, rounded up.
pub fn part(limit: u64, gateways: usize) -> u64 {
    limit.div_ceil(gateways.max(1) as u64)
}

/// What an owner has granted.
#[derive(Debug)]
pub struct Ledger {
    keys: HashMap<u128, Account>,
    room: usize,
}

#[derive(Debug)]
struct Account {
    opened_ms: u64,
    window: u64,
    ends_ms: u64,
    granted: Vec<Granted>,
    /// Of this window, what gateways had that have begun anew since.
    lost: u64,
}

#[derive(Debug)]
struct Granted {
    gateway: u128,
    total: u64,
    until_ms: u64,
}

impl Ledger {
    /// Room for so many keys.
    pub fn new(room: usize) -> Self {
        Self { keys: HashMap::new(), room }
    }

    /// How many keys it knows.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// What a gateway gets; `None` = there is no room for another key. `fresh` = a random name for a window that begins.
    pub fn ask(&mut self, now_ms: u64, gateway: u128, ask: &Ask, crowd: Crowd, fresh: u64) -> Option<Grant> {
        if !self.keys.contains_key(&ask.key) && self.keys.len() >= self.room {
            self.sweep(now_ms);
            if self.keys.len() >= self.room {
                return None;
            }
        }
        let account = self.keys.entry(ask.key).or_insert_with(|| Account::new(now_ms, ask, fresh));
        account.expire(now_ms, ask.sort, fresh);
        let settled = account.opened_ms >= crowd.since_ms.saturating_add(SETTLE_MS)
            || now_ms >= crowd.since_ms.saturating_add(SETTLE_MS);
        let (until_ms, same) = match ask.sort {
            Sort::Window(_) => (account.ends_ms, ask.window == account.window || ask.window == 0),
            Sort::Places => (now_ms.saturating_add(HOLD_MS), true),
        };
        account.note_start(gateway, ask);
        let others = account.others(gateway);
        let full = account.granted.len() >= HOLDERS;
        let known = account.granted.iter_mut().find(|granted| granted.gateway == gateway);
        let had = known.as_ref().map_or(if same { ask.have } else { 0 }, |granted| granted.total);
        let free = ask.limit.saturating_sub(others).saturating_sub(had);
        let more = ask.want.saturating_sub(had);
        // near the edge parts get small, so that little lies unused elsewhere
        let most = ask.need.max(free / (2 * crowd.gateways.max(1) as u64)).min(free);
        let cautious = if settled { u64::MAX } else { part(ask.limit, crowd.gateways).saturating_sub(had) };
        let total = if ask.want < had { ask.want } else { had + more.min(most).min(cautious) };
        match known {
            Some(granted) => (granted.total, granted.until_ms) = (total, until_ms),
            None if full => return None,
            None if total > 0 => account.granted.push(Granted { gateway, total, until_ms }),
            None => {}
        }
        Some(Grant {
            key: ask.key,
            total,
            free: ask.limit.saturating_sub(others).saturating_sub(total),
            window: if ask.sort == Sort::Places { 0 } else { account.window },
            left_ms: until_ms.saturating_sub(now_ms),
        })
    }

    /// Forgets what holds no longer.
    pub fn sweep(&mut self, now_ms: u64) {
        self.keys.retain(|_, account| {
            account.granted.retain(|granted| granted.until_ms > now_ms);
            !account.granted.is_empty() || account.lost > 0 && now_ms < account.ends_ms
        });
    }

    /// A gateway has said that it leaves, or another owns these keys now.
    pub fn keep(&mut self, keeps: impl Fn(u128) -> bool) {
        self.keys.retain(|key, _| keeps(*key));
    }
}

impl Account {
    fn new(now_ms: u64, ask: &Ask, fresh: u64) -> Self {
        let (window, ends_ms) = match ask.sort {
            // somebody else's window goes on
            Sort::Window(length) if ask.have > 0 && ask.left_ms > 0 => {
                let window = if ask.window == 0 { fresh } else { ask.window };
                (window, now_ms.saturating_add(ask.left_ms.min(length)))
            }
            Sort::Window(length) => (fresh, now_ms.saturating_add(length)),
            Sort::Places => (0, u64::MAX),
        };
        Self { opened_ms: now_ms, window, ends_ms, granted: Vec::new(), lost: 0 }
    }

    fn expire(&mut self, now_ms: u64, sort: Sort, fresh: u64) {
        match sort {
            Sort::Window(length) if now_ms >= self.ends_ms => {
                self.granted.clear();
                self.lost = 0;
                (self.opened_ms, self.window) = (now_ms, fresh);
                self.ends_ms = now_ms.saturating_add(length);
            }
            Sort::Window(_) => {}
            Sort::Places => self.granted.retain(|granted| granted.until_ms > now_ms),
        }
    }

    /// A gateway that knows no window of its owner's has been started again, or thinks that the window is over: what it had is
    /// used up as far as anybody can tell.
    fn note_start(&mut self, gateway: u128, ask: &Ask) {
        if matches!(ask.sort, Sort::Window(_)) && ask.window == 0 {
            let before = self.granted.iter().position(|granted| granted.gateway == gateway);
            let before = before.map(|at| self.granted.swap_remove(at).total);
            self.lost = self.lost.saturating_add(before.unwrap_or_default());
        }
    }

    fn others(&self, gateway: u128) -> u64 {
        let others = self.granted.iter().filter(|granted| granted.gateway != gateway);
        others.fold(self.lost, |sum, granted| sum.saturating_add(granted.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OLD: Crowd = Crowd { gateways: 3, since_ms: 0 };

    fn ask(have: u64, want: u64) -> Ask {
        Ask { key: 1, sort: Sort::Places, limit: 10, have, want, need: 1, window: 0, left_ms: 0 }
    }

    #[test]
    fn places_come_back_when_they_are_given_and_when_nobody_asks_for_them() {
        let mut ledger = Ledger::new(10);
        let mut total =
            |now, gateway, have, want| ledger.ask(now, gateway, &ask(have, want), OLD, 1).unwrap().total;
        let all = Ask { need: 10, ..ask(0, 10) };
        assert_eq!(total(9_000, 1, 0, 1), 1);
        assert_eq!(ledger.ask(9_000, 1, &all, OLD, 1).unwrap().total, 10);
        let mut total =
            |now, gateway, have, want| ledger.ask(now, gateway, &ask(have, want), OLD, 1).unwrap().total;
        assert_eq!(total(9_000, 2, 0, 1), 0);
        assert_eq!(total(9_000, 1, 10, 4), 4);
        assert_eq!(total(9_001, 2, 0, 1), 1);
        // 1 was killed
        assert_eq!(ledger.ask(9_000 + HOLD_MS, 3, &Ask { need: 10, ..ask(0, 10) }, OLD, 1).unwrap().total, 9);
    }

    #[test]
    fn an_owner_that_is_new_takes_what_it_is_told_and_is_careful_until_all_have_told() {
        let mut ledger = Ledger::new(10);
        let window = |have, want| Ask {
            sort: Sort::Window(60_000),
            limit: 9,
            window: 7,
            left_ms: 500,
            need: 9,
            ..ask(have, want)
        };
        let crowd = Crowd { gateways: 3, since_ms: 10_000 };
        let first = ledger.ask(10_100, 1, &window(5, 9), crowd, 1).unwrap();
        assert_eq!((first.total, first.window, first.left_ms), (5, 7, 500), "it had more than its part");
        assert_eq!(ledger.ask(10_200, 2, &window(0, 9), crowd, 2).unwrap().total, 3);
        assert_eq!(ledger.ask(10_300, 2, &window(3, 9), crowd, 3).unwrap().total, 3);
        let next = ledger.ask(10_600, 2, &window(3, 9), crowd, 4).unwrap();
        assert_eq!((next.window, next.left_ms, next.total), (4, 60_000, 3), "the next window");
        assert_eq!(ledger.ask(12_100, 2, &window(3, 9), crowd, 5).unwrap().total, 9);
    }

    #[test]
    fn a_gateway_that_starts_again_gets_nothing_for_a_second_time() {
        let mut ledger = Ledger::new(10);
        let window = |have, want, window| Ask {
            sort: Sort::Window(60_000),
            window,
            need: 10,
            left_ms: 60_000,
            ..ask(have, want)
        };
        let first = ledger.ask(9_000, 1, &window(0, 7, 0), OLD, 5).unwrap();
        assert_eq!((first.total, first.window), (7, 5));
        assert_eq!(ledger.ask(9_001, 1, &window(7, 8, 5), OLD, 6).unwrap().total, 8);
        let again = ledger.ask(9_002, 1, &window(0, 10, 0), OLD, 7).unwrap();
        assert_eq!((again.total, again.free), (2, 0));
        assert_eq!(ledger.ask(9_003, 2, &window(0, 1, 0), OLD, 8).unwrap().total, 0);
        assert_eq!(ledger.ask(9_004, 1, &window(0, 1, 0), OLD, 8).unwrap().total, 0, "nobody holds anything");
        ledger.sweep(9_005);
        assert_eq!(ledger.ask(9_006, 1, &window(0, 1, 0), OLD, 8).unwrap().total, 0, "that is not forgotten");
        assert_eq!(ledger.ask(69_000, 1, &window(0, 10, 0), OLD, 9).unwrap().total, 10, "the next window");
    }

    #[test]
    fn keys_move_only_from_who_goes_and_to_who_comes() {
        let of = |gateways: &[u128]| -> Vec<_> {
            (0..3000_u128).map(|key| owner_of(key << 64 | key, gateways.iter().copied()).unwrap()).collect()
        };
        let (three, two) = (of(&[1, 2, 3]), of(&[1, 3]));
        for gateway in 1..=3 {
            let keys = three.iter().filter(|owner| **owner == gateway).count();
            assert!((850..1150).contains(&keys), "{keys}");
        }
        assert!(three.iter().zip(&two).all(|(before, after)| before == after || *before == 2));
        assert_eq!(owner_of(1, []), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut ledger = Ledger::new(10);
        let key = |key| Ask { key, ..ask(0, 1) };
        assert_eq!((0..20).filter_map(|n| ledger.ask(9_000, 1, &key(n), OLD, 1)).count(), 10);
        assert!(ledger.ask(9_000 + HOLD_MS, 1, &key(99), OLD, 1).is_some());
        assert_eq!(ledger.len(), 1);
        ledger.keep(|_| false);
        assert!(ledger.is_empty());
    }

    proptest! {
        #[test]
        fn what_gateways_have_together_never_exceeds_the_limit(
            limit in 1..50_u64,
            windows in any::<bool>(),
            steps in prop::collection::vec((0..4_u128, 0..30_u64, 1..5_u64, 0..400_u64), 1..200),
        ) {
            let sort = if windows { Sort::Window(3_000) } else { Sort::Places };
            let mut ledger = Ledger::new(10);
            let (mut now, mut held) = (10_000, [(0, 0, 0); 4]);
            for (gateway, want, need, step) in steps {
                now += step;
                let (mut have, window, until) = held[gateway as usize];
                if until <= now {
                    have = 0;
                }
                let ask = Ask { key: 1, sort, limit, have, want, need, window, left_ms: 0 };
                let grant = ledger.ask(now, gateway, &ask, OLD, now).unwrap();
                prop_assert!(grant.total <= have.max(want));
                held[gateway as usize] = (grant.total, grant.window, now + grant.left_ms);
                let sum: u64 = held.iter().filter(|held| held.2 > now && (!windows || held.1 == grant.window)).map(|held| held.0).sum();
                prop_assert!(sum <= limit, "{sum} of {limit}");
                prop_assert_eq!(grant.free, limit - sum);
            }
        }
    }
}
