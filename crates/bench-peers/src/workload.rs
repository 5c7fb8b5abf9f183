//! The timed operations on a map.

use crate::maps::Map;
use crate::ours::Ours;
use std::hint::black_box;
use terrace_bench::{Random, rate, spread};
use terrace_index::{PointIndex, U64};
use terrace_medium::Dram;

/// Operations on a map that holds `spread(0..keys)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Gets of random present keys.
    Get,
    /// Gets of random absent keys.
    GetAbsent,
    /// New values for random present keys.
    Update,
}

/// The size of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Keys in the map.
    pub(crate) keys: u64,
    /// Operations a thread.
    pub(crate) operations: u64,
    /// Threads at once.
    pub(crate) threads: usize,
}

/// Fills `map` with `keys` keys, on two threads.
pub(crate) fn fill<M: Map>(map: &M, keys: u64) {
    rate(2, keys / 2, |thread| insert_share(map, keys, thread, 2));
}

/// Does `workload` to a filled map. Returns million operations a second.
pub(crate) fn run<M: Map>(map: &M, workload: Workload, size: Size) -> f64 {
    rate(size.threads, size.operations, |thread| {
        let mut random = Random::new(thread as u64 + 1);
        let mut found = 0u64;
        for _ in 0..size.operations {
            let i = random.below(size.keys);
            found += match workload {
                Workload::Get => u64::from(map.get(spread(i)).is_some()),
                Workload::GetAbsent => u64::from(map.get(spread(size.keys + i)).is_none()),
                Workload::Update => u64::from(map.update(spread(i), i + 1)),
            };
        }
        assert_eq!(black_box(found), size.operations, "a key was lost or made up");
    })
}

/// Gets random present keys, 16 at a time. Returns million gets a second.
pub(crate) fn run_many<I: PointIndex<Medium = Dram, Kind = U64>>(map: &Ours<Dram, I>, size: Size) -> f64 {
    rate(size.threads, size.operations / 16 * 16, |thread| {
        let mut random = Random::new(thread as u64 + 1);
        let mut found = 0u64;
        for _ in 0..size.operations / 16 {
            let keys = [0; 16].map(|_| spread(random.below(size.keys)));
            found += map.get_many(&keys);
        }
        assert_eq!(black_box(found), size.operations / 16 * 16, "a key was lost");
    })
}

/// Fills a new map, presized or from nothing. Returns million inserts a second.
pub(crate) fn insert<M: Map>(size: Size, presized: bool) -> f64 {
    let map = M::with_capacity(if presized { size.keys } else { 0 }, size.keys);
    let share = size.keys / size.threads as u64;
    rate(size.threads, share, |thread| insert_share(&map, size.keys, thread, size.threads))
}

fn insert_share<M: Map>(map: &M, keys: u64, thread: usize, threads: usize) {
    let share = keys / threads as u64;
    let first = share * thread as u64;
    for i in first..first + share {
        assert!(map.insert(spread(i), i + 1), "a new key was there already, or there was no room for it");
    }
}
