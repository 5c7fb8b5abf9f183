//! Tests of `memory`.

use super::*;
use crate::allocator::zones::UnitUse;
use crate::format::slot::add_own;
use crate::pool::guard::Guard;
use crate::pool::readers::RECOVER_EVERY;
use crate::reclaim::shortage::PoolFull;
use crate::sync::backoff::rest_with;
use crate::tests::fixtures::{exclusive_pool, participants, recovering};
use crate::tests::interleavings::{Hooked, hooked, offset_of};
use std::cell::RefCell;
use std::sync::mpsc::{Receiver, Sender, channel};
use terrace_medium::LINE;
use terrace_medium::{Access, Dram};

#[test]
fn fresh_block_takes_bytes_words_and_lines() {
    let pool = exclusive_pool::<Dram>();
    let guard = pool.pin();
    let fresh = guard.alloc(4 * LINE).unwrap();
    let offset = fresh.offset();
    assert_eq!((fresh.len(), offset % LINE as u64), (4 * LINE, 0));
    fresh.write(3, &[9]);
    fresh.word(8).store(pool.medium(), 3, Relaxed);
    fresh.line(2).0[1].store(pool.medium(), 7, Relaxed);
    fresh.stream_lines(3 * LINE, &[[5; LINE / 8]]);
    let fence = guard.fence();
    let durable = fresh.fenced(&fence);
    assert_eq!(durable.offset(), offset);
    let offset = durable.into_offset();
    let word = |at: u64| pool.0.base().word_at(offset + 8 * at).load(pool.medium(), Relaxed);
    assert_eq!((word(0).to_le_bytes()[3], word(1), word(17)), (9, 3, 7));
    assert!((24..32).all(|at| word(at) == 5));
}

#[test]
fn reclaim_blocking_returns_whether_it_reclaimed() {
    let pool = exclusive_pool::<Dram>();
    assert!(pool.reclaim_blocking(), "for the first time");
    assert!(!pool.reclaim_blocking(), "and then there is nothing");
    let epoch = pool.0.epochs().epoch();
    assert!(!pool.reclaim_nonblocking() && pool.0.epochs().epoch() == epoch, "nor a reader to wait for");
    let guard = pool.pin();
    guard.retire(guard.alloc(64).unwrap().fenced_later().into_offset(), 64);
    drop(guard);
    assert!(pool.reclaim_blocking());
    assert_eq!(pool.waiting_bytes(), 0);
}

#[test]
fn lists_are_scanned_again_after_enough_bytes_were_freed() {
    let pool = exclusive_pool::<Dram>();
    let (guard, shared, medium) = (pool.pin(), pool.0.base().shared(), pool.medium());
    let slot = guard.thread_slot();
    let reclaims_after = |slabs: u64, freed: u64| {
        shared.slab_units.store(medium, slabs, Relaxed);
        add_own(medium, &slot.freed, freed);
        pool.0.limbo().reclaim(slot, &recovering(&pool.0))
    };
    assert!(reclaims_after(8, 0), "for the first time");
    assert!(!reclaims_after(8, 0) && !reclaims_after(8, 7) && reclaims_after(8, 1));
    let slab = 1 << pool.0.units().classes.slab_log2;
    assert!(!reclaims_after(1 << 20, slab - 1) && reclaims_after(1 << 20, 1));
    // A scan that released a slab may be repeated at once.
    let number = pool.0.units().classes.of(64).unwrap();
    let unit = pool
        .0
        .heap()
        .granules
        .take_unit(number, pool.0.units().classes.get(number).unwrap(), UnitUse::Owned)
        .unwrap();
    pool.0.heap().disown(unit, number, pool.0.units().classes.get(number).unwrap());
    assert!(reclaims_after(8, 8) && reclaims_after(8, 0) && !reclaims_after(8, 0));
    drop(guard);
    pool.abandon();
}

#[test]
fn for_more_than_the_pool_has_nothing_is_looked_through() {
    let pool = exclusive_pool::<Dram>();
    let guard = pool.pin();
    let is_looked_through = |bytes: u64| {
        assert_eq!(guard.alloc(bytes as usize).err().unwrap().wanted, bytes);
        pool.0.base().shared().fruitless.load(pool.medium(), Relaxed) != 0
    };
    assert!(!is_looked_through(pool.size() + 1));
    assert!(is_looked_through(pool.size() / 2));
}

#[test]
fn drained_blocks_are_reused_without_a_scan_of_lists() {
    let pool = exclusive_pool::<Dram>();
    let guard = pool.pin();
    let mut last = 0;
    while let Ok(block) = guard.alloc(64) {
        last = block.fenced_later().into_offset();
    }
    guard.retire(last, 64);
    drop(guard);
    (0..GRACE_EPOCHS).for_each(|_| _ = pool.0.epochs().try_advance());
    let guard = pool.pin();
    // As in a large pool, where this is too little for another scan of the lists.
    pool.0.base().shared().slab_units.store(pool.medium(), 1 << 20, Relaxed);
    assert!(
        pool.0.heap().take(guard.thread_slot(), 64).is_none()
            && !pool.0.limbo().reclaim(guard.thread_slot(), &recovering(&pool.0))
    );
    assert_eq!(guard.alloc(64).unwrap().fenced_later().into_offset(), last);
    drop(guard);
    pool.abandon();
}

