//! Tests of `lock`.

use super::*;
use crate::format::layout::Geometry;
use crate::open::options::PoolOptions;
use crate::pool::Pool;
use crate::tests::fixtures::participants;
use terrace_medium::MappedMedium;
use terrace_medium::{Dram, Offset, Pmem, Shm};

fn word<M: MappedMedium>(pool: &Pool<M>) -> &Word {
    let offset = pool.pin().alloc(8).unwrap().fenced_later().into_offset();
    let word: &Word = pool.region().at(Offset::new(offset));
    word.store(pool.medium(), 0, Relaxed);
    word
}

/// Participants of one pool.
fn shared<M: MappedMedium, const N: usize>() -> (tempfile::TempDir, [Pool<M>; N]) {
    participants(Geometry { thread_slots: 8, ..Geometry::tiny() })
}

/// The place of a free lock.
fn place<M: MappedMedium>(pool: &Pool<M>) -> Offset<Word> {
    pool.region().offset_of(word(pool))
}

fn at<M: MappedMedium>(pool: &Pool<M>, place: Offset<Word>) -> &Lock {
    Lock::of(pool.region().at(place))
}

/// Takes the lock and never releases it.
fn hold<M: MappedMedium>(pool: &Pool<M>, place: Offset<Word>) {
    std::mem::forget(at(pool, place).acquire(&pool.pin()));
}

#[test]
fn lock_word_encodes_generation_and_holder() {
    let owner = Owner { generation: 0x89ab_cdef, incarnation: 0x2_aaaa, participant: 0xabc };
    let generation = 0x89ab_cdef << 32;
    assert_eq!(generation_word(owner), generation);
    assert_eq!(held_word(owner), generation | 0x2_aaaa << 14 | 0xabc << 2 | HELD);
    // A number that is too large is truncated.
    set_thread_number(1 << INCARNATION_BITS | 0x1_5555);
    assert_eq!(unfenced_word(owner), generation | 0x1_5555 << 14 | 0xabc << 2 | UNFENCED);
}

#[test]
fn acquire_keeps_the_unfenced_bit() {
    let pool = PoolOptions::anonymous().size(1 << 20).create::<Pmem>().unwrap();
    let (guard, word) = (pool.pin(), word(&pool));
    let lock = Lock::of(word);
    let before = Owner { generation: pool.generation() + 1, ..pool.owner() };
    // The lock was released before its fence, its holder was killed, both, or neither.
    for (left, is_unfenced) in [(UNFENCED, true), (HELD, true), (HELD | UNFENCED, true), (0, false)] {
        word.store(pool.medium(), generation_word(before) | left, Relaxed);
        let held = lock.try_acquire(&guard).unwrap();
        let expected = held_word(pool.owner()) | if is_unfenced { UNFENCED } else { 0 };
        assert_eq!((lock.load_word(pool.medium()), held.was_unfenced()), (expected, is_unfenced), "{left}");
    }
}

#[test]
fn held_lock_excludes_until_released() {
    let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
    let (guard, lock) = (pool.pin(), Lock::of(word(&pool)));
    let held = lock.try_acquire(&guard).unwrap();
    assert!(lock.is_held(&pool) && lock.try_acquire(&guard).is_none());
    assert!(Lock::may_be_unfenced(lock.load_word(pool.medium())));
    drop(held);
    assert!(!lock.is_held(&pool) && !Lock::may_be_unfenced(lock.load_word(pool.medium())));
    lock.acquire(&guard).release();
}

#[test]
fn lock_of_another_generation_is_free() {
    let pool = Pool::<Pmem>::anonymous(1 << 20).unwrap();
    let (guard, word) = (pool.pin(), word(&pool));
    let lock = Lock::of(word);
    let other = Owner { generation: pool.generation() + 1, ..pool.owner() };
    word.store(pool.medium(), held_word(other) | UNFENCED, Relaxed);
    assert!(!lock.is_held(&pool));
    // Free, but the holder's changes may still be in the processor's cache.
    let held = lock.try_acquire(&guard).unwrap();
    assert!(held.was_unfenced());
}

