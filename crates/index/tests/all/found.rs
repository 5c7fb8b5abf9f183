//! Tests: damaged words of all hash tables; the findings of `verify`, with their places, and the
//! errors of searches.
#![allow(missing_docs, reason = "tests")]

use std::sync::atomic::Ordering::Relaxed;
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::{Bytes, KeyKind, PointIndex, RecordKeys, Stored, U64};
use terrace_medium::{Dram, Offset, Word};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{TestKeys, TestRecord};

const SEED: u64 = 11;
/// Mask of a table word's bits with its place.
const START: u64 = 0xffff_ffff_ffc0;
/// Slots of a bucket of pairs, in TurboHash and Rewo-Hash.
const SLOTS: u64 = 14;

fn pool() -> Pool<Dram> {
    PoolOptions::anonymous().size(4 << 20).hash_seed(SEED).create().expect("memory for a pool")
}

fn word(pool: &Pool<Dram>, at: u64) -> &Word {
    pool.region().at(Offset::new(at))
}

fn load(pool: &Pool<Dram>, at: u64) -> u64 {
    word(pool, at).load(pool.medium(), Relaxed)
}

/// The offset of the root.
fn root(pool: &Pool<Dram>) -> u64 {
    pool.roots()[0].offset.expect("an index has a root")
}

fn hash(key: u64) -> u64 {
    U64::hash(&key, SEED)
}

/// The findings of `verify` with these words changed, each with its place. The words are restored.
fn findings(
    index: &(impl PointIndex<Medium = Dram> + Stored<Medium = Dram>),
    changes: &[(u64, u64)],
) -> Vec<(u64, String)> {
    let pool = index.pool();
    let before: Vec<u64> = changes.iter().map(|&(at, _)| load(pool, at)).collect();
    changes.iter().for_each(|&(at, value)| word(pool, at).store(pool.medium(), value, Relaxed));
    let findings = index.verify(&pool.pin());
    for (&(at, _), before) in changes.iter().zip(before) {
        word(pool, at).store(pool.medium(), before, Relaxed);
    }
    findings.into_iter().map(|finding| (finding.offset, finding.expected)).collect()
}

/// Checks that with these words changed there is one finding, at `place`, with this expectation.
fn check_finding(
    index: &(impl PointIndex<Medium = Dram> + Stored<Medium = Dram>),
    changes: &[(u64, u64)],
    place: u64,
    expected: &str,
) {
    assert_eq!(index.verify(&index.pool().pin()), [], "before: {expected}");
    let findings = findings(index, changes);
    assert!(
        matches!(&findings[..], [(at, said)] if *at == place && said.contains(expected)),
        "{expected}: {findings:x?}"
    );
}

#[test]
fn p_clht_reports_a_damaged_chain() {
    let pool = pool();
    let index = Clht::<Dram, U64>::create(&pool, "index", 0).unwrap();
    let guard = pool.pin();
    let of_bucket = |bucket: u64| (0..).filter(move |&key| hash(key) >> 61 == bucket);
    // The last key is in a bucket behind the first.
    let keys: Vec<u64> = of_bucket(3).take(4).collect();
    keys.iter().for_each(|&key| _ = index.insert(&guard, &key, key).unwrap());
    let head = (load(&pool, root(&pool) + 8) & START) + 3 * 64;
    let link = load(&pool, head + 56);
    let next = (link & ((1 << 38) - 1)) << 6;
    assert_eq!((load(&pool, head + 8), load(&pool, next + 8)), (keys[0], keys[3]));
    check_finding(&index, &[(head + 16, keys[0])], head, "each key once");
    check_finding(&index, &[(next + 8, keys[0])], next, "each key once");
    check_finding(&index, &[(next + 8, of_bucket(5).next().unwrap())], next, "keys of bucket 3");
    let counted = findings(&index, &[(head + 56, link & !(1 << 39))]);
    assert!(matches!(&counted[..], [(_, said)] if said == "a count of 3 keys"), "{counted:x?}");
    // A walk that followed it has recorded the damage.
    let lost = findings(&index, &[(next + 56, load(&pool, next + 56) | 1 << 37)]);
    assert_eq!(lost[0], (next, "a next bucket in the pool".into()));
    assert_eq!(lost[1].1, "an undamaged index");
    assert_eq!(lost.len(), 2);
}

