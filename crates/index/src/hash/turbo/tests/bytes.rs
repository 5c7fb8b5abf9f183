//! Tests of `bytes.rs`.

use super::super::super::test_keys::{Numbered, UNREADABLE, check_get_many, key, look_alike_pair};
use super::super::super::test_pools::pool;
use super::super::bucket::{store_meta, store_tag};
use super::super::ops::Turbo;
use super::*;
use crate::key::NoRecords;
use crate::{Inserted, KeyKind, PointIndex, Stored};
use terrace_medium::Dram;

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
        assert!(is_whole(slot) && offset_in(slot) == (word & OFFSET) << 3);
        for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
            assert!(!is_whole(slot ^ flip << (8 * byte)), "{slot:#x}: {flip:#x} in byte {byte}");
        }
    }
}

#[test]
fn meta_with_a_changed_byte_is_not_sealed() {
    type Kind = Bytes<NoRecords>;
    assert!(Kind::is_sealed(0), "an empty bucket");
    for word in randoms().map(|word| word & !(META_CHECK << META_BITS)) {
        let meta = Kind::seal(word, 0);
        assert!(Kind::is_sealed(meta));
        for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
            assert!(!Kind::is_sealed(meta ^ flip << (8 * byte)), "{meta:#x}: {flip:#x} in byte {byte}");
        }
    }
}

#[test]
fn slot_determines_its_home_in_any_size() {
    for inner in randoms() {
        let entry = Entry { tag: 0, key: pack(place(inner), 8), word: 8 };
        let known = <Bytes<NoRecords> as Shape>::inner(entry, 0, 0);
        assert_eq!(known >> (64 - HASH_BITS), inner >> (64 - HASH_BITS));
    }
}

/// This is the format: every version must accept what another has sealed.
#[test]
fn meta_check_never_changes() {
    for bit in 0..META_BITS {
        let check = META_BITS + (bit + 4) % META_CHECK_BITS;
        assert_eq!(Bytes::<NoRecords>::seal(1 << bit, 0), 1 << bit | 1 << check, "bit {bit}");
    }
}

#[test]
fn is_word_accepts_record_offsets_only() {
    let is_word = <Bytes<NoRecords> as Shape>::is_word;
    let words = [0, 4, 8, 12, OFFSET << 3, (OFFSET + 1) << 3];
    assert_eq!(words.map(is_word), [false, false, true, false, true, false]);
}

#[test]
fn slot_without_a_record_is_not_whole() {
    assert!(!is_whole(0) && !is_whole(pack(0x1234, 0)));
}

#[test]
fn slots_of_two_places_have_different_keys() {
    type Kind = Bytes<NoRecords>;
    let pool = pool::<Dram>(1 << 20);
    let entry = |place| Entry { tag: 0, key: pack(place, 64), word: 64 };
    let same = |one, other| Kind::same_key(&pool.pin(), entry(one), entry(other));
    assert_eq!([same(5, 5), same(5, 6), same(5, 5 | 1 << 14)], [true, false, false]);
}

/// A table of one bucket with one key, and that key's slot.
fn with_one_key(number: u64, test: impl FnOnce(&Turbo<Dram, Bytes<Numbered>>, &Bucket, usize)) {
    let pool = pool::<Dram>(1 << 20);
    let index = Turbo::<Dram, Bytes<Numbered>>::with_shards(&pool, "index", 0, 1).unwrap();
    let guard = pool.pin();
    index.insert(&guard, key(number), 8 * number).unwrap();
    let bucket = index.bucket(index.place(0), 0);
    let Found::Here(slot, _) = Bytes::find(&guard, bucket, &probe(&index, number)) else {
        panic!("it is there")
    };
    test(&index, bucket, slot);
}

fn probe(index: &Turbo<Dram, Bytes<Numbered>>, number: u64) -> Probe<'static, Bytes<Numbered>> {
    let hash = Bytes::<Numbered>::hash(key(number), index.seed);
    Probe::new(key(number), hash, index.route(hash).1)
}

