//! Tests of `orphans`.

use super::*;
use crate::pool::Pool;
use crate::tests::fixtures::{collection, exclusive_pool};
use crate::tests::interleavings::{Hooked, hooked};
use terrace_medium::{Access, Dram, Word};

/// The class whose lists and slabs the tests use.
const NUMBER: usize = 5;

/// A slab of class `number` in use `usage`, in no list and no cache.
fn slab_of<M: MappedMedium>(pool: &Pool<M>, number: usize, usage: UnitUse) -> u64 {
    pool.0.heap().granules.take_unit(number, pool.0.units().classes.get(number).unwrap(), usage).unwrap()
}

fn slab<M: MappedMedium>(pool: &Pool<M>, usage: UnitUse) -> u64 {
    slab_of(pool, NUMBER, usage)
}

fn state<M: MappedMedium>(pool: &Pool<M>, unit: u64) -> UnitState {
    UnitState(pool.0.units().unit(unit).state.load(pool.medium(), Relaxed))
}

fn set_state<M: MappedMedium>(pool: &Pool<M>, unit: u64, state: UnitState) {
    pool.0.units().unit(unit).state.store(pool.medium(), state.0, Relaxed);
}

fn link<M: MappedMedium>(pool: &Pool<M>, unit: u64) -> &Word {
    &pool.0.units().unit(unit).link
}

fn head<M: MappedMedium>(pool: &Pool<M>) -> &Word {
    &pool.0.base().shared().lists[NUMBER].head
}

/// Writes this collection's round into a slab's link, as a thread that owns or pushes it does.
fn set_round<M: MappedMedium>(pool: &Pool<M>, unit: u64) {
    link(pool, unit).fetch_or(pool.medium(), pool.0.base().round(), Relaxed);
}

/// A new slab at the front of the list.
fn listed<M: MappedMedium>(pool: &Pool<M>) -> u64 {
    let unit = slab(pool, UnitUse::Listed);
    pool.0.heap().push(unit, pool.0.units().unit(unit), state(pool, unit));
    unit
}

fn no_units() -> Units {
    Units(vec![0; 8])
}

/// The slabs in the list, by one walk.
fn walk_once<M: MappedMedium>(pool: &Pool<M>) -> (Walk, Vec<u64>) {
    let mut seen = no_units();
    let ended = collection(&pool.0).walk_once(NUMBER, &mut seen);
    (ended, (0..8 * 64).filter(|&unit| seen.contains(unit)).collect())
}

#[test]
fn a_set_has_what_was_put_into_it() {
    let mut units = no_units();
    let put_in = [0, 5, 63, 64, 130, 511];
    put_in.iter().for_each(|&unit| units.insert(unit));
    // Too large for the set.
    units.insert(512);
    let found: Vec<u64> = (0..2000).filter(|&unit| units.contains(unit)).collect();
    assert_eq!(found, put_in);
}

#[test]
fn a_walk_sees_what_is_in_the_list_whenever_it_was_put_there() {
    let pool = exclusive_pool::<Dram>();
    assert_eq!(walk_once(&pool), (Walk::Whole, vec![]));
    let mut all = vec![listed(&pool), listed(&pool)];
    // During an earlier collection, whose round means nothing any more.
    collection(&pool.0).start_marking();
    all.extend([listed(&pool), listed(&pool)]);
    // And during this one.
    collection(&pool.0).start_marking();
    all.extend([listed(&pool), listed(&pool)]);
    slab(&pool, UnitUse::Listed);
    all.sort_unstable();
    assert_eq!(walk_once(&pool), (Walk::Whole, all));
    assert!(collection(&pool.0).walk(NUMBER, &mut no_units()) == Walk::Whole);
}

/// Ways to break a list, given the slab at its front.
type Spoil = fn(&Pool<Hooked>, u64);

fn leads_out_of_the_pool(pool: &Pool<Hooked>, unit: u64) {
    link(pool, unit).store(pool.medium(), 1 << 24, Relaxed);
}

fn leads_round(pool: &Pool<Hooked>, unit: u64) {
    link(pool, unit).store(pool.medium(), unit + 1, Relaxed);
}

fn has_one_that_is_owned(pool: &Pool<Hooked>, unit: u64) {
    set_state(pool, unit, state(pool, unit).with(UnitUse::Owned));
}

