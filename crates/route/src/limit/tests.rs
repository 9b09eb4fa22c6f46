use super::*;
use crate::MS;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

const S: u64 = 1_000 * MS;

/// Lets `count` threads do the same at the same time.
fn together(count: usize, work: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        (0..count).for_each(|n| {
            _ = scope.spawn({
                let work = &work;
                move || work(n)
            })
        })
    });
}

#[test]
fn a_window_begins_with_its_first_request() {
    let count = Count::new(&Limits::new(7, 100), "a");
    let take = |now| count.take(now, 1, 2, 10_000, 1);
    assert_eq!(take(5 * S), Taken { allowed: true, remaining: 1, reset_ms: 10_000 });
    assert_eq!(take(6 * S), Taken { allowed: true, remaining: 0, reset_ms: 9_000 });
    assert_eq!(take(14 * S), Taken { allowed: false, remaining: 0, reset_ms: 1_000 });
    assert_eq!(take(15 * S), Taken { allowed: true, remaining: 1, reset_ms: 10_000 });
    assert!(count.take(15 * S, 2, 2, 10_000, 2).allowed, "each key has its own");
    count.give_back(15 * S, 2, 10_000, 1);
    assert!(count.take(15 * S, 2, 2, 10_000, 1).allowed);
    assert!(!count.take(15 * S, 3, 2, 10_000, 3).allowed, "more than there ever is");
}

#[test]
fn a_clock_that_is_a_moment_behind_opens_no_new_window() {
    let count = Count::new(&Limits::new(7, 100), "a");
    assert!(count.take(10 * S, 1, 1, 1_000, 1).allowed);
    assert!(!count.take(10 * S - 5 * MS, 1, 1, 1_000, 1).allowed);
    let sliding = Sliding::new(&Limits::new(7, 100), "a");
    assert!(sliding.take(10 * S, 1, 1, 1_000, 1).allowed);
    assert!(!sliding.take(10 * S - 5 * MS, 1, 1, 1_000, 1).allowed);
}

#[test]
fn a_sliding_window_counts_what_is_still_in_it() {
    let sliding = Sliding::new(&Limits::new(7, 100), "a");
    let take = |now, cost| sliding.take(now, 1, 10, 10_000, cost);
    assert_eq!(take(10 * S, 10), Taken { allowed: true, remaining: 0, reset_ms: 10_000 });
    assert!(!take(19 * S, 1).allowed);
    assert_eq!(take(25 * S, 5), Taken { allowed: true, remaining: 0, reset_ms: 5_000 });
    assert!(!take(25 * S, 1).allowed);
    assert!(take(50 * S, 10).allowed);
}

#[test]
fn a_bucket_leaks_at_its_rate_and_lets_a_burst_wait() {
    let req = Req::new(&Limits::new(7, 100), "a");
    let take = |now| req.take(now, 1, 10.0, 2.0);
    let waits: Vec<_> = (0..4).map(|_| take(S)).collect();
    assert_eq!(waits, [Some(0), Some(100 * MS), Some(200 * MS), None]);
    assert_eq!(take(S + 100 * MS), Some(200 * MS));
    assert_eq!(take(S + 150 * MS), None);
    assert_eq!(take(10 * S), Some(0));
    assert_eq!(req.take(S, 2, 1.0, 0.0), Some(0));
    assert_eq!(req.take(S + 999 * MS, 2, 1.0, 0.0), None);
    assert_eq!(req.take(2 * S, 2, 1.0, 0.0), Some(0));
}

#[test]
fn places_are_given_back_whatever_happens() {
    let conn = Arc::new(Conn::new(&Limits::new(7, 100), "a", 100 * MS));
    let take = || conn.take(1, 2, 2);
    let slots: Vec<_> = (0..5).map(|_| take()).collect();
    let delays: Vec<_> = slots.iter().map(|slot| slot.as_ref().map(|slot| slot.delay_ns)).collect();
    assert_eq!(delays, [Some(0), Some(0), Some(100 * MS), Some(100 * MS), None]);
    assert_eq!((conn.taken(1), conn.taken(2)), (4, 0));
    drop(slots);
    assert_eq!(conn.taken(1), 0);
    take().unwrap().done(300 * MS);
    let three: Vec<_> = (0..3).map(|_| take().unwrap()).collect();
    assert_eq!(three[2].delay_ns, 200 * MS, "half way to what the last one took");
}

