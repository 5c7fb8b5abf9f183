//! Tests: single-key operations during a batch (which wait, and what they see), and batches during
//! other writes.

use crate::batch::descriptor::{Descriptor, Status};
use crate::batch::flight::RunningBatch;
use crate::batch::plan::BatchStep;
use crate::record::view::Record;
use crate::tests::fixtures::{self, Store, settings, store, with_hook_on_wait};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::EntryCallback;
use terrace_engine::Pooled;
use terrace_engine::{Change, Commit, Durably, Engine, Put, ReadError, Write, WriteError, WriteKind};
use terrace_index::Deferred;
use terrace_medium::{Dram, Shm};
use terrace_pool::{Guard, Lock, Pool, PoolOptions};
use terrace_testkit::TappedPmem;

const LONG: [u8; 9000] = [7; 9000];

fn step<'a>(key: &'a [u8], value: &'a [u8]) -> BatchStep<'a> {
    BatchStep { key, what: Some(WriteKind::Put { value, expires_at: None }), expected: None }
}

fn prepared<'s>(
    store: &'s Store,
    guard: &'s Guard<'s, Dram>,
    steps: &'s [BatchStep<'s>],
) -> RunningBatch<'s, 's, Dram> {
    store.batches().prepare(guard, steps).unwrap_or_else(|_| panic!("there is room"))
}

/// Publishes a batch and leaves it, as if its thread had died. Returns its descriptor.
fn left_behind(store: &Store, steps: &[BatchStep<'_>], status: Status) -> u64 {
    let guard = store.pool().pin();
    let mut running = prepared(store, &guard, steps);
    assert!(running.publish().is_ok());
    running.descriptor.set_status(status);
    running.finished = true;
    running.descriptor.offset()
}

fn value(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).unwrap().map(|value| value.to_vec())
}

/// Calls of the hook after which a waiting thread has not only yielded but slept.
const A_WHILE: u32 = 20;

/// A write of the key "a".
type Do = fn(&Store);

/// Writes of each kind, and the value after each; "!" is appended to the value before.
fn ways() -> [(Do, Option<&'static [u8]>); 6] {
    [
        (|store| store.put_entry(b"a", b"later", None), Some(b"later")),
        (
            |store| {
                let put = Put { key: b"a", value: b"later", expires_at: None };
                assert_eq!(store.put_many(&[put], Durably::Store), [Ok(())]);
            },
            Some(b"later"),
        ),
        (|store| assert_eq!(store.remove(b"a", Durably::Store), Ok(true)), None),
        (
            |store| {
                let change = |entry: Option<terrace_engine::Entry<'_>>| Change::Put {
                    value: [entry.unwrap().value, b"!"].concat(),
                    expires_at: None,
                };
                store.modify(b"a", &mut |entry| change(entry), Durably::Store).unwrap();
            },
            Some(b"!"),
        ),
        (
            |store| {
                let what = WriteKind::Put { value: b"later", expires_at: None };
                assert_eq!(store.commit(&[Write { key: b"a", what }], &[], Durably::Store), Ok(Commit::Done));
            },
            Some(b"later"),
        ),
        (|store| store.clear(Durably::Store).unwrap(), None),
    ]
}

#[test]
fn writer_waits_for_batch_of_its_key() {
    for status in [Status::Open, Status::Committed] {
        let stands: &[u8] = if status == Status::Committed { b"batch" } else { b"before" };
        for (nth, (write, after)) in ways().into_iter().enumerate() {
            let store = Arc::new(store().0);
            store.put_entry(b"a", b"before", None);
            let at = left_behind(&store, &[step(b"a", b"batch"), step(b"b", b"batch")], status);
            assert_eq!(value(&store, b"a").unwrap(), stands, "readers do not wait");
            let other = store.clone();
            let hook = move |calls| {
                if calls == A_WHILE {
                    assert_eq!(other.root().active(), at, "a live thread of this process owns it");
                    assert_eq!(
                        other.slots().claims().finish_batch().unwrap(),
                        Some(status == Status::Committed)
                    );
                }
            };
            let ((), calls) = with_hook_on_wait(hook, || write(&store));
            assert!(calls > A_WHILE, "{nth}: it did not wait");
            let after =
                after.map(|after| if after == b"!" { [stands, after].concat() } else { after.into() });
            assert_eq!(value(&store, b"a"), after, "{nth} {status:?}");
        }
    }
}

