use super::*;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn cell(n: u8, zone: &str) -> CellView {
    CellView {
        cell: CellId::mint(1, [n; 10]),
        place: Place { region: "r".into(), zone: zone.into(), node: format!("n{n}") },
        silent_ms: 0,
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

fn rules(region: &str, overcommit: f64) -> PlacingRules<'_> {
    PlacingRules { region, overcommit, starts_per_cell: 1_000, mates: &NO_MATES }
}

fn placer_for<'a>(cells: &'a [CellView], region: &'a str, overcommit: f64) -> Placer<'a> {
    Placer::new(cells, rules(region, overcommit))
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
    cells[1].silent_ms = LIVE_MS + 1;
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
        let mut placer = Placer::new(cells, PlacingRules { mates: &mates, ..rules("", 1.0) });
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
    let limited = PlacingRules { starts_per_cell: 2, ..rules("", 1.0) };
    let mut other = Placer::new(&cells, limited);
    assert_eq!(place_all(&mut other, 2, GIB), [cells[1].cell, cells[2].cell]);
    cells[1].starting = 2;
    cells[2].starting = 1;
    let mut waits = Placer::new(&cells, limited);
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