fn has_one_of_another_class(pool: &Pool<Hooked>, unit: u64) {
    set_state(pool, unit, UnitState::slab(pool.0.base().open_seq, NUMBER + 1, UnitUse::Listed));
}

const SPOILT: [Spoil; 4] =
    [leads_out_of_the_pool, leads_round, has_one_that_is_owned, has_one_of_another_class];

/// Walks the list once while another thread pushes a slab, after the link of `at` was loaded.
/// Returns the result, and the slabs that were seen.
fn walk_concurrently(pool: &Pool<Hooked>, at: u64) -> (Walk, Vec<u64>) {
    let at = pool.0.base().region.offset_of(link(pool, at)).raw();
    let (other, mut is_in) = (pool.clone(), false);
    let put_one_in = move |access, offset| {
        if (access, offset) == (Access::Load, at) && !std::mem::replace(&mut is_in, true) {
            listed(&other);
        }
    };
    hooked(put_one_in, || walk_once(pool))
}

#[test]
fn broken_list_is_damaged_unless_changed_concurrently() {
    for spoil in SPOILT {
        for concurrent in [false, true] {
            let pool = exclusive_pool::<Hooked>();
            collection(&pool.0).start_marking();
            let unit = listed(&pool);
            spoil(&pool, unit);
            let (ended, _) = if concurrent { walk_concurrently(&pool, unit) } else { walk_once(&pool) };
            assert_eq!(ended, if concurrent { Walk::Disturbed } else { Walk::Damaged });
            // By now no thread changes it.
            let ended = collection(&pool.0).walk(NUMBER, &mut no_units());
            assert_eq!(ended, Walk::Damaged);
        }
    }
}

#[test]
fn walk_sees_old_entries_below_new_ones() {
    let pool = exclusive_pool::<Hooked>();
    let mut all = [listed(&pool), listed(&pool), listed(&pool)];
    collection(&pool.0).start_marking();
    let found = walk_concurrently(&pool, all[2]);
    all.sort_unstable();
    assert_eq!(found, (Walk::Whole, all.to_vec()));
}

#[test]
fn links_of_this_round_need_an_unchanged_list() {
    let pool = exclusive_pool::<Hooked>();
    let before = listed(&pool);
    collection(&pool.0).start_marking();
    let since = listed(&pool);
    assert_eq!(walk_concurrently(&pool, since), (Walk::Disturbed, vec![]));
    // The next walk sees what is there now.
    let (ended, seen) = walk_once(&pool);
    assert!(ended == Walk::Whole && seen.len() == 3);
    assert!(seen.contains(&before) && seen.contains(&since));
}

/// Simulates threads that change the list after each load of the link of `at`, `times` times.
fn restless(pool: &Pool<Hooked>, at: u64, times: u32) -> impl FnMut(Access, u64) + 'static {
    let at = pool.0.base().region.offset_of(link(pool, at)).raw();
    let (other, mut left) = (pool.clone(), times);
    move |access, offset| {
        if (access, offset) == (Access::Load, at) && left > 0 {
            left -= 1;
            head(&other).fetch_add(other.medium(), 1 << 32, Relaxed);
        }
    }
}

#[test]
fn disturbed_walk_is_retried_a_limited_number_of_times() {
    for (times, ended) in [(0, Walk::Whole), (100, Walk::Whole), (u32::MAX, Walk::Disturbed)] {
        let pool = exclusive_pool::<Hooked>();
        collection(&pool.0).start_marking();
        let (unit, mut seen) = (listed(&pool), no_units());
        assert_eq!(
            hooked(restless(&pool, unit, times), || collection(&pool.0).walk(NUMBER, &mut seen)),
            ended
        );
        assert_eq!(seen.contains(unit), ended == Walk::Whole);
    }
}

/// The candidates, where the units in `owned` are in caches, and whether all lists could be
/// walked.
fn candidates<M: MappedMedium>(pool: &Pool<M>, owned: &[u64]) -> (Vec<u64>, bool) {
    let (candidates, complete) = collection(&pool.0).orphan_candidates(&owned.iter().copied().collect());
    assert!(candidates.iter().all(|(&unit, &seen)| seen == state(pool, unit)));
    (candidates.into_keys().collect(), complete)
}

const LOSABLE: [UnitUse; 3] = [UnitUse::Owned, UnitUse::Listed, UnitUse::Reserve];

