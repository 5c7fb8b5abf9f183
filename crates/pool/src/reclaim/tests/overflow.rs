//! Tests of the overflow buffer of a slot.

use super::*;
use crate::open::options::PoolOptions;
use crate::pool::Pool;
use crate::pool::guard::Guard;
use crate::reclaim::epoch::{DEPTH_MASK, FULL_BARRIER, ONE_PIN, OVERFLOWED};
use crate::reclaim::shortage::{PATIENCE, REPEAT_PATIENCE};
use crate::sync::backoff::rest_with;
use crate::tests::fixtures::{exclusive_pool, geometry, recovering};
use crate::tests::interleavings::{Hooked, hooked};

/// Puts `count` new blocks into the overflow buffer. Returns them.
fn overflow<M: MappedMedium>(guard: &Guard<'_, M>, count: u64) -> Vec<(u64, u64)> {
    let overflowed = |_| {
        let block = guard.alloc(24).unwrap().fenced_later().into_offset();
        guard.inner().limbo().push_overflow(guard.thread_slot(), block, 24, &recovering(guard.inner()));
        (block, 24)
    };
    (0..count).map(overflowed).collect()
}

pub(super) fn overflowed<M: MappedMedium>(pool: &Pool<M>) -> u64 {
    pool.0.base().thread_slot(0).overflow_count.load(pool.medium(), Relaxed)
}

fn pin_of<M: MappedMedium>(pool: &Pool<M>) -> u64 {
    pool.0.base().thread_slot(0).pin.load(pool.medium(), Relaxed)
}

/// A pool whose pins need a full barrier or, with flag 0, do not.
fn pinned_with(flag: u64) -> Pool<Dram> {
    let options = PoolOptions::anonymous().size(SIZE).geometry(geometry());
    let pool = if flag == 0 { options.create() } else { options.reproducible().create() }.unwrap();
    assert_eq!(pool.0.epochs().barrier_flag(), flag);
    pool
}

#[test]
fn overflow_moves_to_a_chunk_after_unpin() {
    for flag in [0, FULL_BARRIER] {
        let pool = pinned_with(flag);
        let guard = pool.pin();
        let mut overflowed_blocks = overflow(&guard, 3);
        assert_eq!((overflowed(&pool), pin_of(&pool) & OVERFLOWED), (3, OVERFLOWED));
        drop(guard);
        let chunk =
            pool.0.limbo().chunk(pool.0.base().thread_slot(0).chunk.load(pool.medium(), Relaxed)).unwrap();
        overflowed_blocks.reverse();
        assert_eq!(pool.0.limbo().entries_of(chunk).collect::<Vec<_>>(), overflowed_blocks);
        assert_eq!((overflowed(&pool), pin_of(&pool), pool.waiting_bytes()), (0, flag, 72));
        pool.reclaim_blocking();
        assert_eq!((pool.waiting_bytes(), pool.space().used_by_blocks), (0, 0));
    }
}

#[test]
fn close_frees_overflow_entries() {
    let pool = exclusive_pool::<Dram>();
    let guard = pool.pin();
    overflow(&guard, 3);
    pool.0.limbo().free_overflow(guard.thread_slot());
    assert_eq!((overflowed(&pool), pin_of(&pool), pool.space().used_by_blocks), (0, 0, 0));
    std::mem::forget(guard);
}

/// The pin depth of slot 0 at each change of the word at `offset`.
fn depths_at(pool: &Pool<Hooked>, offset: u64, run: impl FnOnce()) -> Vec<u64> {
    let (depths, looker) = (Rc::new(RefCell::new(Vec::new())), pool.clone());
    let look = {
        let depths = depths.clone();
        move |access, at| {
            if at == offset && matches!(access, Access::Store | Access::Rmw) {
                depths.borrow_mut().push(pin_of(&looker) & DEPTH_MASK);
            }
        }
    };
    hooked(look, run);
    depths.take()
}

#[test]
fn slot_is_pinned_while_its_overflow_moves() {
    let pool = exclusive_pool::<Hooked>();
    let slot = pool.0.base().thread_slot(0);
    let [overflowed, chunk] =
        [&slot.overflow_count, &slot.chunk].map(|word| pool.0.base().region.offset_of(word).raw());
    let guard = pool.pin();
    overflow(&guard, 3);
    assert_eq!(depths_at(&pool, overflowed, || drop(guard)), [1, 1, 1]);
    assert_eq!(depths_at(&pool, chunk, || pool.0.limbo().flush_slot(slot, &recovering(&pool.0))), [1]);
    assert_eq!(whole_queue(&pool, slot).len(), 1);
    // Nothing is left to flush.
    assert_eq!(depths_at(&pool, chunk, || pool.0.limbo().flush_slot(slot, &recovering(&pool.0))), []);
}

