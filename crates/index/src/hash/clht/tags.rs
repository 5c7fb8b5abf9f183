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
mod tests {
    use super::super::super::packed::OFFSET;
    use super::super::super::test_pools::pool;
    use super::super::ops::Clht;
    use super::*;
    use crate::key::WordRecords;
    use crate::{Damage, KeyKind, PointIndex, Stored};
    use std::collections::HashMap;
    use terrace_medium::Dram;

    type Strings = Bytes<WordRecords>;
    type Index = Clht<Dram, Strings>;

    /// An index of eight buckets.
    fn empty() -> Index {
        Index::create(&pool(1 << 20), "index", 0).unwrap()
    }

    fn insert(index: &Index, key: u64) -> u64 {
        let guard = index.pool.pin();
        let record = WordRecords::put(&guard, key);
        index.insert(&guard, &key.to_le_bytes(), record).unwrap();
        record
    }

    fn get_sound(index: &Index, key: u64) -> Result<Option<u64>, u64> {
        let found = index.get_sound(&index.pool.pin(), &key.to_le_bytes());
        found.map_err(|Damage { offset, .. }| offset)
    }

    fn hash(index: &Index, key: u64) -> u64 {
        Strings::hash(&key.to_le_bytes(), index.seed)
    }

    /// Two keys with the same tag in one bucket.
    fn keys_of_one_tag(index: &Index) -> [u64; 2] {
        let (mut seen, table) = (HashMap::new(), index.view().current);
        let place = |hash| (table.index(hash), tag(hash, table));
        (1..).find_map(|key| Some([seen.insert(place(hash(index, key)), key)?, key])).unwrap()
    }

    #[test]
    fn damaged_slot_is_reported() {
        for bit in [0, 7, 40, 41, 45, 48, 49, 63] {
            let index = empty();
            let record = insert(&index, 7);
            let table = index.view().current;
            let bucket = index.pool.region().at(table.bucket(table.index(hash(&index, 7))));
            let sound = slot_word(bucket, 0).load(index.pool.medium(), Relaxed);
            slot_word(bucket, 0).store(index.pool.medium(), sound ^ 1 << bit, Relaxed);
            assert_eq!(index.get(&index.pool.pin(), &7u64.to_le_bytes()), None, "bit {bit}");
            let told = if bit <= 40 { record ^ 8 << bit } else { record };
            assert_eq!(get_sound(&index, 7), Err(told), "bit {bit}");
            slot_word(bucket, 0).store(index.pool.medium(), sound, Relaxed);
            assert_eq!((get_sound(&index, 7), get_sound(&index, 8)), (Ok(Some(record)), Ok(None)));
        }
    }

    #[test]
    fn keys_of_one_tag_are_distinguished() {
        let index = empty();
        let guard = index.pool.pin();
        let [one, other] = keys_of_one_tag(&index);
        let (first, mut found) = (insert(&index, one), None);
        assert_eq!((get_sound(&index, one), get_sound(&index, other)), (Ok(Some(first)), Ok(None)));
        let second = insert(&index, other);
        assert_eq!((get_sound(&index, one), get_sound(&index, other)), (Ok(Some(first)), Ok(Some(second))));
        index.get_many(&guard, [&other.to_le_bytes()[..]], |_, word| found = word);
        assert_eq!((found, index.verify(&guard)), (Some(second), vec![]));
        assert_eq!(index.remove(&guard, &other.to_le_bytes()), Some(second));
        assert_eq!(get_sound(&index, other), Ok(None));
        // The remains of the first may belong to either.
        WordRecords::erase(&guard, first);
        assert_eq!((get_sound(&index, one), get_sound(&index, other)), (Err(first), Err(first)));
        let table = index.view().current;
        let neighbour = |&key: &u64| {
            let [here, there] = [one, key].map(|key| hash(&index, key));
            table.index(here) == table.index(there) && tag(here, table) != tag(there, table)
        };
        let neighbour = (1..).find(neighbour).unwrap();
        assert_eq!(get_sound(&index, neighbour), Ok(None));
    }

