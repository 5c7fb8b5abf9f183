//! Tests of `limbo`.

mod overflow;

use self::overflow::{overflowed, take_everything};
use crate::allocator::zones::{UnitState, UnitUse};
use crate::gc::{CollectReport, Collection};
use crate::open::options::PoolOptions;
use crate::pool::Pool;
use crate::pool::guard::Guard;
use crate::pool::inner::Inner;
use crate::sync::backoff::rest_with;
use crate::tests::fixtures::{exclusive_pool, geometry, participants, recovering};
use crate::tests::interleavings::{Hooked, hooked};

use super::*;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Barrier;
use std::sync::atomic::AtomicU32;
use terrace_medium::{Access, Dram, Shm};

impl<M: MappedMedium> Inner<M> {
    /// Simulates a thread that dies while it drains a chunk of `slot`, with `freed` of its entries
    /// freed. Returns how many there were.
    pub(crate) fn leave_half_drained(&self, slot: &ThreadSlot, freed: u64) -> u64 {
        let drained = self.limbo().detach_oldest(slot).expect("a chunk past its grace period");
        let chunk = self.limbo().chunk(drained.chunk).expect("a chunk in the pool");
        self.limbo()
            .entries_of(chunk)
            .take(freed as usize)
            .for_each(|(offset, bytes)| self.heap().free(slot, offset, bytes));
        drained.entries
    }
}

const SIZE: u64 = 1 << 20;

/// Retires `count` new blocks of `bytes` bytes.
fn retire<M: MappedMedium>(guard: &Guard<'_, M>, count: u64, bytes: usize) {
    for _ in 0..count {
        let block = guard.alloc(bytes).unwrap().fenced_later().into_offset();
        guard.retire(block, bytes);
    }
}

/// The chunks in a slot's queue, from the oldest on.
fn queue<M: MappedMedium>(pool: &Pool<M>, slot: &ThreadSlot) -> Vec<u64> {
    let next = |&chunk: &u64| Some(pool.0.limbo().chunk(chunk)?.next.load(pool.medium(), Relaxed));
    let oldest = slot.oldest.load(pool.medium(), Relaxed);
    std::iter::successors(Some(oldest), next).take_while(|&chunk| chunk != 0).collect()
}

/// As [`queue`], for a queue with both ends right.
#[track_caller]
fn whole_queue<M: MappedMedium>(pool: &Pool<M>, slot: &ThreadSlot) -> Vec<u64> {
    let chunks = queue(pool, slot);
    assert_eq!(slot.newest.load(pool.medium(), Relaxed), chunks.last().copied().unwrap_or(0));
    chunks
}

/// Two participants of one pool. The first is pinned, and has this many full chunks in its queue
/// and one open chunk.
fn with_chunks(chunks: u64) -> (tempfile::TempDir, Pool<Shm>, Pool<Shm>) {
    let (directory, [one, two]) = participants::<Shm, 2>(geometry());
    let guard = one.pin();
    retire(&guard, chunks * CHUNK_ENTRIES + 1, 8);
    assert_eq!(queue(&one, guard.thread_slot()).len() as u64, chunks);
    std::mem::forget(guard);
    (directory, one, two)
}

/// The queue of slot 0 after its owner died and was recovered. Checks that the survivor can append
/// to it, and that all of it is reclaimed.
fn queue_after_death(dead: Pool<Shm>, survivor: &Pool<Shm>) -> Vec<u64> {
    dead.abandon();
    assert_eq!(survivor.recover_dead(), 1);
    let left = whole_queue(survivor, survivor.0.base().thread_slot(0));
    let guard = survivor.pin();
    retire(&guard, CHUNK_ENTRIES, 8);
    let chunks = whole_queue(survivor, survivor.0.base().thread_slot(0));
    assert!(chunks.starts_with(&left) && chunks.len() == left.len() + 1);
    drop(guard);
    survivor.collect(&mut |_| {});
    survivor.reclaim_blocking();
    assert_eq!((survivor.waiting_bytes(), survivor.verify_memory()), (0, vec![]));
    left
}

