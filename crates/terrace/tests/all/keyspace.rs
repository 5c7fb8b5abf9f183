//! Tests: the common behaviour of stores and transactions, and simple queries of a store.

use crate::common::{Medium, Site, assert_sound};
use std::error::Error;
use std::time::Duration;
use terrace::{
    ByteSize, Change, KEY_MAX, Keyspace, OpenError, ReadError, Store, Transaction, Version, WriteError,
};
use terrace_pool::Problem;

/// Calls every operation on keys, in a store that is empty before.
fn try_all(keys: &mut impl Keyspace) -> Result<(), WriteError> {
    assert!(keys.is_empty() && keys.get(b"a")?.is_none());
    keys.put(b"a", b"1")?;
    keys.put(b"b", b"22")?;
    assert_eq!((keys.len(), keys.is_empty()), (2, false));
    assert_eq!(keys.get(b"b")?.unwrap(), b"22");
    let seen = keys.modify(b"a", |entry| {
        let value = entry.map(|entry| entry.value.to_vec());
        (Change::Put { value: b"3".to_vec(), expires_at: None }, value)
    })?;
    assert_eq!((seen.as_deref(), keys.get(b"a")?.as_deref()), (Some(&b"1"[..]), Some(&b"3"[..])));
    assert!(keys.remove(b"a")? && !keys.remove(b"a")?);
    assert_eq!(keys.len(), 1);
    keys.clear()?;
    assert!(keys.is_empty() && keys.get(b"b")?.is_none());
    keys.put(b"c", b"4")
}

#[test]
fn store_and_transaction_behave_alike() {
    let site = Site::new(Medium::Dram, ByteSize::mib(4));
    let mut store = site.create();
    try_all(&mut store).unwrap();
    assert_eq!(store.remove(b"c"), Ok(true));
    store.transaction(|transaction| try_all(transaction)).unwrap();
    assert_eq!((store.len(), store.get(b"c").unwrap().unwrap().to_vec()), (1, b"4".to_vec()));
}

#[test]
fn transaction_len_includes_its_writes() {
    let site = Site::new(Medium::Dram, ByteSize::mib(4));
    let store = site.create();
    [b"a", b"b", b"c"].iter().for_each(|key| store.put(*key, b"old").unwrap());
    let lens = store.transaction(|transaction| {
        let mut lens = vec![transaction.len()];
        // With the method, and through the trait.
        let are_empty = |it: &mut Transaction<'_>| [Transaction::is_empty(it), Keyspace::is_empty(it)];
        assert_eq!(are_empty(transaction), [false; 2]);
        transaction.put(b"a", b"new").unwrap();
        lens.push(transaction.len());
        transaction.put(b"d", b"new").unwrap();
        lens.push(transaction.len());
        assert!(transaction.remove(b"b").unwrap());
        lens.push(transaction.len());
        assert!(transaction.remove(b"d").unwrap());
        lens.push(transaction.len());
        transaction.clear().unwrap();
        assert_eq!((are_empty(transaction), transaction.get(b"c").unwrap().is_none()), ([true; 2], true));
        transaction.put(b"a", b"newer").unwrap();
        lens.push(transaction.len());
        Ok::<_, WriteError>(lens)
    });
    assert_eq!(lens.unwrap(), [3, 3, 4, 3, 2, 1]);
    assert_eq!((store.len(), store.contains(b"a"), store.contains(b"b")), (1, Ok(true), Ok(false)));
}

#[test]
fn batch_len_counts_steps() {
    let site = Site::new(Medium::Dram, ByteSize::mib(4));
    let store = site.create();
    assert!(store.is_empty());
    let mut batch = store.batch();
    assert_eq!((batch.len(), batch.is_empty()), (0, true));
    batch.put(b"a", b"1").put_expiring(b"b", b"2", Duration::from_secs(5)).remove(b"c");
    assert_eq!((batch.len(), batch.is_empty()), (3, false));
    batch.commit().unwrap();
    assert_eq!(store.get(b"b").unwrap().unwrap().expires_at(), Some(1_005_000));
    assert_eq!((store.len(), store.is_empty()), (2, false));
}

#[test]
fn store_reports_path_and_clock() {
    let site = Site::new(Medium::Shm, ByteSize::mib(4));
    let store = site.create();
    assert_eq!((store.path(), store.upkeep().now_ms()), (Some(&*site.path), 1_000_000));
    site.clock.advance(5);
    assert_eq!(store.upkeep().now_ms(), 1_000_005);
    let anonymous = Site::new(Medium::Dram, ByteSize::mib(4)).create();
    assert!(anonymous.path().is_none() && anonymous.opening().salvaged().is_none());
    assert!(!anonymous.expire(b"absent", Duration::from_secs(1)).unwrap());
    anonymous.put(b"key", b"value").unwrap();
    assert!(anonymous.expire(b"key", Duration::from_secs(1)).unwrap());
}

