//! Tests: threads that read and write the tiered engine while blocks are sealed, freed, rewritten
//! and gathered, and copies come and go.

use crate::tiered::{create, open, settings};
use crate::wip_script::contents;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use terrace_engine::{Chore, Durability, Durably, Engine, Entry, ManualClock, OnDisk, Put, Write, WriteKind};
use terrace_testkit::simfs::SimFs;

const KEYS: u64 = 3000;
const WRITERS: u64 = 2;
const ROUNDS: u64 = 8;

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// A value that tells its key and its round, and has another length each round.
fn value(number: u64, round: u64) -> Vec<u8> {
    let mut value = [number.to_le_bytes(), round.to_le_bytes()].concat();
    value.resize(16 + ((number * 31 + round * 57) % 400) as usize, round as u8);
    value
}

/// The round of a value; panics if it is not the key's.
fn round_of(number: u64, bytes: &[u8]) -> u64 {
    let round = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    assert!(bytes == value(number, round), "a value of key {number} that was never written");
    round
}

/// Each key is written by one thread, in rounds, and is read by all: no reader sees a round go
/// back. Two keys that are written at one instant have the same round in every snapshot.
#[test]
fn readers_never_go_back_while_records_move() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = create(&files, settings(Durability::Process, &clock));
    let is_over = AtomicBool::new(false);
    let seen: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let pair = [key(u64::MAX), key(u64::MAX - 1)];
    let write_pair = |round: u64| {
        let text = value(7, round);
        let writes =
            pair.each_ref().map(|key| Write { key, what: WriteKind::Put { value: &text, expires_at: None } });
        store.commit(&writes, &[], Durably::Later).unwrap();
    };
    write_pair(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (store, seen) = (&store, &seen);
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        for number in (writer..KEYS).step_by(WRITERS as usize) {
                            let text = value(number, round);
                            let put = Put { key: &key(number), value: &text, expires_at: None };
                            store.put(put, Durably::Later).unwrap();
                            seen[number as usize].store(round, Relaxed);
                        }
                        if writer == 0 {
                            write_pair(round);
                        }
                    }
                })
            })
            .collect();
        for reader in 0..2u64 {
            let (store, seen, is_over, pair) = (&store, &seen, &is_over, &pair);
            scope.spawn(move || {
                let mut number = reader;
                while !is_over.load(Relaxed) {
                    number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let nth = (number >> 33) % KEYS;
                    let before = seen[nth as usize].load(Relaxed);
                    let found = store.get(&key(nth)).unwrap();
                    let round = found.map_or(0, |found| round_of(nth, &found));
                    assert!(round >= before, "key {nth}: {round} after {before}");
                    let mut rounds = Vec::new();
                    store.snapshot_many(&[&pair[0], &pair[1]], &mut |_, entry| {
                        let entry: Option<Entry<'_>> = entry.unwrap();
                        rounds.push(round_of(7, entry.unwrap().value));
                    });
                    assert_eq!(rounds[0], rounds[1]);
                }
            });
        }
        let (store, is_over) = (&store, &is_over);
        scope.spawn(move || {
            let mut turn = 0u64;
            while !is_over.load(Relaxed) {
                turn += 1;
                store.step(Chore::Flush, &|| false);
                store.step(Chore::Merge, &|| false);
                store.step(Chore::Maintain, &|| false);
                if turn.is_multiple_of(3) {
                    OnDisk::flush(store).unwrap();
                }
                if turn.is_multiple_of(5) {
                    store.evict();
                }
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Relaxed);
        ended.into_iter().for_each(|writer| writer.unwrap());
    });
    let tier = store.stats().tier.unwrap();
    assert!(tier.cold_reads > 0 && tier.rewrites > 0 && tier.copy_hits > 0, "{tier:?}");
    for number in 0..KEYS {
        assert_eq!(round_of(number, &store.get(&key(number)).unwrap().unwrap()), ROUNDS);
    }
    assert_eq!(store.len().get(), KEYS + 2);
    Arc::new(store).close().unwrap();
    let store = open(&files, settings(Durability::Process, &clock));
    for number in 0..KEYS {
        assert_eq!(round_of(number, &store.get(&key(number)).unwrap().unwrap()), ROUNDS);
    }
}

/// Records move all the time between files and copies; no key is written.
#[test]
fn scan_finds_every_key_while_records_move() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = create(&files, settings(Durability::Process, &clock));
    for number in 0..KEYS {
        let text = value(number, 1);
        store.put(Put { key: &key(number), value: &text, expires_at: None }, Durably::Later).unwrap();
    }
    OnDisk::flush(&store).unwrap();
    store.evict();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, is_over) = (&store, &is_over);
        for reader in 0..2u64 {
            scope.spawn(move || {
                let mut number = reader;
                while !is_over.load(Relaxed) {
                    number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let nth = (number >> 33) % KEYS;
                    assert_eq!(round_of(nth, &store.get(&key(nth)).unwrap().unwrap()), 1);
                }
            });
        }
        scope.spawn(move || {
            while !is_over.load(Relaxed) {
                store.drop_oldest_copies();
            }
        });
        let scans: Vec<usize> = (0..60).map(|_| contents(store).unwrap().len()).collect();
        is_over.store(true, Relaxed);
        assert!(scans.iter().all(|found| *found == KEYS as usize), "{scans:?}");
    });
}
