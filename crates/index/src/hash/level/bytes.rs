//! Buckets of byte-string keys: 14 slots of one word, each with the key's tag beside its record's
//! offset.
//!
//! ```text
//!   | meta | lock | slot0 | ... | slot13 |
//!   slot: [63:49] tag  [48:41] check  [40:0] offset / 8
//!   meta: [63:49] sequence  [48:41] check  [40:29] sequence  [28] upper  [27:14] marks
//!         [13:0] tokens
//! ```
//!
//! The tag determines a key's other bucket (see `between`), so moving a slot within its tier needs
//! no record. Its place in a larger tier needs the record. A search compares 28 to 56 tags of 15
//! bits: a search for another key touches a record once in 600 searches at worst.
//!
//! Two checks detect a change of any one byte: one in each slot over its other bits, and one in the
//! meta word. A damaged slot is returned as a word that is no record's offset (its lowest bit is
//! set). A search that ends without its key verifies both checks in the four buckets.

use super::super::packed::{self, CHECK, DAMAGED, HASH_AT, OFFSET, check, offset_in};
use super::bucket::{Bucket, Image, Meta, meta, word};
use super::shape::{Entry, Found, Probe, sealed::Shape};
use crate::{Bytes, RecordKeys};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, Medium, Word};
use terrace_pool::Guard;

const SLOTS: usize = 14;
/// The first slot's word.
const FIRST: usize = 2;

/// Bits of a meta word other than the sequence.
const FLAGS: u32 = 2 * SLOTS as u32 + 1;
/// The bits below the check.
const BELOW: u64 = OFFSET;
const BELOW_BITS: u32 = 41;

#[inline(always)]
fn slot_word(bucket: &Bucket, slot: usize) -> &Word {
    word(bucket, FIRST + slot)
}
#[inline(always)]
fn is_whole(slot: u64) -> bool {
    slot & CHECK == check(slot) && slot & OFFSET != 0
}
#[inline(always)]
fn pack(tag: u64, offset: u64) -> u64 {
    let bits = tag << HASH_AT | offset >> 3;
    bits | check(bits)
}
fn unpack(slot: u64) -> Entry {
    let damaged = if is_whole(slot) { 0 } else { DAMAGED };
    Entry { key: slot, word: offset_in(slot) | damaged }
}

/// A bit for each slot with this tag, with a token or not, computed without a branch.
///
/// ORDER: Acquire: a reader that does not find a key loads the meta word again, and then the lock,
/// after the slots; otherwise the slot might already hold another key.
#[inline(always)]
fn matching<M: Medium>(medium: &M, bucket: &Bucket, tag: u64) -> u64 {
    (0..SLOTS).fold(0, |bits, slot| {
        bits | u64::from(slot_word(bucket, slot).load(medium, Acquire) >> HASH_AT == tag) << slot
    })
}

impl<R: RecordKeys> Shape for Bytes<R> {
    const SLOTS: usize = SLOTS;
    const KIND: u64 = u64::from_le_bytes(*b"levltags");

    #[inline(always)]
    fn seal(bits: u64, before: u64) -> u64 {
        // The check is removed from between the two parts of the sequence.
        let together = before & BELOW | before >> HASH_AT << BELOW_BITS;
        let sequence = (together >> FLAGS).wrapping_add(1) << FLAGS;
        let meta = (sequence | bits) & BELOW | sequence >> BELOW_BITS << HASH_AT;
        meta | check(meta)
    }

    fn is_sealed(meta: u64) -> bool {
        meta & CHECK == check(meta)
    }

    #[inline(always)]
    fn is_word(word: u64) -> bool {
        packed::is_word(word)
    }

    #[inline(always)]
    fn line_of(slot: usize) -> usize {
        (FIRST + slot) / 8
    }

    #[inline(always)]
    fn find<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, probe: &Probe<'_, Self>) -> Found {
        let medium = guard.pool().medium();
        'again: loop {
            let before = meta(medium, bucket);
            let mut matches = matching(medium, bucket, probe.tag) & before.tokens::<Self>();
            while matches != 0 {
                let slot = matches.trailing_zeros() as usize;
                // ORDER: Acquire: pairs with the Release of write and replace; the slot's record is
                // visible. The slot may have changed since it matched; the record's own key
                // decides.
                let packed = slot_word(bucket, slot).load(medium, Acquire);
                let offset = offset_in(packed);
                if packed >> HASH_AT == probe.tag && is_whole(packed) && R::is(guard, offset, probe.key) {
                    if meta(medium, bucket) == before {
                        return Found::Here(slot, offset, before);
                    }
                    // It may be another key's slot by now, which is not there before its token is.
                    continue 'again;
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
        // A record with the key that came since the search is as good as one that comes after it.
        let is_unsound = |offset| !R::is(guard, offset, probe.key) && !R::is_sound(guard, offset);
        let slots = (0..SLOTS).filter(|&slot| before.tokens::<Self>() >> slot & 1 == 1);
        let mut packed = slots.map(|slot| slot_word(bucket, slot).load(medium, Acquire));
        let found = packed.find(|&packed| {
            !is_whole(packed) || (packed >> HASH_AT == probe.tag && is_unsound(offset_in(packed)))
        });
        // A slot that was refilled meanwhile is no damage.
        found.filter(|_| meta(medium, bucket) == before).map(offset_in)
    }

    #[inline(always)]
    fn prefetch<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, probe: &Probe<'_, Self>) {
        let medium = guard.pool().medium();
        let mut matches = matching(medium, bucket, probe.tag) & meta(medium, bucket).tokens::<Self>();
        while matches != 0 {
            let packed = slot_word(bucket, matches.trailing_zeros() as usize).load(medium, Relaxed);
            R::prefetch(guard, offset_in(packed));
            matches &= matches - 1;
        }
    }

    #[inline(always)]
    fn read<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize) -> Option<Entry> {
        let medium = guard.pool().medium();
        loop {
            let before: Meta = meta(medium, bucket);
            if before.tokens::<Self>() >> slot & 1 == 0 {
                return None;
            }
            let packed = slot_word(bucket, slot).load(medium, Acquire);
            if meta(medium, bucket) == before {
                return Some(unpack(packed));
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
        image.as_flattened_mut()[FIRST + slot] = entry.key;
    }

    #[inline(always)]
    fn tag(entry: Entry, _: u64) -> u64 {
        entry.key >> HASH_AT
    }

    fn hash_of<M: MappedMedium>(guard: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64> {
        let offset = Some(entry.word).filter(|word| word & DAMAGED == 0)?;
        R::hash_at(guard, offset, seed)
    }

    fn prefetch_record<M: MappedMedium>(guard: &Guard<'_, M>, entry: Entry) {
        R::prefetch(guard, entry.word);
    }

    #[inline(always)]
    fn entry(probe: &Probe<'_, Self>, word: u64) -> Entry {
        Entry { key: pack(probe.tag, word), word }
    }

    fn same_key<M: MappedMedium>(guard: &Guard<'_, M>, one: Entry, other: Entry) -> bool {
        let is_damaged = one.word & DAMAGED != 0 || other.word & DAMAGED != 0;
        !is_damaged && one.key >> HASH_AT == other.key >> HASH_AT && R::is_same(guard, one.word, other.word)
    }
}

#[cfg(test)]
#[path = "tests/bytes.rs"]
mod tests;
