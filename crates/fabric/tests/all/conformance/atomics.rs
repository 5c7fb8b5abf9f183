//! Atomic operations.

use super::subject::{LONG, Subject, add, swap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_fabric::{Access, Endpoint, Fabric, Memory, Output};

pub(super) fn compare_and_swap_tells_the_word_before<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(8, Access::ReadWrite);
    let word = &served.memory.words()[3];
    word.store(u64::MAX - 1, Relaxed);
    let swapped = swap(served.region, 24, u64::MAX - 1, 9);
    assert_eq!(
        subject.perform_one(&mut served.connection, swapped.clone()),
        Ok(Output::Before(u64::MAX - 1))
    );
    assert_eq!(word.load(Relaxed), 9);
    assert_eq!(subject.perform_one(&mut served.connection, swapped), Ok(Output::Before(9)));
    assert_eq!(word.load(Relaxed), 9);
}

pub(super) fn fetch_add_wraps_around<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(8, Access::ReadWrite);
    let word = &served.memory.words()[7];
    word.store(u64::MAX, Relaxed);
    let added = add(served.region, 56, 3);
    assert_eq!(subject.perform_one(&mut served.connection, added.clone()), Ok(Output::Before(u64::MAX)));
    assert_eq!(subject.perform_one(&mut served.connection, added), Ok(Output::Before(2)));
    assert_eq!(word.load(Relaxed), 5);
}

/// Both count up the same word: one adds, one swaps.
pub(super) fn atomics_are_atomic_beside_the_targets_processor<S: Subject>() {
    const ROUNDS: u64 = 300;
    let mut subject = S::new();
    let mut served = subject.served(1, Access::ReadWrite);
    let (memory, by_target) = (served.memory.clone(), AtomicU64::new(0));
    let target_adds = || {
        memory.words()[0].fetch_add(1, Relaxed);
        by_target.fetch_add(1, Relaxed);
    };
    let adds = (0..ROUNDS).map(|_| add(served.region, 0, 1)).collect();
    let outcomes = subject.perform_beside(&mut served.connection, adds, LONG, &target_adds);
    let mut swapped = outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64;
    assert_eq!(swapped, ROUNDS);
    let mut known = 0;
    for _ in 0..ROUNDS {
        let one = vec![swap(served.region, 0, known, known + 1)];
        let outcomes = subject.perform_beside(&mut served.connection, one, LONG, &target_adds);
        let Ok(Output::Before(before)) = outcomes[0] else { panic!("{outcomes:?}") };
        swapped += u64::from(before == known);
        known = before + u64::from(before == known);
    }
    assert!(by_target.load(Relaxed) > 0);
    assert_eq!(memory.words()[0].load(Relaxed), swapped + by_target.load(Relaxed));
}

pub(super) fn atomics_of_two_peers_add_up<S: Subject>() {
    const ROUNDS: u64 = 100;
    let mut subject = S::new();
    let mut one = subject.served(1, Access::ReadWrite);
    let mut endpoint = subject.target().open().expect("an endpoint");
    let region = endpoint.register(one.memory.clone(), 0..8, Access::ReadWrite).expect("a region");
    let mut other = subject.initiator().connect(endpoint.address()).expect("a connection");
    let mut before = Vec::new();
    for _ in 0..ROUNDS {
        for outcome in [
            subject.perform_one(&mut one.connection, add(one.region, 0, 1)),
            subject.perform_one(&mut other, add(region, 0, 1)),
        ] {
            let Ok(Output::Before(word)) = outcome else { panic!("{outcome:?}") };
            before.push(word);
        }
    }
    assert_eq!(before, (0..2 * ROUNDS).collect::<Vec<_>>());
}
