//! Tests of `revalidate`.

use super::*;
use crate::allocator::zones::Hint;
use crate::format::finding::Finding;
use crate::pool::Pool;
use crate::sync::backoff::rest_with;
use crate::tests::fixtures::reopened;
use crate::tests::interleavings::{Hooked, hooked, offset_of};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tempfile::TempDir;
use terrace_medium::{Access, Shm};

const SMALL: usize = 64;
/// An extent.
const LARGE: usize = 1000;

fn blocks<M: MappedMedium>(pool: &Pool<M>, count: usize, bytes: usize) -> Vec<u64> {
    let guard = pool.pin();
    (0..count).map(|_| guard.alloc(bytes).unwrap().fenced_later().into_offset()).collect()
}

/// Extents, a slab that has free blocks, and one that has none.
fn fill<M: MappedMedium>(pool: &Pool<M>) {
    let classes = &pool.0.units().classes;
    let class = classes.get(classes.of(SMALL as u64).unwrap()).unwrap();
    blocks(pool, class.blocks as usize + 5, SMALL);
    blocks(pool, 20, LARGE);
}

fn state<M: MappedMedium>(pool: &Pool<M>, unit: u64) -> UnitState {
    UnitState(pool.0.units().unit(unit).state.load(pool.medium(), Relaxed))
}

/// What a thread leaves that dies during the revalidation of a unit in `state`.
fn left_revalidating<M: MappedMedium>(pool: &Pool<M>, unit: u64, state: UnitState) -> UnitState {
    let revalidating = state.at_open_seq(pool.0.base().open_seq).with(UnitUse::Revalidating);
    pool.0.units().unit(unit).state.store(pool.medium(), revalidating.0, Relaxed);
    revalidating
}

/// Units that are slabs in this use, or granules of which some are taken.
fn units_in_use<M: MappedMedium>(pool: &Pool<M>, usage: UnitUse) -> Vec<u64> {
    let is_taken = |unit| {
        pool.0.units().unit(unit).taken.load(pool.medium(), Relaxed)
            & !pool.0.units().header_granules_of(unit)
            != 0
    };
    pool.0.units().all_units().filter(|&unit| state(pool, unit).usage() == usage && is_taken(unit)).collect()
}

/// The units of [`fill`] as a close leaves them.
fn closed_units<M: MappedMedium>(pool: &Pool<M>) -> Vec<u64> {
    let uses = [UnitUse::Reserve, UnitUse::Full, UnitUse::Listed, UnitUse::Granules];
    let units = uses.map(|usage| units_in_use(pool, usage));
    assert!(units.iter().all(|units| !units.is_empty()), "{units:?}");
    units.concat()
}

#[test]
fn resumed_revalidation_restores_closed_units() {
    let (_directory, pool) = reopened::<Shm>(Start::Clean, fill);
    for unit in closed_units(&pool) {
        let entry = pool.0.units().unit(unit);
        let words = || [&entry.taken, &entry.link].map(|word| word.load(pool.medium(), Relaxed));
        let (before, left) = (state(&pool, unit), words());
        let revalidating = left_revalidating(&pool, unit, before);
        pool.0.units().resume_revalidation(unit, revalidating);
        let after = (state(&pool, unit), words(), entry.old.load(pool.medium(), Relaxed));
        assert!(
            after == (before.at_open_seq(pool.0.base().open_seq), left, 0),
            "{unit}: {:?}",
            before.usage()
        );
    }
    assert_eq!(pool.verify_memory(), []);
}

#[test]
fn resumed_revalidation_makes_units_of_a_crash_unclean() {
    let (_directory, pool) = reopened::<Shm>(Start::Unclean, fill);
    assert_eq!(pool.verify_memory(), [], "before any unit was touched");
    let open_seq = pool.0.base().open_seq;
    let units: Vec<u64> =
        pool.0.units().all_units().filter(|&unit| state(&pool, unit).open_seq() != open_seq).collect();
    let (mut slabs, mut granules) = (0, 0);
    for unit in units {
        let (entry, before) = (pool.0.units().unit(unit), state(&pool, unit));
        let taken = entry.taken.load(pool.medium(), Relaxed) & !pool.0.units().header_granules_of(unit);
        let revalidating = left_revalidating(&pool, unit, before);
        pool.0.units().resume_revalidation(unit, revalidating);
        let (after, old) = (state(&pool, unit), entry.old.load(pool.medium(), Relaxed));
        if let Some(number) = before.class() {
            let class = pool.0.units().classes.get(number).unwrap();
            assert!(after == UnitState::slab(open_seq, number, UnitUse::Unclean) && old == 0);
            assert_eq!(pool.0.units().fill(unit, class), Fill::Full);
            slabs += 1;
        } else {
            assert!(after == UnitState::granules(open_seq) && old == taken);
            granules += taken.count_ones();
        }
    }
    assert!(slabs == 2 && granules == 20 * 16, "{slabs} slabs and {granules} granules");
}

