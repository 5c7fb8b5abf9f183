//! Tests of single resize steps: which groups each moves, under which locks, at what cost; and what
//! remains of a resize after a power loss behind any of its stores.

use super::super::super::test_pools::{Medium, Place, Power, pool};
use super::super::shape::sealed::Shape;
use super::*;
use crate::count::STRIPES;
use crate::key::WordRecords;
use crate::{Bytes, KeyKind, PointIndex, Stored, U64};
use terrace_medium::{Dram, Shm};
use terrace_pool::Pool;
use terrace_testkit::TappedPmem;

type Index<M> = Clht<M, U64>;

/// A table of `groups` groups that is about to double, and its two tables.
fn growing<M: MappedMedium>(pool: &Pool<M>, groups: u64) -> (Index<M>, Table, Table) {
    let index = Index::create(pool, "index", groups * GROUP * 2).unwrap();
    let from = index.view().current;
    assert_eq!(from.groups(), groups);
    index.start(&pool.pin(), from, from.log2() + 1);
    let to = index.view().next.unwrap();
    (index, from, to)
}

/// The groups that have moved.
fn moved<M: MappedMedium>(index: &Index<M>, from: Table) -> Vec<u64> {
    (0..from.groups()).filter(|group| index.has_moved(from, from.first_hash(group * GROUP))).collect()
}

fn lock_of<M: MappedMedium>(index: &Index<M>, table: Table, bucket: u64) -> &Lock {
    Lock::of(lock_word(index.pool.region().at(table.bucket(bucket))))
}

#[test]
fn help_moves_two_free_groups_of_the_next_eight() {
    let pool = pool::<Dram>(1 << 20);
    let (index, from, to) = growing(&pool, 16);
    let guard = pool.pin();
    index.help_resize(&guard, from, to);
    assert_eq!(moved(&index, from), [0, 1]);
    let hold = |groups: &[u64]| {
        let locks = groups.iter().map(|group| lock_of(&index, from, group * GROUP).acquire(&guard));
        locks.collect::<Vec<_>>()
    };
    let some = hold(&[2, 3, 5]);
    index.help_resize(&guard, from, to);
    assert_eq!(moved(&index, from), [0, 1, 4, 6]);
    let others = hold(&[7, 8, 9]);
    index.help_resize(&guard, from, to);
    assert_eq!(moved(&index, from), [0, 1, 4, 6], "the tenth is too far ahead");
    drop((some, others));
    index.help_resize(&guard, from, to);
    assert_eq!(moved(&index, from), [0, 1, 2, 3, 4, 6]);
}

#[test]
fn cursor_advances_64_groups_at_a_time() {
    let pool = pool::<Dram>(1 << 20);
    let (index, from, to) = growing(&pool, 128);
    let (guard, cursor) = (pool.pin(), &pool.region().at(to.header()).0[HEADER_CURSOR]);
    for group in 0..128 {
        assert!(matches!(index.migrate(&guard, from, to, group), Ok(Step::Moved)));
    }
    for passed in [64, 128, 128] {
        assert_eq!(index.advance_cursor(from, to), passed);
        assert_eq!(cursor.load(pool.medium(), Relaxed), passed);
    }
}

#[test]
fn move_locks_and_marks_eight_buckets() {
    let pool = pool::<Dram>(1 << 20);
    let (index, from, to) = growing(&pool, 4);
    assert!(matches!(index.migrate(&pool.pin(), from, to, 1), Ok(Step::Moved)));
    for bucket in 0..from.buckets() {
        let line = pool.region().at(from.bucket(bucket));
        let was_taken = lock_of(&index, from, bucket).load_word(pool.medium()) != 0;
        let is_its = (8..16).contains(&bucket);
        assert_eq!((was_taken, link(pool.medium(), line).has_moved()), (is_its, is_its), "bucket {bucket}");
    }
    assert!(matches!(index.migrate(&pool.pin(), from, to, 1), Ok(Step::Already)));
    let guard = pool.pin();
    let held = lock_of(&index, from, 16).acquire(&guard);
    assert!(matches!(index.migrate(&guard, from, to, 2), Ok(Step::Busy)));
    drop(held);
}

