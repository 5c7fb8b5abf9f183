//! Tests: damage in P-BwTree's pages and records, met by walks, the collector and writers.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering::Relaxed;
use terrace_index::ordered::{BwShape, BwTree, OrderedKind};
use terrace_index::{
    Bytes, ChangeError, Direction, Inserted, PointIndex, RangeIndex, RecordKeys, Stored, U64,
};
use terrace_medium::{Dram, MappedMedium, Offset, Word};
use terrace_pool::{Guard, Marker, Pool};
use terrace_testkit::{TestKeys, TestRecord};

type Strings = Bytes<TestRecord>;

const SMALL: BwShape = BwShape { most: 4, least: 2, slots: 2, numbers_log2: 3, spares: 2, is_scarce: false };
const KEYS: u64 = 60;

fn word<M: MappedMedium>(pool: &Pool<M>, at: u64) -> &Word {
    pool.region().at(Offset::new(at))
}

/// A tree of three levels.
fn tree() -> BwTree<Dram, U64> {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let index = BwTree::with_shape(&pool, "bw", SMALL).unwrap();
    (0..KEYS).for_each(|key| _ = index.insert(&pool.pin(), &(key * 0x0101_0101), key).unwrap());
    index
}

fn reopened(pool: &Pool<Dram>) -> BwTree<Dram, U64> {
    BwTree::recover(pool, "bw").unwrap().unwrap()
}

/// All words of the tree but its root block and counters.
fn words<K: OrderedKind>(index: &BwTree<Dram, K>) -> Vec<u64> {
    let pool = index.pool();
    let root = pool.roots()[0].offset.unwrap();
    let stripes = word(pool, root + 24).load(pool.medium(), Relaxed);
    let blocks = pool.reachable(&mut |marker| index.trace(&pool.pin(), marker, |_, _| ()));
    let own = blocks.into_iter().filter(|&(at, _)| at != root && at != stripes);
    // What the directory says of spares: where that is damaged, there is none.
    let directory = word(pool, root + 64 + 40).load(pool.medium(), Relaxed);
    let spares = directory + 32 * 8..directory + 48 * 8;
    own.flat_map(|(at, bytes)| (at..at + bytes).step_by(8)).filter(|at| !spares.contains(at)).collect()
}

