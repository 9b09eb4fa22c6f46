use super::*;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;
const NOW_MS: u64 = 1_000_000;

fn cell(n: u8, zone: &str) -> CellView {
    CellView {
        cell: CellId::mint(1, [n; 10]),
        place: Place { region: "r".into(), zone: zone.into(), node: format!("n{n}") },
        heard_ms: NOW_MS,
        cordoned: false,
        draining: false,
        leaving: false,
        memory_bytes: 4 * GIB,
        overcommit: None,
        promised_bytes: 0,
        ports: u32::MAX,
        promised_count: 0,
        starting: 0,
        load: 0.0,
    }
}

static NO_MATES: BTreeMap<CellId, u32> = BTreeMap::new();

fn rules(region: &str) -> PlacingRules<'_> {
    PlacingRules { region, starts_per_cell: 1_000, mates: &NO_MATES }
}

/// Lives as long as the test process.
fn index_of(cells: &[CellView], overcommit: f64) -> &'static CellIndex {
    Box::leak(Box::new(CellIndex::of(cells.iter().cloned(), overcommit, NOW_MS)))
}

fn placer_for<'a>(cells: &[CellView], region: &'a str, overcommit: f64) -> Placer<'a> {
    Placer::new(index_of(cells, overcommit), rules(region))
}

fn place_all(placer: &mut Placer<'_>, count: usize, bytes: u64) -> Vec<CellId> {
    (0..count).map_while(|_| placer.place(bytes, &[]).ok()).collect()
}

#[test]
fn instances_spread_over_zones_then_cells() {
    let cells = [cell(1, "a"), cell(2, "a"), cell(3, "a"), cell(4, "b")];
    let mut placer = placer_for(&cells, "", 1.0);
    let placed = place_all(&mut placer, 4, GIB);
    let in_b = placed.iter().filter(|id| **id == cells[3].cell).count();
    assert_eq!(in_b, 2, "half in each zone");
    let in_a: std::collections::BTreeSet<_> = placed.iter().filter(|id| **id != cells[3].cell).collect();
    assert_eq!(in_a.len(), 2, "different cells inside a zone");
}

#[test]
fn memory_is_a_hard_limit_with_overcommit_and_the_reason_says_how_much_is_left() {
    let cells = [cell(1, "a")];
    assert_eq!(place_all(&mut placer_for(&cells, "", 1.0), 10, GIB).len(), 4);
    assert_eq!(place_all(&mut placer_for(&cells, "", 1.5), 10, GIB).len(), 6);
    let mut placer = placer_for(&cells, "", 1.0);
    assert_eq!(placer.place(5 * GIB, &[]), Err(NoPlace::NoMemory { most_bytes: 4 * GIB }));
}

#[test]
fn a_cell_without_a_free_port_gets_nothing_and_ports_are_the_reason_only_where_memory_is_not() {
    let mut cells = [cell(1, "a"), cell(2, "b")];
    cells[0].ports = 3;
    cells[0].promised_count = 1;
    cells[1].ports = 1;
    let mut placer = placer_for(&cells, "", 10.0);
    let placed = place_all(&mut placer, 10, GIB);
    let on = |n: usize| placed.iter().filter(|id| **id == cells[n].cell).count();
    assert_eq!((on(0), on(1)), (2, 1));
    assert_eq!(placer.place(GIB, &[]), Err(NoPlace::NoPort));
    assert_eq!(placer.place(100 * GIB, &[]), Err(NoPlace::NoMemory { most_bytes: 39 * GIB }));
    placer.release(cells[1].cell, GIB);
    assert_eq!(placer.place(GIB, &[]), Ok(cells[1].cell), "a port is given back with the instance");
}

