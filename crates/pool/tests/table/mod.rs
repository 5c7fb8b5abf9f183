//! The smallest structure in a pool that can be traced, for tests.
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::{CollectReport, Guard, Pool};

pub(crate) const SLOTS: u64 = 3000;

/// A reproducible sequence of numbers (xorshift).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// A table of block offsets. Each block contains its length and a stamp of its slot.
pub(crate) struct Table<M: MappedMedium> {
    pub(crate) pool: Pool<M>,
    pub(crate) slots: u64,
}

impl<M: MappedMedium> Table<M> {
    pub(crate) fn create(pool: Pool<M>) -> Self {
        let guard = pool.pin();
        let fresh = guard.alloc(SLOTS as usize * 8).unwrap();
        (0..SLOTS).for_each(|slot| fresh.word(slot as usize * 8).store(pool.medium(), 0, Relaxed));
        let slots = fresh.persist().into_offset();
        pool.set_root("table", "test", slots).unwrap();
        drop(guard);
        Self { pool, slots }
    }

    pub(crate) fn open(pool: Pool<M>) -> Self {
        let slots = pool.root("table", "test").unwrap().unwrap();
        Self { pool, slots }
    }

    pub(crate) fn word(&self, offset: u64) -> &Word {
        self.pool.region().at(Offset::new(offset))
    }

    pub(crate) fn slot(&self, slot: u64) -> &Word {
        self.word(self.slots + slot * 8)
    }

    /// Puts a block of `bytes` bytes into a slot, or none if 0. The previous block is retired.
    pub(crate) fn set(&self, guard: &Guard<'_, M>, slot: u64, bytes: u64) {
        let medium = self.pool.medium();
        let new = match bytes {
            0 => 0,
            _ => {
                let Ok(fresh) = guard.alloc(bytes as usize) else { return };
                fresh.word(0).store(medium, bytes, Relaxed);
                fresh.word(8).store(medium, slot ^ bytes, Relaxed);
                fresh.word(bytes as usize / 8 * 8 - 8).store(medium, slot ^ bytes, Relaxed);
                fresh.persist().into_offset()
            }
        };
        let old = self.slot(slot).swap(medium, new, AcqRel);
        self.pool.region().persist(self.slot(slot));
        if old != 0 {
            guard.retire(old, self.word(old).load(medium, Relaxed) as usize);
        }
    }

    pub(crate) fn churn(&self, dice: &mut Dice, turns: u32) {
        for _ in 0..turns {
            let guard = self.pool.pin();
            for _ in 0..1 + dice.roll(4) {
                let bytes = match dice.roll(20) {
                    0..4 => 0,
                    4 => 8 * (2 + dice.roll(5000)),
                    _ => 8 * (2 + dice.roll(60)),
                };
                self.set(&guard, dice.roll(SLOTS), bytes);
            }
        }
    }

    pub(crate) fn collect(&self) -> CollectReport {
        self.pool.collect(&mut |marker| {
            let _guard = self.pool.pin();
            marker.mark(self.slots, SLOTS as usize * 8);
            for slot in 0..SLOTS {
                let offset = self.slot(slot).load(self.pool.medium(), Acquire);
                if offset != 0 {
                    marker.mark(offset, self.word(offset).load(self.pool.medium(), Relaxed) as usize);
                }
            }
        })
    }

    /// Checks every block, and that no other memory is allocated.
    pub(crate) fn check(&self) {
        self.pool.reclaim_blocking();
        let findings = self.pool.verify_memory();
        assert!(findings.is_empty(), "{findings:?}");
        let mut used = footprint(&self.pool, SLOTS * 8);
        for slot in 0..SLOTS {
            let offset = self.slot(slot).load(self.pool.medium(), Acquire);
            if offset != 0 {
                let bytes = self.word(offset).load(self.pool.medium(), Relaxed);
                for at in [8, bytes / 8 * 8 - 8] {
                    let stamp = self.word(offset + at).load(self.pool.medium(), Relaxed);
                    assert_eq!(stamp, slot ^ bytes, "slot {slot}");
                }
                used += footprint(&self.pool, bytes);
            }
        }
        let space = self.pool.space();
        assert_eq!((space.used_by_blocks, space.waiting_bytes, space.lost), (used, 0, 0), "{space:?}");
    }
}

pub(crate) fn footprint<M: MappedMedium>(pool: &Pool<M>, bytes: u64) -> u64 {
    let granule = 1u64 << (pool.layout().geometry.slab_log2 - 6);
    match bytes {
        _ if bytes > 8 * granule => bytes.next_multiple_of(granule),
        0..=128 => bytes.next_multiple_of(8),
        _ => bytes.next_multiple_of(bytes.next_power_of_two() / 16),
    }
}
