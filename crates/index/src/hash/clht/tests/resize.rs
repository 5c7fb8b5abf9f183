//! Tests of `resize.rs`.

use super::super::super::test_pools::{Medium, Power, interrupted};
use super::*;
use crate::{Deferred, KeyKind, PointIndex, Stored, Swapped, U64};
use std::sync::Arc;
use terrace_pool::Locked;
use terrace_testkit::schedule::Scheduler;

type Index = Clht<Medium, U64>;

/// A table of `groups` groups that is about to double, and its two tables.
fn growing(power: &Power, groups: u64) -> (Index, Table, Table) {
    let index = Index::create(&power.pool, "index", groups * GROUP * 2).unwrap();
    let from = index.view().current;
    assert_eq!(from.groups(), groups);
    index.start(&power.pool.pin(), from, from.log2() + 1);
    let to = index.view().next.unwrap();
    (index, from, to)
}

/// The word of a key after a loss of power.
fn kept(power: &Power, key: u64) -> Option<u64> {
    let pool = power.after_power_loss();
    let index = Index::recover(&pool, "index").unwrap().unwrap();
    let found = index.get(&pool.pin(), &key);
    pool.abandon();
    found
}

/// Keys whose hashes begin with `begin`.
fn keys(seed: u64, bits: u32, begin: u64) -> impl Iterator<Item = u64> {
    (0..).filter(move |key| U64::hash(key, seed) >> (64 - bits) == begin)
}

fn is_open(index: &Index, lock: &terrace_medium::Word) -> bool {
    Lock::may_be_unfenced(lock.load(index.pool.medium(), Relaxed))
}

/// Moves a group, unless it has moved, but stops before the fence after the mark. The locks
/// stay held.
fn move_unfenced<'g>(
    index: &'g Index,
    guard: &'g Guard<'_, Medium>,
    (from, to, group): (Table, Table, u64),
) -> Vec<Locked<'g, Medium>> {
    let (region, first) = (index.pool.region(), group * GROUP);
    let buckets = || (first..first + GROUP).map(|bucket| region.at(from.bucket(bucket)));
    let locks = buckets().map(|bucket| Lock::of(lock_word(bucket)).acquire(guard)).collect();
    if index.has_moved(from, from.first_hash(first)) {
        return locks;
    }
    index.write_group(guard, from, to, first).unwrap();
    buckets().for_each(|bucket| store_link(region.medium(), bucket, link(region.medium(), bucket).moved()));
    locks
}

/// Ends a resize, but without the fence after that.
fn finish_unfenced(index: &Index, to: Table) {
    let (medium, root) = (index.pool.medium(), &index.root()[0]);
    root.0[ROOT_CURRENT].store(medium, to.word(), Release);
    root.0[ROOT_NEXT].store(medium, 0, Release);
}

#[test]
fn resize_ends_after_all_moves_are_durable() {
    let power = Power::new();
    let (index, from, to) = growing(&power, 1);
    let guard = power.pool.pin();
    let locks = move_unfenced(&index, &guard, (from, to, 0));
    assert_eq!(index.advance_cursor(from, to), 1);
    finish_unfenced(&index, to);
    index.insert(&guard, &7, 70).unwrap();
    assert_eq!(kept(&power, 7), Some(70));
    drop(locks);
}

#[test]
fn chain_of_a_moved_group_is_not_followed() {
    let power = Power::new();
    let (index, from, to) = growing(&power, 2);
    let guard = power.pool.pin();
    let locks = move_unfenced(&index, &guard, (from, to, 0));
    // The mover died. A collection has freed the chain, and its memory has been reused.
    locks.into_iter().for_each(|lock| lock.release_unfenced());
    let leader = power.pool.region().at(from.bucket(0));
    let gone = link(power.pool.medium(), leader).with_next(Offset::new(1 << 40));
    store_link(power.pool.medium(), leader, gone);
    let key = keys(index.seed, from.log2(), 0).next().unwrap();
    index.insert(&guard, &key, 70).unwrap();
    assert_eq!((index.damage(), kept(&power, key)), (None, Some(70)));
}

#[test]
fn freed_table_is_not_named_after_power_loss() {
    let power = Power::new();
    let (index, from, to) = growing(&power, 1);
    index.help_resize(&power.pool.pin(), from, to);
    let guard = power.pool.pin();
    let lock = Lock::of(&index.root()[0].0[ROOT_LOCK]).acquire(&guard);
    finish_unfenced(&index, to);
    // The thread died.
    lock.release_unfenced();
    drop(guard);
    power.pool.request_collection();
    let report =
        power.pool.collect(&mut |marker| index.trace(&power.pool.pin(), marker, |_, _| unreachable!()));
    assert!(report.freed >= from.bytes() as u64, "{report:?}");
    let pool = power.after_power_loss();
    let after = Index::recover(&pool, "index").unwrap().unwrap().view();
    assert!(after == View { current: to, next: None });
    pool.abandon();
}