#[test]
fn closed_cells_get_nothing_and_an_avoided_one_only_for_want_of_others() {
    let mut cells = [cell(1, "a"), cell(2, "a"), cell(3, "a"), cell(4, "a")];
    cells[0].cordoned = true;
    cells[1].heard_ms = NOW_MS - LIVE_MS - 1;
    cells[2].leaving = true;
    let mut draining = cell(5, "a");
    draining.draining = true;
    let mut placer = placer_for(&cells, "", 1.0);
    assert_eq!(placer.place(GIB, &[cells[3].cell]), Ok(cells[3].cell));
    assert_eq!(placer_for(&cells[..3], "", 1.0).place(GIB, &[]), Err(NoPlace::AllClosed));
    assert_eq!(placer_for(&[draining], "", 1.0).place(GIB, &[]), Err(NoPlace::AllClosed));
    assert_eq!(placer_for(&[], "", 1.0).place(GIB, &[]), Err(NoPlace::NoCell));
    assert_eq!(placer_for(&cells, "elsewhere", 1.0).place(GIB, &[]), Err(NoPlace::NoCell));
}

#[test]
fn equal_cells_are_told_apart_by_promised_memory_then_load() {
    let mut cells = [cell(1, "a"), cell(2, "a"), cell(3, "a")];
    cells[0].promised_bytes = GIB;
    cells[1].load = 0.9;
    assert_eq!(placer_for(&cells, "", 1.0).place(GIB, &[]), Ok(cells[2].cell));
}

#[test]
fn a_cells_own_factor_goes_before_the_platforms() {
    let mut cells = [cell(1, "a")];
    cells[0].overcommit = Some(0.5);
    assert_eq!(place_all(&mut placer_for(&cells, "", 2.0), 10, GIB).len(), 2);
}

#[test]
fn a_lane_keeps_together_but_not_at_the_price_of_spread_or_of_a_full_cell() {
    let mut cells = [cell(1, "a"), cell(2, "a"), cell(3, "b"), cell(4, "b")];
    cells[3].promised_bytes = GIB;
    let mates = BTreeMap::from([(cells[3].cell, 2)]);
    let near = |cells: &[CellView], count| {
        let mut placer = Placer::new(index_of(cells, 1.0), PlacingRules { mates: &mates, ..rules("") });
        place_all(&mut placer, count, GIB / 2)
    };
    assert_eq!(near(&cells, 1), [cells[3].cell], "although it is the fullest");
    let two = near(&cells, 2);
    assert!(two.contains(&cells[0].cell) || two.contains(&cells[1].cell), "the second in the other zone");
    cells[3].promised_bytes = 7 * GIB / 2;
    assert_eq!(near(&cells, 1), [cells[2].cell], "at least in the zone");
}

#[test]
fn a_cell_that_starts_enough_is_waited_for_unless_another_spreads_as_well() {
    let mut cells = [cell(1, "a"), cell(2, "a"), cell(3, "b")];
    cells[0].starting = 2;
    let limited = PlacingRules { starts_per_cell: 2, ..rules("") };
    let mut other = Placer::new(index_of(&cells, 1.0), limited);
    assert_eq!(place_all(&mut other, 2, GIB), [cells[1].cell, cells[2].cell]);
    cells[1].starting = 2;
    cells[2].starting = 1;
    let mut waits = Placer::new(index_of(&cells, 1.0), limited);
    assert_eq!(waits.place(GIB, &[]), Ok(cells[2].cell));
    assert_eq!(waits.place(GIB, &[]), Err(NoPlace::Busy), "zone b has one already");
}

#[test]
fn what_goes_lends_its_memory_to_what_comes_on_its_own_cell_alone() {
    let mut cells = [cell(1, "a"), cell(2, "a")];
    cells[0].promised_bytes = 4 * GIB;
    cells[1].promised_bytes = 4 * GIB;
    let mut placer = placer_for(&cells, "", 1.0);
    placer.note_going(cells[1].cell, 2 * GIB);
    assert_eq!(place_all(&mut placer, 5, GIB), [cells[1].cell], "a quarter of the limit at most");
}

#[test]
fn of_what_is_promised_twice_the_newest_is_too_many() {
    let promised = BTreeMap::from([(1, 2 * GIB), (2, GIB), (3, 2 * GIB), (4, GIB)]);
    assert_eq!(find_overpromised(&promised, 6 * GIB), [0; 0]);
    assert_eq!(find_overpromised(&promised, 5 * GIB), [4]);
    assert_eq!(find_overpromised(&promised, 4 * GIB), [3]);
}