#[test]
fn consistent_slabs_are_not_candidates() {
    let pool = exclusive_pool::<Dram>();
    // The pool has a reserve.
    assert_ne!(pool.0.base().shared().reserve.load(pool.medium(), Relaxed), 0);
    let (_, owned, _) = (listed(&pool), slab(&pool, UnitUse::Owned), slab(&pool, UnitUse::Full));
    collection(&pool.0).start_marking();
    assert_eq!(candidates(&pool, &[owned]), (vec![], true));
}

#[test]
fn unlisted_slabs_without_owner_are_candidates() {
    let pool = exclusive_pool::<Dram>();
    let (_, owned) = (listed(&pool), slab(&pool, UnitUse::Owned));
    let mut lost = LOSABLE.map(|usage| slab(&pool, usage));
    collection(&pool.0).start_marking();
    lost.sort_unstable();
    assert_eq!(candidates(&pool, &[owned]), (lost.to_vec(), true));
}

#[test]
fn slabs_of_this_round_or_unrevalidated_are_no_candidates() {
    let pool = exclusive_pool::<Dram>();
    let [touched, older] = [(); 2].map(|()| LOSABLE.map(|usage| slab(&pool, usage)));
    let lost = slab(&pool, UnitUse::Owned);
    // A completed collection leaves its round.
    collection(&pool.0).start_marking();
    set_round(&pool, lost);
    collection(&pool.0).start_marking();
    touched.iter().for_each(|&unit| set_round(&pool, unit));
    older
        .iter()
        .for_each(|&unit| set_state(&pool, unit, state(&pool, unit).at_open_seq(pool.0.base().open_seq - 1)));
    assert_eq!(candidates(&pool, &[]), (vec![lost], true));
}

#[test]
fn damaged_list_yields_no_candidates_and_others_do() {
    let pool = exclusive_pool::<Hooked>();
    let unit = listed(&pool);
    slab(&pool, UnitUse::Listed);
    let other = slab_of(&pool, NUMBER + 1, UnitUse::Listed);
    collection(&pool.0).start_marking();
    leads_out_of_the_pool(&pool, unit);
    assert_eq!(candidates(&pool, &[]), (vec![other], true));
}

#[test]
fn disturbed_list_yields_no_candidates_and_is_incomplete() {
    let pool = exclusive_pool::<Hooked>();
    slab(&pool, UnitUse::Listed);
    collection(&pool.0).start_marking();
    let unit = listed(&pool);
    let found = hooked(restless(&pool, unit, u32::MAX), || candidates(&pool, &[]));
    assert_eq!(found, (vec![], false));
}

#[test]
fn unchanged_candidate_is_adopted() {
    for usage in LOSABLE {
        let pool = exclusive_pool::<Dram>();
        let unit = slab(&pool, usage);
        collection(&pool.0).start_marking();
        let candidate = state(&pool, unit);
        assert!(collection(&pool.0).adopt(unit, candidate), "{usage:?}");
        assert!(state(&pool, unit) == candidate.with(UnitUse::Owned), "{usage:?}");
    }
}

#[test]
fn changed_candidate_is_not_adopted() {
    for usage in LOSABLE {
        let pool = exclusive_pool::<Dram>();
        let [in_round, changed] = [(); 2].map(|()| slab(&pool, usage));
        collection(&pool.0).start_marking();
        let candidate = state(&pool, in_round);
        set_round(&pool, in_round);
        assert!(!collection(&pool.0).adopt(in_round, candidate), "{usage:?}");
        assert!(state(&pool, in_round) == candidate, "{usage:?}");
        // It belonged to another thread, which has continued with it.
        for now in [candidate.with(UnitUse::Full), UnitState::granules(pool.0.base().open_seq)] {
            set_state(&pool, changed, now);
            assert!(!collection(&pool.0).adopt(changed, candidate), "{usage:?}");
            assert!(state(&pool, changed) == now, "{usage:?}");
        }
    }
}

#[test]
fn reserve_and_full_slabs_are_not_adopted() {
    let pool = exclusive_pool::<Dram>();
    let reserve =
        pool.0.units().unit_at(pool.0.base().shared().reserve.load(pool.medium(), Relaxed)).unwrap();
    let full = slab(&pool, UnitUse::Full);
    collection(&pool.0).start_marking();
    for unit in [reserve, full] {
        let seen = state(&pool, unit);
        assert!(!collection(&pool.0).adopt(unit, seen) && state(&pool, unit) == seen);
    }
}