#[test]
fn p_clht_reports_a_damaged_byte_string() {
    let pool = pool();
    let index = Clht::<Dram, Bytes<TestRecord>>::create(&pool, "index", 0).unwrap();
    let guard = pool.pin();
    let key = Bytes::<TestRecord>::key(1);
    index.insert(&guard, &key, Bytes::<TestRecord>::word(&guard, &key, 1, 0).unwrap()).unwrap();
    let bucket = Bytes::<TestRecord>::hash(&key, SEED) >> 61;
    let head = (load(&pool, root(&pool) + 8) & START) + bucket * 64;
    let slot = load(&pool, head + 8);
    check_finding(&index, &[(head + 8, slot ^ 1 << 50)], head, "a sound record");
    let record = index.get(&guard, &key).unwrap();
    check_finding(&index, &[(record, load(&pool, record) ^ 1 << 40)], head, "a sound record");
    check_finding(&index, &[(head + 16, slot)], head, "each key once");
    // Another tag, with every possible check: one matches.
    let tagged = |check: u64| (slot ^ 1 << 50) & !(0xff << 41) | check << 41;
    let says =
        |check: &u64| findings(&index, &[(head + 8, tagged(*check))])[0].1.contains("from its key's hash");
    assert_eq!((0..256).filter(says).count(), 1);
}

/// The place of a slot's pair in the bucket at `at`.
fn pair(at: u64, slot: u64) -> u64 {
    at + 32 + 16 * slot
}

/// The change that gives a slot in the bucket at `at` another tag.
fn with_tag(pool: &Pool<Dram>, at: u64, slot: u64, tag: u64) -> (u64, u64) {
    let (place, shift) = (at + 8 + 8 * (slot / 8), 8 * (slot % 8));
    (place, load(pool, place) & !(0xff << shift) | (tag & 0xff) << shift)
}

/// The bucket and the slot that have `key`, among `buckets` buckets from `start` on.
fn find(pool: &Pool<Dram>, start: u64, buckets: u64, key: u64) -> (u64, u64) {
    let slots = (0..buckets).flat_map(|bucket| (0..SLOTS).map(move |slot| (start + 256 * bucket, slot)));
    let has_it =
        |&(at, slot): &(u64, u64)| load(pool, at) >> slot & 1 == 1 && load(pool, pair(at, slot)) == key;
    slots.into_iter().find(has_it).expect("the key is there")
}

#[test]
fn turbohash_reports_a_damaged_shard() {
    let pool = pool();
    let index = Turbo::<Dram, U64>::with_shards(&pool, "index", 1, 60).unwrap();
    let guard = pool.pin();
    // All of one home, so that the last lies in the bucket behind it.
    let of_shard = |shard: u64| (0..).filter(move |&key| hash(key) >> 56 == shard << 7);
    let keys: Vec<u64> = of_shard(0).take(SLOTS as usize + 1).collect();
    keys.iter().for_each(|&key| _ = index.insert(&guard, &key, key).unwrap());
    let [descriptor, places] = [3, 4].map(|word| load(&pool, root(&pool) + 8 * word));
    let (place, version) = (load(&pool, places), load(&pool, descriptor + 8));
    let [home, behind] = [place & START, (place & START) + 256];
    assert_eq!(find(&pool, home, 2, keys[SLOTS as usize]), (behind, 0), "{place:#x}");
    let ((at, one), (same, other)) = (find(&pool, home, 2, keys[0]), find(&pool, home, 2, keys[1]));
    assert_eq!((at, same), (home, home));
    check_finding(&index, &[with_tag(&pool, home, one, hash(keys[0]) ^ 1)], home, "the tag");
    let twice = [(pair(home, other), keys[0]), with_tag(&pool, home, other, hash(keys[0]))];
    check_finding(&index, &twice, home, "each key once");
    check_finding(&index, &[(home, load(&pool, home) | 1 << SLOTS)], home, "no slot both live and deleted");
    check_finding(&index, &[(home + 24, 0)], behind, "a path from the home 0 on");
    // The slot of a removed key does not end a path; the count is one too high.
    let gone = load(&pool, home) & !(1 << one) | 1 << (SLOTS + one);
    check_finding(&index, &[(home, gone)], descriptor, "a count of 14 keys");
    let elsewhere = of_shard(1).next().unwrap();
    let elsewhere = [(pair(home, one), elsewhere), with_tag(&pool, home, one, hash(elsewhere))];
    check_finding(&index, &elsewhere, home, "keys of shard 0");
    // The shard's place: the readers' copy and the durable one.
    check_finding(&index, &[(places, 0)], descriptor, &format!("{place:#x}"));
    let durable = descriptor + 16 + 8 * (version & 1);
    assert_eq!(load(&pool, durable), place);
    // A search for a key behind a home whose overflow bit was cleared reports damage.
    let overflow = load(&pool, home + 24);
    word(&pool, home + 24).store(pool.medium(), 0, Relaxed);
    let kept_from = index.get_sound(&guard, &keys[SLOTS as usize]).map_err(|damage| damage.offset);
    assert_eq!(kept_from, Err(home));
    assert_eq!(index.get_sound(&guard, &keys[0]), Ok(Some(keys[0])));
    word(&pool, home + 24).store(pool.medium(), overflow, Relaxed);
    let unsound = place ^ 1 << 50;
    check_finding(&index, &[(places, unsound), (durable, unsound)], descriptor, "a shard in the pool");
}

