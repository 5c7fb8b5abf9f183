//! Tests of `view.rs`.

use super::*;

fn directory() -> Directory {
    let places = [Place::new(0x4000, 3), Place::new(0x8000, 4), Place::new(0x1_0000, 5)];
    let cells = std::array::from_fn(|cell| places[[0, 0, 0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1][cell]]);
    Directory { cells, moving: 0xf000, to: Some(Place::new(0x2_0000, 4)), after: 0x9000 }
}

#[test]
fn tables_are_listed_once_with_their_cells() {
    let directory = directory();
    let tables: Vec<_> = directory.tables(u64::MAX).map(|(place, cells)| (place.log2(), cells)).collect();
    assert_eq!(tables, [(3, 0xf), (5, 0xf0), (4, 0xff00)]);
    let some: Vec<_> = directory.tables(0x8001).map(|(place, _)| place.log2()).collect();
    assert_eq!(some, [3, 4]);
    assert_eq!(directory.buckets(), 8 + 32 + 16 + 16);
    assert_eq!(directory.all().count(), 4);
}

#[test]
fn spare_is_not_among_the_tables_with_keys() {
    let with_spare = Directory { moving: 0, ..directory() };
    assert_eq!((with_spare.buckets(), with_spare.all().count()), (8 + 32 + 16, 3));
    assert_eq!((with_spare.spare(), directory().spare()), (directory().to, None));
    let words = |directory: Directory| [TO, SPARE].map(|word| directory.lines()[0][word]);
    let spare = directory().to.map_or(0, Place::word);
    assert_eq!((words(with_spare), words(directory())), ([0, spare], [spare, 0]));
}

#[test]
fn growth_halves_the_cells_or_replaces_all_tables() {
    let [one, all] = [Place::new(0x4000, 3), Place::new(0x8000, 8)];
    let cells = |of: [Place; CELLS]| Directory::resting(of);
    let shared = cells([one; CELLS]);
    assert_eq!(shared.growth(one), Some(Growth { moving: 0xff00, log2: 3 }));
    assert_eq!(shared.growth(all), None, "of another view");
    let each = cells(std::array::from_fn(|cell| Place::new(0x4000 + 0x1000 * cell as u64, 3)));
    let growth = each.growth(each.cells[5]).unwrap();
    assert_eq!(growth, Growth { moving: 0xffff, log2: 8 });
    assert!(each.serves(all, growth) && !each.serves(one, growth));
    assert!(shared.serves(one, shared.growth(one).unwrap()));
    assert!(shared.serves(all, shared.growth(one).unwrap()), "there is room for all");
    let largest =
        cells(std::array::from_fn(|cell| Place::new(64 + ((cell as u64) << 40), BUCKETS_LOG2_MAX - 3)));
    assert_eq!(largest.growth(largest.cells[0]), None);
}

#[test]
fn view_check_depends_on_every_word() {
    let sound = directory();
    for (word, bit) in (1..FIRST_CELL + CELLS).flat_map(|word| (0..64).map(move |bit| (word, bit))) {
        let mut lines = sound.lines();
        lines.as_flattened_mut()[word] ^= 1 << bit;
        let words = lines.as_flattened();
        assert_ne!(check_of(&words[MOVING..FIRST_CELL + CELLS]), words[CHECK]);
    }
}

#[test]
fn table_for_all_keys_is_at_least_twice_as_large() {
    let tables: [Place; CELLS] = std::array::from_fn(|cell| {
        Place::new(0x4000 + 0x1_0000 * cell as u64, if cell == 0 { 4 } else { 3 })
    });
    // 136 buckets.
    let directory = Directory::resting(tables);
    let growth = Growth { moving: ALL_CELLS, log2: 9 };
    assert_eq!(directory.growth(tables[5]), Some(growth));
    let serves = [8, 9, 10].map(|log2| {
        let spare = Place::new(64, log2);
        (directory.is_for_all(spare), directory.serves(spare, growth))
    });
    assert_eq!(serves, [(false, false), (true, true), (true, true)]);
    let shared = Directory::resting([tables[1]; CELLS]);
    assert_eq!([3, 4, 5].map(|log2| shared.is_for_all(Place::new(64, log2))), [false, true, true]);
}
