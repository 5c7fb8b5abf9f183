//! Concurrent threads: conditions on each key that hold for every schedule.

use super::adversarial::look_alike;
use super::subject::{Make, Setup, Subject};
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_index::Place;

const THREADS: u64 = 4;

/// Runs `work` on threads that start together.
pub(super) fn run_together<R: Send>(threads: u64, work: impl Fn(u64) -> R + Sync) -> Vec<R> {
    let barrier = Barrier::new(threads as usize);
    let (barrier, work) = (&barrier, &work);
    std::thread::scope(|scope| {
        let start = |thread| {
            scope.spawn(move || {
                barrier.wait();
                work(thread)
            })
        };
        let handles: Vec<_> = (0..threads).map(start).collect();
        handles.into_iter().map(|handle| handle.join().expect("a thread of the test panicked")).collect()
    })
}

/// The numbers below `end`, in a different order for each thread.
fn shuffled(end: u64, thread: u64) -> impl Iterator<Item = u64> {
    // A step that shares no factor with any `end` used here visits every number once.
    let step = [1, 7919, 104_729, 1_299_709][thread as usize % 4];
    (0..end).map(move |i| (i * step + thread) % end)
}

/// All threads insert all keys: each key has one winner, and all other threads get the winner's
/// word.
pub(super) fn one_insert_wins(make: Make<'_>) {
    const KEYS: u64 = 5000;
    let subject = Subject::new(make(Setup::with_capacity(0)), 0..KEYS);
    let outcomes = run_together(THREADS, |thread| {
        let insert = |number| (number, subject.pin().insert(number, thread + 1).expect("room"));
        shuffled(KEYS, thread).map(insert).collect::<BTreeMap<_, _>>()
    });
    let mut model = BTreeMap::new();
    for number in 0..KEYS {
        let winners: Vec<u64> = (0..THREADS).filter(|&t| outcomes[t as usize][&number].is_none()).collect();
        assert_eq!(winners.len(), 1, "winners of key {number}");
        let version = winners[0] + 1;
        let losers = outcomes.iter().filter_map(|outcome| outcome[&number]);
        assert!(
            losers.into_iter().all(|present| present == version),
            "what the others found at key {number}"
        );
        model.insert(number, version);
    }
    subject.assert_holds(&model);
}

/// All threads remove all keys: each key is removed once.
pub(super) fn one_removal_wins(make: Make<'_>) {
    const KEYS: u64 = 5000;
    let subject = Subject::new(make(Setup::with_capacity(0)), 0..KEYS);
    for number in 0..KEYS {
        subject.pin().insert(number, number + 1).expect("room");
    }
    let outcomes = run_together(THREADS, |thread| {
        let remove = |number| (number, subject.pin().remove(number));
        shuffled(KEYS, thread).map(remove).collect::<BTreeMap<_, _>>()
    });
    for number in 0..KEYS {
        let got: Vec<u64> = outcomes.iter().filter_map(|outcome| outcome[&number]).collect();
        assert_eq!(got, [number + 1], "who removed key {number}");
    }
    subject.assert_holds(&BTreeMap::new());
}

/// Increments by compare-and-swap from several threads add up.
pub(super) fn no_increment_is_lost(make: Make<'_>) {
    const KEYS: u64 = 16;
    const EACH: u64 = 500;
    let subject = Subject::new(make(Setup::with_capacity(0)), 0..KEYS);
    run_together(THREADS, |thread| {
        for _ in 0..EACH {
            shuffled(KEYS, thread).for_each(|number| increment(&subject, number));
        }
    });
    subject.assert_holds(&(0..KEYS).map(|number| (number, THREADS * EACH)).collect());
}

/// Adds one to the version of a key; an absent key counts as 0.
fn increment(subject: &Subject, number: u64) {
    let mut done = false;
    while !done {
        let pin = subject.pin();
        let word = pin.find(number);
        let version = word.map_or(0, |word| pin.version(number, word));
        done = pin.swap(number, word, Some(version + 1)).is_ok();
    }
}

/// Eight threads in a pool with two thread slots wait for each other, also during a resize, and
/// lose no increment.
pub(super) fn more_threads_than_slots(make: Make<'_>) {
    const MANY: u64 = 8;
    const KEYS: u64 = 16;
    const EACH: u64 = 60;
    const GROWTH: u64 = 500;
    let setup = Setup { thread_slots: 2, ..Setup::with_capacity(0) };
    let subject = Subject::new(make(setup), 0..KEYS + MANY * GROWTH);
    run_together(MANY, |thread| {
        // Each thread inserts own keys after its increments, so that the table keeps growing.
        let mut own = KEYS + thread * GROWTH..KEYS + (thread + 1) * GROWTH;
        for number in (0..EACH).flat_map(|_| shuffled(KEYS, thread)) {
            increment(&subject, number);
            if let Some(own) = own.next() {
                assert_eq!(subject.pin().insert(own, 1).expect("room"), None);
            }
        }
        assert_eq!(own.next(), None, "all of the growth happened among the increments");
    });
    let stats = subject.pin().raw.stats();
    assert!(stats.resizes > 0 || stats.resizing, "it did not grow: {stats:?}");
    let counters = (0..KEYS).map(|number| (number, MANY * EACH));
    subject.assert_holds(&counters.chain((KEYS..subject.keys()).map(|number| (number, 1))).collect());
}

