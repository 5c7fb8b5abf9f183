//! Round trips, counted: they follow from the paper and from our layout, and are exact.

use super::{Cluster, wait_until};
use std::sync::Arc;
use terrace::ManualClock;
use terrace_conformance::Site;

const KEYS: u32 = 20_000;

fn cluster(cache_bytes: u64) -> Cluster {
    Cluster::new(Arc::new(ManualClock::at(Site::STARTED))).with(cache_bytes, 2).start(1)
}

#[test]
fn get_without_a_cache_takes_two_round_trips() {
    let cluster = cluster(1);
    let store = cluster.store(0);
    let puts: Vec<(String, Vec<u8>)> = (0..KEYS).map(|key| (format!("key {key}"), vec![7; 100])).collect();
    let later = store.deferring();
    puts.iter().for_each(|(key, value)| later.put(key, value).unwrap());
    store.settle(store.ticket()).unwrap();
    cluster.wait_for_merges(0);
    // While the index grows, a get may take a third one.
    wait_until("the growth", || !cluster.memory.as_ref().unwrap().stats().is_resizing);
    let before = cluster.figures(0);
    for (key, value) in &puts {
        assert!(store.get(key).unwrap().unwrap() == value);
    }
    let after = cluster.figures(0);
    let rounds = f64::from((after.read_rounds - before.read_rounds) as u32) / f64::from(KEYS);
    println!("{rounds:.3} round trips a get without a cache");
    // A few more, to read the root under each new pin and to follow chains.
    assert!((2.0..2.15).contains(&rounds), "{rounds} round trips");
    assert_eq!(after.asked, before.asked, "the memory node was asked");
}

#[test]
fn gets_together_share_their_round_trips() {
    let cluster = cluster(1);
    let store = cluster.store(0);
    let keys: Vec<String> = (0..1024).map(|key| format!("key {key}")).collect();
    keys.iter().for_each(|key| store.put(key, key).unwrap());
    cluster.wait_for_merges(0);
    let before = cluster.figures(0);
    for keys in keys.chunks(32) {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        store.get_many(&keys, &mut |nth, entry| assert_eq!(entry.unwrap().unwrap().value, keys[nth]));
    }
    let rounds = cluster.figures(0).read_rounds - before.read_rounds;
    println!("{rounds} round trips for {} gets, 32 together", keys.len());
    assert!(rounds <= 5 * 1024 / 32, "{rounds} round trips");
}

#[test]
fn value_in_the_cache_takes_no_round_trip() {
    let cluster = cluster(16 << 20);
    let store = cluster.store(0);
    store.put(b"key", b"value").unwrap();
    cluster.wait_for_merges(0);
    let before = cluster.figures(0);
    (0..1000).for_each(|_| assert!(store.get(b"key").unwrap().unwrap() == b"value"));
    assert_eq!(cluster.figures(0).read_rounds, before.read_rounds);
}

#[test]
fn writes_together_take_one_round_trip() {
    let cluster = cluster(16 << 20);
    let store = cluster.store(0);
    let later = store.deferring();
    let before = cluster.figures(0);
    for round in 0..100 {
        (0..16).for_each(|key| later.put(format!("key {key}"), format!("{round}")).unwrap());
        store.settle(store.ticket()).unwrap();
    }
    let after = cluster.figures(0);
    println!("{} writes of the log for 1600 puts, 16 together", after.log_writes - before.log_writes);
    assert_eq!(after.log_writes - before.log_writes, 100);
    store.put(b"key", b"value").unwrap();
    assert_eq!(cluster.figures(0).log_writes - after.log_writes, 1);
}

#[test]
fn change_of_segment_takes_no_further_round_trip() {
    let cluster = cluster(16 << 20);
    let store = cluster.store(0);
    let value = vec![7; 200 << 10];
    let before = cluster.figures(0);
    // 60 MB: some segments of each shard.
    (0..300).for_each(|key| store.put(format!("key {}", key % 40), &value).unwrap());
    assert_eq!(cluster.figures(0).log_writes - before.log_writes, 300);
}