#[test]
fn writer_of_another_key_does_not_wait() {
    let store = Arc::new(store().0);
    left_behind(&store, &[step(b"a", b"batch"), step(b"b", b"batch")], Status::Open);
    let ((), calls) = with_hook_on_wait(|_| {}, || store.put_entry(b"c", b"later", None));
    assert_eq!(calls, 0);
}

#[test]
fn waiting_writer_fails_when_store_stops() {
    type Attempt = fn(&Store) -> Result<(), WriteError>;
    let puts: [Attempt; 2] = [
        |store| store.put(Put { key: b"a", value: &LONG, expires_at: None }, Durably::Store),
        |store| {
            store.put_many(&[Put { key: b"a", value: &LONG, expires_at: None }], Durably::Store).remove(0)
        },
    ];
    for put in puts {
        let store = Arc::new(store().0);
        left_behind(&store, &[step(b"a", b"batch"), step(b"b", b"batch")], Status::Open);
        let other = store.clone();
        let stop = move |calls| {
            if calls == A_WHILE {
                other.stop("a test".into());
            }
        };
        let (refused, _) = with_hook_on_wait(stop, || put(&store));
        assert_eq!(refused, Err(WriteError::Stopped("a test".into())));
        assert_eq!(store.memory().garbage, 0);
    }
}

/// A record of "a" whose batch has finished but whose batch word is still set, as is the case for a
/// moment.
fn unfinalized(store: &Store) -> u64 {
    let at = left_behind(store, &[step(b"a", b"batch"), step(b"b", b"batch")], Status::Committed);
    store.root().set_active(0);
    assert_eq!(Descriptor::find(store.pool().region(), at).unwrap().status(), Some(Status::Committed));
    store.record_offset(b"a")
}

#[test]
fn check_waits_for_finalizing_but_not_forever() {
    let store = Arc::new(store().0);
    let places = [unfinalized(&store), store.record_offset(b"b")];
    let (report, looks) = with_hook_on_wait(|_| {}, || store.check_records(&mut |_, _| {}));
    let reported: Vec<u64> = report.findings.iter().map(|finding| finding.place.offset()).collect();
    assert!(reported.len() == 2 && places.iter().all(|place| reported.contains(place)), "{reported:?}");
    // It does not sleep after the last look.
    assert_eq!(looks, 2 * 999);
    let other = store.clone();
    let finalize = move |calls| {
        if calls == A_WHILE {
            places.iter().for_each(|place| other.raw(place + 16).store(other.pool().medium(), 0, Relaxed));
        }
    };
    let (report, looks) = with_hook_on_wait(finalize, || store.check_records(&mut |_, _| {}));
    assert!(report.is_sound() && looks == A_WHILE + 1, "{looks}: {:?}", report.findings);
}

#[test]
fn check_ignores_record_replaced_meanwhile() {
    let store = Arc::new(store().0);
    let place = unfinalized(&store);
    store.raw(store.record_offset(b"b") + 16).store(store.pool().medium(), 0, Relaxed);
    // Keeps the record's block.
    let _pinned = store.pool().pin();
    let other = store.clone();
    let replace = move |calls| {
        if calls == A_WHILE {
            let guard = other.pool().pin();
            other.index().compare_and_swap(&guard, b"a", Some(place), None).unwrap();
        }
    };
    let (report, looks) = with_hook_on_wait(replace, || store.check_records(&mut |_, _| {}));
    assert!(report.is_sound(), "{:?}", report.findings);
    assert!((A_WHILE..A_WHILE + 3).contains(&looks), "{looks}");
}

#[test]
fn abort_restores_record_put_before_publish() {
    fn open(path: &std::path::Path) -> Store<Shm> {
        let pool = PoolOptions::at(path).size(4 << 20).open_or_create::<Shm>();
        fixtures::open(pool.unwrap(), settings()).unwrap()
    }
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, copy) = (directory.path().join("store"), directory.path().join("copy"));
    let store = open(&path);
    let put = |value: &[u8]| store.put(Put { key: b"a", value, expires_at: None }, Durably::Store).unwrap();
    put(b"old");
    let steps = [step(b"b", b"batch"), step(b"a", b"batch")];
    let guard = store.pool().pin();
    let mut running = store.batches().prepare(&guard, &steps).unwrap_or_else(|_| panic!("there is room"));
    running.old_records = steps.iter().map(|step| store.index().get(&guard, step.key)).collect();
    running.old_records.iter().enumerate().for_each(|(index, &old)| running.descriptor.set_old(index, old));
    store.root().set_active(running.descriptor.offset());
    put(b"newer");
    let now = store.index().get(&guard, b"a");
    let mut deferred = Deferred::default();
    assert!((0..2).all(|index| running.publish_one(index, &mut deferred).is_ok()));
    store.index().persist_deferred(&guard, deferred);
    assert_eq!((running.old_records[1], running.descriptor.entry(1).1), (now, now));
    std::fs::copy(&path, &copy).unwrap();
    running.abort();
    let read = |store: &Store<Shm>| store.get(b"a").unwrap().unwrap().to_vec();
    assert_eq!((read(&store), read(&open(&copy))), (b"newer".to_vec(), b"newer".to_vec()));
}