#[test]
fn queue_is_repaired_after_crash_in_enqueue() {
    for (chunks, steps) in (0..3).flat_map(|chunks| (0..3).map(move |steps| (chunks, steps))) {
        let (_directory, dead, survivor) = with_chunks(chunks);
        let (slot, medium) = (dead.0.base().thread_slot(0), dead.medium());
        let mut expected = queue(&dead, slot);
        std::mem::forget(dead.0.peers.acquire(&slot.queue_lock));
        let chunk = slot.chunk.swap(medium, 0, Relaxed);
        if steps > 0 {
            expected.push(chunk);
            match dead.0.limbo().chunk(slot.newest.load(medium, Relaxed)).filter(|_| chunks > 0) {
                Some(newest) => newest.next.store(medium, chunk, Relaxed),
                None => slot.oldest.store(medium, chunk, Relaxed),
            }
        }
        if steps > 1 {
            slot.newest.store(medium, chunk, Relaxed);
        }
        assert_eq!(queue_after_death(dead, &survivor), expected, "{steps} steps, {chunks} chunks");
    }
}

#[test]
fn queue_is_repaired_after_crash_in_dequeue() {
    for (chunks, steps) in (1..3).flat_map(|chunks| (0..3).map(move |steps| (chunks, steps))) {
        let (_directory, dead, survivor) = with_chunks(chunks);
        let (slot, medium) = (dead.0.base().thread_slot(0), dead.medium());
        let mut expected = queue(&dead, slot);
        // Its open chunk is appended at recovery.
        expected.push(slot.chunk.load(medium, Relaxed));
        std::mem::forget(dead.0.peers.acquire(&slot.queue_lock));
        if steps > 0 {
            let oldest = dead.0.limbo().chunk(expected.remove(0)).unwrap();
            slot.oldest.store(medium, oldest.next.load(medium, Relaxed), Relaxed);
        }
        if steps > 1 && chunks == 1 {
            slot.newest.store(medium, 0, Relaxed);
        }
        assert_eq!(queue_after_death(dead, &survivor), expected, "{steps} steps, {chunks} chunks");
    }
}

#[test]
fn walk_of_a_cyclic_queue_ends() {
    let pool = exclusive_pool::<Hooked>();
    let guard = pool.pin();
    retire(&guard, 2 * CHUNK_ENTRIES, 8);
    let (slot, newest) = (guard.thread_slot(), queue(&pool, guard.thread_slot())[1]);
    pool.0.limbo().chunk(newest).unwrap().next.store(pool.medium(), newest, Relaxed);
    let most = 100 * pool.size() / CHUNK_BYTES;
    let count = || {
        let mut looks = 0;
        move |_, _| {
            looks += 1;
            assert!(looks < most, "the walk has no end");
        }
    };
    hooked(count(), || pool.0.limbo().repair_queue(slot));
    hooked(count(), || _ = pool.0.limbo().missing_from_limbo(slot));
    drop(guard);
    pool.reclaim_blocking();
    assert!(pool.faults() > 0, "the double frees are counted");
    assert_eq!(pool.space().waiting_bytes, 0);
}

#[test]
fn chunk_is_queued_when_full_or_when_it_holds_much() {
    // A 64th of the pool, but not more than a MiB.
    for (size, bytes, count) in [(SIZE, 8, CHUNK_ENTRIES), (SIZE, 4096, 4), (128 << 20, 256 << 10, 4)] {
        let pool = Pool::<Dram>::anonymous(size).unwrap();
        let guard = pool.pin();
        let chunks = || {
            (guard.thread_slot().chunk.load(pool.medium(), Relaxed), queue(&pool, guard.thread_slot()).len())
        };
        retire(&guard, count - 1, bytes);
        assert!(chunks().0 != 0 && chunks().1 == 0, "after {} of {bytes} bytes", count - 1);
        retire(&guard, 1, bytes);
        assert_eq!(chunks(), (0, 1), "after {count} of {bytes} bytes");
    }
}

