//! Buckets of byte-string keys: 14 slots of one word, each the key's tag beside its record's offset.
//!
//! `| meta | lock | slot0 | ... | slot13 |`, slot: `[63:49] tag  [48:41] check  [40:0] offset / 8`, meta: `[63:49] sequence  [48:41] check  [40:29] sequence  [28] fine  [27:14] marks  [13:0] tokens`
//!
//! The tag tells the other bucket of a key (see `between`), so that moving a slot within its tier needs no record; where it lies in a larger tier its record tells. A search compares 28 to 56
//! tags of 15 bits: a miss touches a record once in 600 searches at worst.
//!
//! Two checks find a change of any one byte: one in each slot over its other bits, and one in the meta word. A slot that is damaged is handed out as a word that is no record's offset (its lowest bit
//! is set). A search that ends without its key compares both checks in the four buckets.

use super::super::packed::{self, CHECK, DAMAGED, HASH_AT, OFFSET, check, offset_in};
use super::bucket::{Bucket, Image, Meta, meta, store_meta, word};
use super::shape::{Entry, Found, Probe, sealed::Shape};
use crate::planted::{self, Bug};
use crate::{Bytes, KeyKind, RecordKeys};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, Medium, Word};
use terrace_pool::Guard;

const SLOTS: usize = 14;
/// The first slot's word.
const FIRST: usize = 2;

/// Bits of a meta word besides the sequence.
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

/// A bit for each slot with this tag, with a token or not, found without a branch.
///
/// ORDER: Acquire: who does not find a key looks at the meta word once more, and at the lock, after the slots; else the slot may be another's already.
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
        // The check is taken out from between the two parts of the sequence.
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
                // ORDER: Acquire: pairs with the Release of write and replace; the record that the slot points to is seen. The slot may have changed since it matched; the
                // record's own key decides.
                let packed = slot_word(bucket, slot).load(medium, Acquire);
                let offset = offset_in(packed);
                if packed >> HASH_AT == probe.tag
                    && is_whole(packed)
                    && R::key(guard, offset) == Some(probe.key)
                {
                    if meta(medium, bucket) == before {
                        return Found::Here(slot, offset, before);
                    }
                    // It may be another's slot by now, which is not there before its token is.
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
        // A record with the key came since the search, which is as good as after it.
        let is_unsound = |offset| R::key(guard, offset) != Some(probe.key) && !R::is_sound(guard, offset);
        let slots = (0..SLOTS).filter(|&slot| before.tokens::<Self>() >> slot & 1 == 1);
        let mut packed = slots.map(|slot| slot_word(bucket, slot).load(medium, Acquire));
        let found = packed.find(|&packed| {
            !is_whole(packed) || (packed >> HASH_AT == probe.tag && is_unsound(offset_in(packed)))
        });
        // What was filled again meanwhile is no damage.
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
        // ORDER: Release: whoever sees the slot sees the record.
        slot_word(bucket, slot).store(guard.pool().medium(), entry.key, Release);
    }

    #[inline(always)]
    fn replace<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry) {
        if planted::has(Bug::TwoWordReplace) {
            let medium = guard.pool().medium();
            let without = meta(medium, bucket).without::<Self>(slot);
            store_meta(medium, bucket, without);
            Self::write(guard, bucket, slot, entry);
            return store_meta(medium, bucket, without.with::<Self>(slot));
        }
        // PERSIST: one store; the record was durable before, so a surviving slot has its record.
        Self::write(guard, bucket, slot, entry);
    }

    #[inline(always)]
    fn draw(image: &mut Image, slot: usize, entry: Entry) {
        image.as_flattened_mut()[FIRST + slot] = entry.key;
    }

    #[inline(always)]
    fn tag(entry: Entry, _: u64) -> u64 {
        entry.key >> HASH_AT
    }

    fn hash_of<M: MappedMedium>(guard: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64> {
        let offset = Some(entry.word).filter(|word| word & DAMAGED == 0)?;
        R::key(guard, offset).map(|key| Self::hash(key, seed))
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
        !is_damaged
            && one.key >> HASH_AT == other.key >> HASH_AT
            && R::key(guard, one.word) == R::key(guard, other.word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::NoRecords;

    type Kind = Bytes<NoRecords>;

    fn randoms() -> impl Iterator<Item = u64> {
        std::iter::successors(Some(0x1357_9bdf_2468_ace0_u64), |word| {
            Some(word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
        })
        .take(200)
    }

    #[test]
    fn a_slot_with_any_one_byte_changed_is_damaged() {
        for word in randoms() {
            let slot = pack(word >> HASH_AT, (word & OFFSET) << 3);
            assert!(is_whole(slot) && unpack(slot).word == (word & OFFSET) << 3);
            assert_eq!(Kind::tag(unpack(slot), 0), word >> HASH_AT);
            for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
                let damaged = unpack(slot ^ flip << (8 * byte));
                assert_eq!(damaged.word & DAMAGED, DAMAGED, "{slot:#x}: {flip:#x} in byte {byte}");
            }
        }
    }

    #[test]
    fn a_meta_word_with_any_one_byte_changed_is_not_sealed() {
        let mut meta = 0;
        for word in randoms() {
            meta = Kind::seal(word & ((1 << FLAGS) - 1), meta);
            assert!(Kind::is_sealed(meta) && meta & ((1 << FLAGS) - 1) == word & ((1 << FLAGS) - 1));
            for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
                assert!(!Kind::is_sealed(meta ^ flip << (8 * byte)), "{meta:#x}: {flip:#x} in byte {byte}");
            }
        }
    }

    #[test]
    fn the_sequence_goes_on_across_the_check_and_around() {
        let sequence = |meta: u64| (meta & BELOW) >> FLAGS | meta >> HASH_AT << (BELOW_BITS - FLAGS);
        let mut meta = 0;
        for expected in 1..10_000 {
            meta = Kind::seal(5, meta);
            assert_eq!(sequence(meta), expected);
        }
        let last = (BELOW >> FLAGS << FLAGS) | u64::MAX << HASH_AT;
        assert_eq!(sequence(Kind::seal(5, last)), 0);
        assert_eq!(Kind::seal(5, last) & ((1 << FLAGS) - 1), 5);
    }
}
