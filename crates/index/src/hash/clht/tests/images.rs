//! Tests of remote lookups over images of a pool: torn ones, stale ones, damaged ones, and all that
//! a crash may leave.

use super::super::super::test_pools::{Medium, Power, pool};
use super::super::bucket::{link, lock_word, store_link};
use super::super::shape::{Entry, sealed::Shape};
use super::lookup::{Lookup, Next};
use super::*;
use crate::key::WordRecords;
use crate::{Bytes, KeyKind, PointIndex, Stored};
use proptest::prelude::*;
use std::sync::atomic::Ordering::{Relaxed, Release};
use terrace_medium::{Dram, Offset};
use terrace_pool::{Lock, Pool};
use terrace_testkit::torn_read;

pub(super) type Strings = Bytes<WordRecords>;
pub(super) type Index<M> = Clht<M, Strings>;

pub(super) fn hash(index: &Index<impl MappedMedium>, key: u64) -> u64 {
    Strings::hash(&key.to_le_bytes(), index.seed)
}

pub(super) fn insert<M: MappedMedium>(index: &Index<M>, keys: impl IntoIterator<Item = u64>) {
    let guard = index.pool.pin();
    for key in keys {
        let record = WordRecords::put(&guard, key);
        index.insert(&guard, &key.to_le_bytes(), record).unwrap();
    }
}

/// Keys of one bucket of a table of eight.
pub(super) fn keys_of(index: &Index<impl MappedMedium>, bucket: u64) -> impl Iterator<Item = u64> {
    (1..).filter(move |&key| hash(index, key) >> 61 == bucket)
}

pub(super) fn bytes<M: MappedMedium>(pool: &Pool<M>, Read { offset, len }: Read) -> Result<Vec<u8>, String> {
    torn_read(pool, (offset, len), 0, || ()).ok_or_else(|| format!("no {len} bytes at {offset}"))
}

fn fetch<M: MappedMedium>(pool: &Pool<M>) -> impl Fn(Reads) -> Result<Vec<u8>, String> {
    move |reads| Ok(reads.iter().map(|read| bytes(pool, read)).collect::<Result<Vec<_>, _>>()?.concat())
}

/// The record of `key`, by a remote lookup.
fn find<M: MappedMedium>(remote: &mut Remote, pool: &Pool<M>, key: u64) -> Answer<u64> {
    let hash = Strings::hash(&key.to_le_bytes(), remote.address().seed);
    let check = |offset, bytes: &[u8]| (bytes == key.to_le_bytes()).then_some(Answer::Found(offset));
    remote.find(hash, 8, &mut fetch(pool), check).unwrap()
}

/// An index of eight buckets, and a remote reader of it.
fn empty() -> (Index<Dram>, Remote) {
    let index = Index::create(&pool(1 << 20), "index", 0).unwrap();
    let remote = Remote::new(index.address());
    (index, remote)
}

/// Holds up resizes while it does `work`.
fn without_resizes<M: MappedMedium, R>(index: &Index<M>, work: impl FnOnce() -> R) -> R {
    let guard = index.pool.pin();
    let held = Lock::of(&index.root()[0].0[ROOT_LOCK]).acquire(&guard);
    let done = work();
    held.release();
    done
}

/// Begins a resize to a table of 2^log2 buckets.
fn start<M: MappedMedium>(index: &Index<M>, log2: u32) -> Table {
    let (region, root) = (index.pool.region(), &index.root()[0]);
    let table = Index::new_table(&index.pool.pin(), log2).unwrap();
    root.0[ROOT_NEXT].store(region.medium(), table.word(), Release);
    region.persist(root);
    table
}

fn finish<M: MappedMedium>(index: &Index<M>) {
    while index.resize_step(&index.pool.pin()) {}
}

/// The answer for a key that is present.
pub(super) fn present<M: MappedMedium>(index: &Index<M>, key: u64) -> Answer<u64> {
    Answer::Found(index.get(&index.pool.pin(), &key.to_le_bytes()).unwrap())
}