#[test]
fn release_unchanged_keeps_the_unfenced_bit() {
    let pool = Pool::<Pmem>::anonymous(1 << 20).unwrap();
    let (guard, lock) = (pool.pin(), Lock::of(word(&pool)));
    lock.acquire(&guard).release_unchanged();
    assert!(!lock.is_held(&pool) && !Lock::may_be_unfenced(lock.load_word(pool.medium())));
    lock.acquire(&guard).release_unfenced();
    lock.acquire(&guard).release_unchanged();
    lock.confirm(&guard);
    assert!(!lock.is_held(&pool) && Lock::may_be_unfenced(lock.load_word(pool.medium())));
}

#[test]
fn unfenced_release_is_visible_until_confirmed() {
    let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
    let (guard, lock) = (pool.pin(), Lock::of(word(&pool)));
    lock.acquire(&guard).release_unfenced();
    assert!(!lock.is_held(&pool) && Lock::may_be_unfenced(lock.load_word(pool.medium())));
    lock.confirm(&guard);
    assert!(!Lock::may_be_unfenced(lock.load_word(pool.medium())));
}

#[test]
fn thread_does_not_confirm_anothers_release() {
    let pool = Pool::<Pmem>::anonymous(1 << 20).unwrap();
    let lock = Lock::of(word(&pool));
    lock.acquire(&pool.pin()).release_unfenced();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = pool.pin();
            let held = lock.acquire(&guard);
            assert!(held.was_unfenced());
            held.release_unfenced();
        });
    });
    lock.confirm(&pool.pin());
    assert!(Lock::may_be_unfenced(lock.load_word(pool.medium())));
}

#[test]
fn waiting_thread_gets_a_released_lock() {
    let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
    let (lock, barrier) = (Lock::of(word(&pool)), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                barrier.wait();
                lock.acquire(&pool.pin()).release();
                barrier.wait();
            }
        });
        for _ in 0..100 {
            let guard = pool.pin();
            let held = lock.acquire(&guard);
            barrier.wait();
            // Gives the other thread time to find it held. If it comes later, this round tests
            // nothing.
            for _ in 0..10 {
                std::thread::yield_now();
            }
            held.release();
            barrier.wait();
        }
    });
}

#[test]
fn two_threads_never_hold_lock_together() {
    let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
    let (lock, count) = (Lock::of(word(&pool)), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let guard = pool.pin();
                    let held = lock.acquire(&guard);
                    let now = count.load(Relaxed);
                    count.store(now + 1, Relaxed);
                    held.release();
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 40_000);
}

#[test]
fn held_word_names_its_holder_exactly() {
    for (participant, incarnation) in [(0, 1), (1, 2), (0xabc, 0x1_5555), (0xfff, 0x3_ffff)] {
        for generation in [1, 0x5555_5555, u32::MAX] {
            let owner = Owner { generation, incarnation, participant: participant as u16 };
            for word in [held_word(owner), held_word(owner) | UNFENCED] {
                assert_eq!(holder_of_word(word), (participant, incarnation), "{word:#x}");
                assert!(is_held_word(word, owner));
                let next = Owner { generation: generation.wrapping_add(1), ..owner };
                assert!(!is_held_word(word, next), "free in the next generation");
            }
            assert!(!is_held_word(unfenced_word(owner), owner) && !is_held_word(0, owner));
        }
    }
}

#[test]
fn each_thread_keeps_a_distinct_number() {
    let numbers = || std::thread::scope(|scope| scope.spawn(|| [(); 3].map(|()| thread_number())).join());
    let (one, other) = (numbers().unwrap(), numbers().unwrap());
    assert!(one[0] != 0 && other[0] != 0 && one[0] != other[0]);
    assert_eq!((one, other), ([one[0]; 3], [other[0]; 3]));
}

