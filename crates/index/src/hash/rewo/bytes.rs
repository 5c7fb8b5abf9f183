//! Buckets of byte-string keys: 27 slots of one word, each with 14 bits of the key's hash beside
//! its record's offset.
//!
//! ```text
//!   | meta | tags 0 to 7 | tags 8 to 15 | tags 16 to 23 | tags 24 to 26, overflow |
//!   | slot0 | slot1 | ... | slot26 |
//!   meta: | 63:54 check | 53:32 sequence | 31:27 lock | 26:0 valid |
//!   slot: [63] second bucket  [62:49] top of the hash  [48:41] check  [40:0] offset / 8
//! ```
//!
//! The top of the hash determines the cell of the directory; bit 63 and the tag determine the key's
//! other bucket. So no eviction, no scan and no resize that halves a table touches a record. Only a
//! resize that moves all keys to a table of another size reads them.
//!
//! Two checks detect a change of any one byte: one in the slot over its other bits, one in the meta
//! word. A damaged slot is returned as a word that is no record's offset (its lowest bit is set). A
//! search that ends without its key verifies both checks in the buckets that it read. It also
//! compares the tops of all slots, in case a tag was changed.

use super::super::packed::{self, CHECK, DAMAGED, HASH_AT, OFFSET, check, offset_in};
use super::bucket::{Bucket, TAGS, meta, meta_again, tag_of, word};
use super::place::{Place, TOP_BITS};
use super::shape::{Entry, Probe, sealed::Shape};
use crate::{Bytes, RecordKeys};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, Word};
use terrace_pool::Guard;

const SLOTS: usize = 27;
const FIRST: usize = 5;
const SECOND: u64 = 1 << 63;
const _: () = assert!(packed::HASH_BITS == TOP_BITS + 1);

#[inline(always)]
fn slot_word(bucket: &Bucket, slot: usize) -> &Word {
    word(bucket, FIRST + slot)
}
/// The top of the hash in a slot.
#[inline(always)]
fn top_in(slot: u64) -> u64 {
    (slot & !SECOND) >> HASH_AT
}
#[inline(always)]
fn top_of(hash: u64) -> u64 {
    hash >> (64 - TOP_BITS)
}
#[inline(always)]
fn is_whole(slot: u64) -> bool {
    slot & CHECK == check(slot) && slot & OFFSET != 0
}
#[inline(always)]
fn pack(top: u64, offset: u64, is_second: bool) -> u64 {
    let bits = u64::from(is_second) << 63 | top << HASH_AT | offset >> 3;
    bits | check(bits)
}

const SEQUENCE_AT: u32 = 32;
const META_BITS: u32 = 54;
const META_CHECK_BITS: u32 = 64 - META_BITS;
const META_CHECK: u64 = (1 << META_CHECK_BITS) - 1;
const SEQUENCE: u64 = (1 << (META_BITS - SEQUENCE_AT)) - 1;

/// The check of a meta word's other bits. Each bit of a byte falls on a different bit of the check.
/// The rotation separates the bits that share a byte with the check from the check's own bits.
#[inline(always)]
fn meta_check(bits: u64) -> u64 {
    let pieces = (0..6).fold(0, |folded, piece| folded ^ bits >> (piece * META_CHECK_BITS)) & META_CHECK;
    (pieces << 4 | pieces >> (META_CHECK_BITS - 4)) & META_CHECK
}

/// Whether a slot may belong to a key with this hash by its top; also true for damaged slots.
fn may_be_of(slot: u64, hash: u64) -> bool {
    !is_whole(slot) || top_in(slot) == top_of(hash)
}

impl<R: RecordKeys> Shape for Bytes<R> {
    const SLOTS: usize = SLOTS;
    const FIRST: usize = FIRST;
    const WORDS: usize = 1;
    const OVERFLOW: usize = 4;
    const OVERFLOW_AT: u32 = 24;
    const OVERFLOW_BITS: u32 = 40;
    const SLOT_LOCK_BITS: u32 = 5;
    const KIND: u64 = u64::from_le_bytes(*b"rewotags");

    #[inline(always)]
    fn seal(bits: u64, before: u64) -> u64 {
        let sequence = (before >> SEQUENCE_AT).wrapping_add(1) & SEQUENCE;
        let bits = bits | sequence << SEQUENCE_AT;
        bits | meta_check(bits) << META_BITS
    }

    fn is_sealed(meta: u64) -> bool {
        let bits = meta & !(META_CHECK << META_BITS);
        meta == bits | meta_check(bits) << META_BITS
    }