#[test]
fn epoch_advances_per_eighth_chunk_unless_drainable() {
    let pool = exclusive_pool::<Dram>();
    let began = pool.0.epochs().epoch();
    let passed = |chunks: u64, entries: u64, bytes: usize| {
        (0..chunks).for_each(|_| retire(&pool.pin(), entries, bytes));
        pool.0.epochs().epoch() - began
    };
    assert_eq!(passed(CHUNKS_PER_ADVANCE - 1, CHUNK_ENTRIES, 8), 0);
    assert_eq!(passed(1, CHUNK_ENTRIES, 8), 1);
    assert_eq!(passed(CHUNKS_PER_ADVANCE - 1, CHUNK_ENTRIES, 8), 1);
    assert_eq!(passed(1, CHUNK_ENTRIES, 8), 2);
    assert_eq!(passed(1, 4, 4096), GRACE_EPOCHS);
    // The first chunks are past their grace period.
    assert_eq!(passed(1, 4, 4096), GRACE_EPOCHS);
    assert!(queue(&pool, pool.pin().thread_slot()).len() < 2 * CHUNKS_PER_ADVANCE as usize);
}

#[test]
fn drain_frees_at_most_the_requested_expired_chunks() {
    let pool = exclusive_pool::<Dram>();
    retire(&pool.pin(), 5 * CHUNK_ENTRIES, 8);
    let drain = |chunks| {
        let guard = pool.pin();
        (
            pool.0.limbo().drain(guard.thread_slot(), chunks, guard.thread_slot()),
            queue(&pool, guard.thread_slot()).len(),
        )
    };
    for _ in 0..GRACE_EPOCHS {
        assert_eq!(drain(u32::MAX), (0, 5), "before its time");
        pool.0.epochs().try_advance();
    }
    assert_eq!([0, 1, 2, 5, 5].map(drain), [(0, 5), (1, 4), (2, 2), (2, 0), (0, 0)]);
    whole_queue(&pool, pool.pin().thread_slot());
    assert_eq!((pool.waiting_bytes(), pool.verify_memory()), (0, vec![]));
}

#[test]
fn chunk_without_entries_waits_like_any_other() {
    let pool = exclusive_pool::<Dram>();
    let guard = pool.pin();
    assert!(pool.0.limbo().open_chunk(guard.thread_slot()).is_some());
    pool.0.limbo().queue_chunk(guard.thread_slot(), &recovering(&pool.0));
    assert_eq!(pool.0.limbo().drain(guard.thread_slot(), 1, guard.thread_slot()), 0);
    drop(guard);
    (0..GRACE_EPOCHS).for_each(|_| _ = pool.0.epochs().try_advance());
    let guard = pool.pin();
    assert_eq!(pool.0.limbo().drain(guard.thread_slot(), 1, guard.thread_slot()), 1);
}

#[test]
fn damaged_entry_count_stays_within_the_chunk() {
    let pool = exclusive_pool::<Dram>();
    let guard = pool.pin();
    retire(&guard, 1, 8);
    guard.thread_slot().chunk_entries.store(pool.medium(), 1000, Relaxed);
    retire(&guard, 1, 8);
    assert_eq!(queue(&pool, guard.thread_slot()).len(), 1);
}

#[test]
fn leaked_bytes_are_counted_and_collected_when_shared() {
    let unshared = exclusive_pool::<Dram>();
    let (_directory, shared, _) = with_chunks(0);
    unshared.0.base().leak(512);
    shared.0.base().leak(512);
    assert_eq!((unshared.space().lost, unshared.needs_collection()), (512, false));
    assert_eq!((shared.space().lost, shared.needs_collection()), (512, true));
}

#[test]
fn full_pool_drains_chunks_of_other_slots() {
    let pool = exclusive_pool::<Dram>();
    drop(pool.pin());
    std::thread::scope(|scope| {
        // In another slot, which keeps its chunk.
        scope.spawn(|| retire(&pool.pin(), CHUNK_ENTRIES, 512)).join().unwrap();
    });
    let guard = pool.pin();
    let kept = take_everything(&guard, 1);
    drop(guard);
    (0..GRACE_EPOCHS).for_each(|_| _ = pool.0.epochs().try_advance());
    let guard = pool.pin();
    guard.retire(kept[0], 24);
    assert_eq!((overflowed(&pool), pool.waiting_bytes()), (0, 24));
}

