//! Numbers of blocks, and the bytes of dead records by number.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_medium::Dram;
use terrace_pool::Pool;

/// Which numbers are in use.
struct Used {
    next: u64,
    /// Numbers that come back, and the pool's epoch since which nobody can come to see them.
    free: VecDeque<(u64, u64)>,
}

/// The numbers of blocks of a space. It owns which of them are in use, and what is dead by number;
/// epochs are those of the pool that a caller names.
pub(crate) struct Numbers {
    blocks: u64,
    used: Mutex<Used>,
    /// Bytes of dead records by block.
    dead: Box<[AtomicU64]>,
}

impl Numbers {
    /// Numbers of so many blocks.
    pub(super) fn new(blocks: u64) -> Self {
        assert!(blocks > 1, "a block has a number above 0");
        Self {
            blocks,
            // No record has address 0.
            used: Mutex::new(Used { next: 1, free: VecDeque::new() }),
            dead: (0..blocks).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many numbers of blocks there are.
    pub(crate) fn count(&self) -> u64 {
        self.blocks
    }

    /// The bytes of dead records of a block.
    pub(crate) fn dead(&self, block: u64) -> &AtomicU64 {
        &self.dead[block as usize]
    }

    /// A number that no block has, and that no reader can take for an earlier block's.
    pub(crate) fn take(&self, pool: &Pool<Dram>) -> Option<u64> {
        let mut used = self.used();
        // Those that come back first, so that few are in use.
        let is_over = |&(_, epoch): &(u64, u64)| epoch == 0 || pool.is_grace_period_over(epoch);
        if used.free.front().is_some_and(is_over) {
            return used.free.pop_front().map(|(number, _)| number);
        }
        let fresh = used.next;
        assert!(fresh <= self.blocks, "numbers end with the map");
        used.next += u64::from(fresh < self.blocks);
        (fresh < self.blocks).then_some(fresh)
    }

    /// All blocks have lower numbers.
    pub(crate) fn end(&self) -> u64 {
        self.used().next
    }

    /// Notes that a block has this number: when the store is opened.
    pub(crate) fn note(&self, number: u64) {
        assert!(0 < number && number < self.blocks, "a number that the map has");
        let mut used = self.used();
        let next = used.next;
        used.free.extend((next..number).map(|number| (number, 0)));
        used.free.retain(|(free, _)| *free != number);
        used.next = next.max(number + 1);
    }

    /// Gives a number back that no block has used.
    pub(super) fn put_back(&self, number: u64) {
        self.used().free.push_front((number, 0));
    }

    /// Gives a number back, once no word of the index has an address of it any more, and it has no
    /// pages.
    pub(crate) fn free(&self, pool: &Pool<Dram>, number: u64) {
        self.dead(number).store(0, Relaxed);
        let epoch = pool.epoch();
        let mut used = self.used();
        debug_assert!(number < used.next, "a number that was taken");
        debug_assert!(used.free.iter().all(|(free, _)| *free != number), "a number has one owner");
        used.free.push_back((number, epoch));
    }
}