    #[test]
    #[should_panic(expected = "cannot be a word of this index")]
    fn insert_refuses_a_word_that_is_no_offset() {
        let index = empty();
        let _ = index.insert(&index.pool.pin(), b"key", 12);
    }

    #[test]
    #[should_panic(expected = "cannot be a word of this index")]
    fn update_refuses_a_word_that_is_no_offset() {
        let index = empty();
        insert(&index, 7);
        let _ = index.update(&index.pool.pin(), &7u64.to_le_bytes(), 12);
    }

    #[test]
    fn update_replaces_the_record() {
        let index = empty();
        let guard = index.pool.pin();
        let (first, second) = (insert(&index, 7), WordRecords::put(&guard, 7));
        assert_eq!(index.update(&guard, &7u64.to_le_bytes(), second), Some(first));
        assert_eq!((get_sound(&index, 7), index.verify(&guard)), (Ok(Some(second)), vec![]));
    }

    #[test]
    fn same_key_compares_records() {
        let index = empty();
        let (guard, table) = (index.pool.pin(), index.view().current);
        let [one, other] = keys_of_one_tag(&index);
        let put =
            |key: u64| Entry { key: tag(hash(&index, key), table), word: WordRecords::put(&guard, key) };
        let is_same = |one, other| {
            let same = Strings::same_key(&guard, one, other);
            assert_eq!(Strings::same_key(&guard, other, one), same);
            same
        };
        assert!(is_same(put(one), put(one)) && !is_same(put(one), put(other)));
        assert!(!is_same(put(one), Entry { key: put(one).key ^ 1, ..put(one) }));
    }

    #[test]
    fn slot_moves_without_its_record_within_a_window() {
        let index = empty();
        let guard = index.pool.pin();
        let table = |log2| Table::new(1 << 12, log2);
        let by_record = |from, to| Strings::relocates_by_record(table(from), table(to));
        let doublings: Vec<u32> = (3..16).filter(|&log2| by_record(log2, log2 + 1)).collect();
        assert_eq!(doublings, [3, 7, 11, 15]);
        assert!(!(4..16).any(|log2| by_record(log2, log2 - 1) || by_record(log2, log2)));
        for key in 1..200 {
            let [record, gone] = [WordRecords::put(&guard, key), WordRecords::put(&guard, key)];
            WordRecords::erase(&guard, gone);
            let hash = hash(&index, key);
            for (from, to) in (3..16).flat_map(|from| (from.max(6) - 3..=from + 1).map(move |to| (from, to)))
            {
                let (from, to) = (table(from), table(to));
                let entry = Entry { key: tag(hash, from), word: record };
                let moved = |entry| {
                    let (hash, entry) =
                        Strings::relocate(&guard, entry, (from, from.index(hash)), to, index.seed)?;
                    Some((to.index(hash), entry))
                };
                let expected = Some((to.index(hash), Entry { key: tag(hash, to), word: record }));
                assert_eq!(moved(entry), expected, "key {key}");
                let without = expected.map(|(index, entry)| (index, Entry { word: gone, ..entry }));
                let without = without.filter(|_| !Strings::relocates_by_record(from, to));
                assert_eq!(moved(Entry { word: gone, ..entry }), without, "key {key}");
                assert_eq!(moved(Entry { word: record | DAMAGED, ..entry }), None);
            }
        }
    }

    #[test]
    fn slot_with_a_changed_byte_stays_damaged() {
        let mut word = 0x1357_9bdf_2468_ace0_u64;
        for _ in 0..200 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let entry = Entry { key: word >> HASH_AT, word: ((word & OFFSET) << 3).max(8) };
            let slot = pack(entry);
            assert!(slot != 0 && is_whole(slot) && unpack(slot) == entry);
            for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
                let damaged = slot ^ flip << (8 * byte);
                assert!(!is_whole(damaged), "{slot:#x} and {damaged:#x}");
                let again = pack(unpack(damaged));
                assert!(!is_whole(again) && unpack(again) == unpack(damaged));
            }
        }
    }
}