#[test]
fn granules_set_in_either_word_are_old_and_reclaimed() {
    let mut unit = 0;
    let (_directory, pool) = reopened::<Shm>(Start::Unclean, |pool| {
        unit = pool.0.units().unit_at(blocks(pool, 1, LARGE)[0]).unwrap();
        // Of an extent that was being taken, and of one that was being freed.
        let entry = pool.0.units().unit(unit);
        entry.taken.fetch_or(pool.medium(), 1 << 60, Relaxed);
        entry.link.fetch_or(pool.medium(), 1 << 62, Relaxed);
        assert!(entry.taken.load(pool.medium(), Relaxed) & 1 << 62 == 0);
    });
    pool.0.units().revalidate(unit);
    let old = pool.0.units().unit(unit).old.load(pool.medium(), Relaxed);
    assert_eq!(old >> 56, 0b0101_0000);
    let entry = pool.0.units().unit(unit);
    let [taken, link] = [&entry.taken, &entry.link].map(|word| word.load(pool.medium(), Relaxed));
    assert_eq!((taken & !pool.0.units().header_granules_of(unit), link), (old, old), "both say so now");
    pool.collect(&mut |_| ());
    assert_eq!((pool.space().used_by_blocks, pool.verify_memory()), (0, vec![]));
}

#[test]
fn thread_waits_for_a_revalidation_in_progress() {
    let (_directory, pool) = reopened::<Hooked>(Start::Clean, fill);
    for unit in closed_units(&pool) {
        let before = state(&pool, unit);
        let revalidating = left_revalidating(&pool, unit, before);
        let (other, mut looks) = (pool.clone(), 0);
        let at = offset_of(&pool.0, &pool.0.units().unit(unit).state);
        let go_on = move |access, offset| {
            looks += u32::from((access, offset) == (Access::Load, at));
            if looks == 5 {
                other.0.units().resume_revalidation(unit, revalidating);
            }
        };
        let seen = hooked(go_on, || pool.0.units().revalidate(unit));
        assert!(seen == before.at_open_seq(pool.0.base().open_seq), "{unit}: {:?}", seen.usage());
    }
    assert_eq!(pool.faults(), 0);
}

#[test]
fn unclean_slab_needs_a_whole_unit_and_a_valid_class() {
    let (_directory, pool) = reopened::<Shm>(Start::Unclean, fill);
    let medium = pool.medium();
    let unit = pool.0.units().all_units().find(|&unit| state(&pool, unit).usage() == UnitUse::Full).unwrap();
    let found = state(&pool, unit);
    let is_damaged = |unit, state: UnitState, taken| {
        pool.0.units().unit(unit).taken.store(medium, taken, Relaxed);
        matches!(pool.0.units().verdict(unit, state), Verdict::Damaged)
    };
    assert!(!is_damaged(unit, found, !0));
    assert!(is_damaged(unit, found, !1) && is_damaged(0, found, !0));
    let beyond = UnitState::slab(found.open_seq(), pool.0.units().classes.len(), UnitUse::Full);
    assert!(is_damaged(unit, beyond, !0));
    assert!(
        is_damaged(unit, UnitState(found.0 ^ 1), !0)
            && is_damaged(unit, found.with(UnitUse::Quarantined), !0)
    );
    pool.abandon();
}

thread_local!(static RESTS: Cell<u32> = const { Cell::new(0) });

/// Waits for a unit whose revalidation no thread completes. Returns how often it has slept.
fn wait_in_vain(pool: &Pool<Shm>) -> u32 {
    let unit = units_in_use(pool, UnitUse::Granules)[0];
    let revalidating = left_revalidating(pool, unit, state(pool, unit));
    let wait = || {
        rest_with(|| {
            RESTS.set(RESTS.get() + 1);
            assert!(RESTS.get() < 100_000, "the wait has no end");
        });
        assert!(pool.0.units().revalidate(unit) == revalidating);
        RESTS.get()
    };
    std::thread::scope(|scope| scope.spawn(wait).join().unwrap())
}

#[test]
fn wait_for_a_unit_under_revalidation_is_bounded() {
    let (_directory, pool) = reopened::<Shm>(Start::Clean, fill);
    let slept = wait_in_vain(&pool);
    assert_eq!(pool.faults(), 1, "so the unit counts as damaged");
    // After a crash of a thread that may have been revalidating it, the collector takes care of
    // it.
    pool.request_collection();
    assert!(wait_in_vain(&pool) < slept / 100);
    assert_eq!(pool.faults(), 1);
}

