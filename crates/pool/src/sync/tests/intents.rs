//! Tests of `intents`.

use super::Intent;
use crate::format::layout::Geometry;
use crate::format::slot::INTENTS;
use crate::pool::Pool;
use crate::sync::lock::Lock;
use crate::sync::locked::Locked;
use crate::tests::fixtures::participants;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Offset, Shm, Word};

const SLOTS: usize = 4;

fn shared() -> (tempfile::TempDir, [Pool<Shm>; 2]) {
    participants(Geometry { thread_slots: SLOTS as u32, ..Geometry::tiny() })
}

/// Returns the offset of `count` free locks.
fn locks(pool: &Pool<Shm>, count: usize) -> u64 {
    let at = pool.pin().alloc(8 * count).unwrap().fenced_later().into_offset();
    (0..count).for_each(|n| {
        pool.region().at(Offset::<Word>::new(at + 8 * n as u64)).store(pool.medium(), 0, Relaxed)
    });
    at
}

fn lock(pool: &Pool<Shm>, at: u64, n: usize) -> &Lock {
    pool.region().at(Offset::new(at + 8 * n as u64))
}

#[test]
fn survivor_releases_all_locks_of_the_dead() {
    for count in [INTENTS, INTENTS + 1, 3 * INTENTS] {
        let (_directory, [dead, survivor]) = shared();
        let at = locks(&dead, count);
        let guard = dead.pin();
        (0..count).for_each(|n| std::mem::forget(lock(&dead, at, n).acquire(&guard)));
        std::mem::forget(guard);
        dead.abandon();
        assert_eq!(survivor.recover_dead(), 1);
        let held = (0..count).filter(|&n| lock(&survivor, at, n).is_held(&survivor)).count();
        assert_eq!((held, survivor.0.epochs().count_taken_slots()), (0, 0), "of {count}");
    }
}

fn intents_set(pool: &Pool<Shm>) -> usize {
    pool.0
        .base()
        .used_slots()
        .map(|slot| slot.intents_set.load(pool.medium(), Relaxed).count_ones() as usize)
        .sum()
}

#[test]
fn extra_slot_is_returned_with_its_last_intent() {
    let (_directory, [pool, other]) = shared();
    let (at, at_other) = (locks(&pool, 3 * INTENTS), locks(&other, 1));
    let (guard, guard_of_other) = (pool.pin(), other.pin());
    for (first, count) in
        [(0, INTENTS + 3), (5, 2 * INTENTS), (17, 3 * INTENTS), (31, 3 * INTENTS), (0, INTENTS + 1)]
    {
        let mut held: Vec<Option<Locked<'_, Shm>>> =
            (0..count).map(|n| Some(lock(&pool, at, n).acquire(&guard))).collect();
        drop(lock(&other, at_other, 0).acquire(&guard_of_other));
        let slots = count.div_ceil(INTENTS) as u64;
        assert_eq!(
            pool.0.epochs().count_taken_slots(),
            1 + slots,
            "one of this thread in each pool, and the extra ones"
        );
        for left in (0..count).rev() {
            drop(held[(first + 5 * left) % count].take());
            assert_eq!(intents_set(&pool), left, "from {first} on, of {count}");
        }
        assert_eq!(pool.0.epochs().count_taken_slots(), 2, "from {first} on, of {count}");
    }
}

#[test]
fn lock_without_extra_slot_panics_and_releases_others() {
    let (_directory, [pool, _other]) = shared();
    let room = SLOTS * INTENTS;
    let at = locks(&pool, room + 1);
    let guard = pool.pin();
    let held: Vec<_> = (0..room).map(|n| lock(&pool, at, n).acquire(&guard)).collect();
    let refused = catch_unwind(AssertUnwindSafe(|| drop(lock(&pool, at, room).try_acquire(&guard))));
    let message = refused.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(*message, "the pool's 4 thread slots are all taken");
    drop(held);
    assert!((0..=room).all(|n| !lock(&pool, at, n).is_held(&pool)));
    assert_eq!(pool.0.epochs().count_taken_slots(), 1);
    drop(lock(&pool, at, room).acquire(&guard));
}

#[test]
fn lock_tried_by_the_dead_stays_with_its_live_holder() {
    let (_directory, [dead, survivor]) = shared();
    let at = locks(&survivor, 2);
    let guard = survivor.pin();
    let held = lock(&survivor, at, 0).acquire(&guard);
    let guard_of_dead = dead.pin();
    drop(lock(&dead, at, 1).acquire(&guard_of_dead));
    // It dies after recording the intent, before it reads the lock. The other lock it holds.
    Intent::record(dead.0.base(), guard_of_dead.thread_slot(), at, || unreachable!("the slot has room"));
    std::mem::forget(lock(&dead, at, 1).acquire(&guard_of_dead));
    std::mem::forget(guard_of_dead);
    dead.abandon();
    assert_eq!(survivor.recover_dead(), 1);
    let own = (u32::from(survivor.owner().participant), survivor.owner().incarnation);
    let holders = [0, 1].map(|n| lock(&survivor, at, n).holder(survivor.0.base()));
    assert_eq!((holders, intents_set(&survivor)), ([Some(own), None], 1));
    drop(held);
    assert_eq!((lock(&survivor, at, 0).is_held(&survivor), intents_set(&survivor)), (false, 0));
}

#[test]
fn failed_try_leaves_no_intent() {
    let (_directory, [pool, other]) = shared();
    let at = locks(&pool, 1);
    let (guard, guard_of_other) = (pool.pin(), other.pin());
    let held = lock(&pool, at, 0).acquire(&guard);
    assert!(lock(&other, at, 0).try_acquire(&guard_of_other).is_none());
    assert_eq!(intents_set(&pool), 1, "the holder's");
    drop(held);
    assert_eq!(intents_set(&pool), 0);
}

#[test]
fn exclusive_pool_records_no_intents() {
    let pool = Pool::<Shm>::anonymous(1 << 20).unwrap();
    let at = locks(&pool, 2 * INTENTS);
    let guard = pool.pin();
    let held: Vec<_> = (0..2 * INTENTS).map(|n| lock(&pool, at, n).acquire(&guard)).collect();
    assert_eq!((intents_set(&pool), pool.0.epochs().count_taken_slots()), (0, 1));
    drop(held);
}
