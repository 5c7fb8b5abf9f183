//! Tests: threads that read and write the tiered engine while blocks are sealed, freed, rewritten
//! and gathered, and copies come and go.

use crate::fixtures::{contents, create, open, settings};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use terrace_engine::{
    Change, Chore, Durability, Durably, Engine, Entry, ManualClock, OnDisk, Put, Write, WriteKind,
};
use terrace_testkit::simfs::SimFs;
use terrace_testkit::{Interval, final_states};
use terrace_tiered::Tiered;

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

/// Two keys that are written at one instant.
fn pair() -> [[u8; 8]; 2] {
    [key(u64::MAX), key(u64::MAX - 1)]
}

fn write_pair(store: &Tiered, round: u64) {
    let (text, pair) = (value(7, round), pair());
    let writes =
        pair.each_ref().map(|key| Write { key, what: WriteKind::Put { value: &text, expires_at: None } });
    store.commit(&writes, &[], Durably::Later).unwrap();
}

/// Writes the keys of one writer in rounds, and notes the rounds.
fn write_rounds(store: &Tiered, seen: &[AtomicU64], writer: u64) {
    for round in 1..=ROUNDS {
        for number in (writer..KEYS).step_by(WRITERS as usize) {
            let text = value(number, round);
            let put = Put { key: &key(number), value: &text, expires_at: None };
            store.put(put, Durably::Later).unwrap();
            seen[number as usize].store(round, Relaxed);
        }
        if writer == 0 {
            write_pair(store, round);
        }
    }
}

/// Reads keys in any order: no round is older than the one that was noted.
fn read_rounds(store: &Tiered, seen: &[AtomicU64], is_over: &AtomicBool, reader: u64) {
    let (mut number, pair) = (reader, pair());
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
}

/// Has records move between DRAM and files.
fn keep_moving(store: &Tiered, is_over: &AtomicBool) {
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
}

/// Each key is written by one thread, in rounds, and is read by all: no reader sees a round go
/// back. Two keys that are written at one instant have the same round in every snapshot.
#[test]
fn readers_never_go_back_while_records_move() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = create(&files, settings(Durability::Process, &clock));
    let is_over = AtomicBool::new(false);
    let seen: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    write_pair(&store, 0);
    std::thread::scope(|scope| {
        let (store, seen, is_over) = (&store, &seen, &is_over);
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write_rounds(store, seen, writer))).collect();
        for reader in 0..2u64 {
            scope.spawn(move || read_rounds(store, seen, is_over, reader));
        }
        scope.spawn(move || keep_moving(store, is_over));
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
            for turn in 0.. {
                store.drop_oldest_copies(turn % 4 != 0);
                if is_over.load(Relaxed) {
                    break;
                }
            }
        });
        let scans: Vec<usize> = (0..60).map(|_| contents(store).unwrap().len()).collect();
        is_over.store(true, Relaxed);
        assert!(scans.iter().all(|found| *found == KEYS as usize), "{scans:?}");
    });
}

/// A reader that has met the old index goes on with what is there now.
#[test]
fn reads_beside_a_clear_find_a_value_or_nothing() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = create(&files, settings(Durability::Process, &clock));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, is_over) = (&store, &is_over);
        let reader = scope.spawn(move || {
            let mut found = 0u64;
            while !is_over.load(Relaxed) {
                let value = store.get(&key(1)).unwrap();
                found += u64::from(value.is_some_and(|value| round_of(1, &value) == 1));
            }
            found
        });
        for _ in 0..200 {
            store.put(Put { key: &key(1), value: &value(1, 1), expires_at: None }, Durably::Later).unwrap();
            OnDisk::flush(store).unwrap();
            store.evict();
            std::thread::yield_now();
            store.clear(Durably::Store).unwrap();
        }
        is_over.store(true, Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}

/// Two threads write each key at the same time. What an open finds is what readers saw last.
#[test]
fn log_has_the_order_of_writes() {
    const SAME: u64 = 500;
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = create(&files, settings(Durability::Process, &clock));
    let together = Barrier::new(2);
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (store, together) = (&store, &together);
            scope.spawn(move || {
                for number in 0..SAME {
                    together.wait();
                    for nth in 0..3 {
                        let text = (2 * nth + writer).to_le_bytes();
                        let put = Put { key: &key(number), value: &text, expires_at: None };
                        store.put(put, Durably::Later).unwrap();
                    }
                }
            });
        }
    });
    OnDisk::sync(&store).unwrap();
    let seen = contents(&store).unwrap();
    drop(store);
    assert!(contents(&open(&files, settings(Durability::Process, &clock))).unwrap() == seen);
}