    #[inline(always)]
    fn is_word(word: u64) -> bool {
        packed::is_word(word)
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
            let tagged = bucket[0].equal_bytes::<TAGS, 4>(medium, probe.tag());
            let mut matches = u64::from(tagged) & before.valid::<Self>();
            while matches != 0 {
                let slot = matches.trailing_zeros() as usize;
                // ORDER: Acquire: pairs with the Release of write and replace. The slot's record is
                // visible, and so is that the slot was free before. The slot may have been refilled
                // since its tag matched; the record's own key decides.
                let packed = slot_word(bucket, slot).load(medium, Acquire);
                let offset = offset_in(packed);
                if top_in(packed) == top_of(probe.hash) && is_whole(packed) && R::is(guard, offset, probe.key)
                {
                    // The key may have been removed and be on its way back into the same slot: it
                    // is absent until the meta word says otherwise. A key that is removed by now
                    // was present before.
                    match meta_again(medium, bucket).valid::<Self>() >> slot & 1 {
                        1 => return Some((slot, offset)),
                        _ => continue 'again,
                    }
                }
                matches &= matches - 1;
            }
            return None;
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
        // once the meta word says valid, if the slot still has its word. No record comes back while
        // this thread is pinned.
        let is_wrong = |slot, packed| match R::is(guard, offset_in(packed), probe.key) {
            true => {
                meta(medium, bucket) == before
                    && tag_of(medium, bucket, slot) != probe.tag()
                    && slot_word(bucket, slot).load(medium, Acquire) == packed
            }
            false => !R::is_sound(guard, offset_in(packed)),
        };
        let slots = (0..SLOTS).filter(|&slot| before.valid::<Self>() >> slot & 1 == 1);
        let packed = slots.map(|slot| (slot, slot_word(bucket, slot).load(medium, Acquire)));
        let mut suspects = packed.filter(|&(_, packed)| may_be_of(packed, probe.hash));
        let found = suspects.find(|&(slot, packed)| !is_whole(packed) || is_wrong(slot, packed));
        // A slot that was refilled meanwhile is no damage.
        found.filter(|_| meta(medium, bucket) == before).map(|(_, packed)| offset_in(packed))
    }

