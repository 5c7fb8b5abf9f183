//! What a thread can leave behind that dies between two instructions: one function each.

use crate::allocator::bitmaps::Fill;
use crate::allocator::zones::{UnitState, UnitUse};
use crate::gc::CollectReport;
use crate::pool::Pool;
use crate::pool::guard::Guard;
use crate::pool::inner::Inner;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use terrace_medium::MappedMedium;

pub(super) const SIZE: u64 = 1 << 20;
/// Sizes of small blocks and of extents.
pub(super) const BYTES: [usize; 8] = [24, 64, 96, 200, 512, 700, 3000, 9000];

/// A pool, and the reachable blocks in it.
pub(super) struct Rig<M: MappedMedium> {
    pub(super) pool: Pool<M>,
    pub(super) kept: Vec<(u64, usize)>,
}

pub(super) fn fill<M: MappedMedium>(guard: &Guard<'_, M>, bytes: usize) -> u64 {
    let fresh = guard.alloc(bytes).unwrap();
    let offset = fresh.offset();
    (0..bytes / 8)
        .for_each(|at| fresh.word(at * 8).store(guard.pool().medium(), offset ^ at as u64, Relaxed));
    fresh.fenced_later().into_offset()
}

impl<M: MappedMedium> Rig<M> {
    pub(super) fn new(pool: Pool<M>) -> Self {
        let mut rig = Self { pool, kept: Vec::new() };
        let guard = rig.pool.pin();
        let blocks: Vec<_> =
            (0..400).map(|i| BYTES[i % BYTES.len()]).map(|bytes| (fill(&guard, bytes), bytes)).collect();
        for (i, (offset, bytes)) in blocks.into_iter().enumerate() {
            if i % 3 == 0 { guard.free(offset, bytes) } else { rig.kept.push((offset, bytes)) }
        }
        drop(guard);
        rig
    }

    pub(super) fn inner(&self) -> &Inner<M> {
        &self.pool.0
    }

    pub(super) fn collect(&self) -> CollectReport {
        self.pool.collect(&mut |marker| {
            let _guard = self.pool.pin();
            self.kept.iter().for_each(|&(offset, bytes)| marker.mark(offset, bytes));
        })
    }

    /// Checks that all kept blocks are intact, and that nothing else is allocated.
    pub(super) fn check(&self, what: &str) {
        assert!(!self.pool.needs_collection(), "{what}");
        let findings = self.pool.verify_memory();
        assert!(findings.is_empty(), "{what}: {findings:?}");
        for _ in 0..2 {
            self.pool.reclaim_blocking();
        }
        let findings = self.pool.verify_memory();
        assert!(findings.is_empty(), "{what}, after reclaim: {findings:?}");
        for &(offset, bytes) in &self.kept {
            for at in 0..bytes as u64 / 8 {
                let word = self.inner().base().word_at(offset + at * 8).load(self.pool.medium(), Relaxed);
                assert_eq!(word, offset ^ at, "{what}: the block at {offset:#x}");
            }
        }
        let used: u64 =
            self.kept.iter().map(|&(_, bytes)| self.inner().units().classes.footprint(bytes as u64)).sum();
        let space = self.pool.space();
        assert_eq!(
            (space.used_by_blocks, space.waiting_bytes, space.lost),
            (used, 0, 0),
            "{what}: {space:?}"
        );
        assert_eq!(self.pool.faults(), 0, "{what}");
    }

    /// Allocates all memory, to see that none is missing, and frees it. Returns the bytes.
    pub(super) fn take_everything(&self) -> u64 {
        let guard = self.pool.pin();
        let mut blocks = Vec::new();
        for bytes in [4096, 512, 64, 8] {
            while let Ok(fresh) = guard.alloc(bytes) {
                blocks.push((fresh.fenced_later().into_offset(), bytes));
            }
        }
        let sum = blocks.iter().map(|&(_, bytes)| bytes as u64).sum();
        blocks.into_iter().for_each(|(offset, bytes)| guard.free(offset, bytes));
        sum
    }

    /// Revalidated units in use `usage`.
    pub(super) fn units(&self, usage: UnitUse) -> Vec<u64> {
        let state =
            |unit: &u64| UnitState(self.inner().units().unit(*unit).state.load(self.pool.medium(), Relaxed));
        let inner = self.inner();
        inner
            .units()
            .all_units()
            .filter(|unit| state(unit).usage() == usage && state(unit).open_seq() == inner.base().open_seq)
            .collect()
    }

    /// A unit without taken granules.
    pub(super) fn empty_unit(&self) -> u64 {
        let inner = self.inner();
        let empty = |unit: &u64| inner.units().unit(*unit).taken.load(self.pool.medium(), Relaxed) == 0;
        inner
            .units()
            .all_units()
            .find(|unit| empty(unit) && inner.units().revalidate(*unit).usage() == UnitUse::Granules)
            .unwrap()
    }

