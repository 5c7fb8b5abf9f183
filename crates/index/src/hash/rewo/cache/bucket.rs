//! A bucket of the cached table: seven pairs in two lines.
//!
//! ```text
//!   | meta | order and ghosts | key0 | word0 | key1 | word1 | ... | key6 | word6 |
//!   meta:  | 63:16 version | incomplete | lock | pending: a bit a slot | valid: a bit a slot |
//!   order: | 63:61 0 | ghosts: five tags of replaced keys | slots, 3 bits each, last used first |
//! ```
//! A thread that changes the bucket holds its lock, for a few instructions that touch nothing but
//! the bucket. A reader never waits: during a change its answer is `Unknown`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_pool::Backoff;

/// Pairs of a bucket.
pub(super) const SLOTS: usize = 7;
/// Slots that a bucket of a table half as large would have for the same keys: less recently used
/// keys would not be there.
const YOUNG: usize = 3;

const PENDING_AT: usize = 7;
const LOCK: u64 = 1 << 14;
const INCOMPLETE: u64 = 1 << 15;
const VERSION_ONE: u64 = 1 << 16;
const VALID: u64 = (1 << SLOTS) - 1;

const ORDER_BITS: u32 = 3 * SLOTS as u32;
const ORDER: u64 = (1 << ORDER_BITS) - 1;
/// Slot 0 first.
const FIRST_ORDER: u64 = 0o6543210;
const GHOSTS: u32 = 5;
const GHOST_BITS: u64 = (1 << (8 * GHOSTS)) - 1;

#[repr(C, align(128))]
pub(super) struct CacheBucket {
    meta: AtomicU64,
    order: AtomicU64,
    pairs: [[AtomicU64; 2]; SLOTS],
}
const _: () = assert!(size_of::<CacheBucket>() == 128);

/// The result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// The key has this word; and whether a table half as large would not have known it.
    Word { word: u64, is_old: bool },
    /// The key is not in the table.
    Absent,
    /// The table must be searched.
    Unknown,
}

/// What happened to a word that was read from the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Filled {
    /// Not stored: the bucket was locked, or the key has been changed since.
    Not,
    /// Stored in a slot that was free, or the key's own.
    Free,
    /// Stored in place of the least recently used key; and whether the key itself had been replaced
    /// shortly before.
    Evicting { is_ghost: bool },
}

/// The tag of a replaced key. 0 is none.
fn ghost_of(key: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (key.wrapping_mul(ODD) >> 56).max(1)
}

const fn pending(slot: usize) -> u64 {
    1 << (PENDING_AT + slot)
}

impl CacheBucket {
    /// A bucket without keys. If it `is_complete`, the table has no key for it either.
    pub(super) fn new(is_complete: bool) -> Self {
        Self {
            meta: AtomicU64::new(if is_complete { 0 } else { INCOMPLETE }),
            order: AtomicU64::new(FIRST_ORDER),
            pairs: Default::default(),
        }
    }

    /// Looks a key up.
    #[inline(always)]
    pub(super) fn find(&self, key: u64) -> Seen {
        // ORDER: Acquire: pairs with the Release of `unlock`: the pairs that it declares valid are
        // visible.
        let before = self.meta.load(Acquire);
        if before & LOCK != 0 {
            return Seen::Unknown;
        }
        let Some(slot) = self.slot_of(before, key) else {
            // ORDER: the Acquire loads of the keys keep it behind them.
            let is_all = before & INCOMPLETE == 0 && self.meta.load(Relaxed) == before;
            return if is_all { Seen::Absent } else { Seen::Unknown };
        };
        // ORDER: Acquire: a reader that sees a store under a later lock also sees, in the load
        // behind it, the meta word with that lock.
        let word = self.pairs[slot][1].load(Acquire);
        if before & pending(slot) != 0 || self.meta.load(Relaxed) != before {
            return Seen::Unknown;
        }
        // A bucket that was always complete replaces nothing, so it does not record uses. Its slots
        // were filled in order.
        let rank = if before & INCOMPLETE == 0 { slot } else { self.touch(slot) };
        Seen::Word { word, is_old: rank >= YOUNG }
    }

    #[inline(always)]
    fn slot_of(&self, meta: u64, key: u64) -> Option<usize> {
        let mut valid = meta & VALID;
        while valid != 0 {
            let slot = valid.trailing_zeros() as usize;
            if self.pairs[slot][0].load(Acquire) == key {
                return Some(slot);
            }
            valid &= valid - 1;
        }
        None
    }

