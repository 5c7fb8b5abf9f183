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
mod tests {
    use super::super::super::test_pools::{Medium, Power, pool};
    use super::super::ops::Level;
    use super::*;
    use crate::key::{NoRecords, WordRecords};
    use crate::{Damage, PointIndex, Stored};
    use std::collections::HashMap;
    use terrace_medium::Dram;

    type Kind = Bytes<NoRecords>;
    type Strings = Bytes<WordRecords>;
    /// A table of three buckets: each key has two, the upper one of its position and the lowest.
    type Table = Level<Dram, Strings>;

    fn empty() -> Table {
        Table::create(&pool(1 << 20), "table", 0).unwrap()
    }

    fn insert(table: &Table, key: u64) -> u64 {
        let guard = table.pool.pin();
        let record = WordRecords::put(&guard, key);
        table.insert(&guard, &key.to_le_bytes(), record).unwrap();
        record
    }

    fn get_sound(table: &Table, key: u64) -> Result<Option<u64>, u64> {
        let found = table.get_sound(&table.pool.pin(), &key.to_le_bytes());
        found.map_err(|Damage { offset, .. }| offset)
    }

    /// Two keys with the same tag in one bucket.
    fn keys_of_one_tag(seed: u64) -> [u64; 2] {
        let mut seen = HashMap::new();
        let probe = |key: u64| {
            let key = key.to_le_bytes();
            let probe = Probe::<Strings>::new(&key[..], seed);
            (probe.tag, probe.positions.map(|position| position >> 63))
        };
        (1..).find_map(|key| Some([seen.insert(probe(key), key)?, key])).unwrap()
    }

    /// The only occupied slot, and its bucket.
    fn slot(table: &Table) -> (&Bucket, usize) {
        let view = table.view();
        let buckets = [view.high.bucket(0), view.high.bucket(1), view.mid.bucket(0)];
        let taken = buckets.into_iter().find_map(|at| {
            let bucket = table.bucket(at);
            let tokens = meta(table.pool.medium(), bucket).tokens::<Strings>();
            (tokens != 0).then_some((bucket, tokens.trailing_zeros() as usize))
        });
        taken.unwrap()
    }

    #[test]
    fn damaged_slot_is_reported() {
        for bit in [0, 7, 40, 41, 45, 48, 49, 63] {
            let table = empty();
            let record = insert(&table, 7);
            let (bucket, nth) = slot(&table);
            let sound = slot_word(bucket, nth).load(table.pool.medium(), Relaxed);
            slot_word(bucket, nth).store(table.pool.medium(), sound ^ 1 << bit, Relaxed);
            assert_eq!(table.get(&table.pool.pin(), &7u64.to_le_bytes()), None, "bit {bit}");
            let told = if bit <= 40 { record ^ 8 << bit } else { record };
            assert_eq!(get_sound(&table, 7), Err(told), "bit {bit}");
            slot_word(bucket, nth).store(table.pool.medium(), sound, Relaxed);
            assert_eq!(get_sound(&table, 7), Ok(Some(record)));
            assert_eq!(get_sound(&table, 8), Ok(None));
        }
    }

    #[test]
    fn keys_of_one_tag_are_distinguished() {
        let table = empty();
        let guard = table.pool.pin();
        let [one, other] = keys_of_one_tag(table.seed);
        let (first, mut found) = (insert(&table, one), None);
        assert_eq!((get_sound(&table, one), get_sound(&table, other)), (Ok(Some(first)), Ok(None)));
        let second = insert(&table, other);
        assert_eq!((get_sound(&table, one), get_sound(&table, other)), (Ok(Some(first)), Ok(Some(second))));
        table.get_many(&guard, [&other.to_le_bytes()[..]], |_, word| found = word);
        assert_eq!((found, table.verify(&guard)), (Some(second), vec![]));
        // The remains of the first may belong to either.
        assert_eq!(table.remove(&guard, &other.to_le_bytes()), Some(second));
        assert_eq!(get_sound(&table, other), Ok(None));
        WordRecords::erase(&guard, first);
        assert_eq!((get_sound(&table, one), get_sound(&table, other)), (Err(first), Err(first)));
        let tag = |key: u64| Probe::<Strings>::new(&key.to_le_bytes()[..], table.seed).tag;
        let another = (1..).find(|&key| tag(key) == 5);
        assert_eq!(get_sound(&table, another.unwrap()), Ok(None));
    }