#[test]
fn increment_accepts_canonical_integers_only() {
    let store = Site::new(Medium::Dram, ByteSize::mib(4)).create();
    for (text, sum) in [
        ("0", Some(1)),
        ("-1", Some(0)),
        ("9223372036854775806", Some(i64::MAX)),
        ("9223372036854775807", None),
        ("+1", None),
        ("01", None),
        ("-0", None),
        (" 1", None),
        ("", None),
        ("1.0", None),
    ] {
        store.put(b"n", text.as_bytes()).unwrap();
        assert_eq!(store.increment(b"n", 1).ok(), sum, "{text}");
        let after = sum.map_or(text.to_string(), |sum| sum.to_string());
        assert_eq!(store.get(b"n").unwrap().unwrap(), after.as_bytes());
    }
}

/// A key and its present version, for a transaction to watch.
fn as_it_is(store: &Store, key: &[u8]) -> (Vec<u8>, Version) {
    (key.to_vec(), store.version(key).unwrap())
}

#[test]
fn watched_change_ends_and_read_change_repeats() {
    let site = Site::new(Medium::Dram, ByteSize::mib(8));
    let store = site.create();
    store.put(b"watched", b"old").unwrap();
    let watched = [as_it_is(&store, b"watched")];
    let mut runs = 0;
    let ended = store.transaction_if(&watched, |transaction| {
        runs += 1;
        assert_eq!(runs, 1);
        store.put(b"watched", b"new").unwrap();
        transaction.put(b"written", b"")
    });
    assert!(ended.unwrap().is_none() && store.get(b"written").unwrap().is_none());
    let watched = [as_it_is(&store, b"watched")];
    let mut runs = 0;
    let done = store.transaction_if(&watched, |transaction| {
        runs += 1;
        let read = transaction.get(b"read").unwrap().map(|entry| entry.to_vec());
        if runs < 3 {
            store.put(b"read", [runs]).unwrap();
        }
        transaction.put(b"written", b"")?;
        Ok::<_, WriteError>(read)
    });
    assert_eq!((done.unwrap(), runs), (Some(Some(vec![2])), 3));
}

/// Every change that a transaction can make, in a store in which "a", "b" and "c" have the value
/// "old".
fn do_all(transaction: &mut Transaction<'_>) -> Result<(), WriteError> {
    transaction.put(b"a", b"new")?;
    transaction.put(b"new", b"new")?;
    transaction.put_expiring(b"b", b"new", Some(5_000_000))?;
    assert!(transaction.remove(b"c")?);
    transaction.clear()?;
    transaction.put(b"after", b"new")
}

fn three_old_keys() -> Store {
    let store = Site::new(Medium::Dram, ByteSize::mib(8)).create();
    [b"a", b"b", b"c"].iter().for_each(|key| store.put(*key, b"old").unwrap());
    store
}

/// Asserts that the store is unchanged and writable.
fn assert_untouched(store: &Store) {
    assert_eq!(store.len(), 3);
    for key in [b"a", b"b", b"c"] {
        let value = store.get(key).unwrap().unwrap();
        assert_eq!((&*value, value.expires_at()), (&b"old"[..], None));
    }
    assert_sound(store);
}

/// An error type of a user.
#[derive(Debug, PartialEq)]
enum Refusal {
    Mine,
    Store(WriteError),
}

impl From<WriteError> for Refusal {
    fn from(error: WriteError) -> Self {
        Self::Store(error)
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        Self::Store(error.into())
    }
}

#[test]
fn transaction_rolls_back_when_closure_fails() {
    let store = three_old_keys();
    let watched = [as_it_is(&store, b"a")];
    let refused = store.transaction(|transaction| {
        do_all(transaction)?;
        Err::<(), _>(Refusal::Mine)
    });
    assert_eq!(refused, Err(Refusal::Mine));
    assert_untouched(&store);
    let refused = store.transaction_if(&watched, |transaction| {
        do_all(transaction)?;
        Ok::<_, Refusal>(transaction.put(vec![7; KEY_MAX + 1], b"")?)
    });
    assert_eq!(refused, Err(Refusal::Store(WriteError::KeyTooLong)));
    assert_untouched(&store);
    assert_eq!(store.transaction(do_all), Ok(()));
    assert_eq!(store.len(), 1);
}