/// A pool that was closed cleanly, and in which every third unit was damaged afterwards.
fn with_damage() -> (TempDir, Pool<Hooked>, Vec<u64>) {
    let (directory, pool) = reopened::<Hooked>(Start::Clean, fill);
    let damaged: Vec<u64> = pool
        .0
        .units()
        .all_units()
        .filter(|&unit| {
            unit % 3 == 1
                && pool.0.units().header_granules_of(unit) == 0
                && state(&pool, unit).open_seq() != pool.0.base().open_seq
        })
        .collect();
    damaged.iter().for_each(|&unit| _ = pool.0.units().unit(unit).old.fetch_add(pool.medium(), 4, Relaxed));
    (directory, pool, damaged)
}

#[test]
fn damaged_unit_is_quarantined_by_one_store() {
    let (_directory, pool, damaged) = with_damage();
    for unit in damaged {
        let states = Rc::new(RefCell::new(Vec::new()));
        let at = offset_of(&pool.0, &pool.0.units().unit(unit).state);
        let (other, seen) = (pool.clone(), states.clone());
        let look = move |access, offset| {
            if offset == at && access != Access::Load {
                seen.borrow_mut().push(state(&other, unit));
            }
        };
        let revalidated = hooked(look, || pool.0.units().revalidate(unit));
        let damaged = UnitState::quarantined(pool.0.base().open_seq);
        assert!(revalidated == damaged && states.borrow().iter().all(|&seen| seen == damaged), "{unit}");
    }
}

#[test]
fn quarantined_unit_is_skipped_by_allocation() {
    let (_directory, pool, damaged) = with_damage();
    damaged.iter().for_each(|&unit| assert!(pool.0.units().revalidate(unit).usage() == UnitUse::Quarantined));
    let zones = &pool.0.units().zones;
    for &unit in &damaged {
        for hint in [Hint::Empty, Hint::Room] {
            let (word, bit) = pool.0.units().hint_word(hint, &zones.of_unit(unit), unit);
            assert_eq!(word.load(pool.medium(), Relaxed) & bit, 0, "{unit}");
        }
    }
    let space = pool.space();
    assert_eq!(space.damaged, (damaged.len() as u64) << zones.slab_log2);
    assert!(space.largest_free_extent < 3 << zones.slab_log2, "{space:?}");
}

#[test]
fn contradicted_unit_is_quarantined_and_frees_nothing() {
    let mut kept = Vec::new();
    let mut wrong = [0; 3];
    let (_directory, pool) = reopened::<Shm>(Start::Unclean, |pool| {
        kept = blocks(pool, 40, SMALL);
        // A small block, an extent, and another small block.
        wrong = [24, LARGE, 96].map(|bytes| blocks(pool, 10, bytes)[0]);
    });
    let bytes = |pool: &Pool<Shm>| {
        let shared = pool.0.base().shared();
        [&shared.small_base, &shared.large_base].map(|word| word.load(pool.medium(), Relaxed)).iter().sum()
    };
    pool.0.units().all_units().for_each(|unit| _ = pool.0.units().revalidate(unit));
    let units = wrong.map(|offset| pool.0.units().unit_at(offset).unwrap());
    let all: u64 = bytes(&pool);
    let extents = pool.0.units().unit(units[1]).old.load(pool.medium(), Relaxed).count_ones();
    let report = pool.collect(&mut |marker| {
        kept.iter().for_each(|&offset| marker.mark(offset, SMALL));
        // One of another size, a small one, and an extent.
        marker.mark(wrong[0], 200);
        marker.mark(wrong[1], SMALL);
        marker.mark(pool.0.units().zones.start_of(units[2]), LARGE);
    });
    assert_eq!((report.marked, report.unsound), (43, 2));
    assert!(units.iter().all(|&unit| state(&pool, unit) == UnitState::quarantined(pool.0.base().open_seq)));
    let space = pool.space();
    let granule = 1 << pool.0.units().zones.granule_log2();
    let apart: u64 = units
        .map(|unit| u64::from(pool.0.units().header_granules_of(unit).count_zeros()) * granule)
        .iter()
        .sum();
    assert_eq!((space.used_by_blocks, space.damaged), (40 * SMALL as u64, apart), "{space:?}");
    let blocks = [24, 96].map(|bytes| {
        let classes = &pool.0.units().classes;
        let class = classes.get(classes.of(bytes).unwrap()).unwrap();
        u64::from(class.blocks * class.size)
    });
    let kept = blocks[0] + blocks[1] + u64::from(extents) * granule + 40 * SMALL as u64;
    assert_eq!(report.freed, all - kept);
    let places: Vec<u64> = pool.verify_memory().iter().map(|found: &Finding| found.offset).collect();
    let mut expected = units.map(|unit| pool.0.units().zones.start_of(unit));
    expected.sort_unstable();
    assert_eq!(places, expected);
}
