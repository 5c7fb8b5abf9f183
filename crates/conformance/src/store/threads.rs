//! Several threads on one store.

use super::{Site, assert_sound, contents};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use terrace::{CURSOR_LIMIT, Change, Cursor, Put, Store, WriteError};
use terrace_testkit::crash::RandomSource;
use terrace_testkit::times;

const THREADS: usize = 4;

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

fn read(store: &Store, key: &[u8]) -> u64 {
    store.get(key).unwrap().map_or(0, |value| number(&value))
}

pub(super) fn increments_add_up(make: &impl Fn() -> Site) {
    const EACH: u64 = 3000;
    let site = make();
    let store = site.open();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = store.clone();
            scope.spawn(move || {
                let mut draws = RandomSource::new(thread as u64);
                for _ in 0..EACH {
                    store.increment([b'c', draws.roll(8) as u8], 1).unwrap();
                }
            });
        }
    });
    let sum: u64 = (0..8).map(|n| read(&store, &[b'c', n])).sum();
    assert_eq!(sum, THREADS as u64 * EACH);
    assert_sound(&store);
}

pub(super) fn modify_loses_nothing(make: &impl Fn() -> Site) {
    let site = make();
    let store = site.open();
    thread::scope(|scope| {
        for thread in 0..THREADS as u8 {
            let store = store.clone();
            scope.spawn(move || {
                for n in 0..500u16 {
                    let tag = [&[thread][..], &n.to_le_bytes()].concat();
                    let push = |value: &mut Vec<u8>| value.extend(&tag);
                    store
                        .modify(b"list", |entry| {
                            let mut value = entry.map_or(Vec::new(), |entry| entry.value.to_vec());
                            push(&mut value);
                            (Change::Put { value, expires_at: None }, ())
                        })
                        .unwrap();
                }
            });
        }
    });
    let list = store.get(b"list").unwrap().unwrap().to_vec();
    assert_eq!(list.len(), THREADS * 500 * 3);
    for thread in 0..THREADS as u8 {
        let mine = list.chunks(3).filter(|tag| tag[0] == thread);
        assert!(mine.map(|tag| u16::from_le_bytes([tag[1], tag[2]])).eq(0..500));
    }
}

/// Writers move amounts between accounts by transactions; readers always see the same total.
pub(super) fn batches_are_atomic(make: &impl Fn() -> Site) {
    const ACCOUNTS: u64 = 6;
    const EACH: u64 = 1000;
    let site = make();
    let store = site.open();
    let keys: Vec<Vec<u8>> = (0..ACCOUNTS).map(|n| format!("account {n}").into_bytes()).collect();
    keys.iter().for_each(|key| store.put(key, EACH.to_string().as_bytes()).unwrap());
    let (done, snapshots) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|thread| {
                let (store, keys) = (store.clone(), &keys);
                scope.spawn(move || transfer(&store, keys, thread))
            })
            .collect();
        for _ in 0..2 {
            let (store, keys, done, snapshots) = (store.clone(), &keys, &done, &snapshots);
            scope.spawn(move || {
                // At least once, however late this thread is scheduled.
                loop {
                    assert_eq!(total(&store, keys), ACCOUNTS * EACH);
                    snapshots.fetch_add(1, Ordering::Relaxed);
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let joined: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        joined.into_iter().for_each(|joined| joined.unwrap());
    });
    assert_eq!(total(&store, &keys), ACCOUNTS * EACH);
    assert!(snapshots.into_inner() > 0);
    assert_sound(&store);
}

fn total(store: &Store, keys: &[Vec<u8>]) -> u64 {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut total = 0;
    store
        .snapshot_many(&keys, &mut |_, entry| total += entry.unwrap().map_or(0, |entry| number(entry.value)));
    total
}

/// Moves amounts. An account of 0 is removed, so that slots are freed and reused.
fn transfer(store: &Store, keys: &[Vec<u8>], thread: u64) {
    let mut draws = RandomSource::new(thread + 100);
    for _ in 0..1000 * times() {
        let (from, to) = (draws.roll(keys.len() as u64) as usize, draws.roll(keys.len() as u64) as usize);
        let amount = draws.roll(1500);
        store
            .transaction(|transaction| {
                let read = |value: Option<terrace::Value<'_>>| value.map_or(0, |value| number(&value));
                let (old_from, old_to) =
                    (read(transaction.get(&keys[from]).unwrap()), read(transaction.get(&keys[to]).unwrap()));
                if from == to || old_from < amount {
                    return Ok(());
                }
                match old_from - amount {
                    0 => drop(transaction.remove(&keys[from])?),
                    rest => transaction.put(&keys[from], rest.to_string().as_bytes())?,
                }
                transaction.put(&keys[to], (old_to + amount).to_string().as_bytes())
            })
            .unwrap();
    }
}

/// Batches always write two keys together; single reads never see the second older than the first.
pub(super) fn readers_never_go_back_in_time(make: &impl Fn() -> Site) {
    let site = make();
    let store = site.open();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (store, done) = (store.clone(), &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let (first, second) = (read(&store, b"one"), read(&store, b"two"));
                    assert!(second >= first, "{first}, then {second}");
                    let (first, second) = (read(&store, b"two"), read(&store, b"one"));
                    assert!(second >= first, "{first}, then {second}");
                }
            });
        }
        for n in 1..2000 * times() {
            let text = n.to_string();
            let mut batch = store.batch();
            batch.put(b"one", text.as_bytes()).put(b"two", text.as_bytes());
            batch.commit().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// A key that a transaction has only read does not change before it commits: of two transactions
/// that read both keys and write one each, one does not write (write skew).
pub(super) fn transactions_are_serializable(make: &impl Fn() -> Site) {
    let site = make();
    let store = site.open();
    for round in 0..150 * times() {
        store.put(b"x", b"0").unwrap();
        store.put(b"y", b"0").unwrap();
        let barrier = std::sync::Barrier::new(2);
        let wrote: Vec<bool> = thread::scope(|scope| {
            let threads = [(b"x", b"y"), (b"y", b"x")].map(|(mine, other)| {
                let (store, barrier) = (store.clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let run = |transaction: &mut terrace::Transaction<'_>| {
                        let free = transaction.get(other).unwrap().unwrap() == b"0";
                        if free {
                            transaction.put(mine, b"1")?;
                        }
                        Ok::<_, WriteError>(free)
                    };
                    store.transaction(run).unwrap()
                })
            });
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(wrote.iter().filter(|&&wrote| wrote).count(), 1, "round {round}");
    }
}

/// All operations at once on few keys: nothing breaks, and each value read was written as a whole.
pub(super) fn everything_at_once(make: &impl Fn() -> Site) {
    let site = make();
    let store = site.open();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = store.clone();
            scope.spawn(move || hammer(&store, thread as u64));
        }
    });
    assert_sound(&store);
    store.clear().unwrap();
    assert!(contents(&store).is_empty());
}