#[test]
fn transaction_does_nothing_after_abort_and_returns_result() {
    let store = three_old_keys();
    let watched = [as_it_is(&store, b"a")];
    let give_up = |transaction: &mut Transaction<'_>| {
        do_all(transaction)?;
        transaction.abort();
        let seen = transaction.get(b"after")?.map(|value| value.to_vec());
        transaction.put(b"later", b"new")?;
        Ok::<_, WriteError>(seen)
    };
    assert_eq!(store.transaction(give_up), Ok(Some(b"new".to_vec())));
    assert_eq!(store.transaction_if(&watched, give_up), Ok(Some(Some(b"new".to_vec()))));
    assert_untouched(&store);
    store.put(b"a", b"old").unwrap();
    assert_eq!(store.transaction_if(&watched, give_up), Ok(None));
    assert_untouched(&store);
}

/// The closure sees a state that never existed, and would fail because of it.
#[test]
fn failure_of_torn_reads_runs_again() {
    for aborts in [false, true] {
        let store = three_old_keys();
        let mut runs = 0;
        let equal = store.transaction(|transaction| {
            runs += 1;
            let a = transaction.get(b"a")?.map(|value| value.to_vec());
            if runs == 1 {
                let mut both = store.batch();
                both.put(b"a", b"new").put(b"b", b"new");
                both.commit()?;
            }
            let b = transaction.get(b"b")?.map(|value| value.to_vec());
            if aborts {
                transaction.abort();
                return Ok(a == b);
            }
            if a == b { Ok(true) } else { Err(Refusal::Mine) }
        });
        assert_eq!((equal, runs), (Ok(true), 2));
    }
}

#[test]
fn failure_is_passed_on_unless_watched_key_changed() {
    let store = three_old_keys();
    let watched = [as_it_is(&store, b"a")];
    let fail = |store: &Store| store.transaction_if(&watched, |_| Err::<(), _>(Refusal::Mine));
    assert_eq!(fail(&store), Err(Refusal::Mine));
    store.put(b"a", b"old").unwrap();
    assert_eq!(fail(&store), Ok(None));
    assert_untouched(&store);
}

/// The last state equals the first, but the state that the transaction saw never existed.
#[test]
fn torn_read_runs_transaction_again() {
    let site = Site::new(Medium::Dram, ByteSize::mib(8));
    let store = site.create();
    store.put(b"watched", b"").unwrap();
    let watched = [as_it_is(&store, b"watched")];
    for watched in [&watched[..], &[]] {
        let mut runs = 0;
        let done = store.transaction_if(watched, |transaction| {
            runs += 1;
            let before = transaction.get(b"key").unwrap().is_some();
            if runs == 1 {
                store.put(b"key", b"").unwrap();
            }
            let then = transaction.get(b"key").unwrap().is_some();
            store.remove(b"key").unwrap();
            transaction.put(b"written", b"")?;
            Ok::<_, WriteError>((before, then))
        });
        assert_eq!((done.unwrap(), runs), (Some((false, false)), 2));
    }
}

#[test]
fn open_error_has_kind_and_source() {
    let site = Site::new(Medium::Shm, ByteSize::mib(4));
    let missing = site.options().open().unwrap_err();
    assert!(!missing.is_in_use() && missing.source().is_none(), "{missing:?}");
    let store = site.create();
    let in_use = site.options().open().unwrap_err();
    assert!(in_use.is_in_use(), "{in_use}");
    drop(store);
    assert!(Store::options().open().unwrap_err().source().is_none());
    let refused = || std::io::Error::from_raw_os_error(11);
    let thread = OpenError::Thread(refused());
    assert!(thread.source().is_some() && !thread.is_in_use() && !thread.is_shared_only());
    let of_pool = |problem| OpenError::from(terrace_pool::OpenError { pool: site.path.clone(), problem });
    let denied = of_pool(Problem::Denied(refused()));
    assert!(denied.source().is_some() && !denied.is_in_use() && !denied.is_shared_only());
    let for_sharers = of_pool(Problem::NotReadable);
    assert!(for_sharers.source().is_none() && !for_sharers.is_in_use() && for_sharers.is_shared_only());
}

#[test]
fn repeated_salvage_keeps_all_damaged_pools() {
    let site = Site::new(Medium::Shm, ByteSize::mib(4));
    let store = site.create();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    let image = std::fs::read(&site.path).unwrap();
    // The same pool, damaged in the same way three times.
    let names = [(); 3].map(|()| {
        std::fs::write(&site.path, &image).unwrap();
        let store = site.options().salvage(true).open().unwrap();
        let salvaged = store.opening().salvaged().unwrap();
        assert_eq!((salvaged.kept, salvaged.dropped), (1, 0));
        assert!(std::fs::read(&salvaged.damaged).unwrap() == image);
        salvaged.damaged.display().to_string()
    });
    assert!(names[0].contains(".pool.damaged-"));
    assert_eq!([&names[1], &names[2]], [&format!("{}-1", names[0]), &format!("{}-2", names[0])]);
}