#[test]
fn held_places_outlive_any_flood_of_keys_and_nobody_exceeds() {
    let conn = Arc::new(Conn::new(&Limits::new(7, 1), "a", S));
    let mine: Vec<_> = (0..3).map(|_| conn.take(7, 3, 0).unwrap()).collect();
    let others: Vec<_> = (100..400).filter_map(|key| conn.take(key, 3, 0)).collect();
    assert_eq!(others.len(), 6 + 3, "six places of their own, and a common one for all others");
    assert!(conn.take(7, 3, 0).is_none());
    drop(mine);
    // there is a place again, but who has a part in the common one must not get another
    assert!(conn.take(399, 3, 0).is_none());
    drop(others);
    let again: Vec<_> = (0..4).map(|_| conn.take(399, 3, 0)).collect();
    assert_eq!(again.iter().flatten().count(), 3);
    assert!(conn.take(7, 3, 0).is_some());
}

#[test]
fn a_flood_of_keys_costs_no_memory_and_forgets_the_least() {
    let limits = Limits::new(7, 64);
    let (count, other) = (Count::new(&limits, "a"), Count::new(&limits, "b"));
    (0..5).for_each(|_| assert!(count.take(S, 1, 5, 60_000, 1).allowed));
    for key in 2..100_000_u64 {
        count.take(S, key << 32 | key, 5, 60_000, 1);
    }
    // another limiter with a shorter window and a larger limit
    for key in 2..100_000_u64 {
        other.take(S, key << 32 | key, 1_000, 100, 50);
    }
    assert!(limits.room() < 1_000);
    assert!(
        !count.take(S, 1, 5, 60_000, 1).allowed,
        "who used up his limit is not forgotten for those who hardly began"
    );
}

proptest! {
    #[test]
    fn no_window_has_more_than_its_limit(
        limit in 1..6_u64,
        window in 1..50_u64,
        steps in prop::collection::vec((0..20 * MS, 0..3_u64, 1..3_u64), 1..200),
    ) {
        let count = Count::new(&Limits::new(7, 100), "a");
        let mut model = [(0, 0); 3];
        let mut now = 0;
        for (step, key, cost) in steps {
            now += step;
            let taken = count.take(now, key + 1, limit, window, cost);
            let (start, used) = &mut model[key as usize];
            if now.div_ceil(MS) >= *start + window && now / MS >= *start + window || *used == 0 {
                (*start, *used) = (now.div_ceil(MS), 0);
            }
            prop_assert_eq!(taken.allowed, *used + cost <= limit);
            *used += if taken.allowed { cost } else { 0 };
            prop_assert_eq!(taken.remaining, limit - *used);
            prop_assert!(taken.reset_ms <= window);
        }
    }

    #[test]
    fn no_stretch_of_time_has_more_than_rate_and_burst(
        rate in 1..200_u32,
        burst in 0..10_u32,
        steps in prop::collection::vec(0..50 * MS, 1..300),
    ) {
        let req = Req::new(&Limits::new(7, 100), "a");
        let (mut now, mut passed) = (0, Vec::new());
        for step in steps {
            now += step;
            if let Some(wait) = req.take(now, 1, f64::from(rate), f64::from(burst)) {
                prop_assert!(wait as f64 <= f64::from(burst) * 1e9 / f64::from(rate) + 20.0);
                passed.push(now);
            }
        }
        for (at, first) in passed.iter().enumerate() {
            for (count, last) in passed.iter().skip(at).enumerate() {
                let most = (last - first) as f64 * f64::from(rate) / 1e9 + f64::from(burst) + 1.0;
                prop_assert!((count + 1) as f64 <= most + 1e-6, "{} in {}", count + 1, last - first);
            }
        }
    }

    #[test]
    fn never_more_at_a_time_and_every_place_comes_back(
        most in 1..4_u64,
        burst in 0..3_u64,
        steps in prop::collection::vec((any::<bool>(), 1..40_u64), 1..300),
    ) {
        // few places for many keys, so that the common one is used
        let conn = Arc::new(Conn::new(&Limits::new(7, 1), "a", 1));
        let mut held: VecDeque<(u64, ConnSlot)> = VecDeque::new();
        for (take, key) in steps {
            if take {
                held.extend(conn.take(key, most, burst).map(|slot| (key, slot)));
            } else {
                held.pop_front();
            }
            let mine = held.iter().filter(|(other, _)| *other == key).count() as u64;
            prop_assert!(mine <= most + burst);
        }
        held.clear();
        for key in 1..40 {
            prop_assert_eq!(conn.taken(key), 0);
            let slots: Vec<_> = (0..most + burst + 1).map(|_| conn.take(key, most, burst)).collect();
            prop_assert_eq!(slots.iter().flatten().count() as u64, most + burst);
        }
    }

    #[test]
    fn a_sliding_window_never_takes_more_than_its_limit_in_a_fixed_one(
        limit in 1..8_u64,
        steps in prop::collection::vec(0..400_u64, 1..200),
    ) {
        let sliding = Sliding::new(&Limits::new(7, 10), "a");
        let (mut now, mut windows) = (0, std::collections::BTreeMap::new());
        for step in steps {
            now += step * MS;
            if sliding.take(now, 1, limit, 1_000, 1).allowed {
                *windows.entry(now / S).or_insert(0) += 1;
            }
        }
        prop_assert!(windows.values().all(|count| *count <= limit));
    }
}