/// The class of limbo chunks, the offset of the reserve, and the number of slabs.
fn reserve(pool: &Pool<Shm>) -> (usize, u64, u64) {
    let shared = pool.0.base().shared();
    let [reserve, slabs] = [&shared.reserve, &shared.slab_units].map(|it| it.load(pool.medium(), Relaxed));
    (pool.0.limbo().chunk_class().unwrap(), reserve, slabs)
}

#[test]
fn reserve_survives_close_and_crash_if_valid() {
    for (clean, is_sound) in [(true, true), (true, false), (false, true), (false, false)] {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = PoolOptions::at(directory.path().join("pool")).size(SIZE).geometry(geometry());
        let pool = options.create::<Shm>().unwrap();
        let (number, before, slabs) = reserve(&pool);
        let class = *pool.0.units().classes.get(number).unwrap();
        let left = if is_sound { before } else { before + (4 << 12) };
        pool.0.base().shared().reserve.store(pool.medium(), left, Relaxed);
        if clean {
            pool.close().unwrap();
        } else {
            // Some of its chunks were in use.
            (0..3).for_each(|_| _ = pool.0.heap().take_from_reserve(&class));
            pool.abandon();
        }
        let pool = options.open::<Shm>().unwrap();
        let (_, after, slabs_after) = reserve(&pool);
        let unit = pool.0.units().unit_at(after).unwrap();
        let state = UnitState(pool.0.units().unit(unit).state.load(pool.medium(), Relaxed));
        assert!(state == UnitState::slab(pool.0.base().open_seq, number, UnitUse::Reserve));
        let chunks = (0..).take_while(|_| pool.0.heap().take_from_reserve(&class).is_some()).count();
        assert_eq!(chunks, class.blocks as usize);
        if is_sound {
            assert_eq!((after, slabs_after), (before, slabs), "{clean}");
        } else {
            assert_ne!(after, left);
        }
    }
}

#[test]
fn late_pin_frees_nothing_under_newer_readers() {
    let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
    let block = pool.pin().alloc(40).unwrap().fenced_later().into_offset();
    // The thread has read the epoch; others advance it before it sets its pin.
    let found = pool.0.epochs().epoch();
    (0..GRACE_EPOCHS).for_each(|_| _ = pool.0.epochs().try_advance());
    assert_eq!(pool.0.epochs().epoch(), found + GRACE_EPOCHS);
    let (pinned, gone) = (Barrier::new(2), Barrier::new(2));
    let mut waiting = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _reader = pool.pin();
            pinned.wait();
            gone.wait();
        });
        pinned.wait();
        let guard = pool.pin();
        pool.0.epochs().set_pin_at(found, guard.thread_slot(), 1);
        guard.retire(block, 40);
        pool.0.limbo().queue_chunk(guard.thread_slot(), &recovering(&pool.0));
        pool.0.limbo().drain_all(guard.thread_slot());
        waiting = pool.space().waiting_bytes;
        drop(guard);
        gone.wait();
    });
    assert_eq!(waiting, 40, "it was freed under its reader");
    pool.reclaim_blocking();
    assert_eq!(pool.space().waiting_bytes, 0);
}

/// Fails the test if a wait has no end.
fn wait_in_vain() {
    thread_local!(static TURNS: Cell<u32> = const { Cell::new(0) });
    TURNS.set(TURNS.get() + 1);
    assert!(TURNS.get() < 10_000, "it waits for a stopped one");
}