#[test]
fn rewo_hash_reports_a_damaged_table() {
    let pool = pool();
    let index = Rewo::<Dram, U64>::with_shape(&pool, "index", 1, 2).unwrap();
    let guard = pool.pin();
    let keys: Vec<u64> = (0..).filter(|&key| hash(key) << 14 >> 62 == 1).take(SLOTS as usize + 1).collect();
    keys.iter().for_each(|&key| _ = index.insert(&guard, &key, key).unwrap());
    let view = load(&pool, root(&pool) + 64 + 8);
    let start = load(&pool, view + 64) & START;
    // The last key is there, or another that it has evicted.
    let placed: Vec<(u64, (u64, u64))> = keys.iter().map(|&key| (key, find(&pool, start, 4, key))).collect();
    let home = start + 256;
    let at_home: Vec<(u64, u64)> =
        placed.iter().filter(|of| of.1.0 == home).map(|of| (of.0, of.1.1)).collect();
    let &(_, (second, _)) =
        placed.iter().find(|(_, (at, _))| *at != home).expect("one is in its second bucket");
    let [(key, one), (_, other)] = [at_home[0], at_home[1]];
    check_finding(&index, &[with_tag(&pool, home, one, hash(key) ^ 1)], home, "the tag");
    let twice = [(pair(home, other), key), with_tag(&pool, home, other, hash(key))];
    check_finding(&index, &twice, home, "each key once");
    // A key in a bucket in which no search looks for it.
    let strange = (0..).find(|&key| hash(key) << 14 >> 62 == 3).unwrap();
    let strange = [(pair(home, one), strange), with_tag(&pool, home, one, hash(strange))];
    check_finding(&index, &strange, home, "a key of this bucket");
    // The home's overflow bits are clear.
    let uncovered = findings(&index, &[(home + 24, 0)]);
    assert!(uncovered.contains(&(second, "a key of this bucket".into())), "{uncovered:x?}");
    let counted = findings(&index, &[(home, load(&pool, home) & !(1 << one))]);
    assert!(matches!(&counted[..], [(_, said)] if said == "a count of 14 keys"), "{counted:x?}");
    check_finding(&index, &[(view, load(&pool, view) ^ 1)], view, "a view that fits its check");
    // A search for a key behind such a home reports damage.
    let behind = placed.iter().filter(|of| of.1.0 != home).map(|of| of.0);
    let overflow = load(&pool, home + 24);
    word(&pool, home + 24).store(pool.medium(), 0, Relaxed);
    for key in behind {
        assert_eq!(index.get_sound(&guard, &key).map_err(|damage| damage.offset), Err(home));
    }
    assert!(at_home.iter().all(|of| index.get_sound(&guard, &of.0) == Ok(Some(of.0))));
    let absent = (0..).filter(|&key| hash(key) << 14 >> 62 == 1).skip(keys.len()).take(20);
    absent.into_iter().for_each(|key| assert_eq!(index.get_sound(&guard, &key), Ok(None), "{key}"));
    word(&pool, home + 24).store(pool.medium(), overflow, Relaxed);
    assert_eq!((index.damage(), index.verify(&guard)), (None, vec![]));
}

