//! The timed operations on a map that holds the keys numbered from 0.
//!
//! Each thread makes some keys before the clock runs, because to write a string takes a part of the
//! time of a get.

use super::keys::{Keys, Numbered};
use super::maps::Map;
use std::borrow::Borrow;
use std::ops::Range;
use std::time::Instant;
use terrace_bench::{Random, run_on};

/// The size of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Keys in the map.
    pub(super) keys: u64,
    /// Operations a thread.
    pub(super) operations: u64,
    /// Threads at once.
    pub(super) threads: usize,
}

/// What is timed: operations on a full map, or its filling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Inserts of all keys into a new map.
    Insert,
    /// Gets of random present keys.
    Get,
    /// The same, 16 at a time.
    GetMany,
    /// Gets of random absent keys.
    GetAbsent,
    /// New values for random present keys.
    Update,
    /// Removals of the last keys, which are added again.
    Remove,
    /// Scans of 50 keys, from a random present key on.
    Scan,
}

/// Keys of a scan.
pub(super) const SCANNED: usize = 50;
/// Keys that a thread makes at a time.
const DRAWN: u64 = 1000;

/// Calls `each` with the keys of `numbers`, `DRAWN` at a time, and returns million keys a second.
/// `each` returns how many of the keys it found as they should be.
fn rate<K: Keys>(mut numbers: impl Iterator<Item = u64>, each: impl Fn(&[Numbered<K>]) -> usize) -> f64 {
    let (mut seconds, mut keys) = (0.0, 0);
    loop {
        let drawn: Vec<_> =
            numbers.by_ref().take(DRAWN as usize).map(|number| (number, K::key(number))).collect();
        if drawn.is_empty() {
            return keys as f64 / seconds / 1e6;
        }
        let start = Instant::now();
        let right = each(&drawn);
        seconds += start.elapsed().as_secs_f64();
        assert_eq!(right, drawn.len(), "a key was lost or made up, or there was no room for it");
        keys += drawn.len();
    }
}

/// As [`rate`], with a call for each key.
fn rate_of_each<K: Keys>(numbers: impl Iterator<Item = u64>, each: impl Fn(&K::Key, u64) -> bool) -> f64 {
    rate::<K>(numbers, |drawn| drawn.iter().filter(|(number, key)| each(key.borrow(), *number)).count())
}

/// The rates of all threads together.
fn together(threads: usize, work: impl Fn(usize) -> f64 + Sync) -> f64 {
    run_on(threads, work).1.into_iter().sum()
}

/// Random numbers of a thread, from `first` on.
fn random(size: Size, thread: usize, first: u64) -> impl Iterator<Item = u64> {
    let mut random = Random::new(thread as u64 + 1);
    (0..size.operations).map(move |_| first + random.below(size.keys))
}

/// A thread's part of `numbers`.
fn part(numbers: &Range<u64>, size: Size, thread: usize) -> Range<u64> {
    let part = (numbers.end - numbers.start) / size.threads as u64;
    let first = numbers.start + part * thread as u64;
    first..first + part
}

/// Does `work` to a full map, or to a new one. Returns million operations a second.
pub(super) fn run<K: Keys, T: Map<K>>(map: &T, work: Work, size: Size) -> f64 {
    match work {
        Work::Insert => insert::<K, T>(size),
        Work::Get => run_each::<K>(size, 0, |key, _| map.get(key).is_some()),
        Work::GetMany => together(size.threads, |thread| {
            let many = |drawn: &[Numbered<K>]| drawn.chunks(16).map(|keys| map.get_many(keys)).sum();
            rate::<K>(random(size, thread, 0), many)
        }),
        Work::GetAbsent => run_each::<K>(size, size.keys, |key, _| map.get(key).is_none()),
        Work::Update => run_each::<K>(size, 0, |key, number| map.update(key, number)),
        Work::Remove => remove::<K, T>(map, size),
        // A scan from one of the last keys is shorter.
        Work::Scan => run_each::<K>(size, 0, |key, _| map.scan(key, SCANNED) > 0),
    }
}

/// Calls `work` with random keys whose numbers are `first` and more.
fn run_each<K: Keys>(size: Size, first: u64, work: impl Fn(&K::Key, u64) -> bool + Sync) -> f64 {
    together(size.threads, |thread| rate_of_each::<K>(random(size, thread, first), &work))
}

/// Adds keys that are absent, each thread a part of them.
fn add<K: Keys, T: Map<K>>(map: &T, numbers: &Range<u64>, size: Size) -> f64 {
    let insert = |key: &K::Key, number| map.insert(key, number);
    together(size.threads, |thread| rate_of_each::<K>(part(numbers, size, thread), insert))
}

/// A map with `keys` keys, filled by two threads.
pub(super) fn filled<K: Keys, T: Map<K>>(keys: u64) -> T {
    let map = T::new(keys);
    add::<K, T>(&map, &(0..keys), Size { keys, operations: 0, threads: 2 });
    map
}

/// Fills a new map. Returns million inserts a second.
pub(super) fn insert<K: Keys, T: Map<K>>(size: Size) -> f64 {
    add::<K, T>(&T::new(size.keys), &(0..size.keys), size)
}

/// Removes the last of the keys, `size.operations` by each thread, and adds them again. Returns
/// million removals a second.
fn remove<K: Keys, T: Map<K>>(map: &T, size: Size) -> f64 {
    let numbers = size.keys - size.operations * size.threads as u64..size.keys;
    let remove = |key: &K::Key, _| map.remove(key);
    let removals = together(size.threads, |thread| rate_of_each::<K>(part(&numbers, size, thread), remove));
    add::<K, T>(map, &numbers, size);
    removals
}
