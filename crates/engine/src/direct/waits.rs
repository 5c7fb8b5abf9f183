//! Who comes by a batch that is under way: what waits for it, what does not, and what it makes of what others have done meanwhile.

use super::descriptor::{Descriptor, Status};
use super::flight::Flight;
use super::plan::Step;
use super::small::{self, Store, settings, store, with_errand};
use super::view::Record;
use crate::engine::Each;
use crate::{Change, Commit, Durably, Engine, Pooled, Put, ReadError, What, Write, WriteError};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use terrace_index::Deferred;
use terrace_medium::{Dram, Pmem, Shm};
use terrace_pool::{Guard, Lock, Pool, PoolOptions};
use terrace_testkit::Counting;

const LONG: [u8; 9000] = [7; 9000];

fn step<'a>(key: &'a [u8], value: &'a [u8]) -> Step<'a> {
    Step { key, what: Some(What::Put { value, expires_at: None }), expected: None }
}

fn prepared<'s>(store: &'s Store, guard: &'s Guard<'s, Dram>, steps: &'s [Step<'s>]) -> Flight<'s, 's, Dram> {
    store.prepare(guard, steps).unwrap_or_else(|_| panic!("there is room"))
}

/// Publishes a batch that nobody goes on with, as if whoever was at it had died. Returns its descriptor.
fn left_behind(store: &Store, steps: &[Step<'_>], status: Status) -> u64 {
    let guard = store.pool().pin();
    let mut flight = prepared(store, &guard, steps);
    assert!(flight.publish().is_ok());
    flight.descriptor.decide(status);
    flight.landed = true;
    flight.descriptor.offset()
}

fn value(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).unwrap().map(|value| value.to_vec())
}

/// Long enough that a thread that waits has not only given its processor away but slept.
const A_WHILE: u32 = 20;

#[test]
fn who_writes_a_key_that_a_batch_is_at_waits_for_its_end_and_comes_after_it() {
    type Do = fn(&Store);
    let ways: [(Do, Option<&[u8]>); 6] = [
        (|store| store.give(b"a", b"later", None), Some(b"later")),
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
                let change = |entry: Option<crate::Entry<'_>>| Change::Put {
                    value: [entry.unwrap().value, b"!"].concat(),
                    expires_at: None,
                };
                store.modify(b"a", &mut |entry| change(entry), Durably::Store).unwrap();
            },
            Some(b"!"),
        ),
        (
            |store| {
                let what = What::Put { value: b"later", expires_at: None };
                assert_eq!(store.commit(&[Write { key: b"a", what }], &[], Durably::Store), Ok(Commit::Done));
            },
            Some(b"later"),
        ),
        (|store| store.clear(Durably::Store).unwrap(), None),
    ];
    for status in [Status::Open, Status::Committed] {
        let stands: &[u8] = if status == Status::Committed { b"batch" } else { b"before" };
        for (nth, (write, after)) in ways.iter().enumerate() {
            let store = Arc::new(store().0);
            store.give(b"a", b"before", None);
            let at = left_behind(&store, &[step(b"a", b"batch"), step(b"b", b"batch")], status);
            assert_eq!(value(&store, b"a").unwrap(), stands, "readers do not wait");
            let other = store.clone();
            let errand = move |calls| {
                if calls == A_WHILE {
                    assert_eq!(other.root.active(), at, "a thread of this process is at it and lives");
                    assert_eq!(other.end_batch().unwrap(), Some(status == Status::Committed));
                }
            };
            let ((), calls) = with_errand(errand, || write(&store));
            assert!(calls > A_WHILE, "{nth}: it did not wait");
            let after =
                after.map(|after| if after == b"!" { [stands, after].concat() } else { after.into() });
            assert_eq!(value(&store, b"a"), after, "{nth} {status:?}");
        }
    }
    // Another key is nobody's business.
    let store = Arc::new(store().0);
    left_behind(&store, &[step(b"a", b"batch"), step(b"b", b"batch")], Status::Open);
    let ((), calls) = with_errand(|_| {}, || store.give(b"c", b"later", None));
    assert_eq!(calls, 0);
}

