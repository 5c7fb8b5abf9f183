//! Tests of `commit`.

use super::*;
use crate::Settings;
use crate::batch::descriptor::Status;
use crate::record::view::Record;
use crate::tests::fixtures::{self, Store, settings, store};
use std::path::Path;
use std::sync::Arc;
use terrace_engine::{Commit, Write};
use terrace_engine::{Durably, Engine, ManualClock, Pooled, Put};
use terrace_index::Deferred;
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_pool::{Pool, PoolOptions};

fn open<M: MappedMedium>(path: &Path) -> Store<M> {
    let pool = PoolOptions::at(path).size(4 << 20).assume_persistent(M::VOLATILE_CACHE).open_or_create::<M>();
    crate::tests::fixtures::open::<M>(pool.unwrap(), settings()).unwrap()
}

fn put<M: MappedMedium>(store: &Store<M>, key: &[u8], value: &[u8]) {
    store.put(Put { key, value, expires_at: None }, Durably::Store).unwrap();
}

fn read<M: MappedMedium>(store: &Store<M>, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).unwrap().map(|value| value.to_vec())
}

const LONG: [u8; 9000] = [7; 9000];

fn steps() -> [BatchStep<'static>; 6] {
    let step = |key: &'static [u8], what| BatchStep { key, what, expected: None };
    [
        step(b"changed", Some(WriteKind::Put { value: b"new", expires_at: None })),
        step(b"added", Some(WriteKind::Put { value: &LONG, expires_at: Some(5000) })),
        step(b"removed", Some(WriteKind::Remove)),
        step(b"not there", Some(WriteKind::Remove)),
        step(b"kept", None),
        step(b"kept away", None),
    ]
}

/// Where a batch is interrupted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    Prepared,
    Announced,
    Published(usize),
    Committed,
    Finalized,
    Aborted,
    Restored,
}

/// Runs the batch up to the cut, copies the file there, as a kill would leave it, and then runs
/// the rest.
fn interrupt<M: MappedMedium>(store: &Store<M>, cut: Cut, from: &Path, to: &Path) {
    let copy = |at| {
        if at == cut {
            std::fs::copy(from, to).unwrap();
        }
    };
    let steps = steps();
    let guard = store.pool().pin();
    let mut running = store.batches().prepare(&guard, &steps).unwrap_or_else(|_| panic!("there is room"));
    copy(Cut::Prepared);
    running.old_records = steps.iter().map(|step| store.index().get(&guard, step.key)).collect();
    running.old_records.iter().enumerate().for_each(|(index, &old)| running.descriptor.set_old(index, old));
    running.descriptor.write_back();
    store.root().set_active(running.descriptor.offset());
    running.finished = false;
    copy(Cut::Announced);
    let mut deferred = Deferred::default();
    for index in 0..steps.len() {
        assert!(running.publish_one(index, &mut deferred).is_ok());
        copy(Cut::Published(index));
    }
    store.index().persist_deferred(&guard, deferred);
    if matches!(cut, Cut::Aborted | Cut::Restored) {
        running.descriptor.set_status(Status::Aborted);
        copy(Cut::Aborted);
        store.slots().claims().finalize_entries(&guard, &running.descriptor, Status::Aborted);
        copy(Cut::Restored);
    } else {
        running.descriptor.set_status(Status::Committed);
        copy(Cut::Committed);
        store.slots().claims().finalize_entries(&guard, &running.descriptor, Status::Committed);
        copy(Cut::Finalized);
    }
    running.finish();
    store.records().retire_blocks(&running.remains());
}

fn assert_state<M: MappedMedium>(store: &Store<M>, happened: bool, cut: Cut) {
    let text = |value: &[u8]| Some(value.to_vec());
    let expected = match happened {
        false => [text(b"old"), None, text(b"old"), None, text(b"old"), None],
        true => [text(b"new"), text(&LONG), None, None, text(b"old"), None],
    };
    let found = steps().map(|step| read(store, step.key));
    assert!(found == expected, "{cut:?}: {found:?}");
}