/// The answer for a key, and the round trips that it costs.
fn cost(remote: &mut Remote, index: &Index<Dram>, key: u64) -> (Answer<u64>, u64) {
    let before = remote.rounds();
    (find(remote, &index.pool, key), remote.rounds() - before)
}

#[test]
fn lookup_costs_a_round_a_bucket_and_one_a_record() {
    let (index, mut remote) = empty();
    let _guard = index.pool.pin();
    let keys: Vec<u64> = keys_of(&index, 3).take(14).collect();
    without_resizes(&index, || insert(&index, keys[..13].iter().copied()));
    // The root, twice.
    assert_eq!(cost(&mut remote, &index, keys[0]), (present(&index, keys[0]), 4));
    for (nth, &key) in (0..13).zip(&keys) {
        assert_eq!(cost(&mut remote, &index, key), (present(&index, key), 2 + nth / 6), "{nth}");
    }
    assert_eq!(cost(&mut remote, &index, keys[13]), (Answer::Absent, 3));
    // With two tables the leader is read, too, in the same round.
    start(&index, 4);
    remote.renew();
    assert_eq!(cost(&mut remote, &index, keys[0]), (present(&index, keys[0]), 4));
    assert_eq!(cost(&mut remote, &index, keys[12]), (present(&index, keys[12]), 4));
    index.resize_step(&index.pool.pin());
    assert_eq!(cost(&mut remote, &index, keys[0]), (present(&index, keys[0]), 3), "it has moved");
}

#[test]
fn mark_of_a_later_resize_makes_the_root_stale() {
    let (index, mut remote) = empty();
    let key = keys_of(&index, 5).next().unwrap();
    insert(&index, [key]);
    let (record, _guard) = (present(&index, key), index.pool.pin());
    let mut costs = |rounds| assert_eq!(cost(&mut remote, &index, key), (record.clone(), rounds));
    costs(4);
    start(&index, 4);
    index.resize_step(&index.pool.pin());
    // Its bucket, the root twice, its bucket with the leader, the bucket of `next`, the record.
    costs(6);
    finish(&index);
    costs(3);
    // Both tables that it knows become old.
    start(&index, 5);
    finish(&index);
    costs(6);
    costs(2);
}

#[test]
fn renewed_reader_does_not_use_a_freed_table() {
    let (index, mut remote) = empty();
    insert(&index, 1..20);
    let records: Vec<u64> =
        (1..20u64).map(|key| index.get(&index.pool.pin(), &key.to_le_bytes()).unwrap()).collect();
    let check = |remote: &mut Remote| {
        for (key, &record) in (1..).zip(&records) {
            assert_eq!(find(remote, &index.pool, key), Answer::Found(record), "{key}");
        }
    };
    check(&mut remote);
    for (log2, junk) in [(4, 0), (5, !0), (3, 0x55)] {
        start(&index, log2);
        finish(&index);
        while index.pool.reclaim_blocking() {}
        let guard = index.pool.pin();
        for bytes in [Table::bytes_for(3), Table::bytes_for(4), Table::bytes_for(5)] {
            let blocks: Vec<_> = std::iter::from_fn(|| guard.alloc(bytes).ok()).collect();
            blocks.iter().for_each(|block| block.stream_lines(0, &vec![[junk; 8]; bytes / 64]));
            blocks.into_iter().for_each(|block| guard.free(block.persist().into_offset(), bytes));
        }
        remote.renew();
        check(&mut remote);
    }
}

