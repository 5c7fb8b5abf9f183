//! Tests of `compact`.

use super::*;
use crate::batch::descriptor::Status;
use crate::batch::plan::{AbortReason, BatchStep};
use crate::tests::fixtures::{Store, store};
use terrace_engine::{Change, Commit, Durably, Engine, Pooled, Write, WriteKind};

const LONG: [u8; 9000] = [7; 9000];

fn assert_whole(store: &Store) {
    let report = store.check(&mut |_, _| {});
    assert!(report.is_sound(), "{:#?}", report.findings);
    let memory = store.memory();
    assert_eq!((memory.garbage, memory.used, memory.overlapping), (0, memory.reachable, 0));
    assert_eq!(store.pool().faults(), 0);
}

#[test]
fn moved_record_is_the_same_version_elsewhere() {
    let (store, _) = store();
    let keys = [&b"short"[..], b"long", b"late", b"batch"];
    store.put_entry(keys[0], b"value", None);
    store.put_entry(keys[1], &LONG, Some(5000));
    store.put_entry(keys[2], b"value", Some(5000));
    let put = WriteKind::Put { value: b"value", expires_at: None };
    let both = [Write { key: keys[3], what: put }, Write { key: b"other", what: put }];
    store.commit(&both, &[], Durably::Store).unwrap();
    let state = |store: &Store| {
        keys.map(|key| {
            let value = store.get(key).unwrap().unwrap();
            (value.to_vec(), value.expires_at(), value.token())
        })
    };
    let (before, places) = (state(&store), keys.map(|key| store.record_offset(key)));
    let known: Vec<_> = keys.iter().map(|&key| (key, store.version(key).unwrap())).collect();
    store.move_all();
    assert_eq!(state(&store), before);
    assert!(keys.iter().zip(places).all(|(key, place)| store.record_offset(key) != place));
    // Nor is it a change to a transaction.
    assert_eq!(store.commit(&both, &known, Durably::Store), Ok(Commit::Done));
    assert_whole(&store);
}

#[test]
fn claimed_record_is_not_moved() {
    let (store, _) = store();
    store.put_entry(b"key", b"value", None);
    let steps = [BatchStep::keep(b"key")];
    let guard = store.pool().pin();
    let Ok(mut running) = store.batches().prepare(&guard, &steps) else { panic!("there is room") };
    assert!(running.publish().is_ok());
    let place = store.record_offset(b"key");
    store.move_all();
    assert_eq!(store.record_offset(b"key"), place);
    running.abort();
    store.records().retire_blocks(&running.remains());
    drop(guard);
    assert_whole(&store);
}

#[test]
fn damaged_record_is_not_moved() {
    let (store, _) = store();
    [&b"whole"[..], b"head", b"value"].iter().for_each(|key| store.put_entry(key, &LONG, None));
    let places = [&b"head"[..], b"value"].map(|key| store.record_offset(key));
    store.damage(places[0] + 16);
    let guard = store.pool().pin();
    let extent = Record::at(&guard, places[1]).unwrap().body.external.unwrap().extent;
    drop(guard);
    store.damage(extent);
    store.move_all();
    assert_eq!([&b"head"[..], b"value"].map(|key| store.record_offset(key)), places);
    assert!(store.get(b"head").is_err() && store.get(b"value").is_err());
    assert_eq!(*store.get(b"whole").unwrap().unwrap(), LONG);
}

#[test]
fn record_of_missing_batch_is_not_moved() {
    let (store, _) = store();
    let put = WriteKind::Put { value: b"value", expires_at: None };
    store.commit(&[b"one", b"two"].map(|key| Write { key, what: put }), &[], Durably::Store).unwrap();
    let place = store.record_offset(b"one");
    store.damage(place + 16);
    let error = store.get(b"one").unwrap_err();
    store.move_all();
    assert_eq!((store.record_offset(b"one"), store.get(b"one")), (place, Err(error)));
    assert!(store.record_offset(b"two") != place && store.get(b"two").unwrap().unwrap() == b"value");
}

/// The steps of a commit that gives a key another expiry, and writes another key.
fn expiry(store: &Store) -> [BatchStep<'static>; 2] {
    let expected = Some(Box::new((0, store.version(b"key").unwrap())));
    let put = WriteKind::Put { value: b"new", expires_at: None };
    [
        BatchStep { key: b"key", what: Some(WriteKind::Expire(Some(5000))), expected },
        BatchStep { key: b"other", what: Some(put), expected: None },
    ]
}