#[test]
fn slot_that_hands_over_its_limbo_stays_as_it_was() {
    for pins in [0, FULL_BARRIER] {
        for flags in [0, ONE_PIN, OVERFLOWED, ONE_PIN | OVERFLOWED] {
            let pool = pinned_with(pins);
            retire(&pool.pin(), 1, 8);
            pool.0.base().thread_slot(0).pin.store(pool.medium(), flags, Relaxed);
            pool.0.limbo().flush_slot(pool.0.base().thread_slot(0), &recovering(&pool.0));
            assert_eq!(
                (pin_of(&pool), whole_queue(&pool, pool.0.base().thread_slot(0)).len()),
                (flags | pins, 1)
            );
        }
    }
}

/// Takes all memory but `count` blocks, which are returned: no chunk is available for retired
/// blocks.
pub(super) fn take_everything(guard: &Guard<'_, Dram>, count: usize) -> Vec<u64> {
    let take = |bytes| guard.alloc(bytes).map(|block| block.fenced_later().into_offset());
    let kept: Vec<_> = (0..count).map(|_| take(24).unwrap()).collect();
    for bytes in [4096, 512, 64, 8] {
        while take(bytes).is_ok() {}
    }
    let inner = guard.inner();
    let class = inner.units().classes.get(inner.limbo().chunk_class().unwrap()).unwrap();
    while inner.heap().take_from_reserve(class).is_some() {}
    kept
}

#[test]
fn overflow_stays_until_a_chunk_is_available() {
    for flag in [0, FULL_BARRIER] {
        let pool = pinned_with(flag);
        let guard = pool.pin();
        let room = guard.alloc(512).unwrap().fenced_later().into_offset();
        let blocks = take_everything(&guard, 5);
        blocks.iter().for_each(|&block| guard.retire(block, 24));
        drop(guard);
        assert_eq!((overflowed(&pool), pin_of(&pool)), (5, OVERFLOWED | flag));
        drop(pool.pin());
        assert_eq!((overflowed(&pool), pin_of(&pool)), (5, OVERFLOWED | flag));
        let guard = pool.pin();
        guard.free(room, 512);
        drop(guard);
        assert_eq!((overflowed(&pool), pin_of(&pool), pool.waiting_bytes()), (0, flag, 5 * 24));
    }
}

#[test]
fn unpin_waits_only_if_overflow_is_half_full() {
    thread_local!(static RESTS: Cell<u32> = const { Cell::new(0) });
    rest_with(|| RESTS.set(RESTS.get() + 1));
    let pool = exclusive_pool::<Dram>();
    let guard = pool.pin();
    let blocks = take_everything(&guard, 21);
    blocks[..10].iter().for_each(|&block| guard.retire(block, 24));
    drop(guard);
    assert_eq!((overflowed(&pool), RESTS.get()), (10, 0));
    let guard = pool.pin();
    guard.retire(blocks[10], 24);
    drop(guard);
    assert_eq!((overflowed(&pool), RESTS.get()), (11, PATIENCE));
    // After one wait in vain, the next in the same epoch is shorter.
    drop(pool.pin());
    assert_eq!(RESTS.get(), PATIENCE + REPEAT_PATIENCE);
    let guard = pool.pin();
    blocks[11..].iter().for_each(|&block| guard.retire(block, 24));
    assert_eq!((overflowed(&pool), pool.space().lost), (20, 24));
}

#[test]
fn reserve_retirements_fails_without_room() {
    let pool = exclusive_pool::<Dram>();
    let guard = pool.pin();
    let chunks: Vec<_> = (0..2).map(|_| guard.alloc(512).unwrap().fenced_later().into_offset()).collect();
    let blocks = take_everything(&guard, 3);
    let most =
        |guard: &Guard<'_, Dram>| (0..200).take_while(|&n| guard.reserve_retirements(n).is_ok()).last();
    assert_eq!((most(&guard), guard.is_limbo_full()), (Some(10), false));
    let missing = [11, 10 + 31, 10 + 32].map(|count| guard.reserve_retirements(count).unwrap_err().wanted);
    assert_eq!(missing, [512, 512, 1024]);
    guard.retire(blocks[0], 24);
    assert_eq!((most(&guard), guard.is_limbo_full()), (Some(9), true));
    for (chunk, room) in chunks.into_iter().zip([9 + 31, 9 + 62]) {
        let before = pool.space().used_by_blocks;
        guard.free(chunk, 512);
        assert_eq!(most(&guard), Some(room));
        // All of them are as free as before.
        assert_eq!(pool.space().used_by_blocks, before - 512);
    }
    drop(guard);
    assert!(!pool.pin().is_limbo_full());
}
