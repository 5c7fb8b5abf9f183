//! Buckets of byte-string keys: 27 slots of one word, each with 14 bits of the key's hash beside
//! its record's offset.
//!
//! ```text
//!   | meta | tags 0 to 7 | tags 8 to 15 | tags 16 to 23 | tags 24 to 26, overflow |
//!   | slot0 | slot1 | ... | slot26 |
//!   meta: | 63:54 check | 53:32 sequence | 31:27 lock | 26:0 valid |
//!   slot: [63] second bucket  [62:49] top of the hash  [48:41] check  [40:0] offset / 8
//! ```
//!
//! The top of the hash determines the cell of the directory; bit 63 and the tag determine the key's
//! other bucket. So no eviction, no scan and no resize that halves a table touches a record. Only a
//! resize that moves all keys to a table of another size reads them.
//!
//! Two checks detect a change of any one byte: one in the slot over its other bits, one in the meta
//! word. A damaged slot is returned as a word that is no record's offset (its lowest bit is set). A
//! search that ends without its key verifies both checks in the buckets that it read. It also
//! compares the tops of all slots, in case a tag was changed.

use super::super::packed::{self, CHECK, DAMAGED, HASH_AT, OFFSET, check, offset_in};
use super::bucket::{Bucket, TAGS, meta, meta_again, tag_of, word};
use super::place::{Place, TOP_BITS};
use super::shape::{Entry, Probe, sealed::Shape};
use crate::{Bytes, RecordKeys};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, Word};
use terrace_pool::Guard;

const SLOTS: usize = 27;
const FIRST: usize = 5;
const SECOND: u64 = 1 << 63;
const _: () = assert!(packed::HASH_BITS == TOP_BITS + 1);

#[inline(always)]
fn slot_word(bucket: &Bucket, slot: usize) -> &Word {
    word(bucket, FIRST + slot)
}
/// The top of the hash in a slot.
#[inline(always)]
fn top_in(slot: u64) -> u64 {
    (slot & !SECOND) >> HASH_AT
}
#[inline(always)]
fn top_of(hash: u64) -> u64 {
    hash >> (64 - TOP_BITS)
}
#[inline(always)]
fn is_whole(slot: u64) -> bool {
    slot & CHECK == check(slot) && slot & OFFSET != 0
}
#[inline(always)]
fn pack(top: u64, offset: u64, is_second: bool) -> u64 {
    let bits = u64::from(is_second) << 63 | top << HASH_AT | offset >> 3;
    bits | check(bits)
}

const SEQUENCE_AT: u32 = 32;
const META_BITS: u32 = 54;
const META_CHECK_BITS: u32 = 64 - META_BITS;
const META_CHECK: u64 = (1 << META_CHECK_BITS) - 1;
const SEQUENCE: u64 = (1 << (META_BITS - SEQUENCE_AT)) - 1;

/// The check of a meta word's other bits. Each bit of a byte falls on a different bit of the check.
/// The rotation separates the bits that share a byte with the check from the check's own bits.
#[inline(always)]
fn meta_check(bits: u64) -> u64 {
    let pieces = (0..6).fold(0, |folded, piece| folded ^ bits >> (piece * META_CHECK_BITS)) & META_CHECK;
    (pieces << 4 | pieces >> (META_CHECK_BITS - 4)) & META_CHECK
}

/// Whether a slot may belong to a key with this hash by its top; also true for damaged slots.
fn may_be_of(slot: u64, hash: u64) -> bool {
    !is_whole(slot) || top_in(slot) == top_of(hash)
}

impl<R: RecordKeys> Shape for Bytes<R> {
    const SLOTS: usize = SLOTS;
    const FIRST: usize = FIRST;
    const WORDS: usize = 1;
    const OVERFLOW: usize = 4;
    const OVERFLOW_AT: u32 = 24;
    const OVERFLOW_BITS: u32 = 40;
    const SLOT_LOCK_BITS: u32 = 5;
    const KIND: u64 = u64::from_le_bytes(*b"rewotags");

    #[inline(always)]
    fn seal(bits: u64, before: u64) -> u64 {
        let sequence = (before >> SEQUENCE_AT).wrapping_add(1) & SEQUENCE;
        let bits = bits | sequence << SEQUENCE_AT;
        bits | meta_check(bits) << META_BITS
    }

    fn is_sealed(meta: u64) -> bool {
        let bits = meta & !(META_CHECK << META_BITS);
        meta == bits | meta_check(bits) << META_BITS
    }

    #[inline(always)]
    fn is_word(word: u64) -> bool {
        packed::is_word(word)
    }