#[test]
fn damaged_meta_word_and_record_are_reported() {
    fn verified<I: Stored<Medium = Dram> + PointIndex<Medium = Dram, Kind = Bytes<TestRecord>>>(
        index: &I,
        bucket: impl FnOnce(&Pool<Dram>) -> u64,
    ) {
        let (pool, guard) = (index.pool(), index.pool().pin());
        let key = Bytes::<TestRecord>::key(1);
        index.insert(&guard, &key, Bytes::<TestRecord>::word(&guard, &key, 1, 0).unwrap()).unwrap();
        let (at, record) = (bucket(pool), index.get(&guard, &key).unwrap());
        check_finding(index, &[(at, load(pool, at) ^ 1 << 63)], at, "a meta word that fits its check");
        check_finding(index, &[(record, load(pool, record) ^ 1 << 40)], at, "a sound record");
        assert_eq!(TestRecord::key(&guard, record), Some(key.as_slice()));
    }
    let turbo = Turbo::<Dram, Bytes<TestRecord>>::with_shards(&pool(), "index", 0, 0).unwrap();
    verified(&turbo, |pool| load(pool, load(pool, root(pool) + 32)) & START);
    let rewo = Rewo::<Dram, Bytes<TestRecord>>::with_shape(&pool(), "index", 1, 0).unwrap();
    verified(&rewo, |pool| load(pool, load(pool, root(pool) + 72) + 64) & START);
}

/// A search for a key with a damaged record reports it; searches for other keys, present or not, do
/// not.
fn check_damaged_records<I: Stored<Medium = Dram> + PointIndex<Medium = Dram, Kind = Bytes<TestRecord>>>() {
    let pool = pool();
    let index = I::create(&pool, "index", 0).unwrap();
    let guard = pool.pin();
    let keys: Vec<_> = (0..440).map(Bytes::<TestRecord>::key).collect();
    let (there, absent) = keys.split_at(40);
    for (number, key) in there.iter().enumerate() {
        let word = Bytes::<TestRecord>::word(&guard, key, number as u64, 0).unwrap();
        index.insert(&guard, key, word).unwrap();
    }
    for damaged in there {
        let record = index.get(&guard, damaged).expect("the key is there");
        let sound = load(&pool, record);
        word(&pool, record).store(pool.medium(), sound ^ 1 << 40, Relaxed);
        let what = index.get_sound(&guard, damaged).map_err(|damage| damage.offset);
        assert_eq!(what, Err(record), "{}", I::NAME);
        let others = there.iter().filter(|&key| key != damaged);
        assert!(
            others.into_iter().all(|key| matches!(index.get_sound(&guard, key), Ok(Some(_)))),
            "{}",
            I::NAME
        );
        // It may be the record of a key with the same tag of 15 bits.
        let findings = absent.iter().filter(|key| index.get_sound(&guard, key) != Ok(None)).count();
        assert!(findings <= 1, "{}: {findings}", I::NAME);
        word(&pool, record).store(pool.medium(), sound, Relaxed);
    }
}

#[test]
fn damaged_record_is_reported_for_its_key_only() {
    check_damaged_records::<Clht<_, Bytes<TestRecord>>>();
    check_damaged_records::<Level<_, Bytes<TestRecord>>>();
    check_damaged_records::<Rewo<_, Bytes<TestRecord>>>();
    check_damaged_records::<Turbo<_, Bytes<TestRecord>>>();
}

