//! Tests: the disk engine beside a map, through background work in any order, restarts, and power
//! failures of a simulated disk.

use crate::place::InPmem;
use crate::rig::{Rig, try_history, try_history_in};
use crate::small::{PATH, settings};
use crate::subject::OfWip;
use std::path::Path;
use std::sync::Arc;
use terrace_engine::{Chore, Durability, Durably, Engine, ManualClock, Put, Rest};
use terrace_testkit::simfs::SimFs;
use terrace_wip::Wip;

#[test]
fn histories_with_power_failures_match_a_map() {
    (0..30).for_each(|seed| try_history::<OfWip>(seed, Durability::Power));
}

#[test]
fn histories_without_syncs_keep_a_prefix() {
    (100..130).for_each(|seed| try_history::<OfWip>(seed, Durability::Process));
}

/// The files of a pool serve any engine on files.
#[test]
fn histories_in_a_pool_match_a_map() {
    (200..206).for_each(|seed| try_history_in::<OfWip, InPmem>(seed, Durability::Power));
}

#[test]
fn data_larger_than_memory_is_split_into_buckets() {
    let mut rig = Rig::<OfWip>::new(7, Durability::Process);
    for number in 0..40_000u64 {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        rig.store()
            .put(Put { key: &key, value: &[number as u8; 100], expires_at: None }, Durably::Later)
            .unwrap();
        if number % 50 == 0 {
            rig.work();
        }
    }
    while rig.store().step(Chore::Flush, &|| false) == Rest::More {}
    while rig.store().step(Chore::Merge, &|| false) == Rest::More {}
    let disk = rig.store().stats().disk.unwrap();
    assert!(disk.buckets > 8 && disk.splits > 0, "{disk:?}");
    let user = 40_000 * 108;
    // L_max + N / (N - 1), and the formats' own bytes.
    let written = disk.table_bytes_written as f64 / user as f64;
    assert!(written < 4.5 + 0.5, "{written}");
    for number in 0..40_000u64 {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let value = rig.store().get(&key).unwrap().expect("a key that was put");
        assert_eq!(*value, [number as u8; 100]);
    }
    rig.restart();
    assert_eq!(rig.contents().len(), 40_000);
}

/// A batch fills a MemTable's chunks, and its last, short value would still fit into the full one.
#[test]
fn batch_longer_than_a_memtable_survives_a_kill() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let settings = settings(Durability::Process, &clock);
    let store = Wip::create(files.clone(), Path::new(PATH), settings.clone()).unwrap();
    let long = vec![7; 20 << 10];
    let keys: Vec<[u8; 4]> = (0..80u32).map(u32::to_be_bytes).collect();
    let value = |nth: usize| if nth.is_multiple_of(79) { &b"short"[..] } else { &long };
    let puts: Vec<Put<'_>> =
        (0..keys.len()).map(|nth| Put { key: &keys[nth], value: value(nth), expires_at: None }).collect();
    store.put_many(&puts, Durably::Store).into_iter().for_each(|done| done.unwrap());
    let _ = store.step(Chore::Flush, &|| false);
    drop(store);
    let store = Wip::open(files, Path::new(PATH), settings).unwrap();
    for (nth, key) in keys.iter().enumerate() {
        let found = store.get(key).unwrap();
        assert!(found.is_some_and(|found| *found == *value(nth)), "{nth}");
    }
}
