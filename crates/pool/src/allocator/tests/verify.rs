//! Tests of `verify`.

use super::*;
use crate::pool::Pool;
use crate::tests::fixtures::exclusive_pool;
use terrace_medium::{Dram, Word};

/// A pool with extents, and with slabs in each use that a sound pool has.
fn pool() -> Pool<Dram> {
    let pool = exclusive_pool::<Dram>();
    let guard = pool.pin();
    let blocks: Vec<u64> = (0..20).map(|_| guard.alloc(512).unwrap().fenced_later().into_offset()).collect();
    guard.free(blocks[0], 512);
    (0..3).for_each(|_| _ = guard.alloc(1000).unwrap().fenced_later().into_offset());
    drop(guard);
    assert_eq!(pool.verify_memory(), []);
    pool
}

fn unit(pool: &Pool<Dram>, usage: UnitUse) -> u64 {
    let is_one = |&unit: &u64| {
        pool.0.units().predicted_state(unit).usage() == usage
            && pool.0.units().predicted_state(unit).class().is_some()
    };
    pool.0.units().all_units().find(is_one).unwrap()
}

fn free_unit(pool: &Pool<Dram>) -> u64 {
    let is_free = |&unit: &u64| pool.0.units().unit(unit).taken.load(pool.medium(), Relaxed) == 0;
    pool.0.units().all_units().find(is_free).unwrap()
}

fn set(pool: &Pool<Dram>, word: &Word, value: u64) {
    word.store(pool.medium(), value, Relaxed);
}

fn set_state(pool: &Pool<Dram>, usage: UnitUse, to: impl Fn(UnitState) -> UnitState) {
    let unit = unit(pool, usage);
    set(pool, &pool.0.units().unit(unit).state, to(pool.0.units().predicted_state(unit)).0);
}

fn clear_hint(pool: &Pool<Dram>, hint: Hint) {
    let unit = free_unit(pool);
    let (word, bit) = pool.0.units().hint_word(hint, &pool.0.units().zones.of_unit(unit), unit);
    word.fetch_and(pool.medium(), !bit, Relaxed);
}

