//! Buckets of byte-string keys: 27 slots of one word, each with 15 bits of the key's hash beside
//! its record's offset.
//!
//! ```text
//!   | meta | tags 0 to 7 | tags 8 to 15 | tags 16 to 23 | tags 24 to 26, overflow |
//!   | slot0 | slot1 | ... | slot26 |
//!   slot: [63:49] place  [48:41] check  [40:0] offset / 8
//! ```
//!
//! The place is the first 15 bits of the hash after those that choose the shard. It determines a
//! slot's home in a shard of any size, so no rehash and no scan touches a record. Tag and place
//! together are 23 bits of the hash. Slots near a home have as many of them in common as the
//! shard's buckets have bits. So, while shards have 512 buckets, a search for another key touches a
//! record once in 16,384 comparisons.
//!
//! Two checks detect a change of any one byte: one in the slot over its other bits, one in the meta
//! word over live and deleted. A damaged slot is returned as a word that is no record's offset (its
//! lowest bit is set). A search that ends without its key verifies both checks on its path, and
//! compares the places of all slots, in case a tag was changed.

use super::super::packed::{self, CHECK, DAMAGED, HASH_AT, HASH_BITS, OFFSET, check, offset_in};
use super::bucket::{Bucket, Image, Meta, TAGS, meta, meta_again, tag_of, with_tag, word};
use super::shape::{Entry, Found, Probe, sealed::Shape};
use crate::{Bytes, RecordKeys};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, Word};
use terrace_pool::Guard;

const SLOTS: usize = 27;
const FIRST: usize = 5;

#[inline(always)]
fn slot_word(bucket: &Bucket, slot: usize) -> &Word {
    word(bucket, FIRST + slot)
}
#[inline(always)]
fn place(inner: u64) -> u64 {
    inner >> HASH_AT
}
#[inline(always)]
fn is_whole(slot: u64) -> bool {
    slot & CHECK == check(slot) && slot & OFFSET != 0
}
#[inline(always)]
fn pack(place: u64, offset: u64) -> u64 {
    let bits = place << HASH_AT | offset >> 3;
    bits | check(bits)
}

const META_BITS: u32 = 2 * SLOTS as u32;
const META_CHECK_BITS: u32 = 64 - META_BITS;
const META_CHECK: u64 = (1 << META_CHECK_BITS) - 1;

/// The check of live and deleted bits. Each bit of a byte falls on a different bit of the check.
/// The rotation separates the bits that share a byte with the check from the check's own bits.
#[inline(always)]
fn meta_check(bits: u64) -> u64 {
    let pieces = (0..6).fold(0, |folded, piece| folded ^ bits >> (piece * META_CHECK_BITS)) & META_CHECK;
    (pieces << 4 | pieces >> (META_CHECK_BITS - 4)) & META_CHECK
}

impl<R: RecordKeys> Bytes<R> {
    /// Whether a slot may be the key's by its place; also true for damaged slots.
    fn may_be_of(slot: u64, probe: &Probe<'_, Self>) -> bool {
        !is_whole(slot) || slot >> HASH_AT == place(probe.inner)
    }
}

impl<R: RecordKeys> Shape for Bytes<R> {
    const SLOTS: usize = SLOTS;
    const FIRST: usize = FIRST;
    const WORDS: usize = 1;
    const OVERFLOW: usize = 4;
    const OVERFLOW_AT: u32 = 24;
    const OVERFLOW_BITS: u32 = 40;
    const KIND: u64 = u64::from_le_bytes(*b"turbtags");

    #[inline(always)]
    fn seal(bits: u64, _: u64) -> u64 {
        bits | meta_check(bits) << META_BITS
    }

    fn is_sealed(meta: u64) -> bool {
        meta == Self::seal(meta & !(META_CHECK << META_BITS), 0)
    }

    #[inline(always)]
    fn is_word(word: u64) -> bool {
        packed::is_word(word)
    }

