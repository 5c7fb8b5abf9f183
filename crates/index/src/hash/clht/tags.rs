//! Buckets of byte-string keys: six slots of one word, each with 15 bits of the key's hash beside
//! its record's offset.
//!
//! ```text
//!   | lock | slot0 | slot1 | slot2 | slot3 | slot4 | slot5 | link |
//!   slot: [63:49] tag  [48:41] check  [40:0] offset / 8; 0 = empty
//! ```
//!
//! The tag is bits w to w + 14 of the hash, counted from the top. w is the table's number of index
//! bits rounded down to a multiple of 4. So the bucket's index and the tag together determine the
//! hash's first w + 15 bits, at least 12 more than the index alone. A search for another key
//! touches a record once in 4,096 comparisons at worst. A resize places a slot without touching its
//! record, except for the one doubling in four that shifts the window.
//!
//! The check covers the other 56 bits and detects any one changed byte. So a damaged slot leads
//! neither to an older version of its record nor, by another tag, to nothing at all. Such a slot is
//! returned as a word that is no record's offset (its lowest bit is set). Every search that ends in
//! its bucket without its key reports it.

use super::super::packed::{self, CHECK, DAMAGED, HASH_AT, check, offset_in};
use super::shape::{Entry, Probe, sealed::Shape};
use super::table::Table;
use crate::{Bytes, RecordKeys};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{Line, MappedMedium, Medium, Word};
use terrace_pool::Guard;

#[inline(always)]
fn slot_word(bucket: &Line, slot: usize) -> &Word {
    &bucket.0[1 + slot]
}
/// Slots of a bucket.
pub(super) const SLOTS: usize = 6;
/// Stored in the root.
pub(super) const TAG: u64 = u64::from_le_bytes(*b"clhttags");

#[inline(always)]
fn window(table: Table) -> u32 {
    table.log2() / 4 * 4
}
#[inline(always)]
pub(super) fn tag(hash: u64, table: Table) -> u64 {
    hash << window(table) >> HASH_AT
}
#[inline(always)]
fn is_whole(slot: u64) -> bool {
    slot & CHECK == check(slot)
}
#[inline(always)]
fn pack(entry: Entry) -> u64 {
    let bits = entry.key << HASH_AT | entry.word >> 3;
    // A slot that was found damaged stays damaged.
    bits | if entry.word & DAMAGED == 0 { check(bits) } else { check(bits) ^ CHECK }
}
#[inline(always)]
fn unpack(slot: u64) -> Entry {
    let damaged = if is_whole(slot) { 0 } else { DAMAGED };
    Entry { key: slot >> HASH_AT, word: offset_in(slot) | damaged }
}

/// A bit for each slot with this tag, compared without a branch (see `pairs`). An empty slot has
/// the tag 0; its offset tells it apart.
///
/// ORDER: Acquire: pairs with the Release of publish, replace and clear. A reader that finds a key
/// removed sees what was done before, and looks at the lock afterwards.
#[inline(always)]
fn matching<M: Medium>(medium: &M, bucket: &Line, tag: u64) -> u64 {
    (0..6).fold(0, |bits, slot| {
        bits | u64::from(slot_word(bucket, slot).load(medium, Acquire) >> HASH_AT == tag) << slot
    })
}

/// A slot as a search for one tag sees it.
pub(super) enum Seen {
    /// Empty, or of another tag.
    Other,
    /// With the tag, and the offset of its record.
    Tagged(u64),
    /// It may have had the tag.
    Damaged,
}

/// The slot `slot` of a bucket of which this is an image.
pub(super) fn in_image(bucket: &[u64; 8], slot: usize, tag: u64) -> Seen {
    match bucket[1 + slot] {
        0 => Seen::Other,
        slot if !is_whole(slot) => Seen::Damaged,
        slot if slot >> HASH_AT == tag => Seen::Tagged(offset_in(slot)),
        _ => Seen::Other,
    }
}

impl<R: RecordKeys> Shape for Bytes<R> {
    const SLOTS: usize = SLOTS;
    const TAG: u64 = TAG;
    // With m keys a bucket on average (Poisson), m = 5.0 chains 0.24 overflow buckets a bucket. A
    // presized table is made for m = 4.5, which chains 0.17.
    const OVERFLOW_PERMILLE: u64 = 240;
    const KEYS_PERMILLE: u64 = 4500;