#[test]
fn who_waits_for_a_batch_that_never_ends_is_told_when_the_store_stops_and_leaves_nothing() {
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
                other.stop("it was told to".into());
            }
        };
        let (refused, _) = with_errand(stop, || put(&store));
        assert_eq!(refused, Err(WriteError::Stopped("it was told to".into())));
        assert_eq!(store.memory().garbage, 0);
    }
}

/// A record of "a" whose batch has ended but which has its batch word still, as one has for a moment.
fn unsettled(store: &Store) -> u64 {
    let at = left_behind(store, &[step(b"a", b"batch"), step(b"b", b"batch")], Status::Committed);
    store.root.set_active(0);
    assert_eq!(Descriptor::find(store.pool().region(), at).unwrap().status(), Some(Status::Committed));
    store.place(b"a")
}

#[test]
fn a_check_waits_for_a_record_that_is_on_its_way_but_not_for_ever() {
    let store = Arc::new(store().0);
    let places = [unsettled(&store), store.place(b"b")];
    let (report, looks) = with_errand(|_| {}, || store.check_records(&mut |_, _| {}));
    let told: Vec<u64> = report.findings.iter().map(|finding| finding.place.offset()).collect();
    assert!(told.len() == 2 && places.iter().all(|place| told.contains(place)), "{told:?}");
    // Behind the last look it rests no more.
    assert_eq!(looks, 2 * 999);
    let other = store.clone();
    let settle = move |calls| {
        if calls == A_WHILE {
            places.iter().for_each(|place| other.raw(place + 16).store(other.pool().medium(), 0, Relaxed));
        }
    };
    let (report, looks) = with_errand(settle, || store.check_records(&mut |_, _| {}));
    assert!(report.is_sound() && looks == A_WHILE + 1, "{looks}: {:?}", report.findings);
}

#[test]
fn what_a_check_finds_wrong_with_a_record_that_has_been_replaced_meanwhile_is_not_told() {
    let store = Arc::new(store().0);
    let place = unsettled(&store);
    store.raw(store.place(b"b") + 16).store(store.pool().medium(), 0, Relaxed);
    // So that it stays where it is.
    let _pinned = store.pool().pin();
    let other = store.clone();
    let replace = move |calls| {
        if calls == A_WHILE {
            let guard = other.pool().pin();
            other.index.compare_and_swap(&guard, b"a", Some(place), None).unwrap();
        }
    };
    let (report, looks) = with_errand(replace, || store.check_records(&mut |_, _| {}));
    assert!(report.is_sound(), "{:?}", report.findings);
    assert!((A_WHILE..A_WHILE + 3).contains(&looks), "{looks}");
}

#[test]
fn what_another_has_put_under_a_key_comes_back_if_the_batch_that_noted_an_older_one_does_not_happen() {
    fn open(path: &std::path::Path) -> Store<Shm> {
        let pool = PoolOptions::at(path).size(4 << 20).open_or_create::<Shm>();
        small::open(pool.unwrap(), settings()).unwrap()
    }
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, copy) = (directory.path().join("store"), directory.path().join("copy"));
    let store = open(&path);
    let put = |value: &[u8]| store.put(Put { key: b"a", value, expires_at: None }, Durably::Store).unwrap();
    put(b"old");
    let steps = [step(b"b", b"batch"), step(b"a", b"batch")];
    let guard = store.pool().pin();
    let mut flight = store.prepare(&guard, &steps).unwrap_or_else(|_| panic!("there is room"));
    flight.olds = steps.iter().map(|step| store.index.get(&guard, step.key)).collect();
    flight.olds.iter().enumerate().for_each(|(index, &old)| flight.descriptor.set_old(index, old));
    store.root.set_active(flight.descriptor.offset());
    put(b"newer");
    let now = store.index.get(&guard, b"a");
    let mut deferred = Deferred::default();
    assert!((0..2).all(|index| flight.publish_one(index, &mut deferred).is_ok()));
    store.index.persist_deferred(&guard, deferred);
    assert_eq!((flight.olds[1], flight.descriptor.entry(1).1), (now, now));
    std::fs::copy(&path, &copy).unwrap();
    flight.take_back();
    let read = |store: &Store<Shm>| store.get(b"a").unwrap().unwrap().to_vec();
    assert_eq!((read(&store), read(&open(&copy))), (b"newer".to_vec(), b"newer".to_vec()));
}

