//! Tests of `granules`.

use super::*;
use crate::format::layout::Geometry;
use crate::pool::Pool;
use crate::tests::fixtures::{collection, exclusive_pool};
use terrace_medium::Dram;

/// A pseudorandom sequence, the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn pieces_of_a_run_are_its_granules() {
    for (first, count) in [(0, 1), (0, 64), (63, 2), (5, 59), (60, 200), (128, 64), (1, 0)] {
        let mut granules = Vec::new();
        for piece in pieces(first, count) {
            granules
                .extend((0..64).filter(|bit| piece.bits >> bit & 1 == 1).map(|bit| piece.unit * 64 + bit));
        }
        assert_eq!(granules, (first..first + count).collect::<Vec<_>>());
    }
}

#[test]
fn a_run_is_found_wherever_it_lies() {
    let find = |wanted, align, words: &[u64]| {
        let mut run = Run::new(wanted, align);
        words.iter().enumerate().find_map(|(unit, &taken)| run.feed(unit as u64, taken))
    };
    assert_eq!(find(3, 1, &[!0b1110]), Some(1));
    assert_eq!(find(4, 1, &[!0b1110]), None);
    assert_eq!(find(4, 1, &[!(0b11 << 62), !0b11]), Some(62));
    assert_eq!(find(5, 1, &[!(0b11 << 62), !0b11]), None);
    assert_eq!(find(130, 1, &[low_bits(63), 0, 0]), None);
    assert_eq!(find(129, 1, &[low_bits(63), 0, 0]), Some(63));
    assert_eq!(find(4, 4, &[!0b1111_1110]), Some(4));
    assert_eq!(find(64, 64, &[1, 0]), Some(64));
    assert_eq!(find(1, 1, &[!0, !0, low_bits(7)]), Some(128 + 7));
}

/// A zone whose units all lie in the pool as a whole.
fn zone(pool: &Pool<Dram>) -> Zone {
    let inner = &pool.0;
    let zone = inner.units().zones().find(|zone| zone.units == 64).unwrap();
    assert_eq!(inner.units().units_in(&zone), zone.first..zone.end());
    zone
}

/// Takes all granules of the zone but some runs of random lengths, and updates its hints.
/// Returns which granules are free, from the zone's first on.
fn take_all_but_some(pool: &Pool<Dram>, zone: &Zone, dice: &mut Dice) -> Vec<bool> {
    let (inner, medium) = (&pool.0, pool.medium());
    let mut free = Vec::new();
    while free.len() < (zone.units * GRANULES) as usize {
        let lengths = [dice.roll(3), dice.roll(200)].map(|length| 1 + length as usize);
        free.extend([false, true].into_iter().zip(lengths).flat_map(|(free, times)| vec![free; times]));
    }
    free.truncate((zone.units * GRANULES) as usize);
    for (unit, granules) in (zone.first..).zip(free.chunks_mut(GRANULES as usize)) {
        let head = inner.units().zones.header_granules(zone, unit);
        (0..).zip(granules.iter_mut()).for_each(|(at, free)| *free &= head >> at & 1 == 0);
        let taken = (0..).zip(&*granules).fold(0, |taken, (at, &free)| taken | u64::from(!free) << at);
        inner.units().unit(unit).taken.store(medium, taken, Relaxed);
        inner.units().update_hints(unit);
    }
    free
}

/// The first granules of all runs of `count`, in order.
fn runs(zone: &Zone, free: &[bool], count: u64, align: u64) -> Vec<u64> {
    let first = zone.first * GRANULES;
    let is_free = |at: u64| free[(at - first) as usize..].iter().take(count as usize).all(|&free| free);
    (first..=(first + free.len() as u64 - count)).filter(|&at| at % align == 0 && is_free(at)).collect()
}

#[test]
fn search_finds_lowest_run_or_highest_large_one() {
    let pool = exclusive_pool::<Dram>();
    let (zone, mut dice) = (zone(&pool), Dice(7));
    let (mut found, mut nothing) = (0, 0);
    for _ in 0..100 {
        let free = take_all_but_some(&pool, &zone, &mut dice);
        let count = 1 + dice.roll(220);
        for align in [1, 4, 64] {
            let runs = runs(&zone, &free, count, align);
            let units = || zone.first..zone.end();
            assert_eq!(pool.0.heap().granules.find_run(&zone, units(), count, align), runs.first().copied());
            if count > GRANULES {
                assert_eq!(pool.0.heap().granules.find_last_run(units(), count, align), runs.last().copied());
            }
            *(if runs.is_empty() { &mut nothing } else { &mut found }) += 1;
        }
    }
    assert!(found > 20 && nothing > 20, "{found} and {nothing}");
}

#[test]
fn next_hinted_unit_is_found_from_any_start() {
    let pool = Pool::<Dram>::anonymous(64 << 20).unwrap();
    let (inner, medium) = (&pool.0, pool.medium());
    let zone = inner.units().zones().next().unwrap();
    let units = inner.units().units_in(&zone);
    let hint = |unit| inner.units().hint_word(Hint::Empty, &zone, unit);
    units.clone().for_each(|unit| hint(unit).0.store(medium, 0, Relaxed));
    let hinted = [3, 63, 64, 190, 191, 600, units.end - 1];
    hinted.iter().map(|&unit| hint(unit)).for_each(|(word, bit)| _ = word.fetch_or(medium, bit, Relaxed));
    for from in units.clone() {
        for end in [from + 1, from + 70, units.end].map(|end| end.min(units.end)) {
            let expected = hinted.into_iter().find(|unit| (from..end).contains(unit));
            assert_eq!(
                inner.heap().granules.next_hinted(Hint::Empty, &zone, from..end),
                expected,
                "{from}..{end}"
            );
        }
    }
}