#[test]
fn dropped_batch_disables_writes() {
    let (store, _) = store();
    let guard = store.pool().pin();
    let steps = [step(b"a", b"batch"), step(b"b", b"batch")];
    drop(prepared(&store, &guard, &steps));
    store.put_entry(b"c", b"one", None);
    let mut running = prepared(&store, &guard, &steps);
    assert!(running.publish().is_ok());
    drop(running);
    let refused = store.put(Put { key: b"c", value: b"two", expires_at: None }, Durably::Store);
    assert!(matches!(&refused, Err(WriteError::Stopped(why)) if why.contains("interrupted")), "{refused:?}");
    assert_eq!((value(&store, b"a"), value(&store, b"c").unwrap()), (None, b"one".to_vec()));
}

#[test]
fn abort_retires_published_and_frees_the_rest() {
    let (store, _) = store();
    let guard = store.pool().pin();
    let steps = [&b"a"[..], b"b", b"c"].map(|key| step(key, b"batch"));
    for published in 0..=3 {
        let mut running = prepared(&store, &guard, &steps);
        running.old_records = vec![None; 3];
        store.root().set_active(running.descriptor.offset());
        running.finished = false;
        let mut deferred = Deferred::default();
        assert!((0..published).all(|index| running.publish_one(index, &mut deferred).is_ok()));
        store.index().persist_deferred(&guard, deferred);
        running.abort();
        let descriptor = running.descriptor.offset();
        let new_records: Vec<u64> = running.new_records.iter().map(|new| new.offset).collect();
        let remains = running.remains();
        let waiting: Vec<u64> = remains.iter().map(|block| block.0).collect();
        assert_eq!(waiting, [&new_records[..published], &[descriptor]].concat());
        store.records().retire_blocks(&remains);
    }
    drop(guard);
    assert_eq!(store.memory().garbage, 0);
}

#[test]
fn batch_changes_expiry_of_expected_version_only() {
    let (store, _) = store();
    store.put_entry(b"long", &LONG, None);
    let extent = |store: &Store| {
        let guard = store.pool().pin();
        Record::at(&guard, store.record_offset(b"long")).unwrap().body.external.unwrap().extent
    };
    let (before, version) = (extent(&store), store.version(b"long").unwrap());
    let other = Write { key: b"other", what: WriteKind::Put { value: b"value", expires_at: None } };
    let writes = [Write { key: b"long", what: WriteKind::Expire(Some(5000)) }, other];
    // Without an expected version, the value might be another's by then.
    assert_eq!(store.commit(&writes, &[], Durably::Store), Ok(Commit::Done));
    assert_eq!(store.get(b"long").unwrap().unwrap().expires_at(), None);
    assert_eq!(store.version(b"long").unwrap(), version);
    assert_eq!(store.commit(&writes, &[(b"long", version)], Durably::Store), Ok(Commit::Done));
    let found = store.get(b"long").unwrap().unwrap();
    assert!(found.expires_at() == Some(5000) && *found == LONG && extent(&store) == before);
    drop(found);
    let memory = store.memory();
    assert_eq!((memory.garbage, memory.used, memory.overlapping), (0, memory.reachable, 0));
    assert_eq!(store.commit(&writes, &[(b"long", version)], Durably::Store), Ok(Commit::Changed(0)));
}

