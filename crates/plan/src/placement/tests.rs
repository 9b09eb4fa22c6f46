use super::*;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn cell(n: u8, zone: &str) -> CellView {
    CellView {
        cell: CellId::mint(1, [n; 10]),
        place: Place { region: "r".into(), zone: zone.into(), node: format!("n{n}") },
        silent_ms: 0,
        cordoned: false,
        leaving: false,
        memory_bytes: 4 * GIB,
        promised_bytes: 0,
        load: 0.0,
    }
}

fn place_all(placer: &mut Placer, count: usize, bytes: u64) -> Vec<CellId> {
    (0..count).map_while(|_| placer.place(bytes, &[]).ok()).collect()
}

#[test]
fn instances_spread_over_zones_then_cells() {
    let cells = [cell(1, "a"), cell(2, "a"), cell(3, "a"), cell(4, "b")];
    let mut placer = Placer::new(&cells, "", 1.0);
    let placed = place_all(&mut placer, 4, GIB);
    let in_b = placed.iter().filter(|id| **id == cells[3].cell).count();
    assert_eq!(in_b, 2, "half in each zone");
    let in_a: std::collections::BTreeSet<_> = placed.iter().filter(|id| **id != cells[3].cell).collect();
    assert_eq!(in_a.len(), 2, "different cells inside a zone");
}

#[test]
fn memory_is_a_hard_limit_with_overcommit_and_the_reason_says_how_much_is_left() {
    let cells = [cell(1, "a")];
    assert_eq!(place_all(&mut Placer::new(&cells, "", 1.0), 10, GIB).len(), 4);
    assert_eq!(place_all(&mut Placer::new(&cells, "", 1.5), 10, GIB).len(), 6);
    let mut placer = Placer::new(&cells, "", 1.0);
    assert_eq!(placer.place(5 * GIB, &[]), Err(NoPlace::NoMemory { most_bytes: 4 * GIB }));
}

#[test]
fn closed_cells_get_nothing_and_an_avoided_one_only_for_want_of_others() {
    let mut cells = [cell(1, "a"), cell(2, "a"), cell(3, "a"), cell(4, "a")];
    cells[0].cordoned = true;
    cells[1].silent_ms = LIVE_MS + 1;
    cells[2].leaving = true;
    let mut placer = Placer::new(&cells, "", 1.0);
    assert_eq!(placer.place(GIB, &[cells[3].cell]), Ok(cells[3].cell));
    assert_eq!(Placer::new(&cells[..3], "", 1.0).place(GIB, &[]), Err(NoPlace::AllClosed));
    assert_eq!(Placer::new(&[], "", 1.0).place(GIB, &[]), Err(NoPlace::NoCell));
    assert_eq!(Placer::new(&cells, "elsewhere", 1.0).place(GIB, &[]), Err(NoPlace::NoCell));
}

#[test]
fn equal_cells_are_told_apart_by_promised_memory_then_load() {
    let mut cells = [cell(1, "a"), cell(2, "a"), cell(3, "a")];
    cells[0].promised_bytes = GIB;
    cells[1].load = 0.9;
    assert_eq!(Placer::new(&cells, "", 1.0).place(GIB, &[]), Ok(cells[2].cell));
}

proptest! {
    #[test]
    fn never_over_the_limit_and_zones_differ_by_one_at_most_while_there_is_room(
        zones in proptest::collection::vec(0_u8..3, 1..8),
        count in 1_usize..30,
    ) {
        let names = ["a", "b", "c"];
        let cells: Vec<CellView> =
            zones.iter().enumerate().map(|(n, z)| cell(n as u8 + 1, names[*z as usize])).collect();
        let mut placer = Placer::new(&cells, "", 1.0);
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
