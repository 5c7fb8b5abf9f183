//! Slots that go from node to node, and nodes that end.

use super::{Cluster, wait_until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace::{ManualClock, PutOptions, ReadError, Store, WriteError};
use terrace_conformance::Site;
use terrace_protocol::slot;
use terrace_server::routing::Place;

fn cluster(nodes: usize) -> Cluster {
    Cluster::new(Arc::new(ManualClock::at(Site::STARTED))).start(nodes)
}

/// The entry of a key, at the node that owns it.
fn get(stores: &[Store], key: &str) -> Vec<u8> {
    loop {
        for store in stores {
            match store.get(key) {
                Ok(value) => return value.expect("a key that was written").to_vec(),
                Err(ReadError::NotOwner { .. } | ReadError::Unavailable(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        std::thread::yield_now();
    }
}

/// Puts at the node that owns the key.
fn put(stores: &[Store], key: &str, value: &str) {
    loop {
        for store in stores {
            match store.put(key, value) {
                Ok(()) => return,
                Err(WriteError::NotOwner { .. } | WriteError::Unavailable(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        std::thread::yield_now();
    }
}

#[test]
fn key_of_another_node_is_refused() {
    let cluster = cluster(2);
    let (first, second) = (cluster.store(0), cluster.store(1));
    let (low, high) = ((0..).map(|nth| format!("{nth}")), (0..).map(|nth| format!("{nth}")));
    let low = low.clone().find(|key| slot(key.as_bytes()) < 8192).unwrap();
    let high = high.clone().find(|key| slot(key.as_bytes()) >= 8192).unwrap();
    first.put(&low, b"value").unwrap();
    assert!(matches!(second.put(&low, b"value"), Err(WriteError::NotOwner { .. })));
    assert!(matches!(second.get(&low), Err(ReadError::NotOwner { .. })));
    assert!(matches!(first.get(&high), Err(ReadError::NotOwner { .. })));
}

#[test]
fn all_that_was_written_moves_with_its_slot() {
    let mut cluster = cluster(2);
    let stores = [cluster.store(0), cluster.store(1)];
    for round in 0..6 {
        for key in 0..300 {
            put(&stores, &format!("key {key}"), &format!("{round} {key}"));
        }
        let nodes: &[usize] = [&[0][..], &[1], &[0, 1]][round % 3];
        cluster.spread(nodes);
        for key in 0..300 {
            let key = format!("key {key}");
            assert_eq!(get(&stores, &key), format!("{round} {}", &key[4..]).into_bytes());
        }
        let keys: u64 = stores.iter().map(|store| store.len()).sum();
        assert_eq!(keys, 300, "round {round}");
    }
}

#[test]
fn map_of_an_earlier_epoch_changes_nothing() {
    let mut cluster = cluster(2);
    let before = cluster.map.clone();
    cluster.spread(&[1]);
    let node = &cluster.nodes[0];
    let epoch = node.routing().shape().epoch();
    node.set_map(epoch - 1, &before);
    assert_eq!((node.routing().shape().epoch(), node.slots()), (epoch, 0));
    // The other node may serve the slots before this one hears that they are released.
    wait_until("the release", || matches!(node.routing().place(0, false), Place::There(_)));
}

/// Keys of a slot that is on its way would be left.
#[test]
fn clear_waits_for_slots_that_move() {
    let mut cluster = cluster(2);
    let stores = [cluster.store(0), cluster.store(1)];
    for key in 0..100 {
        put(&stores, &format!("key {key}"), "value");
    }
    // The second node knows a map that gives it all slots. The first one does not know it.
    let all = terrace_cluster::slot::SlotRange::new(0, 16_383).unwrap();
    cluster.map.slots = [(cluster.map.nodes[1].id.clone(), vec![all])].into();
    let epoch = cluster.nodes[1].routing().shape().epoch() + 1;
    cluster.nodes[1].set_map(epoch, &cluster.map);
    assert!(matches!(stores[1].clear(), Err(WriteError::NotOwner { .. })));
    assert_eq!(stores.iter().map(Store::len).sum::<u64>(), 100, "nothing was removed");
    cluster.nodes[0].set_map(epoch, &cluster.map);
    cluster.wait_for_all();
    wait_until("the clear", || stores[1].clear().is_ok());
    assert_eq!(stores[1].len(), 0);
}

#[test]
fn nodes_whose_clocks_are_an_hour_apart_keep_everything() {
    let mut cluster = cluster(1);
    cluster.clock = Arc::new(ManualClock::at(Site::STARTED + 3_600_000));
    cluster.add();
    let stores = [cluster.store(0), cluster.store(1)];
    let later = PutOptions::new().expires_at(Some(Site::STARTED + 2 * 3_600_000));
    stores[0].put_with(b"expires", b"value", later).unwrap();
    for round in 0..3 {
        for key in 0..100 {
            put(&stores, &format!("key {key}"), &format!("{round}"));
        }
        let nodes: &[usize] = [&[0, 1][..], &[1], &[0]][round];
        cluster.spread(nodes);
        for key in 0..100 {
            assert_eq!(get(&stores, &format!("key {key}")), format!("{round}").into_bytes());
        }
        assert_eq!(get(&stores, "expires"), b"value");
    }
}

#[test]
fn increments_survive_handovers_under_load() {
    let mut cluster = cluster(2);
    let stores = [cluster.store(0), cluster.store(1)];
    let (is_over, counted) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (stores, is_over, counted) = (&stores, &is_over, &counted);
            scope.spawn(move || {
                for nth in 0_usize.. {
                    if is_over.load(Relaxed) {
                        break;
                    }
                    let (key, store) = (format!("counter {}", (nth + thread) % 7), &stores[nth % 2]);
                    match store.increment(&key, 1) {
                        Ok(_) => _ = counted.fetch_add(1, Relaxed),
                        Err(error) => assert!(error.to_string().contains("slot"), "{error}"),
                    }
                }
            });
        }
        for round in 0..20 {
            let nodes: &[usize] = [&[0][..], &[1], &[0, 1]][round % 3];
            cluster.spread(nodes);
        }
        is_over.store(true, Relaxed);
    });
    let sum: u64 = (0..7)
        .map(|nth| format!("counter {nth}"))
        .filter(|key| stores.iter().any(|store| store.contains(key).unwrap_or(false)))
        .map(|key| String::from_utf8(get(&stores, &key)).unwrap().parse::<u64>().unwrap())
        .sum();
    println!("{sum} increments over 20 handovers");
    assert_eq!(sum, counted.load(Relaxed));
}

#[test]
fn memory_node_that_starts_again_has_everything() {
    let mut cluster = cluster(2);
    let stores = [cluster.store(0), cluster.store(1)];
    for round in 0..3 {
        (0..100).for_each(|key| put(&stores, &format!("key {key}"), &format!("{round}")));
        cluster.stop_memory();
        cluster.start_memory();
        cluster.wait_for_all();
        (0..100).for_each(|key| {
            assert_eq!(get(&stores, &format!("key {key}")), format!("{round}").into_bytes());
        });
    }
}

#[test]
fn node_that_ends_leaves_its_slots_at_once() {
    let mut cluster = cluster(2);
    let stores = [cluster.store(0), cluster.store(1)];
    (0..100).for_each(|key| put(&stores, &format!("key {key}"), "value"));
    let [first, second] = stores;
    drop(first);
    let mut gone = cluster.nodes.remove(0);
    gone.stop();
    cluster.map.slots.clear();
    let all = vec![terrace_cluster::slot::SlotRange::new(0, 16_383).unwrap()];
    cluster.map.slots.insert(cluster.map.nodes[1].id.clone(), all);
    cluster.publish();
    wait_until("the takeover", || cluster.nodes[0].slots() == 16_384);
    (0..100).for_each(|key| assert!(second.get(format!("key {key}")).unwrap().unwrap() == b"value"));
}