fn try_cut<M: MappedMedium>(cut: Cut) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, copy) = (directory.path().join("store"), directory.path().join("copy"));
    let store = open::<M>(&path);
    [&b"changed"[..], b"removed", b"kept"].iter().for_each(|key| put(&store, key, b"old"));
    interrupt(&store, cut, &path, &copy);
    let aborted = matches!(cut, Cut::Aborted | Cut::Restored);
    assert_state(&store, !aborted, cut);
    assert!(store.check(&mut |_, _| {}).is_sound());

    let happened = matches!(cut, Cut::Committed | Cut::Finalized);
    // A read-only open finishes no batch; reads use the descriptor.
    let options = PoolOptions::at(&copy).assume_persistent(M::VOLATILE_CACHE).read_only(true);
    let settings = Settings { expected_keys: 0, ..settings() };
    let frozen = crate::tests::fixtures::open::<M>(options.open::<M>().unwrap(), settings).unwrap();
    assert_state(&frozen, happened, cut);
    drop(frozen);

    let again = open::<M>(&copy);
    let ended = (cut != Cut::Prepared).then_some(happened);
    assert_eq!(again.stats().pool.unwrap().batch_finished, ended, "{cut:?}");
    assert_state(&again, happened, cut);
    again.collect(&|| false);
    assert_state(&again, happened, cut);
    let report = again.check(&mut |_, _| {});
    assert!(report.is_sound(), "{cut:?}: {:#?}", report.findings);
    assert_eq!(again.len().get(), 3, "{cut:?}");
    // All keys can be written again.
    for step in steps() {
        put(&again, step.key, b"after");
        assert_eq!(read(&again, step.key), Some(b"after".to_vec()));
    }
}

#[test]
fn interrupted_batch_is_atomic() {
    let published = (0..6).map(Cut::Published);
    let others = [Cut::Prepared, Cut::Announced, Cut::Committed, Cut::Finalized, Cut::Aborted, Cut::Restored];
    for cut in published.chain(others) {
        try_cut::<Shm>(cut);
        try_cut::<Pmem>(cut);
    }
}