    pub(super) fn state(&self, unit: u64) -> UnitState {
        UnitState(self.inner().units().unit(unit).state.load(self.pool.medium(), Relaxed))
    }

    pub(super) fn set_state(&self, unit: u64, state: UnitState) {
        self.inner().units().unit(unit).state.store(self.pool.medium(), state.0, SeqCst);
    }

    /// A full slab whose blocks are all kept.
    pub(super) fn full_slab(&mut self) -> (u64, usize) {
        let guard = self.pool.pin();
        let before = self.units(UnitUse::Full).len();
        let mut blocks = Vec::new();
        while self.units(UnitUse::Full).len() <= before {
            blocks.push((fill(&guard, 512), 512));
        }
        drop(guard);
        self.kept.extend(blocks);
        let unit = *self.units(UnitUse::Full).last().unwrap();
        let number = self.state(unit).class().unwrap();
        assert_eq!(
            self.inner().units().fill(unit, self.inner().units().classes.get(number).unwrap()),
            Fill::Full
        );
        (unit, number)
    }

    /// Removes a block of the slab from the kept ones. Returns its place in the slab's bitmap: word
    /// and bit.
    pub(super) fn forget_one_of(&mut self, unit: u64, number: usize) -> (u64, u64) {
        let inner = &*self.pool.0;
        let (start, class) =
            (inner.units().zones.start_of(unit), *inner.units().classes.get(number).unwrap());
        let at = self.kept.iter().position(|&(offset, _)| offset >= start && offset < start + 4096).unwrap();
        let (offset, _) = self.kept.swap_remove(at);
        let block = class.block_at(offset - start).unwrap();
        (block / 64, 1 << (block % 64))
    }

    /// Retires blocks until a chunk of them is in this thread's queue, and ends its grace period.
    pub(super) fn fill_a_chunk(&self) {
        let guard = self.pool.pin();
        let slot = guard.thread_slot();
        while slot.oldest.load(self.pool.medium(), Relaxed) == 0 {
            guard.retire(fill(&guard, 64), 64);
        }
        drop(guard);
        (0..crate::reclaim::epoch::GRACE_EPOCHS).for_each(|_| _ = self.inner().epochs().try_advance());
    }
}

/// Leaves something behind, as a thread that dies.
pub(super) type Leave<M> = fn(&mut Rig<M>);

pub(super) fn private_blocks<M: MappedMedium>(rig: &mut Rig<M>) {
    let guard = rig.pool.pin();
    BYTES.iter().cycle().take(40).for_each(|&bytes| _ = fill(&guard, bytes));
}

pub(super) fn unlinked_blocks<M: MappedMedium>(rig: &mut Rig<M>) {
    rig.kept.truncate(rig.kept.len() * 3 / 4);
}

pub(super) fn chunk_half_drained<M: MappedMedium>(rig: &mut Rig<M>) {
    rig.fill_a_chunk();
    let guard = rig.pool.pin();
    let entries = rig.inner().leave_half_drained(guard.thread_slot(), 7);
    assert!(entries > 7);
}

pub(super) fn chunk_between_owner_and_queue<M: MappedMedium>(rig: &mut Rig<M>) {
    let guard = rig.pool.pin();
    (0..5).for_each(|_| guard.retire(fill(&guard, 200), 200));
    assert_ne!(guard.thread_slot().chunk.swap(rig.pool.medium(), 0, Relaxed), 0);
}

pub(super) fn bits_in_no_cache<M: MappedMedium>(rig: &mut Rig<M>) {
    for unit in rig.units(UnitUse::Listed) {
        let class = rig.inner().units().classes.get(rig.state(unit).class().unwrap()).unwrap();
        rig.inner().units().allocated_word(unit, 0).fetch_or(rig.pool.medium(), class.valid(0), SeqCst);
    }
}

pub(super) fn slabs_in_no_cache<M: MappedMedium>(rig: &mut Rig<M>) {
    let guard = rig.pool.pin();
    for (i, cache) in guard.thread_slot().caches.iter().enumerate() {
        cache.place.store(rig.pool.medium(), 0, Relaxed);
        if i % 2 == 0 {
            cache.free.store(rig.pool.medium(), 0, Relaxed);
        }
        // As recovery does with a slot: what is left of the cache belongs to no slab.
    }
    rig.inner().heap().drain_caches(guard.thread_slot());
}