#[test]
fn threads_together_take_exactly_the_limit() {
    for round in 0..20 {
        let (count, req) = (Count::new(&Limits::new(7, 8), "a"), Req::new(&Limits::new(7, 8), "a"));
        let taken = [(); 2].map(|()| AtomicU64::new(0));
        together(4, |_| {
            for _ in 0..500 {
                taken[0].fetch_add(u64::from(count.take(S, round, 700, 1_000, 1).allowed), SeqCst);
                taken[1].fetch_add(u64::from(req.take(S, round, 1.0, 99.0).is_some()), SeqCst);
            }
        });
        assert_eq!(taken.map(AtomicU64::into_inner), [700, 100]);
    }
}

#[test]
fn threads_that_fight_for_places_never_exceed_and_leave_none_behind() {
    let conn = Arc::new(Conn::new(&Limits::new(7, 1), "a", 1));
    let held: Vec<AtomicU64> = (0..32).map(|_| AtomicU64::new(0)).collect();
    together(4, |n| {
        let mut rng = fastrand::Rng::with_seed(n as u64);
        let mut slots: VecDeque<(usize, ConnSlot)> = VecDeque::new();
        for _ in 0..20_000 {
            let key = rng.usize(1..32);
            if let Some(slot) = conn.take(key as u64, 3, 0) {
                assert!(held[key].fetch_add(1, SeqCst) < 3);
                slots.push_back((key, slot));
            }
            if slots.len() > 4 || rng.bool() {
                // counted out before the place is free again
                if let Some((key, slot)) = slots.pop_front() {
                    held[key].fetch_sub(1, SeqCst);
                    drop(slot);
                }
            }
        }
        for (key, slot) in slots {
            held[key].fetch_sub(1, SeqCst);
            drop(slot);
        }
    });
    for key in 1..32 {
        let slots: Vec<_> = (0..4).map(|_| conn.take(key, 3, 0)).collect();
        assert_eq!(slots.iter().flatten().count(), 3, "{key}");
    }
}

#[test]
fn limiters_of_one_name_count_together_and_others_apart() {
    let limits = Limits::new(7, 100);
    let names = ["a", "a", "b"].map(|name| Count::new(&limits, name));
    let take = |count: &Count| count.take(S, count.key(0, b"k"), 1, 1_000, 1).allowed;
    assert_eq!([take(&names[0]), take(&names[1]), take(&names[2])], [true, false, true]);
    let (first, sliding) = (&names[0], Sliding::new(&limits, "a"));
    assert!(first.take(S, first.key(1, b"k"), 1, 1_000, 1).allowed, "another limit of the name");
    assert!(sliding.take(S, sliding.key(0, b"k"), 1, 1_000, 1).allowed, "another kind of limiter");
    let conns = ["a", "a"].map(|name| Arc::new(Conn::new(&limits, name, S)));
    let slot = conns[0].take(conns[0].key(0, b"k"), 1, 0);
    assert!(slot.is_some() && conns[1].take(conns[1].key(0, b"k"), 1, 0).is_none());
    drop(slot);
    assert!(conns[1].take(conns[1].key(0, b"k"), 1, 0).is_some());
}

#[test]
fn no_flood_of_a_limiter_with_long_windows_frees_one_with_short_ones() {
    let limits = Limits::new(7, 7);
    let (short, long) = (Count::new(&limits, "short"), Count::new(&limits, "long"));
    (0..3).for_each(|_| assert!(short.take(S, 1, 3, 1_000, 1).allowed));
    (2..1_000).for_each(|key| _ = long.take(S, key, 100, 3_600_000, 1));
    assert!(!short.take(S, 1, 3, 1_000, 1).allowed);
    assert!(short.take(2 * S, 1, 3, 1_000, 1).allowed, "its window is over");
}
