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
mod tests {
    use super::*;

    fn word(bucket: &CacheBucket, key: u64) -> Option<u64> {
        match bucket.find(key) {
            Seen::Word { word, .. } => Some(word),
            _ => None,
        }
    }

    #[test]
    fn least_recently_used_key_is_replaced() {
        let bucket = CacheBucket::new(false);
        (0..7).for_each(|key| assert_eq!(bucket.fill(key, key + 100, || true), Filled::Free));
        for key in [3, 0, 6, 1, 5, 4, 2] {
            assert_eq!(word(&bucket, key), Some(key + 100));
        }
        for (new, gone) in [(10, 3), (11, 0), (12, 6)] {
            assert_eq!(bucket.fill(new, new + 100, || true), Filled::Evicting { is_ghost: false });
            assert_eq!((bucket.find(gone), word(&bucket, new)), (Seen::Unknown, Some(new + 100)));
        }
        assert_eq!(
            bucket.fill(3, 103, || true),
            Filled::Evicting { is_ghost: true },
            "it was here not long ago"
        );
        assert_eq!(bucket.find(1), Seen::Unknown);
        assert_eq!(bucket.find(5), Seen::Word { word: 105, is_old: true });
        assert_eq!(bucket.find(5), Seen::Word { word: 105, is_old: false });
    }

    #[test]
    fn complete_bucket_knows_absent_keys() {
        let bucket = CacheBucket::new(true);
        assert_eq!(bucket.find(1), Seen::Absent);
        for key in 1..=7 {
            bucket.begin(key, true);
            assert_eq!((bucket.find(key), bucket.find(8)), (Seen::Unknown, Seen::Absent), "under way");
            bucket.end(key, Some(key));
        }
        bucket.begin(7, false);
        bucket.end(7, None);
        assert_eq!(bucket.find(7), Seen::Absent, "deleted");
        bucket.begin(7, true);
        bucket.end(7, Some(70));
        bucket.begin(8, true);
        assert_eq!((bucket.find(8), bucket.find(9)), (Seen::Unknown, Seen::Unknown), "there was no room");
        bucket.end(8, Some(8));
        assert_eq!(
            (bucket.find(8), word(&bucket, 7)),
            (Seen::Unknown, Some(70)),
            "a writer replaces nothing"
        );
        bucket.begin(3, false);
        bucket.end(3, None);
        assert_eq!((bucket.find(3), bucket.find(9)), (Seen::Unknown, Seen::Unknown), "for ever");
    }

    #[test]
    fn pending_key_is_unknown_until_filled() {
        let bucket = CacheBucket::new(true);
        bucket.begin(5, true);
        bucket.end(5, Some(50));
        bucket.begin(5, false);
        assert_eq!(bucket.fill(5, 50, || false), Filled::Not);
        assert_eq!(bucket.find(5), Seen::Unknown);
        // Its writer has deferred the fence; a thread that reads the word from the table persists
        // it.
        assert_eq!(bucket.fill(5, 51, || true), Filled::Free);
        assert_eq!((word(&bucket, 5), bucket.find(6)), (Some(51), Seen::Absent));
    }

    #[test]
    fn two_keys_under_one_word_leave_the_bucket_incomplete() {
        let bucket = CacheBucket::new(true);
        for word in [1, 2] {
            bucket.begin(5, true);
            bucket.end(5, Some(word));
        }
        bucket.begin(5, false);
        bucket.end(5, None);
        assert_eq!(bucket.find(5), Seen::Unknown, "the other one may be there");
    }

    #[test]
    fn removed_key_is_absent_from_any_slot() {
        for gone in 0..SLOTS as u64 {
            let bucket = CacheBucket::new(true);
            for key in 0..SLOTS as u64 {
                bucket.begin(key, true);
                bucket.end(key, Some(10 * key));
            }
            bucket.begin(gone, false);
            bucket.end(gone, None);
            for key in 0..SLOTS as u64 {
                assert_eq!(word(&bucket, key), (key != gone).then_some(10 * key), "{gone} is gone");
            }
            assert_eq!(bucket.find(gone), Seen::Absent);
            bucket.begin(100, true);
            bucket.end(100, Some(7));
            assert_eq!(
                (word(&bucket, 100), bucket.find(gone)),
                (Some(7), Seen::Absent),
                "there is room again"
            );
        }
    }

    #[test]
    fn locked_bucket_is_not_filled() {
        let bucket = CacheBucket::new(false);
        let meta = bucket.lock();
        assert_eq!((bucket.find(1), bucket.fill(1, 1, || true)), (Seen::Unknown, Filled::Not));
        bucket.unlock(meta);
        assert_eq!(bucket.fill(1, 1, || true), Filled::Free);
    }

    fn full() -> CacheBucket {
        let bucket = CacheBucket::new(true);
        for key in 0..SLOTS as u64 {
            bucket.begin(key, true);
            bucket.end(key, Some(key));
        }
        bucket
    }

    #[test]
    fn first_three_slots_of_a_complete_bucket_are_young() {
        let bucket = full();
        for key in [6, 2, 3, 0, 1, 4, 5, 6] {
            assert_eq!(bucket.find(key), Seen::Word { word: key, is_old: key >= 3 });
        }
    }

    #[test]
    fn last_five_replaced_keys_are_ghosts() {
        // Their marks are all different.
        let keys: Vec<u64> = (0..20).collect();
        let marks: std::collections::BTreeSet<u64> = keys.iter().map(|&key| ghost_of(key)).collect();
        assert_eq!(marks.len(), keys.len());
        for (back, is_ghost) in
            [(0, false), (1, true), (2, true), (3, true), (4, true), (5, true), (6, false)]
        {
            let bucket = full();
            for (gone, new) in (0..6).zip(7..) {
                assert_eq!(bucket.fill(new, new, || true), Filled::Evicting { is_ghost: false }, "{gone}");
            }
            // Key 0 was the first to be replaced, 5 the last; 19 was never there.
            let again = if back == 0 { 19 } else { 6 - back };
            assert_eq!(bucket.fill(again, again, || true), Filled::Evicting { is_ghost }, "{back}");
            assert_eq!(
                (word(&bucket, again), bucket.find(6)),
                (Some(again), Seen::Unknown),
                "6 was the oldest"
            );
        }
    }

    #[test]
    fn change_after_a_deferred_one_is_unknown() {
        for is_complete in [true, false] {
            let bucket = CacheBucket::new(is_complete);
            bucket.end(5, Some(50));
            for is_insert in [false, false, true, true, true] {
                bucket.begin(5, is_insert);
                assert_eq!(bucket.find(5), Seen::Unknown);
            }
            bucket.end(5, Some(51));
            assert_eq!(word(&bucket, 5), Some(51));
            assert_eq!(bucket.find(6), Seen::Unknown, "two keys are under one word");
        }
    }

    #[test]
    fn incomplete_bucket_takes_a_key_at_the_end() {
        let bucket = CacheBucket::new(false);
        (0..SLOTS as u64).for_each(|key| bucket.begin(key, false));
        assert_eq!(bucket.fill(100, 1, || true), Filled::Free);
        bucket.end(3, Some(30));
        assert_eq!((word(&bucket, 100), word(&bucket, 3), word(&bucket, 4)), (Some(1), Some(30), None));
    }
}