/// The rules, read off all cells for every instance.
fn place_plainly(
    cells: &mut [(CellView, u32)],
    bytes: u64,
    overcommit: f64,
    starts_per_cell: u32,
    mates: &BTreeMap<CellId, u32>,
    now_ms: u64,
) -> Option<CellId> {
    let crowd = |cells: &[(CellView, u32)], zone: &str| -> u32 {
        cells.iter().filter(|(view, _)| view.place.zone == zone).map(|(_, crowd)| crowd).sum()
    };
    let zone_is_near = |cells: &[(CellView, u32)], zone: &str| {
        cells.iter().any(|(view, _)| view.place.zone == zone && mates.contains_key(&view.cell))
    };
    let closed =
        |view: &CellView| view.cordoned || view.draining || view.leaving || now_ms - view.heard_ms > LIVE_MS;
    let has_room = |view: &CellView| {
        view.limit_bytes(overcommit).saturating_sub(view.promised_bytes) >= bytes
            && view.promised_count < view.ports
    };
    let spread = |at: &usize| (crowd(cells, &cells[*at].0.place.zone), cells[*at].1);
    let roomy: Vec<usize> =
        (0..cells.len()).filter(|at| !closed(&cells[*at].0) && has_room(&cells[*at].0)).collect();
    let best = roomy.iter().map(spread).min()?;
    let share = |view: &CellView| view.promised_bytes as f64 / view.limit_bytes(overcommit).max(1) as f64;
    let found = roomy
        .iter()
        .copied()
        .filter(|at| spread(at) == best && cells[*at].0.starting < starts_per_cell)
        .min_by(|a, b| {
            let rank = |at: usize| {
                let view = &cells[at].0;
                let near = mates.contains_key(&view.cell) && share(view) < 0.8;
                (!zone_is_near(cells, &view.place.zone), !near)
            };
            let (one, other) = (&cells[*a].0, &cells[*b].0);
            rank(*a)
                .cmp(&rank(*b))
                .then(share(one).total_cmp(&share(other)))
                .then(one.load.total_cmp(&other.load))
                .then(one.cell.cmp(&other.cell))
        })?;
    let (view, crowd) = &mut cells[found];
    *crowd += 1;
    view.starting += 1;
    view.promised_bytes += bytes;
    view.promised_count += 1;
    Some(view.cell)
}

/// Six cells of a thousand are looked at for an instance; more when some start too many already.
#[test]
fn an_instance_costs_a_few_looks_however_many_cells_there_are() {
    let looks = |count: u16| {
        let cells = (0..count).map(|n| {
            let mut random = [0; 10];
            random[..2].copy_from_slice(&n.to_be_bytes());
            CellView { cell: CellId::mint(1, random), ..cell(1, ["a", "b", "c"][usize::from(n) % 3]) }
        });
        let index = CellIndex::of(cells, 1.0, NOW_MS);
        let mut placer = Placer::new(&index, rules(""));
        assert_eq!(place_all(&mut placer, 50, GIB).len(), 50);
        placer.looks()
    };
    assert_eq!(looks(100), looks(10_000));
    assert!(looks(10_000) <= 50 * 2 + 3, "{}", looks(10_000));
}