#[test]
fn a_batch_that_is_dropped_on_its_way_ends_all_writing() {
    let (store, _) = store();
    let guard = store.pool().pin();
    let steps = [step(b"a", b"batch"), step(b"b", b"batch")];
    drop(prepared(&store, &guard, &steps));
    store.give(b"c", b"one", None);
    let mut flight = prepared(&store, &guard, &steps);
    assert!(flight.publish().is_ok());
    drop(flight);
    let refused = store.put(Put { key: b"c", value: b"two", expires_at: None }, Durably::Store);
    assert!(matches!(&refused, Err(WriteError::Stopped(why)) if why.contains("cut off")), "{refused:?}");
    assert_eq!((value(&store, b"a"), value(&store, b"c").unwrap()), (None, b"one".to_vec()));
}

#[test]
fn what_a_batch_that_is_taken_back_had_published_waits_for_readers_and_the_rest_is_free_at_once() {
    let (store, _) = store();
    let guard = store.pool().pin();
    let steps = [&b"a"[..], b"b", b"c"].map(|key| step(key, b"batch"));
    for published in 0..=3 {
        let mut flight = prepared(&store, &guard, &steps);
        flight.olds = vec![None; 3];
        store.root.set_active(flight.descriptor.offset());
        flight.landed = false;
        let mut deferred = Deferred::default();
        assert!((0..published).all(|index| flight.publish_one(index, &mut deferred).is_ok()));
        store.index.persist_deferred(&guard, deferred);
        flight.take_back();
        let descriptor = flight.descriptor.offset();
        let news: Vec<u64> = flight.news.iter().map(|new| new.offset).collect();
        let remains = flight.remains();
        let waiting: Vec<u64> = remains.iter().map(|block| block.0).collect();
        assert_eq!(waiting, [&news[..published], &[descriptor]].concat());
        store.retire_blocks(&remains);
    }
    drop(guard);
    assert_eq!(store.memory().garbage, 0);
}