    /// Records that a slot is the last one used. Returns how many slots were used since its last
    /// use. Of two concurrent records one may be lost.
    #[inline(always)]
    fn touch(&self, slot: usize) -> usize {
        let order = self.order.load(Relaxed);
        if order & 7 == slot as u64 {
            return 0;
        }
        let rank = (1..SLOTS).find(|rank| order >> (3 * rank) & 7 == slot as u64).unwrap_or(SLOTS - 1);
        let before = order & ((1 << (3 * rank)) - 1);
        let behind = order & !((1 << (3 * (rank + 1))) - 1);
        self.order.store(behind | before << 3 | slot as u64, Relaxed);
        rank
    }

    /// The least recently used slot.
    fn oldest(&self) -> usize {
        (self.order.load(Relaxed) >> (ORDER_BITS - 3) & 7) as usize
    }

    fn try_lock(&self) -> Option<u64> {
        let meta = self.meta.load(Relaxed);
        // ORDER: Acquire: pairs with the Release of `unlock`.
        let is_mine =
            meta & LOCK == 0 && self.meta.compare_exchange(meta, meta | LOCK, Acquire, Relaxed).is_ok();
        is_mine.then_some(meta)
    }

    fn lock(&self) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            if let Some(meta) = self.try_lock() {
                return meta;
            }
            backoff.spin();
        }
    }

    fn unlock(&self, meta: u64) {
        // ORDER: Release: a thread that sees the lock free sees what was stored under it.
        self.meta.store(meta.wrapping_add(VERSION_ONE), Release);
    }

    /// Stores a pair.
    ///
    /// ORDER: Release on both: behind the store of the lock.
    fn set(&self, slot: usize, key: u64, word: u64) {
        self.pairs[slot][0].store(key, Release);
        self.pairs[slot][1].store(word, Release);
        self.touch(slot);
    }

    /// Begins an unpublished change of a key: until its end, readers search the table.
    pub(super) fn begin(&self, key: u64, is_insert: bool) {
        let mut meta = self.lock();
        match self.slot_of(meta, key) {
            Some(slot) => {
                meta |= pending(slot);
                if is_insert {
                    // Another key is cached under the same word, and only one of them can be.
                    meta |= INCOMPLETE;
                }
            }
            None if meta & INCOMPLETE == 0 => match free_slot(meta) {
                Some(slot) => {
                    self.set(slot, key, 0);
                    meta |= 1 << slot | pending(slot);
                }
                None => meta |= INCOMPLETE,
            },
            None => {}
        }
        self.unlock(meta);
    }

    /// Ends a change, which is durable: the key has this word, or is removed. A key that is not
    /// cached is added only if there is room.
    pub(super) fn end(&self, key: u64, word: Option<u64>) {
        let mut meta = self.lock();
        match (self.slot_of(meta, key), word) {
            (Some(slot), Some(word)) => {
                self.set(slot, key, word);
                meta &= !pending(slot);
            }
            (Some(slot), None) => meta &= !(pending(slot) | 1 << slot),
            (None, Some(word)) => {
                if let Some(slot) = free_slot(meta) {
                    self.set(slot, key, word);
                    meta |= 1 << slot;
                }
            }
            (None, None) => {}
        }
        self.unlock(meta);
    }

    /// Stores the durable word of a key that was read from the table, if `is_current` confirms it
    /// under the lock.
    pub(super) fn fill(&self, key: u64, word: u64, is_current: impl FnOnce() -> bool) -> Filled {
        let Some(mut meta) = self.try_lock() else { return Filled::Not };
        let mut filled = Filled::Not;
        if is_current() {
            let slot = match self.slot_of(meta, key).or(free_slot(meta)) {
                Some(slot) => {
                    filled = Filled::Free;
                    slot
                }
                None => {
                    meta |= INCOMPLETE;
                    let slot = self.oldest();
                    filled = Filled::Evicting { is_ghost: self.record_ghost(slot, key) };
                    slot
                }
            };
            self.set(slot, key, word);
            meta = meta & !pending(slot) | 1 << slot;
        }
        self.unlock(meta);
        filled
    }

    /// Records the key of a replaced slot as a ghost. Returns whether the `new` key was one.
    fn record_ghost(&self, slot: usize, new: u64) -> bool {
        let order = self.order.load(Relaxed);
        let ghosts = order >> ORDER_BITS & GHOST_BITS;
        let is_noted = (0..GHOSTS).any(|nth| ghosts >> (8 * nth) & 0xff == ghost_of(new));
        let gone = ghost_of(self.pairs[slot][0].load(Relaxed));
        self.order.store(order & ORDER | ((ghosts << 8 | gone) & GHOST_BITS) << ORDER_BITS, Relaxed);
        is_noted
    }
}

fn free_slot(meta: u64) -> Option<usize> {
    let free = !meta & VALID;
    (free != 0).then(|| free.trailing_zeros() as usize)
}

#[cfg(test)]
#[path = "tests/bucket.rs"]
mod tests;