#[test]
fn group_moves_with_two_fences() {
    let pool = pool::<TappedPmem>(1 << 20);
    let (index, from, to) = growing(&pool, 4);
    let (guard, medium) = (pool.pin(), pool.medium());
    let (counts, _) = medium.during(|| index.migrate(&guard, from, to, 0).map(|_| ()).unwrap());
    assert_eq!(counts.fences, 2, "{counts:?}");
    let looks = |group: u64| {
        let (counts, has_moved) =
            medium.during(|| index.has_moved_durably(from, from.first_hash(group * GROUP)));
        (has_moved, counts.write_backs, counts.fences)
    };
    assert_eq!([0, 1].map(looks), [(true, 0, 0), (false, 0, 0)]);
    let held = [0, 1].map(|group| lock_of(&index, from, group * GROUP).acquire(&guard));
    assert_eq!([0, 1].map(looks), [(true, 1, 1), (false, 0, 0)]);
    drop(held);
    // The root.
    let write_back = || medium.during(|| index.write_back_root()).0;
    assert_eq!((write_back().write_backs, write_back().fences), (0, 0));
    let held = Lock::of(&index.root()[0].0[ROOT_LOCK]).acquire(&guard);
    assert_eq!((write_back().write_backs, write_back().fences), (1, 0));
    drop(held);
}

#[test]
fn misplaced_key_moves_to_its_own_half() {
    let pool = pool::<Dram>(1 << 20);
    let (index, from, to) = growing(&pool, 4);
    let guard = pool.pin();
    let of_group = |group: u64| (0..).find(|key| U64::hash(key, index.seed) >> 62 == group).unwrap();
    let bucket = pool.region().at(from.bucket(10));
    for (slot, group) in [0, 1, 3].into_iter().enumerate() {
        U64::publish(&guard, bucket, slot, Entry { key: of_group(group), word: group });
    }
    assert!(matches!(index.migrate(&guard, from, to, 1), Ok(Step::Moved)));
    let words = |bucket: u64| {
        let bucket = pool.region().at(to.bucket(bucket));
        (0..3).filter_map(|slot| U64::read(&guard, bucket, slot)).map(|entry| entry.word).collect::<Vec<_>>()
    };
    let own = to.index(U64::hash(&of_group(1), index.seed));
    let expected = |bucket: u64| {
        let words = [(16, 0), (own, 1), (31, 3)].into_iter().filter(|&(of, _)| of == bucket);
        words.map(|(_, word)| word).collect::<Vec<u64>>()
    };
    for bucket in 16..32 {
        let mut found = words(bucket);
        found.sort_unstable();
        assert_eq!(found, expected(bucket), "bucket {bucket}");
    }
}

#[test]
fn overflow_buckets_of_a_moved_group_are_retired() {
    let pool = pool::<Dram>(1 << 20);
    let index = Index::create(&pool, "index", 0).unwrap();
    // Enough keys of one bucket to chain others; and no resize begins.
    let lock = |guard| Lock::of(&index.root()[0].0[ROOT_LOCK]).acquire(guard);
    let guard = pool.pin();
    let held = lock(&guard);
    let keys = (0..).filter(|key| U64::hash(key, index.seed) >> 61 == 5).take(12);
    keys.for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    held.release();
    let from = index.view().current;
    let stats = index.stats(&guard);
    assert_eq!((stats.overflow_buckets, stats.slots), (3, 11 * 3));
    assert_eq!(stats.bytes, (8 + 1 + 3 + STRIPES + 2) * 64);
    index.start(&guard, from, 4);
    while let View { next: Some(to), .. } = index.view() {
        index.help_resize(&guard, from, to);
    }
    drop(guard);
    while pool.reclaim_blocking() {}
    let blocks = pool.reachable(&mut |marker| index.trace(&pool.pin(), marker, |_, _| ()));
    assert_eq!(blocks.iter().map(|&(_, bytes)| bytes).sum::<u64>(), pool.space().used_by_blocks);
}