#[test]
fn a_change_of_one_cell_and_passing_time_are_seen_without_looking_at_the_others() {
    let mut index = CellIndex::of([cell(1, "a"), cell(2, "a")], 1.0, NOW_MS);
    let place = |index: &CellIndex| Placer::new(index, rules("")).place(GIB, &[]);
    let (one, two) = (cell(1, "a").cell, cell(2, "a").cell);
    assert_eq!(place(&index), Ok(one));
    index.set(CellView { promised_bytes: GIB, ..cell(1, "a") });
    assert_eq!(place(&index), Ok(two));
    index.set(CellView { cordoned: true, ..cell(2, "a") });
    assert_eq!(place(&index), Ok(one));
    index.set(CellView { heard_ms: NOW_MS + 1, ..cell(2, "a") });
    index.set_time(NOW_MS + LIVE_MS);
    assert_eq!(place(&index), Ok(two));
    index.set(CellView { promised_bytes: 2 * GIB, heard_ms: NOW_MS + 1, ..cell(2, "a") });
    assert_eq!(place(&index), Ok(one), "still heard");
    index.set_time(NOW_MS + LIVE_MS + 1);
    assert_eq!(place(&index), Ok(two), "the other has been silent for too long");
    index.remove(two);
    assert_eq!(place(&index), Err(NoPlace::AllClosed));
    index.set(CellView { heard_ms: NOW_MS + LIVE_MS, ..cell(1, "b") });
    assert_eq!(place(&index), Ok(one), "heard again, and in another zone");
}

#[test]
fn all_cells_that_fell_silent_close_when_time_passes_and_none_beside_them() {
    let silent = [cell(1, "a"), cell(2, "b"), cell(3, "a")];
    let live = CellView { heard_ms: NOW_MS + 1, ..cell(4, "c") };
    let mut index = CellIndex::of(silent.into_iter().chain([live.clone()]), 1.0, NOW_MS);
    assert_eq!(index.zones().count(), 3);
    index.set_time(NOW_MS + LIVE_MS + 1);
    assert_eq!(index.zones().count(), 1, "the orders hold open cells alone");
    assert!(index.has_open_beside("", cell(1, "a").cell) && !index.has_open_beside("", live.cell));
    let mut placer = Placer::new(&index, rules(""));
    assert_eq!(place_all(&mut placer, 9, GIB), vec![live.cell; 4]);
    index.set_time(NOW_MS + LIVE_MS + 2);
    assert_eq!(index.zones().count(), 0, "the last one closes in its turn");
    assert_eq!(Placer::new(&index, rules("")).place(GIB, &[]), Err(NoPlace::AllClosed));
}

/// Cells in up to three zones, with room of their own and instances of others.
fn cells_of(zones: &[(u8, u64, u64)]) -> Vec<CellView> {
    let make = |(n, (zone, memory, promised)): (usize, &(u8, u64, u64))| {
        let mut view = cell(n as u8 + 1, ["a", "b", "c"][*zone as usize]);
        view.memory_bytes = memory * GIB / 2;
        view.promised_bytes = (promised * GIB / 2).min(view.memory_bytes);
        view
    };
    zones.iter().enumerate().map(make).collect()
}

