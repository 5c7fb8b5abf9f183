//! Tests: the disk engine when syncs are left out, calls fail, and the disk is full.

use crate::contents::{Model, contents};
use crate::script::{Step, history};
use crate::small::PATH;
use crate::subject::{OfTiered, OfWip, Subject, clock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use terrace_engine::{Chore, Durability, Durably, Engine, Put, Rest, Write, WriteError, WriteKind};
use terrace_medium::files::Files;
use terrace_testkit::simfs::{Fault, Faulty, SimFs};
use terrace_testkit::stride;

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

/// Seals block after block while keys are written again and again, with one failing call, up to a
/// kill or a loss of power. What was acknowledged is there then.
fn try_sealing_with_a_fault(nth: u64, fault: Fault) -> bool {
    // The log lets go of what is sealed, segment by segment.
    let of = || {
        let small = OfTiered::small(Durability::Power, &clock());
        terrace_tiered::Settings { log_bytes: 0, segment_bytes: 4 << 10, ..small }
    };
    let files = SimFs::new(["/data"]);
    drop(OfTiered::create(files.clone(), PATH, of()).unwrap());
    let faulty = Faulty::failing(files.clone(), nth, fault);
    // Of each key, what it may have.
    let mut allowed: BTreeMap<u32, Vec<Option<Vec<u8>>>> = BTreeMap::new();
    if let Ok(store) = OfTiered::open(faulty.clone(), PATH, of()) {
        // The end comes when the block is sealed again, before the one that has what replaces it.
        let mut left = 8 + nth % 7;
        for turn in 0..96u32 {
            let (key, len) = (turn * 7 % 10, if turn % 19 == 0 { 2000 } else { 700 });
            let value = (turn % 5 > 0).then(|| vec![turn as u8; len]);
            let done = match &value {
                Some(value) => {
                    store.put(Put { key: &key.to_le_bytes(), value, expires_at: None }, Durably::Store)
                }
                None => store.delete(&key.to_le_bytes(), Durably::Store),
            };
            let key = allowed.entry(key).or_insert(vec![None]);
            if done.is_ok() {
                key.clear();
            }
            key.push(value);
            if turn % 8 == 7 {
                store.step(Chore::Flush, &|| false);
            }
            if turn % 24 == 23 {
                store.step(Chore::Merge, &|| false);
            }
            if faulty.calls() > nth {
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
    }
    for crash in [None, Some(1), Some(2)] {
        let after = files.fork();
        crash.into_iter().for_each(|seed| after.crash(seed));
        let store = OfTiered::open(after, PATH, of())
            .unwrap_or_else(|error| panic!("call {nth} {fault:?}, crash {crash:?}: {error}"));
        for (key, allowed) in &allowed {
            let value = store.get(&key.to_le_bytes()).unwrap().map(|value| value.to_vec());
            assert!(allowed.contains(&value), "call {nth} {fault:?}, crash {crash:?}: key {key}");
        }
    }
    faulty.calls() > nth
}

#[test]
fn blocks_of_failed_seals_do_not_keep_a_store_from_opening() {
    for fault in Fault::ALL {
        let nth =
            (0..).step_by(stride(3)).find(|nth| !try_sealing_with_a_fault(*nth, fault)).expect("an end");
        assert!(nth > 300, "{nth} calls");
    }
}

fn try_faults<S: Subject>() {
    // By day each call fails in one of the ways.
    let stride = stride(Fault::ALL.len()) as u64;
    for (first, fault) in (0..).zip(Fault::ALL) {
        let mut nth = first;
        while try_fault::<S>(nth, fault) {
            nth += stride;
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
    let clock = clock();
    let settings = || S::small(Durability::Power, &clock);
    let work = |store: &S::Store| {
        // What has failed is tried again after a while.
        clock.advance(60_000);
        for chore in STEPS {
            for _ in 0..4 {
                store.step(chore, &|| false);
            }
        }
    };
    let files = SimFs::new(["/data"]);
    let store = S::create(files.clone(), PATH, settings()).unwrap();
    files.set_capacity(600 << 10);
    let key = |number: u64| number.to_be_bytes().to_vec();
    let put = |store: &S::Store, number: u64| {
        store.put(
            Put { key: &key(number), value: &random_bytes(number, 300), expires_at: None },
            Durably::Store,
        )
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
            store = Some(S::open(files.clone(), PATH, settings()).unwrap());
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
    let mut put = |store: &S::Store, number: u64| {
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

/// A merge that finds no room writes until there is none, each time.
#[test]
fn merges_on_a_full_disk_are_tried_ever_less_often() {
    let (files, clock) = (SimFs::new(["/data"]), clock());
    let store = OfWip::create(files.clone(), PATH, OfWip::small(Durability::Process, &clock)).unwrap();
    let put = |number: u64| {
        let key = number.to_be_bytes();
        store.put(Put { key: &key, value: &[number as u8; 500], expires_at: None }, Durably::Store).unwrap();
    };
    let stats = || store.stats().disk.unwrap();
    (0..400).for_each(|number| {
        put(number);
        while store.step(Chore::Flush, &|| false) == Rest::More {}
    });
    while store.step(Chore::Log, &|| false) == Rest::More {}
    assert!(stats().tables[0] > 8, "enough for a merge");
    files.set_capacity(1 << 30);
    let used = (1 << 30) - files.free_bytes(Path::new(PATH)).unwrap();
    files.set_capacity(used + 4096);
    let step = |times: u64| (0..times).for_each(|_| _ = store.step(Chore::Merge, &|| false));
    step(1000);
    assert_eq!((stats().failures, stats().is_failing), (1, 1));
    let trouble = store.on_disk().unwrap().trouble(Chore::Merge).expect("it fails");
    assert!(trouble.to_string().contains("no room"), "{trouble}");
    // Ten minutes, with ten steps a second.
    (0..6000).for_each(|_| {
        clock.advance(100);
        step(1);
    });
    assert!((15..30).contains(&stats().failures), "{} attempts", stats().failures);
    files.set_capacity(1 << 30);
    clock.advance(30_000);
    step(1);
    assert_eq!(stats().is_failing, 0);
    step(1000);
    assert!(
        stats().compactions > 0
            && stats().tables[0] < 3
            && store.on_disk().unwrap().trouble(Chore::Merge).is_none()
    );
}

/// A full disk, but room in the log: a write is refused only because a flush has none.
#[test]
fn writes_that_need_a_flush_go_on_when_there_is_room() {
    let (files, clock) = (SimFs::new(["/data"]), clock());
    let mut settings = OfWip::small(Durability::Process, &clock);
    (settings.segment_bytes, settings.log_bytes) = (4 << 20, 8 << 20);
    let store = OfWip::create(files.clone(), PATH, settings).unwrap();
    let put = |number: u64| {
        let key = number.to_be_bytes();
        store.put(Put { key: &key, value: &[number as u8; 500], expires_at: None }, Durably::Store)
    };
    put(0).unwrap();
    files.set_capacity(1 << 30);
    // All but 2,000 bytes of what is kept for flushes is needed elsewhere.
    let used = (1 << 30) - files.free_bytes(Path::new(PATH)).unwrap();
    files.set_capacity(used - (4 << 20) + 2000);
    let refused = (1..).find(|&number| put(number).is_err()).expect("the disk runs full");
    let failures = || store.stats().disk.unwrap().failures;
    assert_eq!(failures(), 1);
    (0..100).for_each(|_| assert!(put(refused).is_err()));
    assert_eq!(failures(), 1, "what is known to fail is not tried");
    clock.advance(60_000);
    (0..100).for_each(|_| assert!(put(refused).is_err()));
    assert_eq!(failures(), 1, "a write that the log would refuse tries nothing at all");
    // Removals are how the disk gets room.
    (0..100u64).for_each(|number| store.delete(&number.to_be_bytes(), Durably::Store).unwrap());
    assert!(store.remove(&(refused - 1).to_be_bytes(), Durably::Store).unwrap());
    assert!(put(refused).is_err());
    files.set_capacity(1 << 30);
    (refused..refused + 1000).for_each(|number| put(number).expect("there is room again"));
    assert!(store.get(&0u64.to_be_bytes()).unwrap().is_none());
}

/// A batch for two buckets is visible when its record of the log finds no room. Then one bucket is
/// flushed.
#[test]
fn batch_that_the_log_lost_is_not_half_there() {
    let (disk, clock) = (SimFs::new(["/data"]), clock());
    let settings = || OfWip::tiny(Durability::Process, &clock);
    let store = OfWip::create(disk.clone(), PATH, settings()).unwrap();
    for number in 0..200u64 {
        let put = Put { key: &number.to_be_bytes(), value: &[1; 900], expires_at: None };
        store.put(put, Durably::Store).unwrap();
        while store.step(Chore::Flush, &|| false) == Rest::More {}
        while store.step(Chore::Merge, &|| false) == Rest::More {}
    }
    assert!(store.stats().disk.unwrap().buckets > 1);
    drop(store);
    let (mut nth, mut failed) = (0, 0);
    loop {
        let below = disk.fork();
        let faulty = Faulty::failing(below.clone(), nth, Fault::Full);
        if let Ok(store) = OfWip::open(faulty.clone(), PATH, settings()) {
            let batch = [(0u64, b"a"), (199, b"b")].map(|(number, value)| (number.to_be_bytes(), value));
            let what = |value: &'static [u8; 1]| WriteKind::Put { value, expires_at: None };
            let writes = batch.each_ref().map(|(key, value)| Write { key, what: what(value) });
            let done = store.commit(&writes, &[], Durably::Later);
            // One attempt fails, and the next one flushes one of the two.
            for _ in 0..2 {
                let _ = store.step(Chore::Flush, &|| false);
                clock.advance(1000);
            }
            failed += u64::from(store.stats().disk.unwrap().failures > 0);
            drop(store);
            let store = OfWip::open(below, PATH, settings()).unwrap();
            let is_there = batch.map(|(key, value)| *store.get(&key).unwrap().unwrap() == *value);
            assert!(is_there[0] == is_there[1], "call {nth}, {done:?}: {is_there:?}");
        }
        if faulty.calls() <= nth {
            break;
        }
        nth += 1;
    }
    assert!(failed > 3, "{failed} failures");
}

#[test]
fn full_disk_is_cleared() {
    try_clear_full::<OfWip>();
    try_clear_full::<OfTiered>();
}

fn try_clear_full<S: Subject>() {
    let files = SimFs::new(["/data"]);
    let store = S::create(files.clone(), PATH, usual::<S>()).unwrap();
    for number in 0..300u64 {
        let (key, value) = (number.to_be_bytes(), [number as u8; 500]);
        store.put(Put { key: &key, value: &value, expires_at: None }, Durably::Store).unwrap();
    }
    store.on_disk().unwrap().flush().unwrap();
    files.set_capacity(1 << 30);
    let used = (1 << 30) - files.free_bytes(Path::new(PATH)).unwrap();
    files.set_capacity(used);
    store.clear(Durably::Store).unwrap();
    assert_eq!(contents(&store).unwrap(), Model::new());
    S::CHORES.iter().for_each(|&chore| while store.step(chore, &|| false) == Rest::More {});
    store.put(Put { key: b"new", value: b"value", expires_at: None }, Durably::Store).unwrap();
    drop(store);
    files.crash(1);
    let store = S::open(files, PATH, usual::<S>()).unwrap();
    assert_eq!(contents(&store).unwrap().len(), 1);
}