#[test]
fn batch_takes_over_no_moved_value() {
    let (store, _) = store();
    store.put_entry(b"key", &LONG, None);
    let steps = expiry(&store);
    let guard = store.pool().pin();
    let Ok(mut running) = store.batches().prepare(&guard, &steps) else { panic!("there is room") };
    store.move_all();
    assert!(matches!(running.publish(), Err(AbortReason::Moved)));
    running.abort();
    assert_eq!(running.descriptor.status(), Some(Status::Aborted));
    store.records().retire_blocks(&running.remains());
    drop(guard);
    // Prepared again, it succeeds, for the version is the same.
    let writes = steps.each_ref().map(|step| Write { key: step.key, what: step.what.unwrap() });
    let version = steps[0].expectation().unwrap().1;
    assert_eq!(store.commit(&writes, &[(b"key", version)], Durably::Store), Ok(Commit::Done));
    let value = store.get(b"key").unwrap().unwrap();
    assert_eq!((value.expires_at(), &*value), (Some(5000), &LONG[..]));
    drop(value);
    assert_whole(&store);
}

#[test]
fn failed_expiry_frees_no_shared_value() {
    let (store, _) = store();
    store.put_entry(b"key", &LONG, None);
    let steps = expiry(&store);
    let guard = store.pool().pin();
    let Ok(mut running) = store.batches().prepare(&guard, &steps) else { panic!("there is room") };
    store.put_entry(b"key", b"another", None);
    assert!(matches!(running.publish(), Err(AbortReason::Changed(0))));
    running.abort();
    store.records().retire_blocks(&running.remains());
    drop(guard);
    while store.pool().reclaim_blocking() {}
    assert_whole(&store);
}

#[test]
fn modify_runs_again_for_a_moved_record() {
    let (store, _) = store();
    store.put_entry(b"key", &LONG, None);
    let mut asked = 0;
    let mut change = |_: Option<terrace_engine::Entry<'_>>| {
        asked += 1;
        if asked == 1 {
            store.move_all();
        }
        Change::Expire(Some(7000))
    };
    store.modify(b"key", &mut change, Durably::Store).unwrap();
    assert_eq!((asked, store.get(b"key").unwrap().unwrap().expires_at()), (2, Some(7000)));
    assert_whole(&store);
}

#[test]
fn step_without_gain_changes_nothing() {
    let (store, _) = store();
    (0..20_000u32).for_each(|n| store.put_entry(&n.to_le_bytes(), &[7; 100], None));
    let before = store.pool().space();
    assert!(!store.compact());
    assert_eq!(store.pool().space(), before);
    assert!(store.pool().compaction().vacating().is_empty());
}

#[test]
fn steps_free_memory_between_records() {
    let (store, _) = store();
    (0..20_000u32).for_each(|n| store.put_entry(&n.to_le_bytes(), &[n as u8; 400], None));
    let full = store.pool().space();
    (0..20_000u32)
        .filter(|n| n % 5 != 0)
        .for_each(|n| assert!(store.remove(&n.to_le_bytes(), Durably::Store).unwrap()));
    while store.pool().reclaim_blocking() {}
    (0..200).for_each(|_| _ = store.compact());
    let space = store.pool().space();
    assert!(space.free > full.used_by_blocks / 2, "{space:?}");
    assert!(space.slab_free < full.used_by_blocks / 10, "{space:?}");
    assert!((0..20_000u32).all(|n| store.get(&n.to_le_bytes()).unwrap().is_some() == (n % 5 == 0)));
    assert_whole(&store);
}

#[test]
fn slab_with_unmovable_block_is_used_again() {
    let (store, _) = store();
    (0..10_000u32).for_each(|n| store.put_entry(&n.to_le_bytes(), &[n as u8; 400], None));
    (0..10_000u32)
        .filter(|n| n % 20 != 0)
        .for_each(|n| assert!(store.remove(&n.to_le_bytes(), Durably::Store).unwrap()));
    (0..10_000u32)
        .filter(|n| n % 20 == 0)
        .for_each(|n| store.damage(store.record_offset(&n.to_le_bytes()) + 16));
    while store.pool().reclaim_blocking() {}
    let places = |store: &Store| {
        let mut places = Vec::new();
        store.index().for_each(&store.pool().pin(), &mut |word| places.push(word));
        places.sort_unstable();
        places
    };
    let before = places(&store);
    (0..200).for_each(|_| _ = store.compact());
    assert_eq!(places(&store), before);
    assert!(store.pool().compaction().vacating().is_empty());
    assert_eq!(store.pool().verify_memory(), []);
}