    #[inline(always)]
    fn find<M: MappedMedium>(
        guard: &Guard<'_, M>,
        bucket: &Bucket,
        probe: &Probe<'_, Self>,
    ) -> Option<(usize, u64)> {
        let medium = guard.pool().medium();
        'again: loop {
            let before = meta(medium, bucket);
            let tagged = bucket[0].equal_bytes::<TAGS, 4>(medium, probe.tag());
            let mut matches = u64::from(tagged) & before.valid::<Self>();
            while matches != 0 {
                let slot = matches.trailing_zeros() as usize;
                // ORDER: Acquire: pairs with the Release of write and replace. The slot's record is
                // visible, and so is that the slot was free before. The slot may have been refilled
                // since its tag matched; the record's own key decides.
                let packed = slot_word(bucket, slot).load(medium, Acquire);
                let offset = offset_in(packed);
                if top_in(packed) == top_of(probe.hash) && is_whole(packed) && R::is(guard, offset, probe.key)
                {
                    // The key may have been removed and be on its way back into the same slot: it
                    // is absent until the meta word says otherwise. A key that is removed by now
                    // was present before.
                    match meta_again(medium, bucket).valid::<Self>() >> slot & 1 {
                        1 => return Some((slot, offset)),
                        _ => continue 'again,
                    }
                }
                matches &= matches - 1;
            }
            return None;
        }
    }

    fn suspect<M: MappedMedium>(
        guard: &Guard<'_, M>,
        bucket: &Bucket,
        probe: &Probe<'_, Self>,
    ) -> Option<u64> {
        let medium = guard.pool().medium();
        let before = meta(medium, bucket);
        if !Self::is_sealed(before.0) {
            return Some(guard.pool().region().offset_of(bucket).raw());
        }
        // A key that came since the search, under its own tag, is as good as one that came after
        // it. Its slot's word is stored before its tag, and that before the meta word. The meta
        // word may then have its value from before another key left that slot. So its tag counts
        // once the meta word says valid, if the slot still has its word. No record comes back while
        // this thread is pinned.
        let is_wrong = |slot, packed| match R::is(guard, offset_in(packed), probe.key) {
            true => {
                meta(medium, bucket) == before
                    && tag_of(medium, bucket, slot) != probe.tag()
                    && slot_word(bucket, slot).load(medium, Acquire) == packed
            }
            false => !R::is_sound(guard, offset_in(packed)),
        };
        let slots = (0..SLOTS).filter(|&slot| before.valid::<Self>() >> slot & 1 == 1);
        let packed = slots.map(|slot| (slot, slot_word(bucket, slot).load(medium, Acquire)));
        let mut suspects = packed.filter(|&(_, packed)| may_be_of(packed, probe.hash));
        let found = suspects.find(|&(slot, packed)| !is_whole(packed) || is_wrong(slot, packed));
        // A slot that was refilled meanwhile is no damage.
        found.filter(|_| meta(medium, bucket) == before).map(|(_, packed)| offset_in(packed))
    }

    #[inline(always)]
    fn prefetch<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, probe: &Probe<'_, Self>) {
        let medium = guard.pool().medium();
        let tagged = bucket[0].equal_bytes::<TAGS, 4>(medium, probe.tag());
        let mut matches = u64::from(tagged) & meta(medium, bucket).valid::<Self>();
        while matches != 0 {
            let packed = slot_word(bucket, matches.trailing_zeros() as usize).load(medium, Relaxed);
            R::prefetch(guard, offset_in(packed));
            matches &= matches - 1;
        }
    }

    #[inline(always)]
    fn read<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize) -> Option<Entry> {
        let medium = guard.pool().medium();
        // A slot's word is its key's while the meta word says valid before and after.
        loop {
            let before = meta(medium, bucket);
            if before.valid::<Self>() >> slot & 1 == 0 {
                return None;
            }
            let tag = tag_of(medium, bucket, slot);
            let key = slot_word(bucket, slot).load(medium, Acquire);
            if meta(medium, bucket) == before {
                let damaged = if is_whole(key) { 0 } else { DAMAGED };
                return Some(Entry { tag, key, word: offset_in(key) | damaged });
            }
        }
    }

    #[inline(always)]
    fn write<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry) {
        // ORDER: Release: a thread that sees the slot sees the record.
        slot_word(bucket, slot).store(guard.pool().medium(), entry.key, Release);
    }

    #[inline(always)]
    fn replace<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry) {
        let is_second = slot_word(bucket, slot).load(guard.pool().medium(), Relaxed) & SECOND != 0;
        // PERSIST: one store; the record was durable before, so a surviving slot has its record.
        Self::write(guard, bucket, slot, Self::placed(entry, is_second));
    }

    #[inline(always)]
    fn entry(probe: &Probe<'_, Self>, word: u64, is_second: bool) -> Entry {
        Entry { tag: probe.tag(), key: pack(top_of(probe.hash), word, is_second), word }
    }

    #[inline(always)]
    fn placed(entry: Entry, is_second: bool) -> Entry {
        match Self::is_damaged(entry) {
            // A damaged slot stays damaged: `check` and `salvage` can still name its record.
            true => entry,
            false => Entry { key: pack(top_in(entry.key), entry.word, is_second), ..entry },
        }
    }

    #[inline(always)]
    fn is_second(entry: Entry, _: Place, _: u64, _: u64) -> bool {
        entry.key & SECOND != 0
    }

    #[inline(always)]
    fn top(entry: Entry, _: u64) -> u64 {
        entry.key << 1
    }

    #[inline(always)]
    fn hash_of<M: MappedMedium>(guard: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64> {
        R::hash_at(guard, entry.word, seed)
    }

    fn sort_key(entry: Entry) -> u64 {
        u64::from(entry.tag) << TOP_BITS | top_in(entry.key)
    }

    #[inline(always)]
    fn cache_word(probe: &Probe<'_, Self>) -> u64 {
        probe.hash
    }

    #[inline(always)]
    fn is_word_of<M: MappedMedium>(guard: &Guard<'_, M>, word: u64, probe: &Probe<'_, Self>) -> bool {
        R::is(guard, word, probe.key)
    }

    #[inline(always)]
    fn same_key<M: MappedMedium>(guard: &Guard<'_, M>, one: Entry, other: Entry) -> bool {
        one.tag == other.tag
            && top_in(one.key) == top_in(other.key)
            && R::is_same(guard, one.word, other.word)
    }

    #[inline(always)]
    fn is_damaged(entry: Entry) -> bool {
        entry.word & DAMAGED != 0
    }
}

#[cfg(test)]
#[path = "tests/bytes.rs"]
mod tests;