#[test]
fn a_batch_changes_an_expiry_where_the_version_is_expected_whose_value_stays() {
    let (store, _) = store();
    store.give(b"long", &LONG, None);
    let extent = |store: &Store| {
        let guard = store.pool().pin();
        Record::at(&guard, store.place(b"long")).unwrap().body.outline.unwrap().extent
    };
    let (before, version) = (extent(&store), store.version(b"long").unwrap());
    let other = Write { key: b"other", what: What::Put { value: b"value", expires_at: None } };
    let writes = [Write { key: b"long", what: What::Expire(Some(5000)) }, other];
    // Without that, the value might be another's by then.
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

fn values(read: impl FnOnce(&mut Each<'_>)) -> Vec<Result<Option<Vec<u8>>, ReadError>> {
    let mut values = Vec::new();
    read(&mut |_, entry| values.push(entry.map(|entry| entry.map(|entry| entry.value.to_vec()))));
    values
}

#[test]
fn a_snapshot_of_a_store_that_is_not_written_tells_what_is_damaged_and_the_rest() {
    let (store, _) = store();
    [&b"a"[..], b"damaged", b"c"].iter().for_each(|key| store.give(key, b"value", Some(5000)));
    // Its shape, so that it cannot even be said how it stands.
    store.damage(store.place(b"damaged"));
    // Nobody can be kept out from now on.
    store.stop("it was told to".into());
    let keys: [&[u8]; 4] = [b"a", b"damaged", b"c", b"nobody"];
    let found = values(|each| store.snapshot_many(&keys, each));
    assert!(matches!(found[1], Err(ReadError::Corrupt { .. })), "{found:?}");
    let sound = |nth: usize| found[nth].clone().unwrap();
    assert_eq!((sound(0), sound(2), sound(3)), (Some(b"value".to_vec()), Some(b"value".to_vec()), None));
    let guard = store.pool().pin();
    let keys: [&[u8]; 3] = [b"a", b"nobody", b"c"];
    let seen = store.see_frozen(&guard, &keys);
    let found = values(|each| store.show(&guard, seen, each));
    assert_eq!(found, [Ok(Some(b"value".to_vec())), Ok(None), Ok(Some(b"value".to_vec()))]);
}

type Counted = Store<Counting<Pmem>>;

fn counted() -> (Counted, Pool<Counting<Pmem>>) {
    let pool = PoolOptions::anonymous().size(16 << 20).hash_seed(5).create().unwrap();
    (small::open(Pool::clone(&pool), settings()).unwrap(), pool)
}

#[test]
fn what_a_batch_under_way_costs_to_look_at_on_a_volatile_cache() {
    let (store, pool) = counted();
    let guard = pool.pin();
    let steps = [step(b"a", b"batch"), step(b"b", b"batch"), step(b"c", b"batch")];
    let mut flight = store.prepare(&guard, &steps).unwrap_or_else(|_| panic!("there is room"));
    // Its head, and three entries.
    let costs = |work: &dyn Fn()| {
        let (counts, ()) = pool.medium().during(work);
        (counts.write_backs, counts.fences)
    };
    assert_eq!(costs(&|| flight.descriptor.write_back()), (2, 0));
    assert!(flight.publish().is_ok());
    let read = || assert!(store.get(b"a").is_ok());
    assert_eq!(costs(&read), (0, 0), "it has not happened");
    flight.descriptor.decide(Status::Committed);
    // Whoever is told of it must find it so after a loss of power.
    assert_eq!(costs(&read), (1, 1));
    flight.commit();
    assert_eq!(costs(&read), (0, 0));
    store.retire_blocks(&flight.remains());
}

#[test]
fn a_slot_that_has_changed_since_is_noted_anew_durably_before_it_is_the_batch_s() {
    let (store, pool) = counted();
    let guard = pool.pin();
    let costs_of = |is_changed: bool| {
        let steps = [step(b"a", b"batch")];
        let mut flight = store.prepare(&guard, &steps).unwrap_or_else(|_| panic!("there is room"));
        flight.olds = vec![store.index.get(&guard, b"a")];
        if is_changed {
            store.put(Put { key: b"a", value: b"other", expires_at: None }, Durably::Store).unwrap();
        }
        let mut deferred = Deferred::default();
        let (counts, done) = pool.medium().during(|| flight.publish_one(0, &mut deferred));
        assert!(done.is_ok());
        store.index.persist_deferred(&guard, deferred);
        store.root.set_active(flight.descriptor.offset());
        flight.landed = false;
        flight.take_back();
        store.retire_blocks(&flight.remains());
        (counts.write_backs, counts.fences)
    };
    store.put(Put { key: b"a", value: b"old", expires_at: None }, Durably::Store).unwrap();
    let (write_backs, fences) = costs_of(false);
    assert_eq!(costs_of(true), (write_backs + 1, fences + 1));
}

#[test]
fn who_replaces_a_batch_s_record_makes_its_end_durable_where_nobody_knows_whether_it_is() {
    let (store, pool) = counted();
    let guard = pool.pin();
    let what = What::Put { value: b"batch", expires_at: None };
    let again = || {
        let writes = [b"a", b"b"].map(|key| Write { key, what });
        assert_eq!(store.commit(&writes, &[], Durably::Store), Ok(Commit::Done));
    };
    let lock = Lock::of(store.root.lock());
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
    // Now and then the allocator makes something durable.
    let [durable, unknown] = [true, false].map(|is| (0..8).map(|_| cost(is)).min());
    assert_eq!(unknown, durable.map(|cost| cost + 1));
}