#[test]
fn find_requires_check_place_and_record() {
    with_one_key(9, |index, bucket, slot| {
        let (guard, probe) = (index.pool().pin(), probe(index, 9));
        let (word, place) = (slot_word(bucket, slot), place(probe.inner));
        let sound = word.load(guard.pool().medium(), Relaxed);
        assert_eq!(sound, pack(place, 72));
        // The slot's content, and the damage that a search for the key reports.
        let slots = [
            (sound, None),
            (sound ^ 1 << 41, Some(72)),
            (pack(place ^ 1, 72), None),
            (pack(place, 80), None),
            (pack(place, UNREADABLE), Some(UNREADABLE)),
        ];
        for (slot, suspected) in slots {
            word.store(guard.pool().medium(), slot, Relaxed);
            let is_here = matches!(Bytes::find(&guard, bucket, &probe), Found::Here(..));
            assert_eq!(is_here, slot == sound, "{slot:#x}");
            // A sound key: it came after the search.
            assert_eq!(Bytes::suspect(&guard, bucket, &probe), suspected, "{slot:#x}");
        }
    });
}

#[test]
fn key_under_a_wrong_tag_is_reported() {
    with_one_key(9, |index, bucket, slot| {
        let (guard, probe) = (index.pool().pin(), probe(index, 9));
        store_tag(guard.pool().medium(), bucket, slot, probe.tag ^ 1);
        assert_eq!(Bytes::suspect(&guard, bucket, &probe), Some(72));
        assert_eq!(index.get_sound(&guard, key(9)).map_err(|damage| damage.offset), Err(72));
    });
}

#[test]
fn record_decides_between_keys_of_one_tag() {
    let pool = pool::<Dram>(1 << 20);
    let index = Turbo::<Dram, Bytes<Numbered>>::with_shards(&pool, "index", 0, 1).unwrap();
    let (guard, [one, other]) = (pool.pin(), look_alike_pair(index.seed, HASH_BITS));
    let get = |number| index.get(&guard, key(number));
    assert_eq!(index.insert(&guard, key(one), 8 * one), Ok(Inserted::New));
    assert_eq!((get(one), get(other)), (Some(8 * one), None));
    assert_eq!(index.insert(&guard, key(other), 8 * other), Ok(Inserted::New));
    assert_eq!((get(one), get(other), index.verify(&guard)), (Some(8 * one), Some(8 * other), vec![]));
    assert_eq!(index.remove(&guard, key(one)), Some(8 * one));
    assert_eq!((get(one), get(other)), (None, Some(8 * other)));
}

#[test]
fn duplicate_and_misplaced_keys_are_reported() {
    let pool = pool::<Dram>(1 << 20);
    let index = Turbo::<Dram, Bytes<Numbered>>::with_shards(&pool, "index", 0, 40).unwrap();
    let (guard, place) = (pool.pin(), index.place(0));
    assert_eq!(place.buckets(), 2);
    index.insert(&guard, key(9), 72).unwrap();
    let probe = probe(&index, 9);
    let bucket = index.bucket(place, place.home(probe.inner));
    let told = |slot: usize, entry| {
        let before = meta(pool.medium(), bucket);
        store_tag(pool.medium(), bucket, slot, probe.tag);
        Bytes::<Numbered>::write(&guard, bucket, slot, entry);
        store_meta(pool.medium(), bucket, before.with_live::<Bytes<Numbered>>(slot));
        let findings = index.verify(&guard);
        store_meta(pool.medium(), bucket, before);
        findings.into_iter().map(|finding| finding.expected).collect::<Vec<_>>()
    };
    let entry = Bytes::<Numbered>::entry(&probe, 72);
    assert_eq!(told(20, entry), ["each key once"]);
    let elsewhere = pack(super::place(probe.inner) ^ 1 << 14, 72);
    assert_eq!(told(20, Entry { key: elsewhere, ..entry }), ["keys of shard 0, with their homes"]);
}

#[test]
fn get_many_finds_byte_strings() {
    let pool = pool::<Dram>(1 << 20);
    let index = Turbo::<_, Bytes<Numbered>>::with_shards(&pool, "index", 0, 40).unwrap();
    check_get_many(&index);
}

#[test]
fn byte_strings_survive_rehashes() {
    let pool = pool::<Dram>(4 << 20);
    let index = Turbo::<_, Bytes<Numbered>>::with_shards(&pool, "index", 1, 0).unwrap();
    let guard = pool.pin();
    for number in 1..3000 {
        index.insert(&guard, key(number), 8 * number).unwrap();
    }
    assert!(index.stats(&guard).resizes > 10);
    assert!((1..3000).all(|number| index.get(&guard, key(number)) == Some(8 * number)));
    assert_eq!(index.verify(&guard), []);
    (1..2990).for_each(|number| assert_eq!(index.remove(&guard, key(number)), Some(8 * number)));
    assert!((2990..3000).all(|number| index.get(&guard, key(number)) == Some(8 * number)));
    assert_eq!((index.len(), index.verify(&guard)), (10, vec![]));
}
