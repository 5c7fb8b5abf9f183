//! Buckets of `u64` keys: 14 inline pairs.
//!
//! ```text
//!   | meta | tags 0 to 7 | tags 8 to 13 | overflow | key0 | word0 | ... | key13 | word13 |
//!   meta: | 63:18 sequence | 17:14 lock | 13:0 valid |
//! ```

use super::bucket::{Bucket, Meta, TAGS, meta, meta_again, tag_of, word};
use super::place::Place;
use super::shape::{Entry, Probe, sealed::Shape};
use crate::{KeyKind, U64};
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{MappedMedium, Medium, Word};
use terrace_pool::Guard;

const SEQUENCE_ONE: u64 = 1 << 18;

#[inline(always)]
fn key_word(bucket: &Bucket, slot: usize) -> &Word {
    word(bucket, <U64 as Shape>::FIRST + 2 * slot)
}
#[inline(always)]
fn value_word(bucket: &Bucket, slot: usize) -> &Word {
    word(bucket, <U64 as Shape>::FIRST + 2 * slot + 1)
}

/// Key and word of a slot, unless the bucket has changed since its meta word was `before`.
#[inline(always)]
fn pair<M: Medium>(medium: &M, bucket: &Bucket, slot: usize, before: Meta) -> Option<(u64, u64)> {
    // ORDER: Acquire on both: the second load of the meta word stays behind them. A reader that
    // sees a store to a refilled slot (with Release) also sees the meta word that had freed it.
    let key = key_word(bucket, slot).load(medium, Acquire);
    let word = value_word(bucket, slot).load(medium, Acquire);
    (meta_again(medium, bucket) == before).then_some((key, word))
}

impl Shape for U64 {
    const SLOTS: usize = 14;
    const FIRST: usize = 4;
    const WORDS: usize = 2;
    const OVERFLOW: usize = 3;
    const OVERFLOW_AT: u32 = 0;
    const OVERFLOW_BITS: u32 = 64;
    const SLOT_LOCK_BITS: u32 = 4;
    const KIND: u64 = u64::from_le_bytes(*b"rewopair");

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
    fn find<M: MappedMedium>(
        guard: &Guard<'_, M>,
        bucket: &Bucket,
        probe: &Probe<'_, Self>,
    ) -> Option<(usize, u64)> {
        let medium = guard.pool().medium();
        'again: loop {
            let before = meta(medium, bucket);
            let tagged = bucket[0].equal_bytes::<TAGS, 2>(medium, probe.tag());
            let mut matches = u64::from(tagged) & before.valid::<Self>();
            while matches != 0 {
                let slot = matches.trailing_zeros() as usize;
                if key_word(bucket, slot).load(medium.point("rewo.find-key"), Acquire) == *probe.key {
                    match pair(medium, bucket, slot, before) {
                        Some((_, word)) => return Some((slot, word)),
                        None => continue 'again,
                    }
                }
                matches &= matches - 1;
            }
            return None;
        }
    }

    #[inline(always)]
    fn read<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize) -> Option<Entry> {
        let medium = guard.pool().medium();
        loop {
            let before = meta(medium, bucket);
            if before.valid::<Self>() >> slot & 1 == 0 {
                return None;
            }
            let tag = tag_of(medium, bucket, slot);
            if let Some((key, word)) = pair(medium, bucket, slot, before) {
                return Some(Entry { tag, key, word });
            }
        }
    }

    #[inline(always)]
    fn write<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry) {
        let medium = guard.pool().medium();
        // ORDER: Release on both: they stay behind the store of the meta word that freed the slot.
        value_word(bucket, slot).store(medium, entry.word, Release);
        key_word(bucket, slot).store(medium, entry.key, Release);
    }

    #[inline(always)]
    fn replace<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry) {
        let medium = guard.pool().medium();
        // ORDER: Release: a reader that sees the word sees what the writer stored before the call.
        value_word(bucket, slot).store(medium, entry.word, Release);
    }

    #[inline(always)]
    fn entry(probe: &Probe<'_, Self>, word: u64, _: bool) -> Entry {
        Entry { tag: probe.tag(), key: *probe.key, word }
    }

    #[inline(always)]
    fn placed(entry: Entry, _: bool) -> Entry {
        entry
    }

    #[inline(always)]
    fn is_second(entry: Entry, place: Place, index: u64, seed: u64) -> bool {
        place.home(Self::hash(&entry.key, seed)) != index
    }

    #[inline(always)]
    fn top(entry: Entry, seed: u64) -> u64 {
        Self::hash(&entry.key, seed)
    }

    #[inline(always)]
    fn hash_of<M: MappedMedium>(_: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64> {
        Some(Self::hash(&entry.key, seed))
    }

    fn sort_key(entry: Entry) -> u64 {
        entry.key
    }

    #[inline(always)]
    fn cache_word(probe: &Probe<'_, Self>) -> u64 {
        *probe.key
    }

    #[inline(always)]
    fn is_word_of<M: MappedMedium>(_: &Guard<'_, M>, _: u64, _: &Probe<'_, Self>) -> bool {
        true
    }

    #[inline(always)]
    fn same_key<M: MappedMedium>(_: &Guard<'_, M>, one: Entry, other: Entry) -> bool {
        one.key == other.key
    }
}

#[cfg(test)]
#[path = "tests/pairs.rs"]
mod tests;