#[test]
fn root_of_two_moments_is_refused() {
    let (index, _) = empty();
    let address = index.address();
    let image = || bytes(&index.pool, address.root_line()).unwrap();
    let idle = image();
    let named = |images: [&[u8]; 2]| Tables::confirm(&address, images);
    assert_eq!(named([&idle, &idle]), Some(Tables(index.view())));
    start(&index, 4);
    let resizing = image();
    assert_eq!(named([&resizing, &resizing]), Some(Tables(index.view())));
    finish(&index);
    let done = image();
    // The old table beside the word that the end of the resize has cleared.
    let torn = [&resizing[..16], &done[16..24], &resizing[24..]].concat();
    for (one, other) in [(&torn, &done), (&idle, &resizing), (&resizing, &done), (&done, &torn)] {
        assert_eq!(named([one, other]), None);
    }
    // The end of a resize, between its two stores.
    let ending = [&done[..16], &resizing[16..24], &done[24..]].concat();
    assert_eq!(named([&ending, &ending]), Some(Tables(index.view())));
    for byte in (8..48).chain(56..64) {
        let mut damaged = done.clone();
        damaged[byte] ^= 0x10;
        assert_eq!([named([&done, &damaged]), named([&damaged, &damaged])], [None; 2], "byte {byte}");
    }
    assert_eq!(named([&done, &done[..63]]), None);
}

#[test]
fn damaged_bucket_is_asked_about() {
    let (index, mut remote) = empty();
    let keys: Vec<u64> = keys_of(&index, 2).take(7 * 18).collect();
    without_resizes(&index, || insert(&index, keys.iter().copied()));
    let (last, absent) = (keys[6 * 17 - 1], keys_of(&index, 2).find(|key| !keys.contains(key)).unwrap());
    let found = |remote: &mut Remote, key| find(remote, &index.pool, key);
    // The sixteenth chained bucket is the last that a lookup reads.
    assert!(matches!(found(&mut remote, last), Answer::Found(_)));
    assert_eq!(found(&mut remote, keys[6 * 17]), Answer::Ask);
    assert_eq!(found(&mut remote, absent), Answer::Ask);
    let table = index.view().current;
    let bucket = index.pool.region().at(table.bucket(2));
    let medium = index.pool.medium();
    let sound = link(medium, bucket);
    for nowhere in [64, 1 << 20, (1 << 44) - 64] {
        store_link(medium, bucket, sound.with_next(Offset::new(nowhere)));
        assert_eq!(found(&mut remote, last), Answer::Ask);
        assert!(matches!(found(&mut remote, keys[0]), Answer::Found(_)));
    }
    store_link(medium, bucket, sound.with_next(Offset::new(0)));
    assert_eq!(found(&mut remote, last), Answer::Absent);
    // A damaged slot may be any key's.
    let slot = &bucket.0[1];
    slot.store(medium, slot.load(medium, Relaxed) ^ 1 << 60, Relaxed);
    assert_eq!(found(&mut remote, last), Answer::Ask);
    assert!(matches!(found(&mut remote, keys[1]), Answer::Found(_)));
    // A whole slot that names nothing in the pool.
    let probe = Strings::probe(&[], hash(&index, absent), table);
    let guard = index.pool.pin();
    Strings::publish(&guard, bucket, 0, Entry { key: probe.tag, word: 1 << 40 });
    assert_eq!(found(&mut remote, absent), Answer::Ask);
}

#[test]
fn short_read_is_asked_about() {
    let (index, _) = empty();
    let tables = Tables(index.view());
    for len in [0, 8, 63, 65, 128] {
        let (mut lookup, wanted) = Lookup::new(&index.address(), tables, 7 << 61);
        assert_eq!((wanted.bytes(), lookup.read(&vec![0; len])), (64, Next::Ask));
    }
}

