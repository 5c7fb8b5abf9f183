//! What a store and a transaction over it answer alike, and the small questions that a store is asked.

mod common;

use common::{Medium, Site};
use std::error::Error;
use std::time::Duration;
use terrace::{ByteSize, Change, Keyspace, OpenError, Store, Transaction, Version, WriteError};
use terrace_pool::Problem;

/// Everything that keys can be asked, in a store that is empty before.
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
fn a_store_and_a_transaction_answer_alike() {
    let site = Site::new(Medium::Dram, ByteSize::mib(4));
    let mut store = site.create();
    try_all(&mut store).unwrap();
    assert_eq!(store.remove(b"c"), Ok(true));
    store.transaction(&[], |transaction| try_all(transaction)).unwrap().unwrap().unwrap();
    assert_eq!((store.len(), store.get(b"c").unwrap().unwrap().to_vec()), (1, b"4".to_vec()));
}

#[test]
fn a_transaction_counts_what_it_has_written_over_what_is_there() {
    let site = Site::new(Medium::Dram, ByteSize::mib(4));
    let store = site.create();
    [b"a", b"b", b"c"].iter().for_each(|key| store.put(*key, b"old").unwrap());
    let lens = store.transaction(&[], |transaction| {
        let mut lens = vec![transaction.len()];
        // By itself, and as any keyspace.
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
        lens
    });
    assert_eq!(lens.unwrap().unwrap(), [3, 3, 4, 3, 2, 1]);
    assert_eq!((store.len(), store.contains(b"a"), store.contains(b"b")), (1, Ok(true), Ok(false)));
}

#[test]
fn a_batch_says_how_many_steps_it_has() {
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
fn a_store_says_where_it_lies_and_by_which_clock_it_goes() {
    let site = Site::new(Medium::Shm, ByteSize::mib(4));
    let store = site.create();
    assert_eq!((store.path(), store.now_ms()), (Some(&*site.path), 1_000_000));
    site.clock.advance(5);
    assert_eq!(store.now_ms(), 1_000_005);
    let anonymous = Site::new(Medium::Dram, ByteSize::mib(4)).create();
    assert!(anonymous.path().is_none() && anonymous.salvaged().is_none());
    assert!(!anonymous.expire(b"absent", Duration::from_secs(1)).unwrap());
    anonymous.put(b"key", b"value").unwrap();
    assert!(anonymous.expire(b"key", Duration::from_secs(1)).unwrap());
}

#[test]
fn integers_are_read_in_the_one_form_in_which_they_are_written() {
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

/// For a transaction to watch.
fn as_it_is(store: &Store, key: &[u8]) -> (Vec<u8>, Version) {
    (key.to_vec(), store.version(key).unwrap())
}

#[test]
fn a_transaction_ends_if_what_is_watched_changes_while_it_runs_and_begins_again_if_what_it_has_read_does() {
    let site = Site::new(Medium::Dram, ByteSize::mib(8));
    let store = site.create();
    store.put(b"watched", b"old").unwrap();
    let watched = [as_it_is(&store, b"watched")];
    let mut runs = 0;
    let ended = store.transaction(&watched, |transaction| {
        runs += 1;
        assert_eq!(runs, 1);
        store.put(b"watched", b"new").unwrap();
        transaction.put(b"written", b"").unwrap();
    });
    assert!(ended.unwrap().is_none() && store.get(b"written").unwrap().is_none());
    let watched = [as_it_is(&store, b"watched")];
    let mut runs = 0;
    let done = store.transaction(&watched, |transaction| {
        runs += 1;
        let read = transaction.get(b"read").unwrap().map(|entry| entry.to_vec());
        if runs < 3 {
            store.put(b"read", &[runs]).unwrap();
        }
        transaction.put(b"written", b"").unwrap();
        read
    });
    assert_eq!((done.unwrap(), runs), (Some(Some(vec![2])), 3));
}

/// Though it is at last as it was at first: what the transaction has seen was never all there at once.
#[test]
fn a_transaction_that_has_read_a_key_in_two_states_begins_again() {
    let site = Site::new(Medium::Dram, ByteSize::mib(8));
    let store = site.create();
    store.put(b"watched", b"").unwrap();
    let watched = [as_it_is(&store, b"watched")];
    for watched in [&watched[..], &[]] {
        let mut runs = 0;
        let done = store.transaction(watched, |transaction| {
            runs += 1;
            let before = transaction.get(b"key").unwrap().is_some();
            if runs == 1 {
                store.put(b"key", b"").unwrap();
            }
            let then = transaction.get(b"key").unwrap().is_some();
            store.remove(b"key").unwrap();
            transaction.put(b"written", b"").unwrap();
            (before, then)
        });
        assert_eq!((done.unwrap(), runs), (Some((false, false)), 2));
    }
}

#[test]
fn what_cannot_be_opened_says_what_was_behind_it() {
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
    assert!(thread.source().is_some() && !thread.is_in_use() && !thread.is_for_sharers());
    let of_pool = |problem| OpenError::from(terrace_pool::OpenError { pool: site.path.clone(), problem });
    let denied = of_pool(Problem::Denied(refused()));
    assert!(denied.source().is_some() && !denied.is_in_use() && !denied.is_for_sharers());
    let for_sharers = of_pool(Problem::NotReadable);
    assert!(for_sharers.source().is_none() && !for_sharers.is_in_use() && for_sharers.is_for_sharers());
}

#[test]
fn what_is_salvaged_again_keeps_all_damaged_pools() {
    let site = Site::new(Medium::Shm, ByteSize::mib(4));
    let store = site.create();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    let image = std::fs::read(&site.path).unwrap();
    // The same pool, damaged in the same way three times.
    let names = [(); 3].map(|()| {
        std::fs::write(&site.path, &image).unwrap();
        let store = site.options().salvage(true).open().unwrap();
        let salvaged = store.salvaged().unwrap();
        assert_eq!((salvaged.kept, salvaged.dropped), (1, 0));
        assert!(std::fs::read(&salvaged.damaged).unwrap() == image);
        salvaged.damaged.display().to_string()
    });
    assert!(names[0].contains(".pool.damaged-"));
    assert_eq!([&names[1], &names[2]], [&format!("{}-1", names[0]), &format!("{}-2", names[0])]);
}
