//! Tests: the disk engine when syncs are left out, calls fail, and the disk is full.

use crate::subject::{OfTiered, OfWip, Subject, clock};
use crate::wip::{Model, PATH};
use crate::wip_script::{Step, contents, history};
use std::collections::BTreeSet;
use terrace_engine::{Chore, Durability, Durably, Engine, Put, WriteError};
use terrace_testkit::simfs::{Fault, Faulty, SimFs};

/// The settings of these tests: those of the disk engine are larger than its smallest ones.
fn usual<S: Subject>() -> S::Settings {
    S::small(Durability::Power, &clock())
}

/// Whether a power failure now loses or invents something.
fn is_noticed<S: Subject>(files: &SimFs, path: &str, model: &Model) -> bool {
    (0..8).any(|seed| {
        let after = files.fork();
        after.crash(seed);
        S::open(after, path, usual::<S>())
            .map_err(drop)
            .and_then(|store| contents(&store).map_err(drop))
            .as_ref()
            != Ok(model)
    })
}

#[test]
fn acknowledged_writes_survive_a_crash_after_any_step() {
    try_each_step::<OfWip>();
    try_each_step::<OfTiered>();
}

fn try_each_step<S: Subject>() {
    let files = SimFs::new(["/data"]);
    let store = S::create(files.clone(), PATH, usual::<S>()).unwrap();
    let mut model = Model::new();
    let mut copies: Vec<(String, Model)> = Vec::new();
    for step in history(11, 400) {
        step.run(&store).unwrap();
        step.apply(&mut model);
        if let Step::Checkpoint(path) = &step {
            copies.push((path.to_str().expect("text").into(), model.clone()));
        }
        assert!(!is_noticed::<S>(&files, PATH, &model), "{step:?}");
        assert!(copies.iter().all(|(path, model)| !is_noticed::<S>(&files, path, model)), "{step:?}");
    }
}

/// Runs the history with one failing call. What was acknowledged must be there when the store is
/// opened again, and of what has failed all or nothing.
fn try_fault<S: Subject>(nth: u64, fault: Fault) -> bool {
    let files = SimFs::new(["/data"]);
    let faulty = Faulty::failing(files.clone(), nth, fault);
    let mut allowed = BTreeSet::from([Model::new()]);
    {
        let Ok(store) = S::create(faulty.clone(), PATH, usual::<S>()) else {
            drop(
                S::create(files.clone(), PATH, usual::<S>())
                    .or_else(|_| S::open(files.clone(), PATH, usual::<S>()))
                    .expect("a second attempt succeeds"),
            );
            return true;
        };
        for step in history(5, 90) {
            let result = step.run(&store);
            // What was possible before still is, with the step; without it, too, if it has failed.
            let with = |mut model: Model| {
                step.apply(&mut model);
                model
            };
            match result {
                Ok(()) => allowed = allowed.into_iter().map(with).collect(),
                Err(WriteError::Stopped(_)) => {}
                Err(_) => allowed.extend(allowed.clone().into_iter().map(with)),
            }
            // The failing call may be one of these reads.
            let seen = contents(&store).or_else(|_| contents(&store));
            let seen = seen.unwrap_or_else(|error| panic!("call {nth}: reads go on: {error}"));
            assert!(allowed.contains(&seen), "call {nth} {fault:?}, after {step:?}: readers see neither");
        }
    }
    for crash in [None, Some(1), Some(2)] {
        let after = files.fork();
        crash.into_iter().for_each(|seed| after.crash(seed));
        let store = S::open(after, PATH, usual::<S>())
            .unwrap_or_else(|error| panic!("call {nth} {fault:?}: {error}"));
        let found = contents(&store).unwrap();
        assert!(allowed.contains(&found), "call {nth} {fault:?}, crash {crash:?}: {} entries", found.len());
    }
    faulty.calls() > nth
}

#[test]
fn failing_calls_lose_nothing_acknowledged() {
    try_faults::<OfWip>();
}

#[test]
fn failing_calls_of_the_tiered_engine_lose_nothing_acknowledged() {
    try_faults::<OfTiered>();
}