#[test]
fn failed_expectation_changes_nothing() {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let store = fixtures::open(pool, settings()).unwrap();
    put(&store, b"a", b"1");
    put(&store, b"b", b"1");
    let (a, b) = (store.version(b"a").unwrap(), store.version(b"b").unwrap());
    let value = |value| WriteKind::Put { value, expires_at: None };
    let writes = [Write { key: b"a", what: value(b"2") }, Write { key: b"new", what: value(b"2") }];
    put(&store, b"b", b"1");
    let expected: [Expected<'_>; 2] = [(b"a", a), (b"b", b)];
    assert_eq!(store.commit(&writes, &expected, Durably::Store), Ok(Commit::Changed(1)));
    assert_eq!(store.commit(&writes, &[(b"absent", a)], Durably::Store), Ok(Commit::Changed(0)));
    assert_eq!(
        store.commit(&writes, &[(b"a", a), (b"a", None.into())], Durably::Store),
        Ok(Commit::Changed(0))
    );
    assert_eq!((read(&store, b"a"), read(&store, b"new")), (Some(b"1".to_vec()), None));
    assert_eq!(store.version(b"a").unwrap(), a);
    assert_eq!(
        store.commit(&writes, &[(b"absent", None.into()), (b"a", a)], Durably::Store),
        Ok(Commit::Done)
    );
    assert_eq!((read(&store, b"a"), read(&store, b"new")), (Some(b"2".to_vec()), Some(b"2".to_vec())));
    assert!(store.check(&mut |_, _| {}).is_sound());
}

#[test]
fn batch_that_removes_absent_keys_changes_nothing() {
    let (store, _) = store();
    put(&store, b"there", b"1");
    let mut watch = store.watch(b"a").unwrap();
    let absent = store.version(b"a").unwrap();
    let is_unchanged = || store.commit(&[], &[(b"a", absent)], Durably::Store) == Ok(Commit::Done);
    assert_eq!(store.remove_all(&[b"a", b"b"], Durably::Store), Ok(0));
    assert_eq!((is_unchanged(), watch.has_changed()), (true, false));
    let write = |key, what| Write { key, what };
    for what in [WriteKind::Remove, WriteKind::Expire(Some(5000)), WriteKind::Expire(None)] {
        let writes = [write(&b"a"[..], what), write(b"there", WriteKind::Expire(None))];
        assert_eq!(store.commit(&writes, &[], Durably::Store), Ok(Commit::Done));
        assert_eq!((is_unchanged(), watch.has_changed()), (true, false));
    }
    put(&store, b"a", b"1");
    assert_eq!((store.remove_all(&[b"a", b"b"], Durably::Store), is_unchanged()), (Ok(1), false));
    assert!(watch.has_changed());
}

#[test]
fn batch_of_several_pieces_happens_whole_or_not_at_all() {
    let (store, _) = store();
    let keys: Vec<[u8; 4]> = (0..300u32).map(u32::to_le_bytes).collect();
    let values = |store: &Store| -> Vec<_> { keys.iter().map(|key| read(store, key)).collect() };
    keys.iter().step_by(2).for_each(|key| store.put_entry(key, &LONG[..64 + key[0] as usize], None));
    store.put_entry(b"last", b"1", None);
    let (before, stale) = (values(&store), store.version(b"last").unwrap());
    store.put_entry(b"last", b"2", None);
    let what = |nth: usize| match nth % 3 {
        0 => WriteKind::Remove,
        _ => WriteKind::Put { value: b"new", expires_at: None },
    };
    let writes: Vec<Write<'_>> =
        keys.iter().enumerate().map(|(nth, key)| Write { key, what: what(nth) }).collect();
    // The last step fails.
    assert_eq!(store.commit(&writes, &[(b"last", stale)], Durably::Store), Ok(Commit::Changed(0)));
    assert_eq!((values(&store) == before, store.len().get()), (true, 151));
    let now = store.version(b"last").unwrap();
    assert_eq!(store.commit(&writes, &[(b"last", now)], Durably::Store), Ok(Commit::Done));
    let expected: Vec<_> = (0..300).map(|nth| (nth % 3 != 0).then(|| b"new".to_vec())).collect();
    assert_eq!((values(&store) == expected, store.len().get()), (true, 201));
    let memory = store.memory();
    assert_eq!((memory.garbage, memory.used), (0, memory.reachable));
    assert!(store.check(&mut |_, _| {}).is_sound());
}

#[test]
fn key_added_and_removed_fails_absence() {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let clock = Arc::new(ManualClock::at(1000));
    let settings = Settings { clock: clock.clone(), ..settings() };
    let store = fixtures::open(pool, settings).unwrap();
    let value = |expires_at| WriteKind::Put { value: b"1", expires_at };
    let write = |what| [Write { key: b"a", what }, Write { key: b"b", what }];
    let came_and_went: [&dyn Fn(); 4] = [
        &|| assert_eq!(store.remove(b"a", Durably::Store), Ok(true)),
        &|| assert_eq!(store.commit(&write(WriteKind::Remove), &[], Durably::Store), Ok(Commit::Done)),
        &|| {
            clock.advance(100);
            while store.sweep_expired(1000) == 0 {}
        },
        // It has expired, but its record is still there.
        &|| clock.advance(100),
    ];
    for (nth, go) in came_and_went.into_iter().enumerate() {
        let now = store.now_ms();
        let absent = store.version(b"a").unwrap();
        assert_eq!(absent.token(), None);
        assert_eq!(store.commit(&[], &[(b"a", absent)], Durably::Store), Ok(Commit::Done));
        assert_eq!(store.commit(&write(value(Some(now + 50))), &[], Durably::Store), Ok(Commit::Done));
        go();
        for writes in [&[][..], &write(value(None))[..1], &write(value(None))] {
            assert_eq!(
                store.commit(writes, &[(b"a", absent)], Durably::Store),
                Ok(Commit::Changed(0)),
                "{nth}"
            );
            assert_eq!(store.get(b"a").unwrap().map(|value| value.to_vec()), None);
        }
        // Mere absence now is another expectation.
        assert_eq!(
            store.commit(&[], &[(b"a", None.into()), (b"a", None.into())], Durably::Store),
            Ok(Commit::Done)
        );
        store.remove(b"b", Durably::Store).unwrap();
    }
    let absent = store.version(b"a").unwrap();
    assert_eq!(store.commit(&write(value(None))[..1], &[(b"a", absent)], Durably::Store), Ok(Commit::Done));
    assert_eq!(
        store.commit(&write(value(None))[..1], &[(b"a", absent)], Durably::Store),
        Ok(Commit::Changed(0))
    );
}

#[test]
fn key_added_by_batch_and_expired_fails_absence() {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let clock = Arc::new(ManualClock::at(1000));
    let store = fixtures::open(pool, Settings { clock: clock.clone(), ..settings() }).unwrap();
    let what = Some(WriteKind::Put { value: b"1", expires_at: Some(2000) });
    let steps = [BatchStep { key: b"a", what, expected: None }];
    let guard = store.pool().pin();
    let mut running = store.batches().prepare(&guard, &steps).unwrap_or_else(|_| panic!("there is room"));
    assert!(running.publish().is_ok());
    let absent = store.version(b"a").unwrap();
    assert_eq!(absent.token(), None);
    running.commit();
    assert_eq!(read(&store, b"a"), Some(b"1".to_vec()));
    clock.advance(1000);
    assert_eq!(store.commit(&[], &[(b"a", absent)], Durably::Store), Ok(Commit::Changed(0)));
    store.records().retire_blocks(&running.remains());
}

#[test]
fn stopped_store_serves_reads_only() {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let store = fixtures::open(pool, settings()).unwrap();
    put(&store, b"a", b"1");
    store.stop("a test".into());
    assert_eq!(read(&store, b"a"), Some(b"1".to_vec()));
    let error = store.put(Put { key: b"a", value: b"2", expires_at: None }, Durably::Store).unwrap_err();
    assert!(error.to_string().contains("a test"), "{error}");
    assert!(store.remove(b"a", Durably::Store).is_err() && store.clear(Durably::Store).is_err());
}

#[test]
fn finishing_no_batch_keeps_lock_unfenced() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = open::<Pmem>(&directory.path().join("pool"));
    let guard = store.pool().pin();
    let lock = Lock::of(store.root().lock());
    lock.acquire(&guard).release_unfenced();
    store.slots().claims().finish_orphan_batch(&guard);
    assert!(Lock::may_be_unfenced(lock.load_word(store.pool().medium())));
}

