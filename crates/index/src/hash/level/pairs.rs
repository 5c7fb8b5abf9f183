//! Buckets of `u64` keys: seven inline pairs, three of them in the line of the meta word.
//!
//! ```text
//!   | meta | lock | key0 | key1 | key2 | word0 | word1 | word2 |
//!   | key3 | ... | key6 | word3 | ... | word6 |
//!   meta: [63:15] sequence  [14] upper  [13:7] marks  [6:0] tokens
//! ```

use super::bucket::{Bucket, Image, Meta, meta, word};
use super::shape::{Entry, Found, Probe, sealed::Shape, tag_of};
use crate::{KeyKind, U64};
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{MappedMedium, Medium, Word};
use terrace_pool::Guard;

/// Pairs in the first line.
const FIRST: usize = 3;
const SEQUENCE_ONE: u64 = 1 << (2 * U64::SLOTS + 1);

#[inline(always)]
const fn key_at(slot: usize) -> usize {
    if slot < FIRST { 2 + slot } else { 8 + slot - FIRST }
}
#[inline(always)]
const fn value_at(slot: usize) -> usize {
    if slot < FIRST { 5 + slot } else { 12 + slot - FIRST }
}
#[inline(always)]
fn value_word(bucket: &Bucket, slot: usize) -> &Word {
    word(bucket, value_at(slot))
}

/// A bit for each slot with this key, with a token or not, computed without a branch.
#[inline(always)]
fn matching<M: Medium>(medium: &M, bucket: &Bucket, key: u64) -> u64 {
    bucket[0].equal::<2, FIRST>(medium, key) | bucket[1].equal::<0, 4>(medium, key) << FIRST
}

impl Shape for U64 {
    const SLOTS: usize = 7;
    const KIND: u64 = u64::from_le_bytes(*b"levlpair");

    #[inline(always)]
    fn seal(bits: u64, before: u64) -> u64 {
        (before & !(SEQUENCE_ONE - 1)).wrapping_add(SEQUENCE_ONE) | bits
    }

    fn is_sealed(_: u64) -> bool {
        true
    }

    #[inline(always)]
    fn is_word(_: u64) -> bool {
        true
    }

    #[inline(always)]
    fn line_of(slot: usize) -> usize {
        key_at(slot) / 8
    }

    #[inline(always)]
    fn find<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, probe: &Probe<'_, Self>) -> Found {
        let medium = guard.pool().medium();
        loop {
            let before = meta(medium, bucket);
            let matches = matching(medium, bucket, *probe.key) & before.tokens::<Self>();
            if matches == 0 {
                return Found::Missing(before);
            }
            let slot = matches.trailing_zeros() as usize;
            // ORDER: Acquire: the meta word's second load stays behind this one. A reader that sees
            // the word of a refilled slot (stored with Release) also sees the meta word that had
            // freed it.
            let word = value_word(bucket, slot).load(medium, Acquire);
            if meta(medium, bucket) == before {
                return Found::Here(slot, word, before);
            }
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
            // ORDER: as in `find`.
            let key = word(bucket, key_at(slot)).load(medium.point("level.read-key"), Acquire);
            let word = value_word(bucket, slot).load(medium, Acquire);
            if meta(medium, bucket) == before {
                return Some(Entry { key, word });
            }
        }
    }

    #[inline(always)]
    fn write<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry) {
        let medium = guard.pool().medium();
        // ORDER: Release on both: they stay behind the store of the meta word that freed the slot.
        value_word(bucket, slot).store(medium, entry.word, Release);
        word(bucket, key_at(slot)).store(medium.point("level.write-key"), entry.key, Release);
    }

    #[inline(always)]
    fn replace<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry) {
        let medium = guard.pool().medium();
        // ORDER: Release: a reader that sees the word sees what the writer stored before the call.
        value_word(bucket, slot).store(medium, entry.word, Release);
    }

    #[inline(always)]
    fn put_in_image(image: &mut Image, slot: usize, entry: Entry) {
        let words = image.as_flattened_mut();
        words[key_at(slot)] = entry.key;
        words[value_at(slot)] = entry.word;
    }

    #[inline(always)]
    fn tag(entry: Entry, seed: u64) -> u64 {
        tag_of(Self::hash(&entry.key, seed))
    }

    fn hash_of<M: MappedMedium>(_: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64> {
        Some(Self::hash(&entry.key, seed))
    }

    #[inline(always)]
    fn entry(probe: &Probe<'_, Self>, word: u64) -> Entry {
        Entry { key: *probe.key, word }
    }

    fn same_key<M: MappedMedium>(_: &Guard<'_, M>, one: Entry, other: Entry) -> bool {
        one.key == other.key
    }
}

#[cfg(test)]
#[path = "tests/pairs.rs"]
mod tests;