    #[inline(always)]
    fn probe(key: &[u8], hash: u64, table: Table) -> Probe<'_, Self> {
        Probe { key, hash, tag: tag(hash, table) }
    }

    #[inline(always)]
    fn is_word(word: u64) -> bool {
        packed::is_word(word)
    }

    #[inline(always)]
    fn find<M: MappedMedium>(
        guard: &Guard<'_, M>,
        bucket: &Line,
        probe: &Probe<'_, Self>,
    ) -> Option<(usize, u64)> {
        let medium = guard.pool().medium();
        let mut matches = matching(medium, bucket, probe.tag);
        while matches != 0 {
            let slot = matches.trailing_zeros() as usize;
            // ORDER: Acquire: pairs with the Release of publish and replace; the slot's record is
            // visible. The slot may have changed since it matched; the record's own key decides.
            let packed = slot_word(bucket, slot).load(medium, Acquire);
            let offset = offset_in(packed);
            if offset != 0 && is_whole(packed) && R::is(guard, offset, probe.key) {
                return Some((slot, offset));
            }
            matches &= matches - 1;
        }
        None
    }

    fn suspect<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, probe: &Probe<'_, Self>) -> Option<u64> {
        let medium = guard.pool().medium();
        // A record with the key that came since the search is as good as one that comes after it.
        let is_unsound = |offset| !R::is(guard, offset, probe.key) && !R::is_sound(guard, offset);
        let packed = (0..Self::SLOTS).map(|slot| slot_word(bucket, slot).load(medium, Acquire));
        packed.filter(|&packed| packed != 0).find_map(|packed| {
            let offset = offset_in(packed);
            let suspect = !is_whole(packed) || (packed >> HASH_AT == probe.tag && is_unsound(offset));
            suspect.then_some(offset)
        })
    }

    #[inline(always)]
    fn prefetch<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, probe: &Probe<'_, Self>) {
        for slot in 0..Self::SLOTS {
            let packed = slot_word(bucket, slot).load(guard.pool().medium(), Relaxed);
            if packed != 0 && packed >> HASH_AT == probe.tag {
                R::prefetch(guard, offset_in(packed));
            }
        }
    }

    #[inline(always)]
    fn read<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, slot: usize) -> Option<Entry> {
        match slot_word(bucket, slot).load(guard.pool().medium(), Acquire) {
            0 => None,
            packed => Some(unpack(packed)),
        }
    }

    #[inline(always)]
    fn vacancy<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line) -> Option<usize> {
        let medium = guard.pool().medium();
        let vacant = (0..Self::SLOTS).fold(0u64, |bits, slot| {
            bits | u64::from(slot_word(bucket, slot).load(medium, Relaxed) == 0) << slot
        });
        (vacant != 0).then(|| vacant.trailing_zeros() as usize)
    }

    #[inline(always)]
    fn publish<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, slot: usize, entry: Entry) {
        // ORDER: Release: a reader that sees the slot sees the record. PERSIST: one store; the
        // record was durable before, so a surviving slot has its record.
        slot_word(bucket, slot).store(guard.pool().medium().point("clht.slot"), pack(entry), Release);
    }

    #[inline(always)]
    fn replace<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, slot: usize, entry: Entry) {
        Self::publish(guard, bucket, slot, entry);
    }

    #[inline(always)]
    fn clear<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, slot: usize) {
        slot_word(bucket, slot).store(guard.pool().medium(), 0, Release);
    }

    fn put_in_image(image: &mut [u64; 8], slot: usize, entry: Entry) {
        image[1 + slot] = pack(entry);
    }

    fn relocate<M: MappedMedium>(
        guard: &Guard<'_, M>,
        entry: Entry,
        (from, index): (Table, u64),
        to: Table,
        seed: u64,
    ) -> Option<(u64, Entry)> {
        if entry.word & DAMAGED != 0 {
            return None;
        }
        // The known bits of the hash: the index, followed by the bits of the tag below the index
        // bits.
        let known =
            from.first_hash(index) | entry.key << HASH_AT >> window(from) & !(u64::MAX << (64 - from.log2()));
        let by_record = Self::relocates_by_record(from, to);
        let hash = if by_record { Self::hash_of(guard, entry, seed)? } else { known };
        Some((hash, Entry { key: tag(hash, to), word: entry.word }))
    }

    fn prefetch_to_relocate<M: MappedMedium>(guard: &Guard<'_, M>, entry: Entry) {
        if entry.word & DAMAGED == 0 {
            R::prefetch(guard, entry.word);
        }
    }

    fn relocates_by_record(from: Table, to: Table) -> bool {
        window(to) > window(from)
    }

    fn hash_of<M: MappedMedium>(guard: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64> {
        R::hash_at(guard, entry.word, seed)
    }

    fn key_in(hash: u64, _: Entry, table: Table) -> u64 {
        tag(hash, table)
    }

    fn same_key<M: MappedMedium>(guard: &Guard<'_, M>, one: Entry, other: Entry) -> bool {
        one.key == other.key && R::is_same(guard, one.word, other.word)
    }

    #[inline(always)]
    fn entry(probe: &Probe<'_, Self>, word: u64) -> Entry {
        Entry { key: probe.tag, word }
    }
}

#[cfg(test)]
#[path = "tests/tags.rs"]
mod tests;