#[test]
fn prefetch_stays_within_the_table() {
    type Strings = Bytes<WordRecords>;
    let pool = pool::<Dram>(1 << 20);
    let index = Clht::<Dram, Strings>::create(&pool, "index", 576).unwrap();
    let (guard, from) = (pool.pin(), index.view().current);
    let keys: Vec<(u64, u64)> = (1..200).map(|key| (key, WordRecords::put(&guard, key))).collect();
    keys.iter().for_each(|(key, record)| _ = index.insert(&guard, &key.to_le_bytes(), *record).unwrap());
    index.start(&guard, from, 8);
    let to = index.view().next.unwrap();
    assert!(Strings::relocates_by_record(from, to));
    // All free memory is full of links to nowhere.
    let spare: Vec<_> = (0..40).map(|_| guard.alloc(64).unwrap().persist().into_offset()).collect();
    for bytes in [4096, 512, 64] {
        while let Ok(block) = guard.alloc(bytes) {
            block.stream_lines(0, &vec![[!0; 8]; bytes / 64]);
            let _ = block.persist().into_offset();
        }
    }
    spare.into_iter().for_each(|block| guard.free(block, 64));
    for group in 0..from.groups() {
        assert!(matches!(index.migrate(&guard, from, to, group), Ok(Step::Moved)));
    }
    assert_eq!(index.damage(), None);
    let found = |(key, record): &(u64, u64)| index.get(&guard, &key.to_le_bytes()) == Some(*record);
    assert!(keys.iter().all(found));
}

/// The cursor after `recover`, in a table that had moved a group of four and whose cursor was at
/// the last.
fn cursor_after<M: MappedMedium>(pool: &Pool<M>) -> u64 {
    let index = Index::<M>::recover(pool, "index").unwrap().unwrap();
    let to = index.view().next.unwrap();
    pool.region().at(to.header()).0[HEADER_CURSOR].load(pool.medium(), Relaxed)
}

#[test]
fn recovery_restarts_the_cursor_once() {
    let place = Place::new();
    let pool: Pool<Shm> = place.options().create().unwrap();
    let (index, from, to) = growing(&pool, 4);
    assert!(matches!(index.migrate(&pool.pin(), from, to, 0), Ok(Step::Moved)));
    let cursor = &pool.region().at(to.header()).0[HEADER_CURSOR];
    cursor.store(pool.medium(), 4, Relaxed);
    assert_eq!(cursor_after(&pool), 0);
    // Other processes use it.
    cursor.store(pool.medium(), 4, Relaxed);
    pool.initialize().done();
    assert_eq!(cursor_after(&pool), 4);
    drop(index);
    pool.close().unwrap();
    let reopened = |is_read_only: bool| {
        let pool: Pool<Shm> = place.options().read_only(is_read_only).open().unwrap();
        cursor_after(&pool)
    };
    assert_eq!(reopened(true), 4);
    assert_eq!(reopened(false), 0);
}

#[test]
fn first_store_of_the_last_step_ends_the_resize() {
    let pool = pool::<Dram>(1 << 20);
    let (index, from, to) = growing(&pool, 1);
    assert!(matches!(index.migrate(&pool.pin(), from, to, 0), Ok(Step::Moved)));
    let root = &index.root()[0].0;
    root[ROOT_CURRENT].store(pool.medium(), to.word(), Relaxed);
    assert!(index.view() == View { current: to, next: None });
    let again = Index::<Dram>::recover(&pool, "index").unwrap().unwrap();
    assert!(again.view() == View { current: to, next: None });
    assert_eq!(root[ROOT_NEXT].load(pool.medium(), Relaxed), 0);
}

#[test]
fn interrupted_resize_loses_no_key() {
    // Enough buckets to double and shrink meanwhile; some buckets have more keys than pairs.
    for (log2, keys) in [(5, 40), (3, 16)] {
        let power = Power::new();
        let index = Index::<Medium>::create(&power.pool, "index", 32).unwrap();
        let guard = power.pool.pin();
        (0..keys).for_each(|key| _ = index.insert(&guard, &key, !key).unwrap());
        let from = index.view().current;
        assert!(from.log2() == 4 && index.view().next.is_none());
        let start = power.trace().events().len();
        index.start(&guard, from, log2);
        while let View { next: Some(to), .. } = index.view() {
            index.help_resize(&guard, from, to);
        }
        assert_eq!(index.view().current.log2(), log2);
        for events in start..=power.trace().events().len() {
            let pool = power.after_power_loss_at(events, &[]);
            let after = Index::<Medium>::recover(&pool, "index").unwrap().unwrap();
            let guard = pool.pin();
            assert!((0..keys).all(|key| after.get(&guard, &key) == Some(!key)), "behind {events} events");
            let mut words = Vec::new();
            after.for_each(&guard, |word| words.push(!word));
            words.sort_unstable();
            assert_eq!(words, (0..keys).collect::<Vec<_>>());
            assert!((0..keys).all(|key| after.remove(&guard, &key) == Some(!key)));
            drop(guard);
            drop(after);
            pool.abandon();
        }
    }
}