/// Marks and slots that a crash may leave while two groups move: any line may have been written
/// back before. Then a writer changes a key of these groups, where it is now.
#[test]
fn marks_that_a_crash_left_mislead_no_lookup() {
    const GROUPS: std::ops::Range<u64> = 6..8;
    let (power, mut checked) = (Power::new(), 0);
    let index = Index::<Medium>::create(&power.pool, "index", 500).unwrap();
    insert(&index, 1..200);
    let (from, region) = (index.view().current, power.pool.region());
    assert!(from.log2() == 7 && index.view().next.is_none());
    let to = start(&index, 8);
    assert!(index.view() == View { current: from, next: Some(to) });
    let begin = power.trace().events().len();
    let guard = power.pool.pin();
    // Other threads move the groups before.
    let leaders = (0..GROUPS.start).map(|group| region.at(from.bucket(group * GROUP)));
    let held: Vec<_> = leaders.map(|leader| Lock::of(lock_word(leader)).acquire(&guard)).collect();
    index.resize_step(&guard);
    let buckets =
        (GROUPS.start * GROUP..GROUPS.end * GROUP).map(|bucket| (bucket, from.bucket(bucket).raw()));
    let lines: Vec<u64> = buckets.clone().map(|(_, line)| line).collect();
    let followers: Vec<u64> =
        buckets.filter(|(bucket, _)| bucket % GROUP != 0).map(|(_, line)| line).collect();
    let is_in = |key: &u64| GROUPS.contains(&(from.index(hash(&index, *key)) / GROUP));
    let moving: Vec<u64> = (1..200).filter(is_in).collect();
    for events in begin..=power.trace().events().len() {
        for kept in [followers.as_slice(), &[], &lines, &followers[..3], &lines[..1]] {
            let pool = power.after_power_loss_at(events, kept);
            let after = Index::<Medium>::recover(&pool, "index").unwrap().unwrap();
            let mut remote = Remote::new(after.address());
            let changed = moving[checked % moving.len()];
            let guard = pool.pin();
            let record = WordRecords::put(&guard, changed);
            after.upsert(&guard, &changed.to_le_bytes(), record).unwrap();
            for &key in &moving {
                assert_eq!(
                    find(&mut remote, &pool, key),
                    present(&after, key),
                    "{key} of {changed}, {events}"
                );
            }
            assert_eq!(
                find(&mut remote, &pool, changed),
                Answer::Found(record),
                "{changed}, {events} events"
            );
            checked += 1;
            drop(guard);
            drop(after);
            pool.abandon();
        }
    }
    drop(held);
    assert!(checked > 100, "{checked}");
}

proptest! {
    /// Whatever a lookup is fed with, it ends, and asks for nothing outside the pool.
    #[test]
    fn lookup_of_random_bytes_ends(
        bytes in prop::collection::vec(any::<u8>(), 64 * 8),
        (start, end, hash) in any::<(u64, u64, u64)>(),
        (current, next) in (3..=38u32, prop::option::of(3..=38u32)),
        place in any::<u32>(),
    ) {
        let address = Address { root: 0, seed: 0, start, end };
        let table = |log2| Table::new(u64::from(place) << 6, log2);
        let tables = Tables(View { current: table(current), next: next.map(table) });
        let (mut lookup, mut wanted) = Lookup::new(&address, tables, hash);
        for turn in 0.. {
            prop_assert!(turn < 200);
            let mut step = lookup.read(&bytes[..wanted.bytes()]);
            while let Next::Candidate { offset, .. } = step {
                prop_assert!((start..end).contains(&offset));
                step = lookup.other_key();
            }
            match step {
                Next::Need(reads) => wanted = reads,
                _ => break,
            }
        }
    }

    /// Whatever tables a root names, they are believed only if they lie in the pool.
    #[test]
    fn root_names_no_table_outside_the_pool(
        tables in prop::array::uniform2((0..1u64 << 20, LOG2_MIN..16)),
        (start, end, seed, stripes) in (0..1u64 << 26, 0..1u64 << 27, any::<u64>(), any::<u64>()),
    ) {
        let address = Address { root: 0, seed, start, end };
        let tables = tables.map(|(line, log2)| Table::new(line << 6, log2));
        let [current, next] = tables.map(Table::word);
        let words = [0, current, next, seed, stripes, tags::TAG, 0, root_check(seed, stripes)];
        let line: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let is_inside = |table: &Table| {
            table.start() >= start.max(1) && table.start() + table.bytes() as u64 <= end
        };
        let named = Tables::confirm(&address, [&line, &line]);
        prop_assert_eq!(named.is_some(), tables.iter().all(is_inside));
    }
}