    #[inline(always)]
    fn prefetch<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, probe: &Probe<'_, Self>) {
        let medium = guard.pool().medium();
        let tagged = bucket[0].equal_bytes::<TAGS, 4>(medium, probe.tag());
        let mut matches = u64::from(tagged) & meta(medium, bucket).valid::<Self>();
        while matches != 0 {
            let packed = slot_word(bucket, matches.trailing_zeros() as usize).load(medium, Relaxed);
            R::prefetch(guard, offset_in(packed));
            matches &= matches - 1;
        }
    }

    #[inline(always)]
    fn read<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize) -> Option<Entry> {
        let medium = guard.pool().medium();
        // A slot's word is its key's while the meta word says valid before and after.
        loop {
            let before = meta(medium, bucket);
            if before.valid::<Self>() >> slot & 1 == 0 {
                return None;
            }
            let tag = tag_of(medium, bucket, slot);
            let key = slot_word(bucket, slot).load(medium, Acquire);
            if meta(medium, bucket) == before {
                let damaged = if is_whole(key) { 0 } else { DAMAGED };
                return Some(Entry { tag, key, word: offset_in(key) | damaged });
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
        let is_second = slot_word(bucket, slot).load(guard.pool().medium(), Relaxed) & SECOND != 0;
        // PERSIST: one store; the record was durable before, so a surviving slot has its record.
        Self::write(guard, bucket, slot, Self::placed(entry, is_second));
    }

    #[inline(always)]
    fn entry(probe: &Probe<'_, Self>, word: u64, is_second: bool) -> Entry {
        Entry { tag: probe.tag(), key: pack(top_of(probe.hash), word, is_second), word }
    }

    #[inline(always)]
    fn placed(entry: Entry, is_second: bool) -> Entry {
        match Self::is_damaged(entry) {
            // A damaged slot stays damaged: `check` and `salvage` can still name its record.
            true => entry,
            false => Entry { key: pack(top_in(entry.key), entry.word, is_second), ..entry },
        }
    }

    #[inline(always)]
    fn is_second(entry: Entry, _: Place, _: u64, _: u64) -> bool {
        entry.key & SECOND != 0
    }

    #[inline(always)]
    fn top(entry: Entry, _: u64) -> u64 {
        entry.key << 1
    }

    #[inline(always)]
    fn hash_of<M: MappedMedium>(guard: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64> {
        R::hash_at(guard, entry.word, seed)
    }

    fn sort_key(entry: Entry) -> u64 {
        u64::from(entry.tag) << TOP_BITS | top_in(entry.key)
    }

    #[inline(always)]
    fn cache_word(probe: &Probe<'_, Self>) -> u64 {
        probe.hash
    }

    #[inline(always)]
    fn is_word_of<M: MappedMedium>(guard: &Guard<'_, M>, word: u64, probe: &Probe<'_, Self>) -> bool {
        R::is(guard, word, probe.key)
    }

    #[inline(always)]
    fn same_key<M: MappedMedium>(guard: &Guard<'_, M>, one: Entry, other: Entry) -> bool {
        one.tag == other.tag
            && top_in(one.key) == top_in(other.key)
            && R::is_same(guard, one.word, other.word)
    }

    #[inline(always)]
    fn is_damaged(entry: Entry) -> bool {
        entry.word & DAMAGED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::test_keys::{Numbered, UNREADABLE, check_get_many, key, look_alike_pair};
    use super::super::super::test_pools::pool;
    use super::super::bucket::{SlotLock, store_meta, store_tag};
    use super::super::ops::Rewo;
    use super::*;
    use crate::key::NoRecords;
    use crate::{Inserted, PointIndex, Stored};
    use terrace_medium::Dram;

    type Kind = Bytes<NoRecords>;

    fn randoms() -> impl Iterator<Item = u64> {
        std::iter::successors(Some(0x1357_9bdf_2468_ace0_u64), |word| {
            Some(word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
        })
        .take(200)
    }

    #[test]
    fn slot_with_a_changed_byte_is_damaged() {
        for word in randoms() {
            let slot = pack(top_of(word), (word & OFFSET) << 3, word & 1 == 1);
            assert!(is_whole(slot) && offset_in(slot) == (word & OFFSET) << 3);
            for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
                assert!(!is_whole(slot ^ flip << (8 * byte)), "{slot:#x}: {flip:#x} in byte {byte}");
            }
        }
    }

    #[test]
    fn meta_with_a_changed_byte_is_not_sealed() {
        assert!(Kind::is_sealed(0), "an empty bucket");
        for word in randoms() {
            let meta = Kind::seal(word & 0xffff_ffff, word);
            assert!(Kind::is_sealed(meta));
            for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
                assert!(!Kind::is_sealed(meta ^ flip << (8 * byte)), "{meta:#x}: {flip:#x} in byte {byte}");
            }
        }
    }

    #[test]
    fn slot_determines_its_cell_and_bucket() {
        for hash in randoms() {
            let entry = Entry { tag: hash as u8, key: pack(top_of(hash), 64, false), word: 64 };
            let placed = Kind::placed(entry, true);
            let place = Place::new(64, 4);
            assert_eq!(Kind::top(entry, 0) >> 50, hash >> 50);
            assert_eq!(Kind::top(placed, 0) >> 50, hash >> 50);
            assert!(!Kind::is_second(entry, place, 0, 0) && Kind::is_second(placed, place, 0, 0));
            assert_eq!(Kind::placed(placed, false), entry);
            assert_eq!((Kind::sort_key(placed), is_whole(placed.key)), (Kind::sort_key(entry), true));
        }
    }

    /// This is the format: every version must accept what another has sealed.
    #[test]
    fn meta_check_never_changes() {
        let check_of = |bit: u32| 1 << (META_BITS + (bit + 4) % META_CHECK_BITS);
        let first = 1 << SEQUENCE_AT | check_of(SEQUENCE_AT);
        assert_eq!(Kind::seal(0, 0), first);
        for bit in 0..SEQUENCE_AT {
            assert_eq!(Kind::seal(1 << bit, 0), first ^ (1 << bit | check_of(bit)), "bit {bit}");
        }
        for bit in SEQUENCE_AT + 1..META_BITS {
            let before = (1 << bit) - 1u64;
            assert_eq!(Kind::seal(0, before), 1 << bit | check_of(bit), "bit {bit}");
        }
        // The sequence wraps, and the previous word's check is no part of it.
        assert_eq!((Kind::seal(0, u64::MAX), Kind::seal(0, META_CHECK << META_BITS)), (0, first));
    }

    #[test]
    fn is_word_accepts_record_offsets_only() {
        let is_word = <Bytes<NoRecords> as Shape>::is_word;
        let words = [0, 4, 8, 12, OFFSET << 3, (OFFSET + 1) << 3];
        assert_eq!(words.map(is_word), [false, false, true, false, true, false]);
    }

    #[test]
    fn slot_without_a_record_is_not_whole() {
        assert!(!is_whole(0) && !is_whole(pack(0x1234, 0, false)));
    }

    #[test]
    fn slots_of_other_tags_or_tops_have_different_keys() {
        let pool = pool::<Dram>(1 << 20);
        let entry = |tag, top| Entry { tag, key: pack(top, 64, tag == 7), word: 64 };
        let same = |tag, top| Kind::same_key(&pool.pin(), entry(6, 5), entry(tag, top));
        assert_eq!([same(6, 5), same(7, 5), same(6, 4), same(6, 5 | 1 << 13)], [true, false, false, false]);
        let sort_key = |tag, top| Kind::sort_key(entry(tag, top));
        assert!(sort_key(6, 5) != sort_key(7, 5) && sort_key(6, 5) != sort_key(6, 5 | 1 << 13));
    }

    fn table<M: MappedMedium>(pool: &terrace_pool::Pool<M>, log2: u32) -> Rewo<M, Bytes<Numbered>> {
        Rewo::with_shape(pool, "index", 1, log2).unwrap()
    }

    #[test]
    fn find_requires_check_top_and_record() {
        let pool = pool::<Dram>(1 << 20);
        let (index, guard) = (table(&pool, 0), pool.pin());
        index.insert(&guard, key(9), 72).unwrap();
        let probe = Probe::<Bytes<Numbered>>::new(key(9), index.seed);
        let bucket = index.bucket(index.view().directory().cells[0], 0);
        let (slot, _) = Bytes::find(&guard, bucket, &probe).unwrap();
        let (word, top) = (slot_word(bucket, slot), top_of(probe.hash));
        let sound = word.load(pool.medium(), Relaxed);
        assert_eq!(sound, pack(top, 72, false));
        // The slot's content, and the damage that a search for the key reports.
        let slots = [
            (sound, None),
            (sound ^ 1 << 41, Some(72)),
            (pack(top ^ 1, 72, false), None),
            (pack(top, 80, false), None),
            (pack(top, UNREADABLE, false), Some(UNREADABLE)),
        ];
        for (slot, suspected) in slots {
            word.store(pool.medium(), slot, Relaxed);
            assert_eq!(Bytes::find(&guard, bucket, &probe).is_some(), slot == sound, "{slot:#x}");
            // A sound key: it came after the search.
            assert_eq!(Bytes::suspect(&guard, bucket, &probe), suspected, "{slot:#x}");
        }
        word.store(pool.medium(), sound, Relaxed);
        store_tag(pool.medium(), bucket, slot, probe.tag() ^ 1);
        assert_eq!(Bytes::suspect(&guard, bucket, &probe), Some(72), "under another's tag");
    }

    #[test]
    fn record_decides_between_keys_of_one_tag() {
        let pool = pool::<Dram>(1 << 20);
        let (index, guard) = (table(&pool, 0), pool.pin());
        let [one, other] = look_alike_pair(index.seed, TOP_BITS);
        let get = |number| index.get(&guard, key(number));
        assert_eq!(index.insert(&guard, key(one), 8 * one), Ok(Inserted::New));
        assert_eq!((get(one), get(other)), (Some(8 * one), None));
        assert_eq!(index.insert(&guard, key(other), 8 * other), Ok(Inserted::New));
        assert_eq!((get(one), get(other), index.verify(&guard)), (Some(8 * one), Some(8 * other), vec![]));
        // The walk cannot tell whether it has met a key twice, and keeps both.
        let place = index.view().directory().cells[0];
        index.lock_slots(place, 0, SlotLock::Slot(26));
        let mut words = Vec::new();
        index.for_each(&guard, |word| words.push(word));
        words.sort_unstable();
        assert_eq!(words, [8 * one, 8 * other]);
        assert_eq!(index.remove(&guard, key(one)), Some(8 * one));
        assert_eq!((get(one), get(other)), (None, Some(8 * other)));
    }

    #[test]
    fn duplicate_key_is_reported() {
        let pool = pool::<Dram>(1 << 20);
        let (index, guard) = (table(&pool, 0), pool.pin());
        index.insert(&guard, key(9), 72).unwrap();
        let probe = Probe::<Bytes<Numbered>>::new(key(9), index.seed);
        let bucket = index.bucket(index.view().directory().cells[0], 0);
        store_tag(pool.medium(), bucket, 20, probe.tag());
        Bytes::<Numbered>::write(&guard, bucket, 20, Bytes::entry(&probe, 72, false));
        store_meta(pool.medium(), bucket, meta(pool.medium(), bucket).with::<Bytes<Numbered>>(20));
        let expected: Vec<String> =
            index.verify(&guard).into_iter().map(|finding| finding.expected).collect();
        assert_eq!(expected, ["each key once"]);
    }

    #[test]
    fn get_many_finds_byte_strings() {
        let pool = pool::<Dram>(1 << 20);
        let index = Rewo::<_, Bytes<Numbered>>::with_shape(&pool, "index", 1, 1).unwrap();
        check_get_many(&index);
    }
}
