use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn manager(n: u16) -> ManagerId {
    let mut random = [7; 10];
    random[0] = (n >> 8) as u8;
    random[1] = n as u8;
    ManagerId::mint(1_700_000_000_000 + u64::from(n), random)
}

fn ring(members: impl IntoIterator<Item = u16>) -> Ring {
    let members: Vec<Member> =
        members.into_iter().map(|n| Member { manager: manager(n), weight: 1.0 }).collect();
    Ring::new(&members)
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("org/space/app-{n}:base:")).collect()
}

#[test]
fn a_ring_of_none_owns_nothing_and_a_ring_of_one_owns_all() {
    assert_eq!(Ring::new(&[]).owner("x"), None);
    assert_eq!(Ring::new(&[Member { manager: manager(1), weight: 0.0 }]).owner("x"), None);
    let one = ring([1]);
    for name in names(1000) {
        assert_eq!(one.owner(&name), Some(manager(1)));
    }
}

#[test]
fn shares_are_even_and_follow_weights() {
    let four = ring(0..4);
    let mut shares: BTreeMap<ManagerId, usize> = BTreeMap::new();
    let names = names(100_000);
    for name in &names {
        *shares.entry(four.owner(name).unwrap()).or_default() += 1;
    }
    for share in shares.values() {
        let off = (*share as f64 / 25_000.0 - 1.0).abs();
        assert!(off <= 0.10, "{shares:?}");
    }
    let weighted = Ring::new(&[
        Member { manager: manager(1), weight: 3.0 },
        Member { manager: manager(2), weight: 1.0 },
    ]);
    let first = names.iter().filter(|name| weighted.owner(name) == Some(manager(1))).count();
    assert!((0.72..0.78).contains(&(first as f64 / names.len() as f64)), "{first}");
}

#[test]
fn shares_add_up_to_all_and_tell_what_is_owned() {
    assert_eq!(Ring::new(&[]).shares(), []);
    assert_eq!(ring([1]).shares().len(), 1);
    for n in [1_u16, 2, 3, 10] {
        let ring = ring(0..n);
        let sum: f64 = ring.shares().iter().map(|(_, share)| share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{n}: {sum}");
        let names = names(20_000);
        for (manager, share) in ring.shares() {
            let owned = names.iter().filter(|name| ring.owner(name) == Some(manager)).count();
            assert!((owned as f64 / 20_000.0 - share).abs() < 0.02, "{n}: {share} {owned}");
        }
    }
}

#[test]
fn joining_and_leaving_move_little_and_only_to_or_from_the_one() {
    let names = names(50_000);
    for n in [2_u16, 3, 5, 10, 20] {
        let (before, after) = (ring(0..n), ring(0..=n));
        let newcomer = manager(n);
        let mut moved = 0;
        for name in &names {
            let (old, new) = (before.owner(name).unwrap(), after.owner(name).unwrap());
            if old != new {
                moved += 1;
                assert_eq!(new, newcomer, "only the newcomer gains");
            }
        }
        let share = f64::from(moved) / names.len() as f64;
        assert!(share <= 1.0 / f64::from(n + 1) + 0.02, "{n}: {share}");
    }
}

/// So many resources as a world has: their names are not kept, they are a gigabyte.
fn owned_of_a_million(ring: &Ring) -> Vec<u16> {
    let index: BTreeMap<ManagerId, u16> = ring.members().iter().copied().zip(0..).collect();
    let mut name = String::new();
    let owner = |n: u32| {
        use std::fmt::Write;
        name.clear();
        write!(name, "org-{}/space/app-{n}:base:", n % 1000).unwrap();
        index[&ring.owner(&name).unwrap()]
    };
    (0..1_000_000).map(owner).collect()
}

#[test]
fn a_hundred_managers_share_a_million_resources_evenly_and_little_moves() {
    let (hundred, more) = (ring(0..100), ring(0..101));
    let (before, after) = (owned_of_a_million(&hundred), owned_of_a_million(&more));
    let mut counts = [0_u32; 100];
    before.iter().for_each(|owner| counts[usize::from(*owner)] += 1);
    let fullest = f64::from(*counts.iter().max().unwrap()) / 10_000.0 - 1.0;
    assert!(fullest <= 0.10, "the fullest has {:.1} % more than the mean", fullest * 100.0);
    // The newcomer has the highest id, so that the others keep their places in the list.
    let moved = before.iter().zip(&after).filter(|(old, new)| old != new);
    let moved = moved.inspect(|(_, new)| assert_eq!(**new, 100, "only the newcomer gains")).count();
    let share = moved as f64 / 1_000_000.0;
    assert!(share <= 1.0 / 101.0 + 0.02, "{share}");
}

#[test]
fn weights_are_followed_among_a_hundred() {
    let members = |n: u16| Member { manager: manager(n), weight: if n < 50 { 1.5 } else { 0.5 } };
    let ring = Ring::new(&(0..100).map(members).collect::<Vec<_>>());
    for (n, (_, share)) in ring.shares().into_iter().enumerate() {
        let due = if n < 50 { 0.015 } else { 0.005 };
        assert!((share / due - 1.0).abs() < 0.15, "{n}: {share}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_order_of_members_does_not_matter_and_a_naive_search_agrees(
        mut ids in proptest::collection::btree_set(0_u16..500, 1..12).prop_map(|s| s.into_iter().collect::<Vec<_>>()),
        hashes in proptest::collection::vec(any::<u64>(), 1..50),
    ) {
        let a = ring(ids.clone());
        ids.reverse();
        let b = ring(ids);
        for hash in hashes.into_iter().chain([0, u64::MAX]) {
            let owner = a.owner_of_hash(hash).unwrap();
            prop_assert_eq!(Some(owner), b.owner_of_hash(hash));
            let naive = a.points.iter().find(|(point, _)| *point >= hash).unwrap_or(&a.points[0]);
            prop_assert_eq!(owner, a.members[naive.1 as usize]);
        }
    }

    #[test]
    fn what_is_gained_is_what_two_lookups_say(
        before in proptest::collection::btree_set(0_u16..30, 0..5),
        after in proptest::collection::btree_set(0_u16..30, 0..5),
        hashes in proptest::collection::vec(any::<u64>(), 1..50),
    ) {
        let (old, new) = (ring(before.clone()), ring(after.clone()));
        let edges: Vec<u64> = old.points.iter().step_by(97).chain(new.points.iter().step_by(89)).map(|p| p.0).collect();
        let around = edges.into_iter().flat_map(|edge| [edge.wrapping_sub(1), edge, edge.wrapping_add(1)]);
        let hashes: Vec<u64> = around.chain(hashes).chain([0, u64::MAX]).collect();
        for member in before.union(&after).map(|n| manager(*n)) {
            let gained = new.gained(&old, member);
            prop_assert!(gained.windows(2).all(|pair| pair[0].end() < pair[1].start()));
            for hash in &hashes {
                let mine = |ring: &Ring| ring.owner_of_hash(*hash) == Some(member);
                prop_assert_eq!(gained.iter().any(|arc| arc.contains(hash)), mine(&new) && !mine(&old), "{}", hash);
            }
        }
    }
}
