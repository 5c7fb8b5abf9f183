//! Tests of `slots`.

use super::*;
use crate::format::layout::Geometry;
use crate::open::options::PoolOptions;
use crate::pool::Pool;
use crate::reclaim::epoch::DEPTH_MASK;
use crate::sync::lock::set_thread_number;
use crate::tests::fixtures::{participants, recovering};
use std::sync::mpsc;
use terrace_medium::{Dram, Shm};

fn pool(slots: u32) -> Pool<Dram> {
    Pool::anonymous_with(1 << 20, Geometry { thread_slots: slots, ..Geometry::tiny() }).unwrap()
}

/// Participants of one pool.
fn shared<const N: usize>(slots: u32) -> (tempfile::TempDir, [Pool<Shm>; N]) {
    participants(Geometry { thread_slots: slots, ..Geometry::tiny() })
}

/// Returns what `run` returns, in a thread that has ended by then.
fn in_thread<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// Runs `each` in `threads` threads, one after the other, and then `run` while all of them
/// still exist. They have ended on return.
fn with_threads<R>(threads: usize, each: impl Fn() + Sync, run: impl FnOnce() -> R) -> R {
    std::thread::scope(|scope| {
        // The threads end when these senders are dropped, also by a panic.
        let (mut stay, mut there) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let (go, wait) = mpsc::channel::<()>();
            let (report, done) = mpsc::channel();
            let each = &each;
            there.push(scope.spawn(move || {
                each();
                report.send(()).unwrap();
                let _ = wait.recv();
            }));
            done.recv().unwrap();
            stay.push(go);
        }
        let result = run();
        drop(stay);
        // A scope alone does not wait for thread-local destructors, which return the slots.
        there.into_iter().for_each(|thread| thread.join().unwrap());
        result
    })
}

#[test]
fn slot_index_follows_position() {
    let pool = pool(7);
    assert!((0..7).all(|index| pool.0.base().index_of(pool.0.base().thread_slot(index)) == u64::from(index)));
}

#[test]
fn next_thread_takes_slot_and_caches_of_an_ended_one() {
    let pool = pool(8);
    let unit_of = |offset: u64| pool.0.units().unit_at(offset).unwrap();
    let units: Vec<u64> = (0..20)
        .map(|_| in_thread(|| unit_of(pool.pin().alloc(64).unwrap().fenced_later().into_offset())))
        .collect();
    assert_eq!((pool.0.epochs().count_taken_slots(), pool.0.base().used_slots().count()), (1, 1));
    assert!(units.iter().all(|&unit| unit == units[0]), "all from one slab: {units:?}");
    // Two concurrent threads need two.
    with_threads(
        1,
        || drop(pool.pin()),
        || {
            drop(pool.pin());
            assert_eq!((pool.0.epochs().count_taken_slots(), pool.0.base().used_slots().count()), (2, 2));
        },
    );
}

#[test]
fn thread_has_one_slot_per_pool() {
    let pools = [pool(8), pool(8), pool(8)];
    for _ in 0..3 {
        for pool in &pools {
            assert_eq!(pool.try_pin().unwrap().slot_index(), 0);
            assert_eq!(pool.0.epochs().count_taken_slots(), 1);
        }
    }
    // Another thread takes a slot in each, too.
    in_thread(|| pools.iter().for_each(|pool| assert_eq!(pool.try_pin().unwrap().slot_index(), 1)));
}

#[test]
fn thread_forgets_only_closed_pools() {
    in_thread(|| {
        let kept = pool(8);
        drop(kept.pin());
        for _ in 0..20 {
            drop(pool(8).pin());
        }
        assert!(TAKEN_SLOTS.with(|slots| slots.0.borrow().len()) <= 2);
        drop(kept.pin());
        assert_eq!(kept.0.epochs().count_taken_slots(), 1);
    });
}

#[test]
fn at_most_three_quarters_of_slots_are_kept() {
    for (slots, kept) in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 3), (7, 5), (8, 6), (9, 6)] {
        let pool = pool(slots);
        for threads in 0..=slots as usize {
            let taken = with_threads(threads, || drop(pool.pin()), || pool.0.epochs().count_taken_slots());
            assert_eq!(taken, kept.min(threads as u64), "of {slots}, by {threads} threads");
            assert_eq!(pool.0.base().shared().slots_taken.load(pool.medium(), Relaxed), taken);
            // Release the slots that the threads left, for the next round.
            pool.0.epochs().for_each_idle_slot(|_| ());
            assert_eq!(pool.0.epochs().count_taken_slots(), 0, "of {slots}, by {threads} threads");
        }
    }
}

#[test]
fn kept_slots_are_limited_across_participants() {
    for (slots, kept) in [(4, 3), (8, 6)] {
        let (_directory, [one, two]) = shared::<2>(slots);
        let taken = with_threads(
            slots as usize / 2,
            || drop(one.pin()),
            || with_threads(slots as usize / 2, || drop(two.pin()), || one.0.epochs().count_taken_slots()),
        );
        assert_eq!(taken, kept, "of {slots}");
    }
}

