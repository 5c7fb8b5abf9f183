//! Tests: in a full pool, data is kept, writes that do not fit are refused, removals and reads
//! work, and memory is reused.

use crate::common::{MEDIA, Site, assert_sound};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use terrace::{ByteSize, Change, Index, Put, Store, WriteError};
use terrace_testkit::times;

fn is_full<T>(done: &Result<T, WriteError>) -> bool {
    matches!(done, Err(WriteError::PoolFull { .. }))
}

fn fill(store: &Store, len: usize) -> u32 {
    (0..).find(|n: &u32| is_full(&store.put(n.to_le_bytes(), vec![*n as u8; len]))).unwrap()
}

#[test]
fn full_pool_can_be_emptied_and_refilled() {
    for medium in MEDIA {
        for (len, other) in [(100, 3000), (3000, 100), (20_000, 500)] {
            let site = Site::new(medium, ByteSize::mib(2));
            let store = site.create();
            let first = fill(&store, len);
            assert!(first as usize * len > 1 << 20, "{first} values of {len} bytes fill 2 MiB");
            assert_eq!(store.len(), u64::from(first));
            for n in 0..first {
                assert_eq!(store.get(n.to_le_bytes()).unwrap().unwrap(), &vec![n as u8; len]);
            }
            for n in 0..first {
                assert_eq!(store.remove(n.to_le_bytes()), Ok(true), "{medium:?}, {len}: {n} of {first}");
            }
            assert!(store.is_empty());
            // Another size, so that slabs must change their class.
            let second = fill(&store, other);
            assert!(
                second as usize * other > 1 << 20,
                "{medium:?}: {second} values of {other} after {first} of {len}"
            );
            store.clear().unwrap();
            // Large blocks again; the index lies somewhere between.
            let third = fill(&store, 50_000);
            assert!(third >= 15, "{medium:?}: {third} values of 50,000 bytes after {second} of {other}");
            assert_eq!(store.stats().pool.unwrap().lost_bytes, 0);
            assert_sound(&store);
        }
    }
}

/// The index shrinks when it is emptied, and retires many buckets at once while there is no memory
/// to record them in limbo.
#[test]
fn clear_of_full_pool_loses_no_memory() {
    for _ in 0..50 * times() {
        let site = Site::new(MEDIA[0], ByteSize::mib(2));
        let store = site.create();
        fill(&store, 3000);
        store.clear().unwrap();
        fill(&store, 100);
        store.clear().unwrap();
        assert_eq!(store.stats().pool.unwrap().lost_bytes, 0);
    }
}

/// Empties full pools while a reader repeatedly blocks reclamation for a moment.
fn empty_during_reads(rounds: u32, empty: impl Fn(&Store)) {
    for _ in 0..rounds {
        let site = Site::new(MEDIA[0], ByteSize::mib(2));
        let store = site.create();
        fill(&store, 3000);
        store.clear().unwrap();
        let put = |n: u32| store.put_expiring(n.to_le_bytes(), [n as u8; 100], Duration::from_secs(1));
        store.put(b"held", b"").unwrap();
        (0..).find(|&n| is_full(&put(n))).unwrap();
        site.clock.advance(1000);
        let is_empty = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_empty.load(Relaxed) {
                    let held = store.get(b"held").unwrap();
                    (0..2000u32).for_each(|_| assert!(store.get(b"none").unwrap().is_none()));
                    drop(held);
                }
            });
            empty(&store);
            is_empty.store(true, Relaxed);
        });
        assert_eq!(store.stats().pool.unwrap().lost_bytes, 0);
        assert_sound(&store);
    }
}

/// `clear` waits before it retires more than limbo can record.
#[test]
fn clear_during_reads_loses_no_memory() {
    empty_during_reads(40, |store| store.clear().unwrap());
}

#[test]
fn sweep_during_reads_loses_no_memory() {
    empty_during_reads(40, |store| {
        while store.len() > 1 {
            store.upkeep().sweep_expired(1000);
        }
    });
}

#[test]
fn every_write_fails_unchanged_in_a_full_pool() {
    for medium in MEDIA {
        let site = Site::new(medium, ByteSize::mib(2));
        let store = site.create();
        store.put(b"key", b"value").unwrap();
        let count = fill(&store, 1000);
        // These reuse the memory of the entries that they replace.
        let count = count.max(fill(&store, 10));
        let before = crate::common::contents(&store);
        let big = vec![7; 300_000];
        assert!(is_full(&store.put(b"key", &big)));
        assert!(is_full(&store.put(b"new", &big)));
        assert!(is_full(
            &store.modify(b"key", |_| (Change::Put { value: big.clone(), expires_at: None }, ()))
        ));
        let mut batch = store.batch();
        batch.put(b"key", b"other").put(b"new", &big).remove(1u32.to_le_bytes());
        assert!(is_full(&batch.commit()));
        let put = |value| Put { key: b"key", value, expires_at: None };
        let each = store.put_many(&[put(&big), put(&big)]);
        assert!(each.len() == 2 && each.iter().all(is_full));
        assert!(crate::common::contents(&store) == before, "{medium:?}");
        assert_sound(&store);
        // Removals free memory.
        (0..count).for_each(|n| assert!(store.remove(n.to_le_bytes()).unwrap()));
        store.put(b"key", &big).unwrap();
        assert_eq!(store.get(b"key").unwrap().unwrap(), &big);
    }
}