/// Inserts `keys`, and checks searches for them with each byte of these words changed: they return
/// the key or an error, and never that it is absent.
fn check_changed_bytes<I>(index: &I, keys: &[Vec<u8>], words: impl FnOnce(&Pool<Dram>) -> Vec<u64>)
where
    I: Stored<Medium = Dram> + PointIndex<Medium = Dram, Kind = Bytes<TestRecord>>,
{
    let (pool, guard) = (index.pool(), index.pool().pin());
    for (number, key) in keys.iter().enumerate() {
        let word = Bytes::<TestRecord>::word(&guard, key, number as u64, 0).unwrap();
        index.insert(&guard, key, word).unwrap();
    }
    for at in words(pool) {
        let sound = load(pool, at);
        for (byte, flip) in (0..8).flat_map(|byte| [1, 0x80, 0xff].map(|flip| (byte, flip))) {
            word(pool, at).store(pool.medium(), sound ^ flip << (8 * byte), Relaxed);
            for key in keys {
                let found = index.get_sound(&guard, key);
                let is_it = |word| TestRecord::key(&guard, word) == Some(key.as_slice());
                assert!(
                    found.is_err() || found.is_ok_and(|found| found.is_some_and(is_it)),
                    "{}: word {at:#x} {found:?}",
                    I::NAME
                );
            }
        }
        word(pool, at).store(pool.medium(), sound, Relaxed);
    }
    assert!(keys.iter().all(|key| matches!(index.get_sound(&guard, key), Ok(Some(_)))));
}

/// The words of `bytes` bytes from `at` on.
fn words(at: u64, bytes: u64) -> Vec<u64> {
    (at..at + bytes).step_by(8).collect()
}

#[test]
fn changed_byte_in_a_p_clht_slot_is_detected() {
    let index = Clht::<Dram, Bytes<TestRecord>>::create(&pool(), "index", 0).unwrap();
    let bucket = |key: &[u8]| Bytes::<TestRecord>::hash(key, SEED) >> 61;
    let keys: Vec<_> = (0..).map(Bytes::<TestRecord>::key).filter(|key| bucket(key) == 3).take(5).collect();
    // One of the six slots is empty.
    check_changed_bytes(&index, &keys, |pool| words((load(pool, root(pool) + 8) & START) + 3 * 64 + 8, 48));
}

#[test]
fn changed_byte_in_a_level_bucket_is_detected() {
    let index = Level::<Dram, Bytes<TestRecord>>::create(&pool(), "index", 0).unwrap();
    let keys: Vec<_> = (0..34).map(Bytes::<TestRecord>::key).collect();
    // Two above, one below.
    check_changed_bytes(&index, &keys, |pool| {
        let [below, above] = [2, 3].map(|word| load(pool, root(pool) + 8 * word) & START);
        [words(above, 256), words(below, 128)].concat()
    });
    assert_eq!(index.stats(&index.pool().pin()).buckets, 3);
}

#[test]
fn changed_byte_in_a_rewo_bucket_is_detected() {
    let index = Rewo::<Dram, Bytes<TestRecord>>::with_shape(&pool(), "index", 4, 0).unwrap();
    let keys: Vec<_> = (0..20).map(Bytes::<TestRecord>::key).collect();
    check_changed_bytes(&index, &keys, |pool| {
        words(load(pool, load(pool, root(pool) + 72) + 64) & START, 256)
    });
}

#[test]
fn changed_byte_in_a_turbo_bucket_is_detected() {
    let index = Turbo::<Dram, Bytes<TestRecord>>::with_shards(&pool(), "index", 0, 1).unwrap();
    let keys: Vec<_> = (0..20).map(Bytes::<TestRecord>::key).collect();
    check_changed_bytes(&index, &keys, |pool| {
        words(load(pool, load(pool, root(pool) + 24) + 16) & START, 256)
    });
}

/// Each changed word makes one finding: at most this many are reported, and one more.
const FINDINGS_MAX: usize = 1000;

fn check_findings_max(
    index: &(impl PointIndex<Medium = Dram> + Stored<Medium = Dram>),
    damaged: impl Iterator<Item = (u64, u64)>,
) {
    let changes: Vec<(u64, u64)> = damaged.collect();
    for (count, expected) in [
        (10, 10),
        (FINDINGS_MAX, FINDINGS_MAX),
        (FINDINGS_MAX + 1, FINDINGS_MAX + 1),
        (1024, FINDINGS_MAX + 1),
    ] {
        assert_eq!(findings(index, &changes[..count]).len(), expected, "of {count}");
    }
}