#[test]
fn no_thread_waits_for_a_queue_lock_of_a_stopped_one() {
    let (_directory, [still, pool]) = participants::<Shm, 2>(geometry());
    drop(still.pin());
    let guard = pool.pin();
    let slot = guard.thread_slot();
    retire(&guard, CHUNK_ENTRIES, 8);
    let chunks = whole_queue(&pool, slot);
    std::mem::forget(slot.queue_lock.try_acquire_in(still.0.base()).expect("it is free"));
    std::thread::scope(|scope| {
        let work = || {
            rest_with(wait_in_vain);
            // Full chunks, and with the next entry an open chunk, which the ending thread queues.
            let guard = pool.pin();
            retire(&guard, 3 * CHUNK_ENTRIES + 1, 8);
            drop(guard);
            let gave_up = || still.0.limbo().mark_limbo(&|_, _| {}, &|_| true).is_none();
            assert!(gave_up() && still.0.limbo().missing_from_limbo(slot).is_none());
        };
        scope.spawn(work).join().unwrap();
    });
    rest_with(wait_in_vain);
    retire(&guard, 2 * CHUNK_ENTRIES + 1, 8);
    assert_eq!(whole_queue(&pool, slot), chunks, "what is locked stays as it is");
    assert_eq!(pool.space().waiting_bytes, 8 * (6 * CHUNK_ENTRIES + 2));
    // Nor where no memory for a chunk is left: what finds no place leaks, and is collected.
    let block = guard.alloc(64).unwrap().fenced_later().into_offset();
    pool.0.limbo().push_overflow(slot, block, 64, &recovering(&pool.0));
    assert_eq!(pool.space().lost, 64);
    drop(guard);
    let slot = pool.0.base().index_of(slot) as u32;
    pool.close().unwrap();
    // The stopped one continues.
    still.0.base().thread_slot(slot).queue_lock.release_in(still.0.base());
    still.reclaim_blocking();
    still.collect(&mut |_| {});
    let space = still.space();
    assert_eq!(
        (space.waiting_bytes, space.lost, still.faults(), still.verify_memory()),
        (0, 0, 0, Vec::new())
    );
}

#[test]
fn push_overflow_waits_for_the_queue_lock() {
    static RESTS: AtomicU32 = AtomicU32::new(0);
    let (_directory, [looking, pool]) = participants::<Shm, 2>(geometry());
    let guard = pool.pin();
    let block = guard.alloc(64).unwrap().fenced_later().into_offset();
    let slot = pool.0.base().index_of(guard.thread_slot()) as u32;
    std::mem::forget(guard.thread_slot().queue_lock.try_acquire_in(looking.0.base()).expect("it is free"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while RESTS.load(Relaxed) < 50 {
                std::thread::yield_now();
            }
            looking.0.base().thread_slot(slot).queue_lock.release_in(looking.0.base());
        });
        rest_with(|| _ = RESTS.fetch_add(1, Relaxed));
        pool.0.limbo().push_overflow(guard.thread_slot(), block, 64, &recovering(&pool.0));
        RESTS.store(50, Relaxed);
    });
    assert_eq!((pool.0.limbo().has_overflow(guard.thread_slot()), pool.space().lost), (true, 0));
}

#[test]
fn chunk_moved_to_a_scanned_queue_is_marked() {
    let (_directory, [still, pool]) = participants::<Shm, 2>(geometry());
    drop(still.pin());
    let guard = pool.pin();
    let slot = guard.thread_slot();
    retire(&guard, CHUNK_ENTRIES - 1, 8);
    std::mem::forget(slot.queue_lock.try_acquire_in(still.0.base()).expect("it is free"));
    let base = still.0.base();
    let first = base.used_slots().next().unwrap();
    assert!(
        !std::ptr::eq(first, base.thread_slot(pool.0.base().index_of(slot) as u32)),
        "it is scanned later"
    );
    let is_closed = Cell::new(false);
    let close = || {
        if !is_closed.replace(true) {
            pool.0.limbo().queue_chunk(slot, &recovering(&pool.0));
            slot.queue_lock.release_in(still.0.base());
        }
        false
    };
    let collector = Collection { peers: &still.0.peers, should_stop: &close };
    collector.clear_marks();
    collector.start_marking();
    let owned = collector.mark_caches();
    assert!(collector.mark_limbo_and_overflow().is_some() && is_closed.get());
    let mut report = CollectReport::default();
    let (candidates, _) = collector.orphan_candidates(&owned);
    collector.sweep_concurrently(&candidates, &mut report);
    assert_eq!(report.freed, 0);
    drop(guard);
    assert_eq!((still.faults(), pool.faults(), pool.verify_memory()), (0, 0, Vec::new()));
}
