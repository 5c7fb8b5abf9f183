//! Tests of `bytes.rs`.

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
    let probe = Probe::<Bytes<Numbered>>::new(key(9), index.tables.seed);
    let bucket = index.base().bucket(index.base().view().directory().cells[0], 0);
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
    let [one, other] = look_alike_pair(index.tables.seed, TOP_BITS);
    let get = |number| index.get(&guard, key(number));
    assert_eq!(index.insert(&guard, key(one), 8 * one), Ok(Inserted::New));
    assert_eq!((get(one), get(other)), (Some(8 * one), None));
    assert_eq!(index.insert(&guard, key(other), 8 * other), Ok(Inserted::New));
    assert_eq!((get(one), get(other), index.verify(&guard)), (Some(8 * one), Some(8 * other), vec![]));
    // The walk cannot tell whether it has met a key twice, and keeps both.
    let place = index.base().view().directory().cells[0];
    index.tables.lock_slots(place, 0, SlotLock::Slot(26));
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
    let probe = Probe::<Bytes<Numbered>>::new(key(9), index.tables.seed);
    let bucket = index.base().bucket(index.base().view().directory().cells[0], 0);
    store_tag(pool.medium(), bucket, 20, probe.tag());
    Bytes::<Numbered>::write(&guard, bucket, 20, Bytes::entry(&probe, 72, false));
    store_meta(pool.medium(), bucket, meta(pool.medium(), bucket).with::<Bytes<Numbered>>(20));
    let expected: Vec<String> = index.verify(&guard).into_iter().map(|finding| finding.expected).collect();
    assert_eq!(expected, ["each key once"]);
}

#[test]
fn get_many_finds_byte_strings() {
    let pool = pool::<Dram>(1 << 20);
    let index = Rewo::<_, Bytes<Numbered>>::with_shape(&pool, "index", 1, 1).unwrap();
    check_get_many(&index);
}