fn hold_one_process_lock<M: MappedMedium>() {
    let (_directory, [one, two, three]) = shared::<M, 3>();
    let place = place(&one);
    let hold = |pool: &Pool<M>| at(pool, place).hold_for_process(pool);
    for _ in 0..2 {
        assert!(hold(&one) && !hold(&two) && !hold(&three));
    }
    assert_eq!(at(&two, place).holder(two.0.base()), Some((0, one.owner().incarnation)));
    one.abandon();
    // No other operation has observed the death.
    for _ in 0..2 {
        assert!(hold(&two) && !hold(&three));
    }
    let left = if M::VOLATILE_CACHE { UNFENCED } else { 0 };
    assert_eq!(at(&two, place).load_word(two.medium()), held_word(two.owner()) | left);
    two.close().unwrap();
    assert!(hold(&three) && hold(&three));
}

#[test]
fn process_lock_is_held_until_close() {
    hold_one_process_lock::<Shm>();
    hold_one_process_lock::<Pmem>();
}

#[test]
fn exclusive_pool_holds_free_process_lock_for_good() {
    let pool = Pool::<Pmem>::anonymous(1 << 20).unwrap();
    let (elected, other) = (Lock::of(word(&pool)), Lock::of(word(&pool)));
    assert!(elected.hold_for_process(&pool) && elected.hold_for_process(&pool) && elected.is_held(&pool));
    // A lock held by a thread, even of this process, does not elect the process.
    let participant = Owner { participant: pool.owner().participant + 1, ..pool.owner() };
    other.0.store(pool.medium(), held_word(participant), Relaxed);
    assert!(!other.hold_for_process(&pool));
}

#[test]
fn recover_if_dead_releases_all_locks_of_a_dead_holder() {
    let (_directory, [survivor, live, dead]) = shared::<Shm, 3>();
    let places = [(); 4].map(|()| place(&survivor));
    let [free, of_live, one, two] = places;
    hold(&live, of_live);
    hold(&dead, one);
    hold(&dead, two);
    dead.abandon();
    let guard = survivor.pin();
    let held = || places.map(|place| at(&survivor, place).is_held(&survivor));
    // Other locks are unchanged, whichever process died.
    at(&survivor, free).recover_if_dead(&guard);
    at(&survivor, of_live).recover_if_dead(&guard);
    assert_eq!(held(), [false, true, true, true]);
    at(&survivor, one).recover_if_dead(&guard);
    assert_eq!(held(), [false, true, false, false]);
    assert_eq!(at(&survivor, of_live).holder(survivor.0.base()), Some((1, live.owner().incarnation)));
}

/// Between the recovery of a dead holder and the release, another one takes the lock, and dies.
#[test]
fn waiter_releases_the_lock_of_the_recovered_holder_alone() {
    let (_directory, [survivor, first, second]) = shared::<Shm, 3>();
    let place = place(&survivor);
    let lock = at(&survivor, place);
    hold(&first, place);
    let word = lock.load_word(survivor.medium());
    first.abandon();
    assert_eq!(survivor.recover_dead(), 1);
    hold(&second, place);
    second.abandon();
    lock.release_word(survivor.0.base(), word);
    assert!(lock.is_held(&survivor), "what the second one left was not repaired");
    lock.recover_if_dead(&survivor.pin());
    assert!(!lock.is_held(&survivor));
}

fn free_after_death<M: MappedMedium>() {
    let (_directory, [dead, survivor]) = shared::<M, 2>();
    let place = place(&survivor);
    hold(&dead, place);
    dead.abandon();
    assert_eq!(survivor.recover_dead(), 1);
    let (lock, guard) = (at(&survivor, place), survivor.pin());
    // No live thread has fenced the changes.
    lock.confirm(&guard);
    assert!(!lock.is_held(&survivor));
    assert_eq!(Lock::may_be_unfenced(lock.load_word(survivor.medium())), M::VOLATILE_CACHE);
    assert_eq!(lock.try_acquire(&guard).unwrap().was_unfenced(), M::VOLATILE_CACHE);
    // The next holder has persisted them.
    assert!(!Lock::may_be_unfenced(lock.load_word(survivor.medium())));
}

#[test]
fn lock_of_a_dead_holder_is_unfenced_if_cache_is_volatile() {
    free_after_death::<Shm>();
    free_after_death::<Pmem>();
}