#[test]
fn granules_taken_during_collection_are_not_old() {
    let pool = exclusive_pool::<Dram>();
    let (inner, zone) = (&pool.0, zone(&pool));
    let unit = zone.first + 9;
    collection(inner).start_marking();
    inner.units().revalidate(unit);
    inner.units().unit(unit).old.store(pool.medium(), !0, Relaxed);
    assert_eq!(inner.heap().granules.take_pieces(unit * GRANULES + 5, 20), Ok(()));
    assert_eq!(inner.units().unit(unit).old.load(pool.medium(), Relaxed), !(low_bits(20) << 5));
}

#[test]
fn extent_lies_in_one_zone_and_is_freed_once() {
    let pool = exclusive_pool::<Dram>();
    let (inner, zone) = (&pool.0, zone(&pool));
    let (zones, granule) = (&inner.units().zones, 1 << inner.units().zones.granule_log2());
    let first = zone.start + zone.header_bytes().next_multiple_of(granule);
    let all = zones.start_of(zone.end()) - first;
    let is_one = |offset, bytes| inner.heap().granules.extent_at(offset, bytes).is_some();
    assert_eq!(
        inner.heap().granules.extent_at(first, all),
        Some(((first - zones.base) / granule, all / granule))
    );
    assert!(!is_one(first, all + 1) && !is_one(first - granule, granule) && !is_one(first + 8, 8));
    assert!(!is_one(first, u64::MAX / 2) && !is_one(pool.size(), 8) && !is_one(0, 8));
    let extent = inner.heap().granules.take_extent(3 * granule).unwrap();
    assert!(
        inner.heap().granules.free_extent(extent, 3 * granule)
            && !inner.heap().granules.free_extent(extent, 3 * granule)
    );
}

#[test]
fn the_largest_extents_are_taken_from_the_end() {
    // A pool whose 64th part is less than two units, and one where it is more.
    for (size, geometry) in [(256 << 10, Geometry::tiny()), (64 << 20, Geometry::default())] {
        let pool = Pool::<Dram>::anonymous_with(size, geometry).unwrap();
        let (inner, middle) = (&pool.0, size / 2);
        let most = (inner.units().zones.units(size) * GRANULES / LARGE_PART).max(2 * GRANULES);
        let take = |count: u64| {
            inner.heap().granules.take_extent(count << inner.units().zones.granule_log2()).unwrap()
        };
        assert!(take(most) < middle && take(most + 1) > middle, "of {size} bytes");
    }
}

#[test]
fn search_continues_at_hint_and_restarts_periodically() {
    let pool = exclusive_pool::<Dram>();
    let take = || pool.0.heap().granules.take_extent(PAGE).unwrap();
    let first = take();
    pool.0.heap().granules.free_extent(first, PAGE);
    let later: Vec<u64> = (2..TURNS).map(|_| take()).collect();
    assert!(first < later[0] && later.is_sorted());
    assert_eq!(take(), first);
}

#[test]
fn a_unit_of_which_a_part_is_not_there_is_no_slab() {
    let pool = Pool::<Dram>::anonymous((1 << 20) + PAGE).unwrap();
    let last = pool.0.units().zones.units(pool.size()) - 1;
    let guard = pool.pin();
    while let Ok(block) = guard.alloc(64) {
        block.fenced_later().into_offset();
    }
    assert!(
        pool.0.units().revalidate(last).usage() == UnitUse::Granules
            && pool.0.heap().granules.take_extent(PAGE).is_some()
    );
}

#[test]
fn failed_take_of_a_run_takes_no_granule() {
    let pool = exclusive_pool::<Dram>();
    let (inner, medium, zone) = (&pool.0, pool.medium(), zone(&pool));
    // From the middle of one unit into the fourth after it.
    let (first, count) = ((zone.first + 9) * GRANULES + 40, 4 * GRANULES);
    let words = || -> Vec<[u64; 2]> {
        let both = |unit| {
            [&inner.units().unit(unit).taken, &inner.units().unit(unit).link]
                .map(|it| it.load(medium, Relaxed))
        };
        inner.units().units_in(&zone).map(both).collect()
    };
    (zone.first + 9..zone.first + 14).for_each(|unit| _ = inner.units().revalidate(unit));
    let before = words();
    for unit in 0..5 {
        let at = zone.first + 9 + unit;
        let bit = if unit == 0 { 1 << 63 } else { 1 };
        inner.units().unit(at).taken.fetch_or(medium, bit, Relaxed);
        let taken = words();
        assert_eq!(inner.heap().granules.take_pieces(first, count), Err(at), "another is in its unit {unit}");
        assert_eq!(words(), taken);
        inner.units().unit(at).taken.fetch_and(medium, !bit, Relaxed);
    }
    assert_eq!(inner.heap().granules.take_pieces(first, count), Ok(()));
    for word in [0, 1] {
        let changed =
            words().iter().zip(&before).map(|(now, before)| now[word] ^ before[word]).collect::<Vec<u64>>();
        assert_eq!(changed.iter().map(|word| u64::from(word.count_ones())).sum::<u64>(), count);
    }
}
