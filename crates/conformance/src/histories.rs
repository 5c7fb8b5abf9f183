//! Short histories of a few keys and threads, each checked on its own.

use super::concurrent::run_together;
use super::subject::{Make, Setup, Subject};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use terrace_testkit::{Call, Operation, linearizable, times};

const KEYS: u64 = 3;
const ROUNDS: u64 = 60;
/// Total of all threads, so that the check takes no longer with eight threads than with two.
const CALLS: u64 = 72;

/// The answers for each key fit one order of the calls, also during resizes.
pub(super) fn are_linearizable(make: Make<'_>) {
    for round in 0..ROUNDS * times() {
        let subject = Subject::new(make(Setup::of_bytes(16 << 20)), 0..KEYS + 400);
        let clock = AtomicU64::new(0);
        let threads = 2 + round % 7;
        let calls = CALLS / threads;
        let histories = run_together(threads + 1, |thread| {
            if thread == threads {
                churn(&subject);
                return Vec::new();
            }
            let mut random = round * 16 + thread;
            (0..calls).map(|i| call(&subject, &clock, &mut random, thread * calls + i + 1)).collect()
        });
        let mut by_key = BTreeMap::<u64, Vec<Call>>::new();
        for (number, call) in histories.into_iter().flatten() {
            by_key.entry(number).or_default().push(call);
        }
        for (number, calls) in by_key {
            assert!(linearizable(None, &calls), "round {round}, key {number}: no order explains {calls:#?}");
        }
    }
}

/// Adds and removes other keys, so that the table grows and shrinks.
fn churn(subject: &Subject) {
    (KEYS..subject.keys()).for_each(|number| _ = subject.pin().insert(number, 1));
    (KEYS..subject.keys()).for_each(|number| _ = subject.pin().remove(number));
}

/// Makes a random call and returns it with its times and answer. (Words are leaked; histories are
/// short.)
fn call(subject: &Subject, clock: &AtomicU64, random: &mut u64, version: u64) -> (u64, Call) {
    *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    let (number, choice) = ((*random >> 40) % KEYS, (*random >> 33) % 8);
    let (key, pin) = (subject.key(number), subject.pin());
    let (index, word) = (&pin.raw, pin.word(number, version).expect("room"));
    let seen = if choice >= 6 { index.get(key) } else { None };
    if *random >> 60 == 0 {
        std::thread::yield_now();
    }
    let called = clock.fetch_add(1, SeqCst);
    let operation = match choice {
        0 | 1 => Operation::Get(index.get(key)),
        2 => Operation::Insert(word, index.insert(key, word).expect("room")),
        3 => Operation::Update(word, index.update(key, word)),
        4 => Operation::Upsert(word, index.upsert(key, word).expect("room")),
        5 => Operation::Remove(index.remove(key)),
        choice => {
            let new = (choice == 6).then_some(word);
            Operation::Swap(seen, new, index.compare_and_swap(key, seen, new).expect("room"))
        }
    };
    let returned = clock.fetch_add(1, SeqCst);
    (number, Call { called, returned, operation })
}