#[test]
fn full_pool_can_be_overwritten_endlessly() {
    for medium in MEDIA {
        let site = Site::new(medium, ByteSize::mib(2));
        let store = site.create();
        let count = fill(&store, 500);
        (0..count / 10).for_each(|n| assert!(store.remove(n.to_le_bytes()).unwrap()));
        for round in 0..5u8 {
            for n in count / 10..count {
                store
                    .put(n.to_le_bytes(), [round; 500])
                    .unwrap_or_else(|error| panic!("{medium:?}, {round}: {error}"));
            }
        }
        assert_sound(&store);
    }
}

/// Free memory stays contiguous as far as possible: large values alternate with small ones.
#[test]
fn values_of_a_third_of_the_pool_can_be_overwritten() {
    for size in [ByteSize::mib(8), ByteSize::mib(37), ByteSize::mib(300)] {
        let store = Store::options().anonymous().huge_pages(false).size(size).create().unwrap();
        let large = size.as_bytes() as usize * 3 / 10;
        for round in 0..12u32 {
            let value = vec![round as u8; large];
            store.put(b"large", &value).unwrap_or_else(|error| panic!("{size:?}, {round}: {error}"));
            assert!(store.get(b"large").unwrap().unwrap() == &value);
            for n in 0..2000u32 {
                // An eighth of the pool in total.
                let len = (n * 37 + round * 101) as usize % (size.as_bytes() as usize / 8000);
                store.put(n.to_le_bytes(), vec![0; len]).unwrap();
            }
        }
        assert_sound(&store);
    }
}

#[test]
fn value_may_be_nearly_as_large_as_the_pool() {
    for size in [ByteSize::mib(2), ByteSize::mib(48), ByteSize::mib(300)] {
        let store = Store::options().anonymous().huge_pages(false).size(size).create().unwrap();
        let value = vec![7; size.as_bytes() as usize * 3 / 4];
        store.put(b"large", &value).unwrap();
        assert!(store.get(b"large").unwrap().unwrap() == &value);
        let refused = store.put(b"large", &value).unwrap_err().to_string();
        assert!(refused.contains("in one piece (the longest free range has "), "{refused}");
        store.remove(b"large").unwrap();
        store.put(b"other", &value).unwrap();
    }
}

/// Threads write into a full pool concurrently: none hangs, and nothing is lost.
#[test]
fn threads_share_a_full_pool() {
    for medium in MEDIA {
        let site = Site::new(medium, ByteSize::mib(2));
        let store = site.create();
        fill(&store, 700);
        std::thread::scope(|scope| {
            for thread in 0..3u32 {
                let store = store.clone();
                scope.spawn(move || {
                    for n in 0..3000u32 {
                        let key = (n % 1500 * 3 + thread).to_le_bytes();
                        match n % 3 {
                            0 => _ = store.remove(key).unwrap(),
                            _ => match store.put(key, vec![thread as u8; 100 + n as usize % 2000]) {
                                Ok(()) => drop(store.get(key).unwrap().unwrap()),
                                done => assert!(is_full(&done)),
                            },
                        }
                    }
                });
            }
        });
        assert_sound(&store);
    }
}

/// Memory that many writers free becomes available to some of them sooner than to others.
#[test]
fn pool_with_waiting_memory_is_not_full() {
    const THREADS: u64 = 24;
    for medium in MEDIA {
        let site = Site::new(medium, ByteSize::mib(8));
        let store = site.create();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let store = &store;
                scope.spawn(move || {
                    for n in 0..2000u64 {
                        let key = [thread.to_le_bytes(), (n % 4).to_le_bytes()].concat();
                        store.put(&key, [n as u8; 6000]).unwrap();
                    }
                });
            }
        });
        assert_sound(&store);
    }
}

/// A pool that was full of values of one size has room for any other, at once and through a
/// restart.
#[test]
fn pool_full_of_one_size_serves_every_size() {
    for index in Index::ALL {
        let site = Site::new(MEDIA[1], ByteSize::mib(16)).with_index(index);
        let store = site.create();
        let count = fill(&store, 1000);
        let kept = |n: &u32| n.wrapping_mul(0x9e37_79b9) >> 24 < 51;
        (0..count).filter(|n| !kept(n)).for_each(|n| assert!(store.remove(n.to_le_bytes()).unwrap()));
        store.close().unwrap();
        let store = site.open();
        for (nth, len) in [10, 100, 3000, 100_000].into_iter().enumerate() {
            for n in 0..(1 << 20) / (len as u32 + 200) {
                let key = [nth as u32, n].map(u32::to_le_bytes).concat();
                store
                    .put(&key, vec![n as u8; len])
                    .unwrap_or_else(|error| panic!("{index:?}, {len}: {error}"));
            }
        }
        let value = |n: u32| store.get(n.to_le_bytes()).unwrap();
        assert!((0..count).filter(kept).all(|n| value(n).unwrap() == &vec![n as u8; 1000]));
        assert_eq!(store.stats().pool.unwrap().lost_bytes, 0);
        assert_sound(&store);
    }
}

/// Only writes that need room sweep this store.
#[test]
fn full_pool_of_expired_entries_refuses_nothing() {
    for index in Index::ALL {
        let site = Site::new(MEDIA[1], ByteSize::mib(4)).with_index(index);
        let store = site.create();
        let put = |n: u32| store.put_expiring(n.to_le_bytes(), [n as u8; 1000], Duration::from_secs(1));
        let count = (0..).find(|&n| is_full(&put(n))).unwrap();
        site.clock.advance(2000);
        (count..2 * count).for_each(|n| store.put(n.to_le_bytes(), [n as u8; 900]).unwrap());
        assert_sound(&store);
    }
}