fn values(read: impl FnOnce(&mut EntryCallback<'_>)) -> Vec<Result<Option<Vec<u8>>, ReadError>> {
    let mut values = Vec::new();
    read(&mut |_, entry| values.push(entry.map(|entry| entry.map(|entry| entry.value.to_vec()))));
    values
}

#[test]
fn snapshot_of_stopped_store_reports_damage() {
    let (store, _) = store();
    [&b"a"[..], b"damaged", b"c"].iter().for_each(|key| store.put_entry(key, b"value", Some(5000)));
    // Damages its shape, so that not even its state is known.
    store.damage(store.record_offset(b"damaged"));
    // Writers can no longer be stopped.
    store.stop("a test".into());
    let keys: [&[u8]; 4] = [b"a", b"damaged", b"c", b"absent"];
    let found = values(|each| store.snapshot_many(&keys, each));
    assert!(matches!(found[1], Err(ReadError::Corrupt { .. })), "{found:?}");
    let sound = |nth: usize| found[nth].clone().unwrap();
    assert_eq!((sound(0), sound(2), sound(3)), (Some(b"value".to_vec()), Some(b"value".to_vec()), None));
    let guard = store.pool().pin();
    let keys: [&[u8]; 3] = [b"a", b"absent", b"c"];
    let seen = store.batches().snapshot_with_writers_stopped(&guard, &keys);
    let found = values(|each| store.reads().report(&guard, seen, each));
    assert_eq!(found, [Ok(Some(b"value".to_vec())), Ok(None), Ok(Some(b"value".to_vec()))]);
}

type Counted = Store<TappedPmem>;

fn counted() -> (Counted, Pool<TappedPmem>) {
    let pool = PoolOptions::anonymous().size(16 << 20).hash_seed(5).create().unwrap();
    (fixtures::open(Pool::clone(&pool), settings()).unwrap(), pool)
}

#[test]
fn read_of_running_batch_persists_its_commit() {
    let (store, pool) = counted();
    let guard = pool.pin();
    let steps = [step(b"a", b"batch"), step(b"b", b"batch"), step(b"c", b"batch")];
    let mut running = store.batches().prepare(&guard, &steps).unwrap_or_else(|_| panic!("there is room"));
    // The descriptor's head, and three entries.
    let costs = |work: &dyn Fn()| {
        let (counts, ()) = pool.medium().during(work);
        (counts.write_backs, counts.fences)
    };
    assert_eq!(costs(&|| running.descriptor.write_back()), (2, 0));
    assert!(running.publish().is_ok());
    let read = || assert!(store.get(b"a").is_ok());
    assert_eq!(costs(&read), (0, 0), "the batch is not committed");
    running.descriptor.set_status(Status::Committed);
    // A reader that has seen the commit must find it so after a loss of power.
    assert_eq!(costs(&read), (1, 1));
    running.commit();
    assert_eq!(costs(&read), (0, 0));
    store.records().retire_blocks(&running.remains());
}

#[test]
fn changed_old_record_is_persisted_before_the_swap() {
    let (store, pool) = counted();
    let guard = pool.pin();
    let costs_of = |is_changed: bool| {
        let steps = [step(b"a", b"batch")];
        let mut running = store.batches().prepare(&guard, &steps).unwrap_or_else(|_| panic!("there is room"));
        running.old_records = vec![store.index().get(&guard, b"a")];
        if is_changed {
            store.put(Put { key: b"a", value: b"other", expires_at: None }, Durably::Store).unwrap();
        }
        let mut deferred = Deferred::default();
        let (counts, done) = pool.medium().during(|| running.publish_one(0, &mut deferred));
        assert!(done.is_ok());
        store.index().persist_deferred(&guard, deferred);
        store.root().set_active(running.descriptor.offset());
        running.finished = false;
        running.abort();
        store.records().retire_blocks(&running.remains());
        (counts.write_backs, counts.fences)
    };
    store.put(Put { key: b"a", value: b"old", expires_at: None }, Durably::Store).unwrap();
    let (write_backs, fences) = costs_of(false);
    assert_eq!(costs_of(true), (write_backs + 1, fences + 1));
}

#[test]
fn replacing_batch_record_persists_its_finish() {
    let (store, pool) = counted();
    let guard = pool.pin();
    let what = WriteKind::Put { value: b"batch", expires_at: None };
    let again = || {
        let writes = [b"a", b"b"].map(|key| Write { key, what });
        assert_eq!(store.commit(&writes, &[], Durably::Store), Ok(Commit::Done));
    };
    let lock = Lock::of(store.root().lock());
    let cost = |is_durable: bool| {
        again();
        let held = lock.acquire(&guard);
        match is_durable {
            true => held.release(),
            false => held.release_unfenced(),
        }
        // One line.
        let put = || store.put(Put { key: b"a", value: &[7; 47], expires_at: None }, Durably::Store).unwrap();
        pool.medium().during(put).0.write_backs
    };
    // Now and then the allocator persists something.
    let [durable, unknown] = [true, false].map(|is| (0..8).map(|_| cost(is)).min());
    assert_eq!(unknown, durable.map(|cost| cost + 1));
}
