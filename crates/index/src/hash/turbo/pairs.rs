//! Buckets of `u64` keys: 14 inline pairs.
//!
//! `| meta | tags 0 to 7 | tags 8 to 13 | overflow | key0 | word0 | key1 | word1 | ... | key13 |
//! word13 |`

use super::bucket::{Bucket, Image, Meta, TAGS, meta, meta_again, tag_of, with_tag, word};
use super::shape::{Entry, Found, Probe, sealed::Shape};
use crate::{KeyKind, U64};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{MappedMedium, Medium, Word};
use terrace_pool::Guard;

const SEQUENCE_ONE: u64 = 1 << (2 * U64::SLOTS);

#[inline(always)]
fn key_word(bucket: &Bucket, slot: usize) -> &Word {
    word(bucket, U64::FIRST + 2 * slot)
}
#[inline(always)]
fn value_word(bucket: &Bucket, slot: usize) -> &Word {
    word(bucket, U64::FIRST + 2 * slot + 1)
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
    const KIND: u64 = u64::from_le_bytes(*b"turbpair");

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
    fn find<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, probe: &Probe<'_, Self>) -> Found {
        let medium = guard.pool().medium();
        'again: loop {
            let before = meta(medium, bucket);
            let tagged = bucket[0].equal_bytes::<TAGS, 2>(medium, probe.tag);
            let mut matches = u64::from(tagged) & before.live::<Self>();
            while matches != 0 {
                let slot = matches.trailing_zeros() as usize;
                // With another key the search continues, whether or not the bucket has changed: a
                // later match is a snapshot of its own.
                if key_word(bucket, slot).load(medium, Acquire) == *probe.key {
                    // ORDER: Acquire: as in `pair`, for the key as for the word.
                    let word = value_word(bucket, slot).load(medium, Acquire);
                    match meta_again(medium, bucket) == before {
                        true => return Found::Here(slot, word),
                        false => continue 'again,
                    }
                }
                matches &= matches - 1;
            }
            return Found::Missing(before);
        }
    }

    #[inline(always)]
    fn check_first_match<M: MappedMedium>(
        guard: &Guard<'_, M>,
        bucket: &Bucket,
        probe: &Probe<'_, Self>,
    ) -> Option<Found> {
        let medium = guard.pool().medium();
        let before = meta(medium, bucket);
        let tagged = bucket[0].equal_bytes::<TAGS, 2>(medium, probe.tag);
        let matches = u64::from(tagged) & before.live::<Self>();
        if matches == 0 {
            return Some(Found::Missing(before));
        }
        let slot = matches.trailing_zeros() as usize;
        match pair(medium, bucket, slot, before) {
            Some((key, word)) if key == *probe.key => Some(Found::Here(slot, word)),
            _ => None,
        }
    }

    #[inline(always)]
    fn for_each<M: MappedMedium>(
        guard: &Guard<'_, M>,
        bucket: &Bucket,
        mut each: impl FnMut(usize, Entry) -> ControlFlow<()>,
    ) {
        let medium = guard.pool().medium();
        for slot in 0..Self::SLOTS {
            let entry = loop {
                let before = meta(medium, bucket);
                if before.live::<Self>() >> slot & 1 == 0 {
                    break None;
                }
                let tag = tag_of(medium, bucket, slot);
                if let Some((key, word)) = pair(medium, bucket, slot, before) {
                    break Some(Entry { tag, key, word });
                }
            };
            if entry.is_some_and(|entry| each(slot, entry).is_break()) {
                return;
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
    fn put_in_image(image: &mut Image, slot: usize, entry: Entry) {
        let words = image.as_flattened_mut();
        words[TAGS + slot / 8] = with_tag(words[TAGS + slot / 8], slot, entry.tag);
        words[Self::FIRST + 2 * slot] = entry.key;
        words[Self::FIRST + 2 * slot + 1] = entry.word;
    }

    #[inline(always)]
    fn inner(entry: Entry, seed: u64, shard_bits: u32) -> u64 {
        Self::hash(&entry.key, seed) << shard_bits
    }

    fn hash_of<M: MappedMedium>(_: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64> {
        Some(Self::hash(&entry.key, seed))
    }

    #[inline(always)]
    fn entry(probe: &Probe<'_, Self>, word: u64) -> Entry {
        Entry { tag: probe.tag, key: *probe.key, word }
    }

    fn same_key<M: MappedMedium>(_: &Guard<'_, M>, one: Entry, other: Entry) -> bool {
        one.key == other.key
    }
}