#[test]
fn unchanged_root_keeps_its_unfenced_mark() {
    let power = Power::new();
    let index = Index::create(&power.pool, "index", 0).unwrap();
    let (guard, from) = (power.pool.pin(), index.view().current);
    let root = &index.root()[0].0;
    Lock::of(&root[ROOT_LOCK]).acquire(&guard).release_unfenced();
    index.start(&guard, from, 30);
    assert!(is_open(&index, &root[ROOT_LOCK]), "the pool has no room");
    let to = Index::new_table(&guard, 4).unwrap();
    root[ROOT_NEXT].store(power.pool.medium(), to.word(), Release);
    index.start(&guard, from, 4);
    index.finish_resize(&guard, to, from);
    assert!(is_open(&index, &root[ROOT_LOCK]));
    index.help_resize(&guard, from, to);
    index.insert(&guard, &7, 70).unwrap();
    assert_eq!(kept(&power, 7), Some(70));
}

#[test]
fn unmoved_group_keeps_its_unfenced_marks() {
    let power = Power::new();
    let index = Index::create(&power.pool, "index", 0).unwrap();
    let (guard, from) = (power.pool.pin(), index.view().current);
    keys(index.seed, 4, 0).take(4).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    index.start(&guard, from, 4);
    let to = index.view().next.unwrap();
    while let Ok(block) = guard.alloc(64) {
        let _ = block.persist().into_offset();
    }
    let (key, mut deferred) = (keys(index.seed, 3, 5).next().unwrap(), Deferred::default());
    let swapped = index.compare_and_swap_deferred(&guard, &key, None, Some(70), &mut deferred);
    assert_eq!(swapped, Ok(Swapped::Done));
    assert!(index.migrate(&guard, from, to, 0).is_err());
    assert_eq!((index.get(&guard, &key), kept(&power, key)), (Some(70), Some(70)));
}

#[test]
fn group_waits_for_room_to_retire_its_buckets() {
    let power = Power::new();
    let index = Index::create(&power.pool, "index", 0).unwrap();
    let (guard, from) = (power.pool.pin(), index.view().current);
    // So that no thread resizes it yet.
    let lock = Lock::of(&index.root()[0].0[ROOT_LOCK]).acquire(&guard);
    keys(index.seed, 3, 5).take(75).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    lock.release();
    let to = Index::new_table(&guard, 4).unwrap();
    // Room for the new buckets.
    let spare: Vec<_> = (0..40).map(|_| guard.alloc(64).unwrap().persist().into_offset()).collect();
    for bytes in [512, 64] {
        while let Ok(block) = guard.alloc(bytes) {
            let _ = block.persist().into_offset();
        }
    }
    spare.into_iter().for_each(|block| guard.free(block, 64));
    assert!(index.migrate(&guard, from, to, 0).is_err());
    assert_eq!((power.pool.space().lost, guard.is_limbo_full()), (0, false));
}

#[test]
fn read_of_a_moved_key_is_durable() {
    let power = Power::new();
    let (index, from, to) = growing(&power, 8);
    let (guard, last) = (power.pool.pin(), from.groups() - 1);
    let key = keys(index.seed, 3, last).next().unwrap();
    let locks = move_unfenced(&index, &guard, (from, to, last));
    // Neither the mover nor the writer has reached the fence after its change.
    let mut deferred = Deferred::default();
    let swapped = index.compare_and_swap_deferred(&guard, &key, None, Some(70), &mut deferred);
    assert_eq!(swapped, Ok(Swapped::Done));
    let read = || index.get(&index.pool.pin(), &key);
    let answered = std::thread::scope(|threads| threads.spawn(read).join().unwrap());
    assert_eq!((answered, kept(&power, key)), (Some(70), Some(70)));
    drop(locks);
}

/// A thread moves a group and dies before that is durable, while another writes one of its
/// keys. Either is delayed at every step.
fn check_mover_dies(has_begun: bool) {
    let scheduler = Scheduler::new();
    for run in 2..160 {
        let power = Power::new();
        let index = Arc::new(Index::create(&power.pool, "index", 32).unwrap());
        let from = index.view().current;
        let key = keys(index.seed, from.log2(), 0).next().unwrap();
        if has_begun {
            index.start(&power.pool.pin(), from, 5);
        }
        let [writer, mover] = [index.clone(), index];
        let write = move || _ = writer.insert(&writer.pool.pin(), &key, 70).unwrap();
        let moving = move || {
            let guard = mover.pool.pin();
            mover.start(&guard, from, 5);
            if let Some(to) = mover.view().next {
                let locks = move_unfenced(&mover, &guard, (from, to, 0));
                locks.into_iter().for_each(|lock| lock.release_unfenced());
            }
        };
        match run % 2 {
            0 => interrupted(&scheduler, run / 2, write, moving),
            _ => interrupted(&scheduler, run / 2, moving, write),
        }
        assert_eq!(kept(&power, key), Some(70), "run {run}");
    }
}

#[test]
fn writer_persists_an_unfenced_move() {
    check_mover_dies(true);
    check_mover_dies(false);
}