fn seen(index: &BwTree<Dram, U64>, direction: Direction) -> Vec<u64> {
    let mut seen = Vec::new();
    index.range(&index.pool().pin(), Bound::Unbounded, Bound::Unbounded, direction, 9, |_, word| {
        seen.push(word);
        if seen.len() as u64 > 2 * KEYS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    seen
}

/// A walk alone, with no other read before it, says that it met damage or misses nothing.
#[test]
fn walk_over_a_changed_byte_misses_nothing_silently() {
    let sound = tree();
    let pool = sound.pool().clone();
    for at in words(&sound).into_iter().filter(|&at| word(&pool, at).load(pool.medium(), Relaxed) != 0) {
        for change in (0..8).flat_map(|byte| [1u64, 0x80, 0x5a].map(|change| change << (8 * byte))) {
            let place = word(&pool, at);
            let before = place.load(pool.medium(), Relaxed);
            for direction in [Direction::Forward, Direction::Backward] {
                let index = reopened(&pool);
                place.store(pool.medium(), before ^ change, Relaxed);
                let mut found = seen(&index, direction);
                found.sort_unstable();
                let is_right = found.iter().copied().eq(0..KEYS);
                assert!(is_right || index.damage().is_some(), "{at:#x} by {change:#x}: {found:?}");
                place.store(pool.medium(), before, Relaxed);
            }
        }
    }
}

/// Whatever byte is changed, the collector frees nothing of a tree that has lost nothing.
#[test]
fn collector_frees_nothing_beside_a_changed_byte() {
    let sound = tree();
    let pool = sound.pool().clone();
    for (nth, at) in words(&sound).into_iter().enumerate() {
        let change = [1u64, 0x80, 0x5b][nth % 3] << (8 * (nth / 3 % 8));
        let (index, place) = (reopened(&pool), word(&pool, at));
        let before = place.load(pool.medium(), Relaxed);
        place.store(pool.medium(), before ^ change, Relaxed);
        let mut visited = Vec::new();
        pool.request_collection();
        let freed = {
            let trace = |marker: &mut Marker<'_>| {
                visited.clear();
                index.trace(&pool.pin(), marker, |_, word| visited.push(word));
            };
            pool.collect(&mut { trace }).freed
        };
        assert_eq!(freed, 0, "{at:#x} by {change:#x}");
        visited.sort_unstable();
        visited.dedup();
        let is_right = visited.iter().copied().eq(0..KEYS);
        assert!(is_right || index.damage().is_some(), "{at:#x} by {change:#x}: {visited:?}");
        if place.load(pool.medium(), Relaxed) == before ^ change {
            place.store(pool.medium(), before, Relaxed);
        }
    }
    let index = reopened(&pool);
    let guard = pool.pin();
    assert!((0..KEYS).all(|key| index.get_sound(&guard, &(key * 0x0101_0101)) == Ok(Some(key))));
}

/// The dirty bit of an entry means nothing on this medium. Damage that sets it stops nobody.
#[test]
fn writers_and_walks_pass_a_stray_dirty_bit() {
    const DIRTY: u64 = 1 << 54;
    let index = tree();
    let pool = index.pool().clone();
    let directory = word(&pool, pool.roots()[0].offset.unwrap() + 64 + 40).load(pool.medium(), Relaxed);
    let segment = word(&pool, directory).load(pool.medium(), Relaxed) & ((1 << 44) - 1);
    let make_dirty = || {
        for entry in (0..8).map(|nth| word(&pool, segment + 8 * nth)) {
            entry.store(pool.medium(), entry.load(pool.medium(), Relaxed) | DIRTY, Relaxed);
        }
    };
    make_dirty();
    (0..KEYS).for_each(|key| {
        assert_eq!(index.update(&pool.pin(), &(key * 0x0101_0101), key + 1), Some(key));
    });
    make_dirty();
    pool.reachable(&mut |marker| index.trace(&pool.pin(), marker, |_, _| ()));
    make_dirty();
    (0..KEYS).for_each(|key| assert_eq!(index.remove(&pool.pin(), &(key * 0x0101_0101)), Some(key + 1)));
    while index.maintain(&pool.pin()) {}
    assert_eq!((index.len(), index.verify(&pool.pin())), (0, vec![]));
}

/// A tree whose pages are all changed in place, as there is no memory.
fn tree_in_place() -> BwTree<Dram, Strings> {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let shape = BwShape { spares: 0, is_scarce: true, ..SMALL };
    let index = BwTree::<Dram, Strings>::with_shape(&pool, "bw", shape).unwrap();
    // In every second epoch there is memory.
    let go_on = |is_odd| {
        while pool.epoch() % 2 != is_odd {
            pool.is_grace_period_over(pool.epoch() - 1);
        }
    };
    for n in 0..KEYS {
        go_on(1);
        let word = Strings::word(&pool.pin(), &alike(n), n, 1).unwrap();
        assert_eq!(index.insert(&pool.pin(), &alike(n), word), Ok(Inserted::New));
    }
    for version in 2..5 {
        for n in 0..KEYS {
            go_on(0);
            let word = Strings::word(&pool.pin(), &alike(n), n, version).unwrap();
            assert!(index.update(&pool.pin(), &alike(n), word).is_some());
        }
    }
    go_on(0);
    (0..KEYS).step_by(5).for_each(|n| assert!(index.remove(&pool.pin(), &alike(n)).is_some()));
    index
}

/// The words of a walk, in order; none more than any tree here has.
fn walked<K: OrderedKind>(index: &BwTree<Dram, K>, direction: Direction) -> Vec<u64> {
    let mut seen = Vec::new();
    index.range(&index.pool().pin(), Bound::Unbounded, Bound::Unbounded, direction, 9, |_, word| {
        seen.push(word);
        if seen.len() as u64 > 2 * KEYS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if direction == Direction::Backward {
        seen.reverse();
    }
    seen
}

/// Changes each byte of a tree, one after the other. Every read of keys, those that are there in
/// their order and others, is right or says that there is damage. A walk may meet a word of which
/// its caller finds that it leads to no record.
fn reads_are_right_or_told<K: OrderedKind, Key: Borrow<K::Key>>(
    sound: &BwTree<Dram, K>,
    (keys, others): (&[Key], &[Key]),
    is_record: fn(&Guard<'_, Dram>, u64) -> bool,
) {
    let pool = sound.pool().clone();
    let reopened = || BwTree::<Dram, K>::recover(&pool, "bw").unwrap().unwrap();
    let expected: Vec<u64> =
        keys.iter().map(|key| sound.get(&pool.pin(), key.borrow()).expect("a key")).collect();
    let mut told = 0;
    for (nth, at) in words(sound).into_iter().enumerate() {
        let (place, before) = (word(&pool, at), word(&pool, at).load(pool.medium(), Relaxed));
        for byte in 0..8 {
            let change = [1u64, 0x80, 0x5a, 0xff][(nth + byte) % 4] << (8 * byte);
            let what = format!("{at:#x} changed by {change:#x}");
            place.store(pool.medium(), before ^ change, Relaxed);
            for direction in [Direction::Forward, Direction::Backward] {
                let index = reopened();
                let found = walked(&index, direction);
                let records: Vec<u64> =
                    found.iter().copied().filter(|&word| is_record(&pool.pin(), word)).collect();
                let mut rest = expected.iter();
                let are_in_order = records.iter().all(|word| rest.any(|expected| expected == word));
                let is_right = found.len() == expected.len() && are_in_order;
                assert!(is_right || index.damage().is_some(), "{direction:?}, {what}: {found:x?}");
            }
            let (index, guard) = (reopened(), pool.pin());
            for (key, word) in keys.iter().zip(&expected) {
                let found = index.get_sound(&guard, key.borrow());
                assert!(found.is_err() || found == Ok(Some(*word)), "{found:x?}, {what}");
                told += u64::from(found.is_err());
            }
            for key in others {
                let found = index.get_sound(&guard, key.borrow());
                assert!(found.is_err() || found == Ok(None), "{found:x?}, {what}");
            }
            let _ = reopened().verify(&guard);
            place.store(pool.medium(), before, Relaxed);
        }
    }
    assert_eq!(reopened().verify(&pool.pin()), []);
    assert!(told > 1000, "{told} errors");
}

#[test]
fn every_changed_byte_is_told_or_changes_no_read() {
    let key = |n: u64| n * 0x0101_0101;
    let [keys, others] = [0, 1].map(|by| (0..KEYS).map(|n| key(n) + by).collect::<Vec<_>>());
    reads_are_right_or_told::<U64, u64>(&tree(), (&keys, &others), |_, _| true);
}

#[test]
fn every_changed_byte_in_place_is_told_or_changes_no_read() {
    let index = tree_in_place();
    assert_eq!(index.verify(&index.pool().pin()), []);
    let (others, keys): (Vec<u64>, Vec<u64>) = (0..KEYS + 5).partition(|n| n % 5 == 0 || *n >= KEYS);
    let [keys, others] = [keys, others].map(|keys| keys.into_iter().map(alike).collect::<Vec<_>>());
    reads_are_right_or_told::<Strings, Vec<u8>>(&index, (&keys, &others), TestRecord::is_sound);
}

fn strings() -> BwTree<Dram, Strings> {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    BwTree::create(&pool, "bw", 0).unwrap()
}

/// Keys that are alike in all that a head has.
fn alike(n: u64) -> Vec<u8> {
    format!("a front of many keys {n:04}").into_bytes()
}

/// Records of a length, a check and the key. Their keys are read without the check.
struct Checked;

impl RecordKeys for Checked {
    fn key<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Option<&'g [u8]> {
        let length = guard.bytes(offset, 8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
        guard.bytes(offset + 16, length.min(1 << 16) as usize)
    }
    fn is_sound<M: MappedMedium>(guard: &Guard<'_, M>, offset: u64) -> bool {
        let check = guard.bytes(offset + 8, 8).and_then(|bytes| bytes.first_chunk());
        let key = Self::key(guard, offset);
        key.is_some_and(|key| check == Some(&Self::hash(key, 0).to_le_bytes()))
    }
}

fn checked(index: &BwTree<Dram, Bytes<Checked>>, key: &[u8]) -> u64 {
    let guard = index.pool().pin();
    let fresh = guard.alloc(16 + key.len()).unwrap();
    fresh.write(0, &(key.len() as u64).to_le_bytes());
    fresh.write(8, &Checked::hash(key, 0).to_le_bytes());
    fresh.write(16, key);
    fresh.persist().into_offset()
}

/// A damaged record may hide a sound key. Then a change says so, and adds no second one.
#[test]
fn damaged_record_hides_no_key_from_a_change() {
    for damaged in 0..100 {
        let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
        let index = BwTree::<Dram, Bytes<Checked>>::create(&pool, "bw", 0).unwrap();
        let records: Vec<u64> = (0..100).map(|n| checked(&index, &alike(n))).collect();
        (0..100).for_each(|n| {
            assert_eq!(index.insert(&pool.pin(), &alike(n), records[n as usize]), Ok(Inserted::New));
        });
        // A byte of the number in the key.
        let place = word(&pool, records[damaged as usize] + 16 + 16);
        place.store(pool.medium(), place.load(pool.medium(), Relaxed) ^ 0x3f << 40, Relaxed);
        for n in (0..100).filter(|&n| n != damaged) {
            let old = index.insert(&pool.pin(), &alike(n), checked(&index, &alike(n)));
            let is_told = matches!(old, Err(ChangeError::Damaged(_)));
            assert!(is_told || old == Ok(Inserted::Present(records[n as usize])), "{n}: {old:?}");
        }
        assert_eq!(index.len(), 100);
    }
}

/// A page that cannot be split for a damaged record takes changes of its sound keys.
#[test]
fn damaged_record_keeps_no_other_key_from_changes() {
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
    let index = strings();
    let pool = index.pool().clone();
    let record = |n: u64, version| Strings::word(&pool.pin(), &key(n), n, version).unwrap();
    let records: Vec<u64> = (0..120).map(|n| record(n, 1)).collect();
    (0..120).for_each(|n| _ = index.insert(&pool.pin(), &key(n), records[n as usize]).unwrap());
    // Most of them cannot be read.
    for &at in &records[..100] {
        word(&pool, at).store(pool.medium(), 0, Relaxed);
    }
    (120..160).for_each(|n| _ = index.insert(&pool.pin(), &key(n), record(n, 1)));
    for n in 100..120 {
        assert_eq!(index.update(&pool.pin(), &key(n), record(n, 2)), Some(records[n as usize]), "{n}");
    }
    for n in 100..120 {
        assert!(index.remove(&pool.pin(), &key(n)).is_some(), "{n}");
    }
}