/// A call on a key, and its answer.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Get(Option<u64>),
    Put(u64),
    Delete,
    /// What it found, and what it left.
    Modify(Option<u64>, Option<u64>),
}

impl Answer {
    fn apply(self, state: Option<u64>) -> Option<Option<u64>> {
        match self {
            Self::Get(found) => (found == state).then_some(state),
            Self::Put(value) => Some(Some(value)),
            Self::Delete => Some(None),
            Self::Modify(found, left) => (found == state).then_some(left),
        }
    }
}

fn number_in(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a number"))
}

/// Makes a call that a draw chooses. Values have the same length, so that they change in place.
fn call(store: &impl Engine, key: &[u8], draw: u64, fresh: u64) -> Answer {
    let text = fresh.to_le_bytes();
    match draw % 8 {
        0..3 => Answer::Get(store.get(key).unwrap().map(|value| number_in(&value))),
        3 | 4 => {
            store.put(Put { key, value: &text, expires_at: None }, Durably::Later).unwrap();
            Answer::Put(fresh)
        }
        5 => {
            store.delete(key, Durably::Later).unwrap();
            Answer::Delete
        }
        choice => {
            let left = (choice == 6).then_some(fresh);
            let mut found = None;
            let mut change = |old: Option<Entry<'_>>| {
                found = old.map(|entry| number_in(entry.value));
                let put = Change::Put { value: text.to_vec(), expires_at: None };
                if left.is_some() { put } else { Change::Remove }
            };
            store.modify(key, &mut change, Durably::Later).unwrap();
            Answer::Modify(found, left)
        }
    }
}

/// Moves records between DRAM, copies and files all the time.
fn move_records(store: &Tiered, turn: u64) {
    match turn % 6 {
        0 => OnDisk::flush(store).unwrap(),
        1 => store.evict(),
        2 => store.drop_oldest_copies(turn % 12 < 6),
        3 => OnDisk::compact(store, Bound::Unbounded, Bound::Unbounded).unwrap(),
        _ => _ = store.step(Chore::Flush, &|| false),
    }
}

/// The answers of each key fit one order of the calls, and so does what an open finds.
#[test]
fn calls_fit_one_order_while_records_move() {
    const SAME: u64 = 3;
    const CALLS: u64 = 90;
    for round in 0..150u64 {
        let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
        let store = create(&files, settings(Durability::Process, &clock));
        let (ticks, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let threads = 2 + round % 3;
        let calls: Vec<(u64, Interval, Answer)> = std::thread::scope(|scope| {
            let (store, ticks, is_over) = (&store, &ticks, &is_over);
            let run = move |thread: u64| {
                let mut draw = round << 8 | thread;
                let mut calls = Vec::new();
                for nth in 0..CALLS * SAME / 3 / threads {
                    draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let number = (draw >> 40) % SAME;
                    let called = ticks.fetch_add(1, SeqCst);
                    let answer = call(store, &key(number), draw >> 33, thread << 32 | nth);
                    let returned = Some(ticks.fetch_add(1, SeqCst));
                    calls.push((number, Interval { called, returned }, answer));
                    if draw >> 62 == 0 {
                        std::thread::yield_now();
                    }
                }
                calls
            };
            let writers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            scope.spawn(move || {
                (0..).take_while(|_| !is_over.load(SeqCst)).for_each(|turn| move_records(store, turn))
            });
            let calls = writers.into_iter().map(|writer| writer.join()).collect::<Vec<_>>();
            is_over.store(true, SeqCst);
            calls.into_iter().flat_map(|calls| calls.unwrap()).collect()
        });
        OnDisk::sync(&store).unwrap();
        drop(store);
        let store = open(&files, settings(Durability::Process, &clock));
        for number in 0..SAME {
            let of_key = calls.iter().filter(|(of, ..)| *of == number);
            let (intervals, answers): (Vec<Interval>, Vec<Answer>) =
                of_key.map(|(_, interval, answer)| (*interval, *answer)).unzip();
            let ends = final_states(None, &intervals, |nth, state| answers[nth].apply(*state));
            assert!(!ends.is_empty(), "round {round}, key {number}: no order explains {answers:?}");
            let left = store.get(&key(number)).unwrap().map(|value| number_in(&value));
            assert!(ends.contains(&left), "round {round}, key {number}: {left:?} is left, not {ends:?}");
        }
    }
}