/// A batch that has been published and not decided.
fn published<'s>(
    store: &'s Store,
    guard: &'s Guard<'s, Dram>,
    steps: &'s [BatchStep<'s>],
) -> RunningBatch<'s, 's, Dram> {
    let mut running = store.batches().prepare(guard, steps).unwrap_or_else(|_| panic!("there is room"));
    assert!(running.publish().is_ok());
    running
}

#[test]
fn running_batch_is_reachable_and_not_swept() {
    let (store, clock) = store();
    store.put_entry(b"a", &LONG, Some(2000));
    let put = |key, value| BatchStep {
        key,
        what: Some(WriteKind::Put { value, expires_at: Some(2000) }),
        expected: None,
    };
    let steps = [put(b"a", &LONG), put(b"b", b"short")];
    let guard = store.pool().pin();
    let mut running = published(&store, &guard, &steps);
    let reachable: Vec<u64> = store.reachable().into_iter().map(|block| block.0).collect();
    let extent = |at| Record::at(&guard, at).ok()?.body.external.map(|external| external.extent);
    let (new, old) = (running.new_records[0].offset, running.old_records[0].unwrap());
    let blocks = [
        Some(running.descriptor.offset()),
        Some(new),
        extent(new),
        Some(running.new_records[1].offset),
        Some(old),
        extent(old),
    ];
    assert!(blocks.iter().all(|block| reachable.contains(&block.unwrap())));
    clock.advance(1000);
    assert_eq!(store.sweep_expired(1000), 0);
    running.commit();
    store.records().retire_blocks(&running.remains());
    drop(guard);
    assert_eq!(store.sweep_expired(1000), 2);
}

#[test]
fn record_is_claimed_until_its_batch_has_finished() {
    let (store, _) = store();
    let what = Some(WriteKind::Put { value: b"1", expires_at: None });
    let steps = [BatchStep { key: b"a", what, expected: None }];
    let guard = store.pool().pin();
    let mut running = published(&store, &guard, &steps);
    let word = running.new_records[0].offset;
    let is_claimed = || store.slots().claims().is_claimed(&guard, word);
    assert!(is_claimed());
    // By its own batch word.
    store.root().set_active(0);
    assert!(is_claimed());
    store.root().set_active(running.descriptor.offset());
    running.descriptor.set_status(Status::Committed);
    store.slots().claims().finalize_entries(&guard, &running.descriptor, Status::Committed);
    // If its thread dies now, another thread must find the record to finish the batch.
    assert!(is_claimed());
    running.finish();
    assert!(!is_claimed());
    store.records().retire_blocks(&running.remains());
}

#[test]
fn batch_leaks_no_block() {
    let (store, _) = store();
    let put = |key, value| Write { key, what: WriteKind::Put { value, expires_at: None } };
    let remove = |key| Write { key, what: WriteKind::Remove };
    let sound = |what: &str| {
        let memory = store.memory();
        assert_eq!((memory.garbage, memory.used - memory.reachable), (0, 0), "{what}: {memory:?}");
        assert!(store.check(&mut |_, _| {}).is_sound());
    };
    store.put_entry(b"a", &LONG, None);
    let a = store.version(b"a").unwrap();
    assert_eq!(store.commit(&[put(b"b", &LONG), put(b"a", b"short")], &[], Durably::Store), Ok(Commit::Done));
    sound("committed");
    // When the failure is detected, none, one or two keys are published, in this order.
    for expected in [b"a", b"x", b"y"] {
        let writes = [put(b"a", &LONG), put(b"x", &LONG), put(b"y", b"short")];
        assert_eq!(store.commit(&writes, &[(expected, a)], Durably::Store), Ok(Commit::Changed(0)));
        sound("aborted");
    }
    assert_eq!(
        store.commit(&[remove(b"a"), remove(b"b"), remove(b"absent")], &[], Durably::Store),
        Ok(Commit::Done)
    );
    sound("removed");
    assert_eq!(store.len().get(), 0);
    let keys: [&[u8]; 2] = [b"p", b"q"];
    keys.iter().for_each(|key| store.put_entry(key, &LONG, None));
    let guard = store.pool().pin();
    store.batches().snapshot_with_writers_stopped(&guard, &keys);
    drop(guard);
    sound("frozen");
}
