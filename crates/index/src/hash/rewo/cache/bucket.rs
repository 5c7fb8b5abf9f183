//! A bucket of the cached table: seven pairs in two lines.
//!
//! ```text
//!   | meta | order and ghosts | key0 | word0 | key1 | word1 | ... | key6 | word6 |
//!   meta:  | 63:16 version | overflow | lock | unsettled, a bit a slot: 7 | valid, a bit a slot: 7 |
//!   order: | 63:61 0 | ghosts: five tags of keys that were replaced | seven slots of 3 bits each, the last used first |
//! ```
//! Who changes it has its lock, for some instructions in which it touches nothing but the bucket. A reader waits for nobody: where a change is under way, it does not know.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_pool::Backoff;

/// Pairs of a bucket.
pub(super) const SLOTS: usize = 7;
/// Slots that a bucket of a table half as large would have for the same keys: what was used longer ago than those would not be there.
const YOUNG: usize = 3;

const UNSETTLED_AT: usize = 7;
const LOCK: u64 = 1 << 14;
const OVERFLOW: u64 = 1 << 15;
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

/// What a reader finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// The key has this word. Whether half as large a table would not have known.
    Word { word: u64, is_old: bool },
    /// The key is not in the table.
    Absent,
    /// Ask the table.
    Unknown,
}

/// What became of a word that was read from the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Filled {
    /// It is not taken: the bucket was another's, or the key has been changed since.
    Not,
    /// It is in a slot that was free, or the key's own.
    Free,
    /// It took the place of the key that was used longest ago. Whether it had lost its own that way not long before.
    Evicting { is_ghost: bool },
}

/// The tag of a key that was replaced. 0 is none.
fn ghost_of(key: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (key.wrapping_mul(ODD) >> 56).max(1)
}

const fn unsettled(slot: usize) -> u64 {
    1 << (UNSETTLED_AT + slot)
}

impl CacheBucket {
    /// One without keys. If it `is_complete`, the table has none for it either.
    pub(super) fn new(is_complete: bool) -> Self {
        Self {
            meta: AtomicU64::new(if is_complete { 0 } else { OVERFLOW }),
            order: AtomicU64::new(FIRST_ORDER),
            pairs: Default::default(),
        }
    }

    /// Looks a key up.
    #[inline(always)]
    pub(super) fn find(&self, key: u64) -> Seen {
        // ORDER: Acquire: pairs with the Release of `unlock`: the pairs that it declares valid are seen.
        let before = self.meta.load(Acquire);
        if before & LOCK != 0 {
            return Seen::Unknown;
        }
        let Some(slot) = self.slot_of(before, key) else {
            // ORDER: the Acquire loads of the keys keep it behind them.
            let is_all = before & OVERFLOW == 0 && self.meta.load(Relaxed) == before;
            return if is_all { Seen::Absent } else { Seen::Unknown };
        };
        // ORDER: Acquire: whoever sees what was stored under a later lock sees, in the load behind it, the meta word with that lock.
        let word = self.pairs[slot][1].load(Acquire);
        if before & unsettled(slot) != 0 || self.meta.load(Relaxed) != before {
            return Seen::Unknown;
        }
        // A bucket that never overflowed replaces nothing, so nobody notes there what was used last. Its slots were filled one after the other.
        let rank = if before & OVERFLOW == 0 { slot } else { self.touch(slot) };
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

    /// Notes that a slot is the last one used. Returns how many were since it was. Two at a time may lose the note of one.
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

    /// The slot that was used longest ago.
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
        // ORDER: Release: what was stored under the lock is seen by whoever sees it free.
        self.meta.store(meta.wrapping_add(VERSION_ONE), Release);
    }

    /// ORDER: Release on both: behind the store of the lock.
    fn set(&self, slot: usize, key: u64, word: u64) {
        self.pairs[slot][0].store(key, Release);
        self.pairs[slot][1].store(word, Release);
        self.touch(slot);
    }

    /// A change of a key begins, that is not to be seen yet: from here to its end readers ask the table.
    pub(super) fn begin(&self, key: u64, is_insert: bool) {
        let mut meta = self.lock();
        match self.slot_of(meta, key) {
            Some(slot) => {
                meta |= unsettled(slot);
                if is_insert {
                    // Another key is cached under the same word, and only one of them can be.
                    meta |= OVERFLOW;
                }
            }
            None if meta & OVERFLOW == 0 => match free_slot(meta) {
                Some(slot) => {
                    self.set(slot, key, 0);
                    meta |= 1 << slot | unsettled(slot);
                }
                None => meta |= OVERFLOW,
            },
            None => {}
        }
        self.unlock(meta);
    }

    /// The change is durable: the key has this word, or none. One that is not cached is so only where there is room.
    pub(super) fn end(&self, key: u64, word: Option<u64>) {
        let mut meta = self.lock();
        match (self.slot_of(meta, key), word) {
            (Some(slot), Some(word)) => {
                self.set(slot, key, word);
                meta &= !unsettled(slot);
            }
            (Some(slot), None) => meta &= !(unsettled(slot) | 1 << slot),
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

    /// Takes the durable word of a key that was read from the table, if `is_current` says so under the lock.
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
                    meta |= OVERFLOW;
                    let slot = self.oldest();
                    filled = Filled::Evicting { is_ghost: self.haunt(slot, key) };
                    slot
                }
            };
            self.set(slot, key, word);
            meta = meta & !unsettled(slot) | 1 << slot;
        }
        self.unlock(meta);
        filled
    }

    /// Notes the key of a slot that is replaced. Whether the `new` one was noted.
    fn haunt(&self, slot: usize, new: u64) -> bool {
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
    fn what_was_used_longest_ago_is_replaced() {
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
    fn a_complete_bucket_knows_who_is_absent_until_it_overflows() {
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
    fn what_is_under_way_or_deferred_is_not_answered_and_a_fill_settles_it() {
        let bucket = CacheBucket::new(true);
        bucket.begin(5, true);
        bucket.end(5, Some(50));
        bucket.begin(5, false);
        assert_eq!(bucket.fill(5, 50, || false), Filled::Not);
        assert_eq!(bucket.find(5), Seen::Unknown);
        // Its writer has left the fence to others, and whoever reads the word from the table makes it durable.
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
    fn a_key_that_is_gone_is_absent_in_whichever_slot_it_was() {
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
    fn a_bucket_that_is_another_s_is_left_alone() {
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
    fn in_a_complete_bucket_the_first_three_slots_are_young() {
        let bucket = full();
        for key in [6, 2, 3, 0, 1, 4, 5, 6] {
            assert_eq!(bucket.find(key), Seen::Word { word: key, is_old: key >= 3 });
        }
    }

    #[test]
    fn the_last_five_that_were_replaced_are_remembered() {
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
            // Key 0 was the first to go, 5 the last; 19 was never there.
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
    fn two_changes_of_a_key_of_which_the_first_is_left_to_others_are_not_answered() {
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
    fn in_an_incomplete_bucket_who_changes_a_key_takes_no_slot_before_he_has_done_so() {
        let bucket = CacheBucket::new(false);
        (0..SLOTS as u64).for_each(|key| bucket.begin(key, false));
        assert_eq!(bucket.fill(100, 1, || true), Filled::Free);
        bucket.end(3, Some(30));
        assert_eq!((word(&bucket, 100), word(&bucket, 3), word(&bucket, 4)), (Some(1), Some(30), None));
    }
}
