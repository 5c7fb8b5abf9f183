//! Tests of `epoch`.

use super::*;
use crate::format::layout::Geometry;
use crate::pool::Pool;
use crate::reclaim::barrier::tests::missed;
use crate::tests::fixtures::recovering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace_medium::{Dram, Offset, Word};

fn pool() -> Pool<Dram> {
    Pool::anonymous_with(1 << 20, Geometry::tiny()).unwrap()
}

#[test]
fn heavy_pin_and_epoch_advance_see_each_other() {
    let pool = pool();
    let (inner, medium) = (&pool.0, pool.medium());
    let missed = missed(
        || inner.epochs().set_pin(inner.base().thread_slot(0), FULL_BARRIER | 1),
        || full_barrier(medium),
    );
    assert!(matches!(missed, None | Some(0)), "{missed:?}");
    inner.epochs().clear_pin(inner.base().thread_slot(0), 0);
}

#[test]
fn thread_is_pinned_until_its_last_guard_drops() {
    let pool = pool();
    for guards in [1, 2, 5] {
        let mut held: Vec<_> = (0..guards).map(|_| pool.pin()).collect();
        let slot = held[0].thread_slot();
        // As where pins are not light.
        pool.0.epochs().request_unpin_work(slot, FULL_BARRIER);
        while let Some(guard) = held.pop() {
            assert_eq!(guard.depth(), held.len() as u64 + 1);
            assert_eq!(pool.0.epochs().is_pinned_before(slot, pool.0.epochs().epoch()), Some(false));
        }
        assert_eq!(pool.0.epochs().is_pinned_before(slot, pool.0.epochs().epoch()), None);
        assert_eq!(slot.pin.load(pool.medium(), Relaxed), FULL_BARRIER, "this flag stays");
        pool.0.epochs().clear_pin(slot, 0);
    }
}

#[test]
fn unpin_work_requested_twice_is_done() {
    let pool = pool();
    let guard = pool.pin();
    let blocks = [(); 2].map(|()| guard.alloc(64).unwrap().fenced_later().into_offset());
    blocks.iter().for_each(|&block| {
        pool.0.limbo().push_overflow(guard.thread_slot(), block, 64, &recovering(&pool.0))
    });
    let slot = guard.thread_slot();
    drop(guard);
    assert_eq!(slot.overflow_count.load(pool.medium(), Relaxed), 0, "moved to a limbo chunk");
}

#[test]
fn too_many_forgotten_guards_panic() {
    let pool = pool();
    let guard = pool.pin();
    let pin = &guard.thread_slot().pin;
    pin.fetch_add(pool.medium(), DEPTH_MASK - 2, Relaxed);
    drop(pool.pin());
    pin.fetch_add(pool.medium(), 1, Relaxed);
    let panic = catch_unwind(AssertUnwindSafe(|| drop(pool.pin()))).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.starts_with("this thread holds 536870911 guards"), "{message}");
    pin.fetch_sub(pool.medium(), DEPTH_MASK - 1, Relaxed);
}

#[test]
fn erased_guard_reads_only_bytes_within_the_pool() {
    let pool = pool();
    let guard = pool.pin();
    let block = guard.alloc(64).unwrap().fenced_later().into_offset();
    pool.region().at(Offset::<Word>::new(block)).store(
        pool.medium(),
        u64::from_le_bytes(*b"terrace!"),
        Relaxed,
    );
    let erased = guard.erase();
    assert_eq!(erased.bytes(block, 8), Some(&b"terrace!"[..]));
    assert_eq!((erased.bytes(pool.size() - 7, 8), erased.bytes(u64::MAX, 1)), (None, None));
    let held = erased.hold(block, 7).unwrap();
    assert_eq!(&*held, b"terrace");
}