    #[test]
    #[should_panic(expected = "cannot be a word of this index")]
    fn insert_refuses_a_word_that_is_no_offset() {
        let table = empty();
        let _ = table.insert(&table.pool.pin(), b"key", 12);
    }

    #[test]
    #[should_panic(expected = "cannot be a word of this index")]
    fn update_refuses_a_word_that_is_no_offset() {
        let table = empty();
        insert(&table, 7);
        let _ = table.update(&table.pool.pin(), &7u64.to_le_bytes(), 12);
    }

    #[test]
    fn answered_changes_survive_power_loss_in_every_slot() {
        let power = Power::new();
        let table = Level::<Medium, Strings>::create(&power.pool, "table", 0).unwrap();
        let guard = power.pool.pin();
        let kept = |key: u64| {
            let pool = power.after_power_loss();
            let table = Level::<Medium, Strings>::recover(&pool, "table").unwrap().unwrap();
            let found = table.get(&pool.pin(), &key.to_le_bytes());
            drop(table);
            pool.abandon();
            found
        };
        for key in 1..36 {
            let [one, other] = [WordRecords::put(&guard, key), WordRecords::put(&guard, key)];
            table.insert(&guard, &key.to_le_bytes(), one).unwrap();
            assert_eq!(kept(key), Some(one));
            assert_eq!(table.update(&guard, &key.to_le_bytes(), other), Some(one));
            assert_eq!(kept(key), Some(other));
        }
        assert_eq!(table.stats(&guard).buckets, 3);
    }

    #[test]
    fn same_key_compares_sound_records() {
        let table = empty();
        let guard = table.pool.pin();
        let [one, other] = keys_of_one_tag(table.seed);
        let entry = |key: u64, word: u64| {
            Strings::entry(&Probe::<Strings>::new(&key.to_le_bytes()[..], table.seed), word)
        };
        let put = |key: u64| entry(key, WordRecords::put(&guard, key));
        let is_same = |one, other| {
            let same = Strings::same_key(&guard, one, other);
            assert_eq!(Strings::same_key(&guard, other, one), same);
            same
        };
        assert!(is_same(put(one), put(one)) && !is_same(put(one), put(other)));
        let elsewhere = (1..).find(|&key| Strings::tag(put(key), 0) != Strings::tag(put(one), 0)).unwrap();
        assert!(!is_same(put(one), put(elsewhere)));
        // Another tag beside the same record.
        let torn = Entry { key: put(elsewhere).key, ..put(one) };
        assert!(!is_same(put(one), torn));
        // A record that looks the same from the next byte on.
        let even = put(0x0101_0101_0101_0101);
        let damaged = unpack(even.key ^ 1 << 41);
        assert_eq!((even.word & DAMAGED, damaged.word), (0, even.word | DAMAGED));
        assert!(is_same(even, even) && !is_same(even, damaged) && !is_same(damaged, damaged));
        assert_eq!(Strings::hash_of(&guard, damaged, 0), None);
        assert!(Strings::hash_of(&guard, even, 0).is_some());
    }

    #[test]
    fn slots_never_change() {
        let slot = pack(0x5a5a, 0x123_4567_89a8);
        assert_eq!(slot, 0xb4b4_2424_68ac_f135);
        assert_eq!(unpack(slot), Entry { key: slot, word: 0x123_4567_89a8 });
        assert_eq!(unpack(0).word & DAMAGED, DAMAGED, "no record lies where the pool begins");
        assert_eq!(Kind::seal(0x1234_5678, 0x579a_01ff_e000_0000), 0x579d_c200_1234_5678);
    }

    fn randoms() -> impl Iterator<Item = u64> {
        std::iter::successors(Some(0x1357_9bdf_2468_ace0_u64), |word| {
            Some(word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
        })
        .take(200)
    }

    #[test]
    fn slot_with_a_changed_byte_is_damaged() {
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
    fn meta_with_a_changed_byte_is_not_sealed() {
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
    fn sequence_spans_the_check_and_wraps() {
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