#[test]
fn verify_stops_after_a_thousand_findings() {
    type Strings = Bytes<TestRecord>;
    let roomy = || PoolOptions::anonymous().size(16 << 20).hash_seed(SEED).create().expect("a pool");
    let turned = |pool: &Pool<Dram>, at: u64| (at, load(pool, at) ^ 1 << 63);
    let pool = roomy();
    let turbo = Turbo::<Dram, Strings>::with_shards(&pool, "index", 10, 1 << 10).unwrap();
    let places = load(&pool, root(&pool) + 32);
    let buckets = (0..1024).map(|shard| load(&pool, places + 8 * shard) & START);
    check_findings_max(&turbo, buckets.map(|at| turned(&pool, at)));
    let pool = roomy();
    let rewo = Rewo::<Dram, Strings>::with_shape(&pool, "index", 1, 11).unwrap();
    let start = load(&pool, load(&pool, root(&pool) + 72) + 64) & START;
    check_findings_max(&rewo, (0..1024).map(|nth| turned(&pool, start + 256 * nth)));
    // One bucket of each unit of Level hashing, the lower one.
    let pool = roomy();
    let level = Level::<Dram, Strings>::create(&pool, "index", 32_000).unwrap();
    let tiers = (2..6).map(|nth| load(&pool, root(&pool) + 8 * nth));
    let lower = tiers.filter(|&tier| tier != 0).min_by_key(|tier| tier & 63).unwrap();
    assert!(lower & 63 >= 10);
    check_findings_max(&level, (0..1024).map(|nth| turned(&pool, (lower & START) + 128 * nth)));
    let pool = roomy();
    let clht = Clht::<Dram, Strings>::create(&pool, "index", 10_000).unwrap();
    let start = load(&pool, root(&pool) + 8) & START;
    check_findings_max(&clht, (0..1024).map(|nth| (start + 64 * nth + 8, 1 << 50 | 1)));
}

/// Checks that a slot with a changed bit is kept when its bucket is rebuilt, and that the damage is
/// recorded. No key may lead to that slot.
fn check_damaged_slot_moves<I>()
where
    I: Stored<Medium = Dram> + PointIndex<Medium = Dram, Kind = Bytes<TestRecord>>,
{
    let pool = pool();
    let index = I::create(&pool, "index", 0).unwrap();
    let guard = pool.pin();
    let put = |number: u64| {
        let key = Bytes::<TestRecord>::key(number);
        let word = Bytes::<TestRecord>::word(&guard, &key, number, 0).unwrap();
        index.insert(&guard, &key, word).unwrap();
        word
    };
    let record = put(0);
    // The only word of the pool that is the slot: its low bits name the record.
    let is_slot = |&at: &u64| load(&pool, at) & ((1 << 41) - 1) == record >> 3 && load(&pool, at) >> 41 != 0;
    let slots: Vec<u64> = (0..pool.size()).step_by(8).filter(is_slot).collect();
    assert_eq!(slots.len(), 1, "{}: {slots:x?}", I::NAME);
    word(&pool, slots[0]).store(pool.medium(), load(&pool, slots[0]) ^ 1 << 50, Relaxed);
    let mut numbers = 1..;
    while index.damage().is_none() && index.len() < 25_000 {
        put(numbers.next().unwrap());
    }
    let damage = index.damage().expect("it was noted");
    assert_eq!(damage.offset & !7, record, "{}: {damage:?}", I::NAME);
    let findings = index.verify(&guard);
    assert!(findings.iter().any(|finding| finding.expected == "an undamaged index"), "{findings:?}");
    let mut words = Vec::new();
    index.for_each(&guard, |word| words.push(word & !7));
    assert!(words.contains(&record), "{}: it is kept", I::NAME);
}

#[test]
fn damaged_slot_survives_a_rebuild() {
    check_damaged_slot_moves::<Clht<_, _>>();
    check_damaged_slot_moves::<Level<_, _>>();
    check_damaged_slot_moves::<Rewo<_, _>>();
    check_damaged_slot_moves::<Turbo<_, _>>();
}