/// Each thread has its own keys, in the same buckets as those of others, and they behave as in a
/// map.
pub(super) fn own_keys_stay_exact(make: Make<'_>) {
    const OWN: u64 = 3000;
    let subject = Subject::new(make(Setup::with_capacity(0)), 0..OWN * THREADS);
    let models = run_together(THREADS, |thread| {
        let mut model = BTreeMap::new();
        let mut random = thread + 1;
        for version in 1..40_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            // Phases of mostly inserts and mostly removals, so that the table grows and shrinks.
            let removing = version / 8000 % 2 == 1;
            let number = (random >> 40) % OWN * THREADS + thread;
            let pin = subject.pin();
            match (random >> 33) % 8 {
                0 => assert_eq!(pin.get(number), model.get(&number).copied()),
                1 => {
                    assert_eq!(pin.update(number, version), model.get(&number).copied());
                    model.entry(number).and_modify(|old| *old = version);
                }
                2 if removing => {
                    assert_eq!(pin.upsert(number, version), model.insert(number, version))
                }
                _ if removing => assert_eq!(pin.remove(number), model.remove(&number)),
                2 => assert_eq!(pin.remove(number), model.remove(&number)),
                _ => assert_eq!(pin.upsert(number, version), model.insert(number, version)),
            }
        }
        model
    });
    subject.assert_holds(&models.into_iter().flatten().collect());
}

/// Scans in small steps visit every key that is present throughout, while writers make the table
/// grow and shrink.
pub(super) fn scans_miss_nothing_through_resizes(make: Make<'_>) {
    const STABLE: u64 = 2000;
    const PASSING: u64 = 30_000;
    let subject = Subject::new(make(Setup::with_capacity(0)), 0..STABLE + PASSING);
    for number in 0..STABLE {
        subject.pin().insert(number, 1).expect("room");
    }
    let writing = AtomicBool::new(true);
    let scans = run_together(3, |thread| {
        if thread == 0 {
            for _ in 0..3 {
                (STABLE..STABLE + PASSING)
                    .for_each(|n| assert_eq!(subject.pin().insert(n, 2).expect("room"), None));
                (STABLE..STABLE + PASSING).for_each(|n| assert_eq!(subject.pin().remove(n), Some(2)));
            }
            writing.store(false, Relaxed);
            return 0;
        }
        let mut scans = 0;
        while writing.load(Relaxed) || scans == 0 {
            let (mut found, mut place, mut is_over) = (vec![false; STABLE as usize], Place::default(), false);
            while !is_over {
                // Pin for each step: a scan may last longer than a guard should.
                let pin = subject.pin();
                is_over = pin.raw.scan(&mut place, 1 + thread as usize * 50, &mut |word| {
                    let (number, version) = pin.raw.read(word);
                    assert_eq!(version, if number < STABLE { 1 } else { 2 });
                    if let Some(found) = found.get_mut(number as usize) {
                        *found = true;
                    }
                });
            }
            let missed = found.iter().filter(|found| !**found).count();
            assert_eq!(missed, 0, "keys that scan {scans} of thread {thread} missed");
            scans += 1;
        }
        scans
    });
    assert!(scans[1] > 0 && scans[2] > 0);
    let stats = subject.pin().raw.stats();
    assert!(stats.resizes > 0, "the scans met no resize: {stats:?}");
    subject.assert_holds(&(0..STABLE).map(|number| (number, 1)).collect());
}

/// Keys of one bucket are replaced by each other, and no reader gets the word of another key.
pub(super) fn readers_never_mix_neighbours(make: Make<'_>) {
    const KEYS: u64 = 5;
    const ROUNDS: u64 = 15_000;
    let index = make(Setup::with_capacity(0));
    let seeds = look_alike(&*index, KEYS as usize);
    let subject = Subject::new(index, seeds);
    run_together(4, |thread| {
        for round in 0..ROUNDS {
            let (pin, number) = (subject.pin(), round % KEYS);
            // `get` and `remove` check that the word belongs to the key.
            if thread > 1 {
                pin.get(number);
                pin.get((round * 3 + thread) % KEYS);
            } else if round % 2 == thread {
                pin.insert(number, round).expect("room");
            } else {
                pin.remove((number + thread) % KEYS);
            }
        }
    });
}