pub(super) fn slabs_popped_but_listed<M: MappedMedium>(rig: &mut Rig<M>) {
    for list in &rig.inner().base().shared().lists {
        let head = list.head.load(rig.pool.medium(), Relaxed);
        if let Some(unit) = (head & 0xffff_ffff).checked_sub(1) {
            let next = rig.inner().units().unit(unit).link.load(rig.pool.medium(), Relaxed) & 0xffff_ffff;
            list.head.store(rig.pool.medium(), ((head >> 32) + 1) << 32 | next, Relaxed);
        }
    }
}

pub(super) fn slab_listed_but_not_pushed<M: MappedMedium>(rig: &mut Rig<M>) {
    let (unit, number) = rig.full_slab();
    let (word, bit) = rig.forget_one_of(unit, number);
    rig.inner().units().allocated_word(unit, word).fetch_and(rig.pool.medium(), !bit, SeqCst);
    rig.set_state(unit, rig.state(unit).with(UnitUse::Listed));
}

pub(super) fn full_slab_with_a_free_block<M: MappedMedium>(rig: &mut Rig<M>) {
    let (unit, number) = rig.full_slab();
    let (word, bit) = rig.forget_one_of(unit, number);
    rig.inner().units().allocated_word(unit, word).fetch_and(rig.pool.medium(), !bit, SeqCst);
}

pub(super) fn full_slab_of_garbage<M: MappedMedium>(rig: &mut Rig<M>) {
    let (unit, number) = rig.full_slab();
    let class = rig.inner().units().classes.get(number).unwrap();
    (0..class.blocks).for_each(|_| _ = rig.forget_one_of(unit, number));
}

pub(super) fn unit_that_is_no_slab_yet<M: MappedMedium>(rig: &mut Rig<M>) {
    let unit = rig.empty_unit();
    rig.inner().units().unit(unit).taken.store(rig.pool.medium(), !0, SeqCst);
}

pub(super) fn granules_without_link<M: MappedMedium>(rig: &mut Rig<M>) {
    let unit = rig.empty_unit();
    rig.inner().units().unit(unit).taken.store(rig.pool.medium(), 0xff00_00ff_0f0f_0001, SeqCst);
}

pub(super) fn unit_without_hints<M: MappedMedium>(rig: &mut Rig<M>) {
    let unit = rig.empty_unit();
    let zone = rig.inner().units().zones.of_unit(unit);
    for hint in [crate::allocator::zones::Hint::Empty, crate::allocator::zones::Hint::Room] {
        let (word, bit) = rig.inner().units().hint_word(hint, &zone, unit);
        word.fetch_and(rig.pool.medium(), !bit, SeqCst);
    }
}

pub(super) fn new_slabs<M: MappedMedium>(rig: &mut Rig<M>) {
    for (number, usage) in [(3, UnitUse::Owned), (3, UnitUse::Reserve), (9, UnitUse::Owned)] {
        let class = rig.inner().units().classes.get(number).unwrap();
        let unit = rig.inner().heap().granules.take_unit(number, class, usage).unwrap();
        // Its marks are what was there before.
        (0..u64::from(class.words)).for_each(|word| {
            rig.inner().units().mark_word(unit, class, word).store(
                rig.pool.medium(),
                0x5a5a_1234_5678_9abc >> word,
                Relaxed,
            );
        });
    }
}

pub(super) fn chunks_of_the_reserve<M: MappedMedium>(rig: &mut Rig<M>) {
    let class = rig.inner().units().classes.of(512).unwrap();
    let class = rig.inner().units().classes.get(class).unwrap();
    (0..3).for_each(|_| _ = rig.inner().heap().take_from_reserve(class).unwrap());
}

pub(super) fn bytes_lost<M: MappedMedium>(rig: &mut Rig<M>) {
    let guard = rig.pool.pin();
    let _ = fill(&guard, 512);
    rig.inner().base().leak(512);
}

pub(super) fn everything<M: MappedMedium>() -> Vec<(&'static str, Leave<M>)> {
    vec![
        ("private blocks", private_blocks),
        ("unlinked blocks", unlinked_blocks),
        ("a chunk half drained", chunk_half_drained),
        ("a chunk between owner and queue", chunk_between_owner_and_queue),
        ("bits in no cache", bits_in_no_cache),
        ("slabs in no cache", slabs_in_no_cache),
        ("slabs popped but listed", slabs_popped_but_listed),
        ("a slab listed but not pushed", slab_listed_but_not_pushed),
        ("a full slab with a free block", full_slab_with_a_free_block),
        ("a full slab of garbage", full_slab_of_garbage),
        ("a unit that is no slab yet", unit_that_is_no_slab_yet),
        ("granules without link", granules_without_link),
        ("a unit without hints", unit_without_hints),
        ("new slabs", new_slabs),
        ("chunks of the reserve", chunks_of_the_reserve),
        ("bytes lost", bytes_lost),
    ]
}