    #[inline(always)]
    fn find<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, probe: &Probe<'_, Self>) -> Found {
        let medium = guard.pool().medium();
        'again: loop {
            let before = meta(medium, bucket);
            let tagged = bucket[0].equal_bytes::<TAGS, 4>(medium, probe.tag);
            let mut matches = u64::from(tagged) & before.live::<Self>();
            while matches != 0 {
                let slot = matches.trailing_zeros() as usize;
                // ORDER: Acquire: pairs with the Release of write and replace. The slot's record is
                // visible, and so is that the slot was free before. The slot may have been refilled
                // since its tag matched; the record's own key decides.
                let packed = slot_word(bucket, slot).load(medium, Acquire);
                let offset = offset_in(packed);
                if packed >> HASH_AT == place(probe.inner)
                    && is_whole(packed)
                    && R::is(guard, offset, probe.key)
                {
                    // The key may have been removed and be on its way back into the same slot: it
                    // is absent until the meta word says otherwise. A key that is removed by now
                    // was present before.
                    match meta_again(medium, bucket).live::<Self>() >> slot & 1 {
                        1 => return Found::Here(slot, offset),
                        _ => continue 'again,
                    }
                }
                matches &= matches - 1;
            }
            return Found::Missing(before);
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
        // once the meta word says live, if the slot still has its word. No record comes back while
        // this thread is pinned.
        let is_wrong = |slot, packed| match R::is(guard, offset_in(packed), probe.key) {
            true => {
                meta(medium, bucket) == before
                    && tag_of(medium, bucket, slot) != probe.tag
                    && slot_word(bucket, slot).load(medium, Acquire) == packed
            }
            false => !R::is_sound(guard, offset_in(packed)),
        };
        let slots = (0..SLOTS).filter(|&slot| before.live::<Self>() >> slot & 1 == 1);
        let packed = slots.map(|slot| (slot, slot_word(bucket, slot).load(medium, Acquire)));
        let mut suspects = packed.filter(|&(_, packed)| Self::may_be_of(packed, probe));
        let found = suspects.find(|&(slot, packed)| !is_whole(packed) || is_wrong(slot, packed));
        // A slot that was refilled meanwhile is no damage.
        found.filter(|_| meta(medium, bucket) == before).map(|(_, packed)| offset_in(packed))
    }

    #[inline(always)]
    fn prefetch<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, probe: &Probe<'_, Self>) {
        let medium = guard.pool().medium();
        let tagged = bucket[0].equal_bytes::<TAGS, 4>(medium, probe.tag);
        let mut matches = u64::from(tagged) & meta(medium, bucket).live::<Self>();
        while matches != 0 {
            let packed = slot_word(bucket, matches.trailing_zeros() as usize).load(medium, Relaxed);
            R::prefetch(guard, offset_in(packed));
            matches &= matches - 1;
        }
    }

    #[inline(always)]
    fn for_each<M: MappedMedium>(
        guard: &Guard<'_, M>,
        bucket: &Bucket,
        mut each: impl FnMut(usize, Entry) -> ControlFlow<()>,
    ) {
        let medium = guard.pool().medium();
        for slot in 0..SLOTS {
            // A slot's word is its key's while the meta word says live before and after. No bit of
            // the meta word returns to an earlier value.
            let entry = loop {
                let before: Meta = meta(medium, bucket);
                if before.live::<Self>() >> slot & 1 == 0 {
                    break None;
                }
                let tag = tag_of(medium, bucket, slot);
                let key = slot_word(bucket, slot).load(medium, Acquire);
                if meta(medium, bucket).live::<Self>() >> slot & 1 == 1 {
                    let damaged = if is_whole(key) { 0 } else { DAMAGED };
                    break Some(Entry { tag, key, word: offset_in(key) | damaged });
                }
            };
            if entry.is_some_and(|entry| each(slot, entry).is_break()) {
                return;
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
        // PERSIST: one store; the record was durable before, so a surviving slot has its record.
        Self::write(guard, bucket, slot, entry);
    }

    #[inline(always)]
    fn put_in_image(image: &mut Image, slot: usize, entry: Entry) {
        let words = image.as_flattened_mut();
        words[TAGS + slot / 8] = with_tag(words[TAGS + slot / 8], slot, entry.tag);
        words[FIRST + slot] = entry.key;
    }

    #[inline(always)]
    fn inner(entry: Entry, _: u64, _: u32) -> u64 {
        entry.key & !(u64::MAX >> HASH_BITS)
    }

    fn hash_of<M: MappedMedium>(guard: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64> {
        R::hash_at(guard, entry.word, seed)
    }

    #[inline(always)]
    fn is_damaged(entry: Entry) -> bool {
        entry.word & DAMAGED != 0
    }

    #[inline(always)]
    fn entry(probe: &Probe<'_, Self>, word: u64) -> Entry {
        Entry { tag: probe.tag, key: pack(place(probe.inner), word), word }
    }

    fn same_key<M: MappedMedium>(guard: &Guard<'_, M>, one: Entry, other: Entry) -> bool {
        one.key >> HASH_AT == other.key >> HASH_AT && R::is_same(guard, one.word, other.word)
    }
}

#[cfg(test)]
#[path = "tests/bytes.rs"]
mod tests;
