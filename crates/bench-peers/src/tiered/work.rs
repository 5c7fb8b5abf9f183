//! Records of these measurements, and how they are put and read.

use crate::files::{Outcome, Stored};
use std::time::Instant;
use terrace::{Store, TierStats};
use terrace_bench::{KeyShape, Operations, Random, Shape, Workload};

pub(super) const KEY_BYTES: u64 = 8;
pub(super) const VALUE_BYTES: usize = 64;
/// Bytes that a record has in DRAM beside its key and value, without the index.
const RECORD_OVER: u64 = 32;
/// Bytes of DRAM for a key in the index, at most.
const INDEX_BYTES: f64 = 14.0;
/// The least DRAM of a store.
const DRAM_MIN: u64 = 16 << 20;

/// Bytes of a record's key and value.
pub(super) fn user_bytes(value: usize) -> u64 {
    KEY_BYTES + value as u64
}

/// Bytes that a record takes in DRAM.
pub(super) fn record_bytes(value: usize) -> u64 {
    RECORD_OVER + KEY_BYTES + value.next_multiple_of(8) as u64
}

/// Bytes of DRAM for the index of so many records, and for a share of their keys and values.
pub(super) fn dram(records: u64, user_bytes: u64, share: f64) -> u64 {
    let dram = records as f64 * (user_bytes as f64 * share + INDEX_BYTES);
    (dram as u64).max(DRAM_MIN)
}

/// Keys of 8 bytes, whose order is not that of their numbers, and values of this length.
pub(super) fn shape(value: usize) -> Shape {
    Shape::new(KeyShape::Integer, "", value..=value)
}

/// Puts the records of these numbers with two threads.
pub(super) fn load(store: &dyn Stored, value: usize, numbers: std::ops::Range<u64>) -> Outcome<()> {
    let middle = numbers.start.midpoint(numbers.end);
    let put = |numbers: std::ops::Range<u64>| -> Outcome<()> {
        let (shape, mut random) = (shape(value), Random::new(numbers.start + 1));
        let (mut key, mut value) = (Vec::new(), vec![0; value]);
        for number in numbers {
            shape.key(number, &mut key);
            random.fill(&mut value);
            store.put(&key, &value)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| put(middle..numbers.end));
        put(numbers.start..middle).and(other.join().expect("a thread panicked"))
    })
}

/// Gets a record that must be there.
pub(super) fn get(store: &dyn Stored, key: &[u8]) -> Outcome<()> {
    let found = store.get(key, &mut |value| _ = std::hint::black_box(value[0]))?;
    if found { Ok(()) } else { Err("a store has lost a key".into()) }
}

/// Thousand operations a second on the records of a workload. Keys are made before the clock runs.
pub(super) fn rate(
    operations: &mut Operations,
    count: u64,
    mut once: impl FnMut(&[u8]) -> Outcome<()>,
) -> Outcome<f64> {
    const DRAWN: u64 = 1000;
    let (shape, mut seconds) = (shape(0), 0.0);
    for _ in 0..count / DRAWN {
        let keys: Vec<Vec<u8>> = operations
            .take(DRAWN as usize)
            .map(|operation| {
                let mut key = Vec::new();
                shape.key(operation.record, &mut key);
                key
            })
            .collect();
        let start = Instant::now();
        keys.iter().try_for_each(|key| once(key))?;
        seconds += start.elapsed().as_secs_f64();
    }
    Ok((count / DRAWN * DRAWN) as f64 / seconds / 1e3)
}

/// The operations of one thread.
pub(super) fn operations(workload: Workload, records: u64, seed: u64) -> Operations {
    Operations::new(workload, records, 0, 1, seed)
}

/// What a store has counted.
pub(super) fn tier(store: &Store) -> Outcome<TierStats> {
    Ok(store.stats().tier.ok_or("the store has no tier")?)
}
