//! Buckets of `u64` keys: three inline pairs.
//!
//! `| lock | key0 | key1 | key2 | word0 | word1 | word2 | link |`; a pair is valid if its bit of
//! the link is set.

use super::bucket::{link, link_again, store_link};
use super::shape::{Entry, Probe, sealed::Shape};
use super::table::Table;
use crate::{KeyKind, U64};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{Line, MappedMedium, Medium, Word};
use terrace_pool::Guard;

#[inline(always)]
fn key_word(bucket: &Line, pair: usize) -> &Word {
    &bucket.0[1 + pair]
}
#[inline(always)]
fn value_word(bucket: &Line, pair: usize) -> &Word {
    &bucket.0[4 + pair]
}

/// A bit for each pair with this key, valid or not. All three are compared without a branch: the
/// matching pair cannot be predicted. A misprediction is found only when the line arrives, and
/// discards the reads behind it.
#[inline(always)]
fn matching<M: Medium>(medium: &M, bucket: &Line, key: u64) -> u64 {
    bucket.equal::<1, 3>(medium, key)
}

/// The lowest of these slots. Which of them are vacant cannot be predicted either.
#[inline(always)]
fn first(slots: u64) -> Option<usize> {
    (slots != 0).then(|| slots.trailing_zeros() as usize)
}

impl Shape for U64 {
    const SLOTS: usize = 3;
    const TAG: u64 = u64::from_le_bytes(*b"clhtpair");
    // With m keys a bucket on average (Poisson), m = 2.4 chains 0.233 overflow buckets a bucket. A
    // presized table is made for m = 2.0, which chains 0.147.
    const OVERFLOW_PERMILLE: u64 = 233;
    const KEYS_PERMILLE: u64 = 2000;

    #[inline(always)]
    fn probe(key: &u64, hash: u64, _: Table) -> Probe<'_, Self> {
        Probe { key, hash, tag: *key }
    }

    #[inline(always)]
    fn is_word(_: u64) -> bool {
        true
    }

    #[inline(always)]
    fn find<M: MappedMedium>(
        guard: &Guard<'_, M>,
        bucket: &Line,
        probe: &Probe<'_, Self>,
    ) -> Option<(usize, u64)> {
        let medium = guard.pool().medium();
        loop {
            let before = link(medium, bucket);
            let matches = matching(medium, bucket, probe.tag) & before.valid_pairs();
            if matches == 0 {
                return None;
            }
            let pair = matches.trailing_zeros() as usize;
            // ORDER: Acquire: the link's second load stays behind this one. Also, a reader that
            // sees a reused pair's word (stored with Release) sees the link that removed the pair's
            // former key.
            let word = value_word(bucket, pair).load(medium, Acquire);
            if before == link_again(medium, bucket) {
                return Some((pair, word));
            }
        }
    }

    #[inline(always)]
    fn prefetch<M: MappedMedium>(_: &Guard<'_, M>, _: &Line, _: &Probe<'_, Self>) {}

    #[inline(always)]
    fn read<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, pair: usize) -> Option<Entry> {
        let medium = guard.pool().medium();
        loop {
            let before = link(medium, bucket);
            if !before.is_valid(pair) {
                return None;
            }
            // ORDER: Relaxed: a reader without the lock uses the word only. The word's Acquire: as
            // in `find`.
            let key = key_word(bucket, pair).load(medium, Relaxed);
            let word = value_word(bucket, pair).load(medium, Acquire);
            if before == link_again(medium, bucket) {
                return Some(Entry { key, word });
            }
        }
    }

    #[inline(always)]
    fn vacancy<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line) -> Option<usize> {
        let now = link(guard.pool().medium(), bucket);
        first(!now.valid_pairs() & 0b111)
    }

    #[inline(always)]
    fn publish<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, pair: usize, entry: Entry) {
        let medium = guard.pool().medium();
        // ORDER: Release on both: they stay behind the store of the link that emptied the pair.
        value_word(bucket, pair).store(medium, entry.word, Release);
        key_word(bucket, pair).store(medium, entry.key, Release);
        // PERSIST: the link is stored last in its line, so a crash that keeps it keeps word and
        // key; a crash without it leaves the pair empty.
        store_link(medium, bucket, link(medium, bucket).with_pair(pair));
    }

    #[inline(always)]
    fn replace<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, pair: usize, entry: Entry) {
        // ORDER: Release: a reader that sees the word sees what the writer stored before the call.
        value_word(bucket, pair).store(guard.pool().medium(), entry.word, Release);
    }

    #[inline(always)]
    fn clear<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, pair: usize) {
        let medium = guard.pool().medium();
        store_link(medium, bucket, link(medium, bucket).without_pair(pair));
    }

    fn put_in_image(image: &mut [u64; 8], pair: usize, entry: Entry) {
        image[1 + pair] = entry.key;
        image[4 + pair] = entry.word;
        image[7] = super::bucket::Link(image[7]).with_pair(pair).0;
    }

    #[inline(always)]
    fn relocate<M: MappedMedium>(
        _: &Guard<'_, M>,
        entry: Entry,
        _: (Table, u64),
        _: Table,
        seed: u64,
    ) -> Option<(u64, Entry)> {
        Some((Self::hash(&entry.key, seed), entry))
    }

    fn hash_of<M: MappedMedium>(_: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64> {
        Some(Self::hash(&entry.key, seed))
    }

    fn key_in(_: u64, entry: Entry, _: Table) -> u64 {
        entry.key
    }

    fn same_key<M: MappedMedium>(_: &Guard<'_, M>, one: Entry, other: Entry) -> bool {
        one.key == other.key
    }

    #[inline(always)]
    fn entry(probe: &Probe<'_, Self>, word: u64) -> Entry {
        Entry { key: probe.tag, word }
    }
}