fn try_faults<S: Subject>() {
    for fault in Fault::ALL {
        let mut nth = 0;
        while try_fault::<S>(nth, fault) {
            nth += 1;
        }
        assert!(nth > 500, "{nth} calls");
    }
}

#[test]
fn full_disk_can_be_emptied_by_removals() {
    try_emptied::<OfWip>();
}

#[test]
fn full_disk_of_the_tiered_engine_can_be_emptied() {
    try_emptied::<OfTiered>();
}

/// Fills the disk, and removes every key. Background work goes on meanwhile, and the store is
/// opened anew in the middle.
fn try_emptied<S: Subject>() {
    const STEPS: [Chore; 4] = [Chore::Flush, Chore::Merge, Chore::Log, Chore::Maintain];
    let work = |store: &S::Store<SimFs>| {
        for chore in STEPS {
            for _ in 0..4 {
                store.step(chore, &|| false);
            }
        }
    };
    let files = SimFs::new(["/data"]);
    let store = S::create(files.clone(), PATH, usual::<S>()).unwrap();
    files.set_capacity(600 << 10);
    let key = |number: u64| number.to_be_bytes().to_vec();
    let put = |store: &S::Store<SimFs>, number: u64| {
        store.put(Put { key: &key(number), value: &random_bytes(number, 300), expires_at: None }, Durably::Store)
    };
    let full = (0..).find(|&number| {
        if number % 16 == 0 {
            work(&store);
        }
        put(&store, number).is_err()
    });
    let full = full.expect("the disk runs full");
    assert!(full > 200, "{full} keys");
    let mut store = Some(store);
    for number in 0..full {
        let removed = store.as_ref().unwrap().remove(&key(number), Durably::Store);
        assert!(removed.expect("removals go on"), "key {number} of {full}");
        if number % 16 == 0 {
            work(store.as_ref().unwrap());
        }
        if number == full / 2 {
            drop(store.take());
            store = Some(S::open(files.clone(), PATH, usual::<S>()).unwrap());
        }
    }
    let store = store.unwrap();
    (0..100).for_each(|_| work(&store));
    assert!(contents(&store).unwrap().is_empty());
    for number in 0..full / 4 {
        put(&store, number).expect("there is room again");
        if number % 16 == 0 {
            work(&store);
        }
    }
}

/// Bytes that do not compress.
fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[test]
fn full_disk_refuses_writes_and_goes_on_when_there_is_room() {
    try_full::<OfWip>();
}

#[test]
fn full_disk_of_the_tiered_engine_refuses_writes_and_goes_on() {
    try_full::<OfTiered>();
}

fn try_full<S: Subject>() {
    let files = SimFs::new(["/data"]);
    let store = S::create(files.clone(), PATH, usual::<S>()).unwrap();
    files.set_capacity(300 << 10);
    let mut model = Model::new();
    let mut put = |store: &S::Store<SimFs>, number: u64| {
        let (key, value) = (number.to_be_bytes().to_vec(), vec![number as u8; 500]);
        let put = store.put(Put { key: &key, value: &value, expires_at: None }, Durably::Store);
        if put.is_ok() {
            model.insert(key, (value, None));
        }
        (put, model.clone())
    };
    let refused = (0..).find_map(|number| put(&store, number).0.err()).expect("the disk runs full");
    assert!(matches!(&refused, WriteError::Io { kind: std::io::ErrorKind::StorageFull, .. }), "{refused:?}");
    let (_, expected) = put(&store, 1 << 40);
    assert!(contents(&store).unwrap() == expected, "reads go on");
    files.set_capacity(64 << 20);
    for number in 1 << 41..(1 << 41) + 2000 {
        put(&store, number).0.expect("there is room again");
    }
    let (_, expected) = put(&store, 1 << 42);
    assert!(contents(&store).unwrap() == expected);
    drop(store);
    files.crash(3);
    assert!(contents(&S::open(files, PATH, usual::<S>()).unwrap()).unwrap() == expected);
}