fn written_whole(key: &[u8], value: &[u8]) {
    assert!(value.windows(2).all(|pair| pair[0] == pair[1]), "{key:?}: {} bytes, torn", value.len());
}

fn hammer(store: &Store, seed: u64) {
    let mut draws = RandomSource::new(seed);
    for round in 0..2500 * times() {
        let key = [b'h', draws.roll(40) as u8];
        let lens = [0, 10, 100, 4096, 4097, 9000];
        let value = vec![draws.roll(256) as u8; lens[draws.roll(6) as usize]];
        match draws.roll(10) {
            0..3 => store.put(key, &value).unwrap(),
            3 => drop(store.remove(key).unwrap()),
            4 => {
                let at = Some(draws.roll(2_000_000));
                store.modify(key, |_| (Change::Expire(at), ())).unwrap();
            }
            5 => {
                let second = [b'h', draws.roll(40) as u8];
                let mut batch = store.batch();
                batch.put(key, &value).remove(second).put([b'h', 200], &value);
                batch.commit().unwrap();
            }
            6 => {
                let put = |key| Put { key, value: &value, expires_at: None };
                assert!(store.put_many(&[put(&key), put(b"other"), put(&key)]).iter().all(Result::is_ok));
            }
            7 => {
                let keys: Vec<[u8; 2]> = (0..40).map(|n| [b'h', n]).collect();
                let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                store.get_many(&keys, &mut |nth, entry| {
                    entry.unwrap().iter().for_each(|entry| written_whole(keys[nth], entry.value));
                });
            }
            8 => {
                let from = match store.is_ordered() {
                    true => Cursor::after(&key),
                    false => Cursor::from_number(draws.roll(CURSOR_LIMIT)).unwrap(),
                };
                store.scan(&from, 20, &mut |key, entry| written_whole(key, entry.value)).unwrap();
            }
            _ if round % 500 == 0 => drop(store.upkeep().sweep_expired(100)),
            _ => store.get(key).unwrap().iter().for_each(|value| written_whole(&key, value)),
        }
    }
}

/// A scan during growth and shrinking visits each key that is present throughout.
pub(super) fn scans_miss_no_stable_key(make: &impl Fn() -> Site) {
    let site = make();
    let store = site.open();
    (0..2000u32).for_each(|n| store.put(n.to_le_bytes(), b"stays").unwrap());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..60_000u32 {
                store.put(format!("comes {n}").as_bytes(), b"goes").unwrap();
            }
            for n in 0..60_000u32 {
                store.remove(format!("comes {n}").as_bytes()).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut scans = 0;
        while !done.load(Ordering::Relaxed) || scans == 0 {
            let found = contents(&store);
            assert!((0..2000u32).all(|n| found.contains_key(&n.to_le_bytes()[..])));
            scans += 1;
        }
    });
    assert_eq!(contents(&store).len(), 2000);
    assert_sound(&store);
}

/// A value that is held does not change.
pub(super) fn held_value_does_not_change(make: &impl Fn() -> Site) {
    let site = make();
    let store = site.open();
    store.put(b"key", [1; 5000]).unwrap();
    let held = store.get(b"key").unwrap().unwrap();
    for n in 0..200u8 {
        store.put(b"key", [n; 5000]).unwrap();
    }
    assert_eq!(*held, [1; 5000]);
    drop(held);
    assert_eq!(*store.get(b"key").unwrap().unwrap(), [199; 5000]);
}