proptest! {
    #[test]
    fn placing_is_deterministic_and_never_promises_more_than_the_limit(
        zones in proptest::collection::vec((0_u8..3, 0_u64..12, 0_u64..12), 1..12),
        count in 1_usize..40,
        going in 0_u64..4,
    ) {
        let cells = cells_of(&zones);
        let place = || {
            let mut placer = placer_for(&cells, "", 1.0);
            placer.note_going(cells[0].cell, going * GIB / 2);
            place_all(&mut placer, count, GIB / 2)
        };
        let placed = place();
        prop_assert_eq!(&placed, &place());
        for (index, view) in cells.iter().enumerate() {
            let new = placed.iter().filter(|id| **id == view.cell).count() as u64 * GIB / 2;
            let lent = if index == 0 { (going * GIB / 2).min(view.memory_bytes / 4) } else { 0 };
            prop_assert!(new == 0 || view.promised_bytes + new <= view.memory_bytes + lent);
        }
        // Nothing that fits anywhere is refused.
        if placed.len() < count {
            let mut placer = placer_for(&cells, "", 1.0);
            placer.note_going(cells[0].cell, going * GIB / 2);
            let (got, after) = (place_all(&mut placer, count, GIB / 2), placer.place(GIB / 2, &[]));
            prop_assert_eq!(got.len(), placed.len());
            let full = matches!(after, Err(NoPlace::NoMemory { most_bytes }) if most_bytes < GIB / 2);
            prop_assert!(full, "{:?}", after);
        }
    }

    #[test]
    fn an_index_that_was_changed_bit_by_bit_places_like_a_look_at_all_cells(
        zones in proptest::collection::vec((0_u8..3, 0_u64..12, 0_u64..12), 1..12),
        odd in proptest::collection::vec((any::<prop::sample::Index>(), 0_u8..10), 0..16),
        near in proptest::collection::vec(any::<prop::sample::Index>(), 0..3),
        crowds in proptest::collection::vec(any::<prop::sample::Index>(), 0..5),
        count in 1_usize..40,
    ) {
        let mut cells = cells_of(&zones);
        let mut index = CellIndex::of(cells.iter().cloned(), 1.5, NOW_MS);
        let mut now_ms = NOW_MS;
        for (at, what) in odd {
            let view = &mut cells[at.index(zones.len())];
            match what {
                0 => view.cordoned = !view.cordoned,
                1 => view.heard_ms = NOW_MS - LIVE_MS - 1,
                2 => view.starting += 1,
                3 => view.ports = 3,
                4 => view.load = 0.5,
                // Silent for too long a little later, with others or before them.
                5..=6 => view.heard_ms = NOW_MS - LIVE_MS + u64::from(what),
                7..=8 => {
                    now_ms += u64::from(what);
                    index.set_time(now_ms);
                    continue;
                }
                _ => view.place.zone = "d".into(),
            }
            index.set(view.clone());
        }
        let mates = near.iter().map(|at| (cells[at.index(zones.len())].cell, 1)).collect();
        let mut placer = Placer::new(&index, PlacingRules { mates: &mates, starts_per_cell: 4, ..rules("") });
        let mut plain: Vec<(CellView, u32)> = cells.into_iter().map(|view| (view, 0)).collect();
        for at in &crowds {
            let (view, crowd) = &mut plain[at.index(zones.len())];
            *crowd += 1;
            placer.note(view.cell);
        }
        for _ in 0..count {
            let plainly = place_plainly(&mut plain, GIB / 2, 1.5, 4, &mates, now_ms);
            prop_assert_eq!(placer.place(GIB / 2, &[]).ok(), plainly);
        }
    }

    #[test]
    fn what_is_taken_back_brings_every_cell_under_its_limit_whatever_the_planners_saw(
        promised in proptest::collection::btree_map(any::<u16>(), 1_u64..6, 0..40),
        limit in 0_u64..60,
    ) {
        let over = find_overpromised(&promised, limit);
        let kept: u64 = promised.iter().filter(|(id, _)| !over.contains(id)).map(|(_, bytes)| bytes).sum();
        prop_assert!(kept <= limit);
        prop_assert!(over.is_empty() || promised.values().sum::<u64>() > limit, "nothing without need");
        let rest: BTreeMap<u16, u64> =
            promised.iter().filter(|(id, _)| !over.contains(id)).map(|(id, bytes)| (*id, *bytes)).collect();
        prop_assert!(find_overpromised(&rest, limit).is_empty(), "done in one step");
    }

    #[test]
    fn never_over_the_limit_and_zones_differ_by_one_at_most_while_there_is_room(
        zones in proptest::collection::vec(0_u8..3, 1..8),
        count in 1_usize..30,
    ) {
        let names = ["a", "b", "c"];
        let cells: Vec<CellView> =
            zones.iter().enumerate().map(|(n, z)| cell(n as u8 + 1, names[*z as usize])).collect();
        let mut placer = placer_for(&cells, "", 1.0);
        let placed = place_all(&mut placer, count, GIB / 2);
        for view in &cells {
            prop_assert!(placed.iter().filter(|id| **id == view.cell).count() <= 8);
        }
        // Each cell has room for 8: while the least crowded zone has room, zones are even.
        let mut per_zone = BTreeMap::new();
        for view in &cells {
            *per_zone.entry(view.place.zone.clone()).or_insert(0_usize) +=
                placed.iter().filter(|id| **id == view.cell).count();
        }
        let (least, most) = (per_zone.values().min().unwrap(), per_zone.values().max().unwrap());
        if *most <= 8 {
            prop_assert!(most - least <= 1, "{:?}", per_zone);
        }
    }
}