#[test]
fn reclaim_waits_only_for_readers_that_hold_memory_up() {
    thread_local!(static RESTS: Cell<u32> = const { Cell::new(0) });
    rest_with(|| RESTS.set(RESTS.get() + 1));
    let (_directory, [pool, other]) = participants::<Dram, 2>(crate::Geometry::tiny());
    let reader = other.pin();
    let began = pool.0.epochs().epoch();
    pool.reclaim_blocking();
    assert_eq!((RESTS.get(), pool.0.epochs().epoch()), (0, began + 1), "nothing waits");
    reader.retire(reader.alloc(64).unwrap().fenced_later().into_offset(), 64);
    drop(reader);
    let began = pool.0.epochs().epoch();
    pool.reclaim_blocking();
    // Its entry is in a chunk that the other participant has yet to fill.
    assert_eq!(
        (RESTS.get(), pool.0.epochs().epoch(), pool.waiting_bytes()),
        (0, began + GRACE_EPOCHS + 1, 64)
    );
}

#[test]
fn slabs_that_a_scan_holds_are_waited_for() {
    thread_local!(static SCAN: RefCell<Option<(Sender<()>, Receiver<()>)>> = const { RefCell::new(None) });
    const BYTES: usize = 64;
    let pool = exclusive_pool::<Hooked>();
    let slab = 1 << pool.0.units().classes.slab_log2;
    let guard = pool.pin();
    let blocks: Vec<u64> =
        std::iter::from_fn(|| Some(guard.alloc(BYTES).ok()?.fenced_later().into_offset())).collect();
    // A block of each slab: all slabs are listed.
    let (some, rest): (Vec<u64>, Vec<u64>) = blocks.iter().partition(|at| *at % slab < slab / 2);
    some.iter().for_each(|at| guard.free(*at, BYTES));
    drop(guard);
    let number = pool.0.units().classes.of(BYTES as u64).unwrap();
    let kept = offset_of(&pool.0, &pool.0.base().shared().lists[number].kept);
    let ((holds, is_held), (go_on, may_go_on), (ended, has_ended)) = (channel(), channel(), channel());
    let scan = || {
        let guard = pool.pin();
        let stop = move |access, at| {
            if (access, at) == (Access::Store, kept) {
                holds.send(()).unwrap();
                may_go_on.recv().unwrap();
            }
        };
        hooked(stop, || pool.0.heap().release_empty_slabs());
        drop(guard);
        ended.send(()).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(scan);
        is_held.recv().unwrap();
        SCAN.set(Some((go_on, has_ended)));
        rest_with(|| {
            SCAN.take().into_iter().for_each(|(go_on, has_ended)| {
                go_on.send(()).unwrap();
                has_ended.recv().unwrap();
            });
        });
        rest.iter().for_each(|at| pool.pin().free(*at, BYTES));
        let many = 8 * slab as usize;
        assert!(pool.pin().alloc(many).is_err(), "the scan has the slabs");
        let has_waited = pool.reclaim_blocking();
        assert!(SCAN.take().is_none() && has_waited && pool.pin().alloc(many).is_ok());
    });
    pool.abandon();
}

#[test]
fn wait_for_readers_recovers_dead_ones() {
    thread_local!(static READER: Cell<Option<&'static Pool<Dram>>> = const { Cell::new(None) });
    thread_local!(static RESTS: Cell<u32> = const { Cell::new(0) });
    let (_directory, [pool, other]) = participants::<Dram, 2>(crate::Geometry::tiny());
    let other: &'static Pool<Dram> = Box::leak(Box::new(other));
    std::mem::forget(other.pin());
    READER.set(Some(other));
    let guard = pool.pin();
    guard.retire(guard.alloc(64).unwrap().fenced_later().into_offset(), 64);
    drop(guard);
    rest_with(|| {
        RESTS.set(RESTS.get() + 1);
        if let Some(dies) = READER.take() {
            dies.0.base().liveness.as_ref().unwrap().release(u32::from(dies.owner().participant));
        }
    });
    assert!(pool.reclaim_blocking());
    // In the first turn the epoch advances, without a rest.
    assert_eq!((RESTS.get(), pool.waiting_bytes()), (RECOVER_EVERY - 1, 0));
}

#[test]
fn wait_for_readers_covers_pins_and_retirements() {
    thread_local!(static READER: RefCell<Option<Guard<'static, Dram>>> = const { RefCell::new(None) });
    let (_directory, [pool, other]) = participants::<Dram, 2>(crate::Geometry::tiny());
    let other: &'static Pool<Dram> = Box::leak(Box::new(other));
    READER.set(Some(other.pin()));
    let guard = pool.pin();
    guard.retire(guard.alloc(64).unwrap().fenced_later().into_offset(), 64);
    drop(guard);
    rest_with(|| {
        if let Some(reader) = READER.take() {
            // So much that its chunk is queued at once.
            let bytes = reader.pool().size() as usize / 64;
            reader.retire(reader.alloc(bytes).unwrap().fenced_later().into_offset(), bytes);
        }
    });
    pool.reclaim_blocking();
    assert!(READER.take().is_none(), "it was waited for");
    assert_eq!(pool.waiting_bytes(), 0);
}

#[test]
fn pool_full_states_cause_and_remedy() {
    let full = PoolFull { wanted: 1, size: 9, longest: None, waiting_bytes: 0, collecting: false };
    let messages = [
        (full, "the pool of 9 bytes has no room for 1 more; remove something or grow the pool"),
        (
            PoolFull { longest: Some(5), ..full },
            "the pool of 9 bytes has no room for 1 more in one piece (the longest free one has 5); remove \
             something or grow the pool",
        ),
        (
            PoolFull { waiting_bytes: 1, ..full },
            "the pool of 9 bytes has no room for 1 more; 1 bytes become free once their readers have finished; \
             remove something or grow the pool",
        ),
        (
            PoolFull { waiting_bytes: 1, collecting: true, ..full },
            "the pool of 9 bytes has no room for 1 more; memory is still being collected after a crash, so try again \
             later",
        ),
    ];
    messages.into_iter().for_each(|(full, words)| assert_eq!(full.to_string(), words));
}