/// A fault, its name in the findings, and whether a dead thread may leave it.
type Wrong = (fn(&Pool<Dram>), &'static str, bool);

const WRONG: [Wrong; 23] = [
    (|pool| clear_hint(pool, Hint::Empty), "the hints of a zone", false),
    (|pool| clear_hint(pool, Hint::Room), "the hints of a zone", false),
    (|pool| set(pool, &pool.0.units().unit(0).taken, 0), "the granules of a zone's header", false),
    (|pool| set(pool, &pool.0.units().unit(0).old, 1), "the old granules of a unit", true),
    (|pool| set(pool, &pool.0.units().unit(0).old, !0), "the old granules of a unit", false),
    (
        |pool| set(pool, &pool.0.units().unit(0).state, UnitState::granules(1).with(UnitUse::Revalidating).0),
        "a unit",
        true,
    ),
    (|pool| set(pool, &pool.0.units().unit(0).link, 1), "the copy of a unit's granule bits", true),
    (|pool| set(pool, &pool.0.base().shared().small_base, 8), "bytes in small blocks", true),
    (|pool| set(pool, &pool.0.base().shared().large_base, 64), "bytes in extents", true),
    (|pool| set(pool, &pool.0.units().unit(unit(pool, UnitUse::Full)).taken, 1), "a slab", false),
    (|pool| set_state(pool, UnitUse::Full, |state| state.with(UnitUse::Listed)), "a slab", true),
    (|pool| set_state(pool, UnitUse::Full, |state| state.with(UnitUse::Owned)), "a slab", true),
    (|pool| set_state(pool, UnitUse::Full, |state| state.with(UnitUse::Granules)), "a slab", true),
    (|pool| set_state(pool, UnitUse::Full, |state| state.with(UnitUse::Unclean)), "a slab", false),
    (
        |pool| set_state(pool, UnitUse::Full, |state| UnitState::slab(state.open_seq(), 95, UnitUse::Full)),
        "a slab",
        false,
    ),
    (|pool| set_state(pool, UnitUse::Reserve, |state| state.with(UnitUse::Full)), "a slab in no list", true),
    (|pool| set_state(pool, UnitUse::Listed, |state| state.with(UnitUse::Full)), "a list of slabs", false),
    (
        |pool| set_state(pool, UnitUse::Owned, |state| state.with(UnitUse::Full)),
        "the cache of a thread slot",
        false,
    ),
    (
        |pool| set(pool, &pool.0.units().unit(unit(pool, UnitUse::Listed)).link, 1 << 20),
        "a list of slabs",
        false,
    ),
    (|pool| lead_round(pool), "a list of slabs", false),
    (|pool| own(pool, pool.size()), "the cache of a thread slot", false),
    (|pool| own(pool, pool.0.units().zones.start_of(unit(pool, UnitUse::Owned))), "an owned slab", false),
    (|pool| pool.0.base().count_fault(), "the count of invalid frees and damaged lists", false),
];

fn lead_round(pool: &Pool<Dram>) {
    let unit = unit(pool, UnitUse::Listed);
    set(pool, &pool.0.units().unit(unit).link, unit + 1);
}

/// Puts the slab at `at` into another cache of the slot, that of the class before.
fn own(pool: &Pool<Dram>, at: u64) {
    let last = pool.0.units().classes.of(512).unwrap();
    set(pool, &pool.0.base().thread_slot(0).caches[last - 1].place, at);
}

#[test]
fn every_fault_is_found_and_crash_remains_only_when_collected() {
    for (number, (spoil, what, may_be_left)) in WRONG.into_iter().enumerate() {
        let pool = pool();
        spoil(&pool);
        let found = pool.verify_memory();
        assert!(found.iter().any(|finding| finding.what == what), "{number}, {what}: {found:?}");
        pool.request_collection();
        let found = pool.verify_memory();
        let is_found = found.iter().any(|finding| finding.what == what);
        assert_eq!(is_found, !may_be_left, "{number}, {what}, with a collection pending: {found:?}");
        pool.abandon();
    }
}

#[test]
fn finding_states_place_and_cause() {
    let pool = pool();
    let [damaged, reserve] = [free_unit(&pool), unit(&pool, UnitUse::Reserve)];
    set(&pool, &pool.0.units().unit(damaged).state, UnitState::quarantined(pool.0.base().open_seq).0);
    set_state(&pool, UnitUse::Reserve, |state| state.with(UnitUse::Granules));
    let [start, slab] = [damaged, reserve].map(|unit| pool.0.units().zones.start_of(unit));
    let class = pool.0.units().classes.of(512).unwrap();
    let found = format!("a slab of class {class}, Granules, open sequence {}", pool.0.base().open_seq);
    let expected = [
        Finding::new(start, "the description of a memory unit", "intact metadata", "damage")
            .with_bytes(1 << pool.0.units().zones.slab_log2),
        Finding::new(slab, "a slab", "a use that slabs have", found),
    ];
    let mut all = pool.verify_memory();
    all.sort_by_key(|finding| finding.what.len());
    all.reverse();
    assert_eq!(all, expected);
    assert_eq!(describe(UnitState::granules(7)), "Granules, open sequence 7");
    pool.abandon();
}

#[test]
fn a_slab_that_has_yet_to_be_collected_is_in_order() {
    let (_directory, pool) = crate::tests::fixtures::reopened::<Dram>(crate::Start::Unclean, |pool| {
        let _ = pool.pin().alloc(64).unwrap().fenced_later().into_offset();
    });
    let revalidated = |unit| pool.0.units().revalidate(unit).usage();
    assert!(pool.0.units().all_units().map(revalidated).any(|usage| usage == UnitUse::Unclean));
    assert_eq!(pool.verify_memory(), []);
}

#[test]
fn a_pool_that_is_damaged_all_over_is_not_described_to_the_end() {
    let pool = Pool::<Dram>::anonymous_with(8 << 20, crate::tests::fixtures::geometry()).unwrap();
    let units: Vec<u64> = pool.0.units().all_units().collect();
    assert!(units.len() > FINDINGS_MAX + 1);
    let damaged = UnitState::quarantined(pool.0.base().open_seq).0;
    units.iter().for_each(|&unit| set(&pool, &pool.0.units().unit(unit).state, damaged));
    assert_eq!(pool.verify_memory().len(), FINDINGS_MAX);
    pool.abandon();
}