#[test]
fn temporary_slot_is_free_after_the_pin() {
    let (small, large) = (pool(1), pool(8));
    let slot = large.pin().slot_index();
    for _ in 0..3 {
        let guard = small.pin();
        assert_eq!((small.0.epochs().count_taken_slots(), guard.slot_index()), (1, 0));
        let inner = small.pin();
        drop(guard);
        assert_eq!((small.0.epochs().count_taken_slots(), inner.depth()), (1, 1));
        drop(inner);
        assert_eq!(small.0.epochs().count_taken_slots(), 0);
        // This thread's slot in another pool is unaffected.
        assert_eq!((large.pin().slot_index(), large.0.epochs().count_taken_slots()), (slot, 1));
        in_thread(|| assert_eq!(small.pin().slot_index(), 0));
    }
}

#[test]
fn temporary_slots_are_searched_from_the_thread_number() {
    let pool = pool(16);
    with_threads(
        12,
        || drop(pool.pin()),
        || {
            assert_eq!((pool.0.epochs().count_taken_slots(), pool.0.base().used_slots().count()), (12, 12));
            let slot_of = |number| {
                in_thread(|| {
                    set_thread_number(number);
                    pool.pin().slot_index()
                })
            };
            // Searched from there, wrapping around.
            let slots = [(12, 12), (14, 14), (15, 15), (16 + 13, 13), (16, 12), (16 + 5, 12)];
            for (number, slot) in slots {
                assert_eq!(slot_of(number), slot, "number {number}");
            }
        },
    );
}

#[test]
fn heavy_pins_carry_the_full_barrier_flag() {
    let options = |slots| {
        PoolOptions::anonymous().size(1 << 20).geometry(Geometry { thread_slots: slots, ..Geometry::tiny() })
    };
    // In a slot that is kept, and in one that is not.
    for slots in [8, 1] {
        let heavy = options(slots).reproducible().create::<Dram>().unwrap();
        let usual = options(slots).create::<Dram>().unwrap();
        assert!(!heavy.0.base().light_pins);
        for pool in [&heavy, &usual] {
            for _ in 0..2 {
                let guard = pool.pin();
                let pin_word = guard.thread_slot().pin.load(pool.medium(), Relaxed);
                assert_eq!(
                    (pin_word & FULL_BARRIER == 0, pin_word & DEPTH_MASK),
                    (pool.0.base().light_pins, 1)
                );
            }
        }
    }
}

#[test]
fn next_thread_in_slot_retires_overflow_entries() {
    let pool = pool(8);
    in_thread(|| {
        let guard = pool.pin();
        let block = guard.alloc(64).unwrap().fenced_later().into_offset();
        pool.0.limbo().push_overflow(guard.thread_slot(), block, 64, &recovering(&pool.0));
        // The thread ends before a limbo chunk could be allocated.
        let slot = guard.thread_slot();
        std::mem::forget(guard);
        pool.0.epochs().clear_pin(slot, 0);
    });
    let overflow_and_entries = |pool: &Pool<Dram>| {
        let slot = pool.0.base().thread_slot(0);
        (slot.overflow_count.load(pool.medium(), Relaxed), slot.chunk_entries.load(pool.medium(), Relaxed))
    };
    assert_eq!(overflow_and_entries(&pool), (1, 0));
    drop(pool.pin());
    assert_eq!(overflow_and_entries(&pool), (0, 1), "moved to a limbo chunk");
    pool.reclaim_blocking();
    assert_eq!((pool.space().waiting_bytes, pool.space().used_by_blocks), (0, 0));
}

#[test]
fn retirements_of_ended_threads_are_reclaimed() {
    let pool = pool(8);
    with_threads(
        3,
        || {
            let guard = pool.pin();
            guard.retire(guard.alloc(64).unwrap().fenced_later().into_offset(), 64);
        },
        || (),
    );
    assert_eq!(pool.space().waiting_bytes, 3 * 64);
    pool.reclaim_blocking();
    assert_eq!((pool.space().waiting_bytes, pool.space().used_by_blocks), (0, 0));
}

#[test]
fn close_releases_only_own_slots() {
    let (_directory, [leaver, other]) = shared::<2>(8);
    let kept = [&leaver, &other].map(|pool| pool.pin().alloc(64).unwrap().fenced_later().into_offset());
    let guard = other.pin();
    let slot = guard.slot_index();
    // Two slots of the leaver, one of which its thread left, and one of the other's.
    in_thread(|| drop(leaver.pin()));
    assert_eq!(other.0.epochs().count_taken_slots(), 3);
    leaver.close().unwrap();
    assert_eq!((other.0.epochs().count_taken_slots(), guard.depth()), (1, 1));
    let holder = other.0.base().thread_slot(slot as u32).owner_lock.holder(other.0.base());
    assert_eq!(holder, Some((u32::from(other.owner().participant), other.owner().incarnation)));
    assert_eq!(other.0.base().shared().slots_taken.load(other.medium(), Relaxed), 1);
    kept.iter().for_each(|&offset| guard.free(offset, 64));
    drop(guard);
    assert_eq!((other.faults(), other.verify_memory()), (0, vec![]));
}

#[test]
fn extra_slot_is_any_free_one_or_panics() {
    let pool = pool(4);
    let guard = pool.pin();
    let mut taken = vec![guard.slot_index() as u32];
    taken.extend([(); 3].map(|()| pool.0.peers.claim_extra_slot()));
    taken.sort();
    assert_eq!((taken, pool.0.epochs().count_taken_slots()), (vec![0, 1, 2, 3], 4));
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.0.peers.claim_extra_slot()));
    assert!(refused.is_err());
    pool.0.base().release_slot(2);
    assert_eq!(pool.0.peers.claim_extra_slot(), 2);
}
