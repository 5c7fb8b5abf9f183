//! Tests: the length of a transaction, and atomic writes of several keys.

use terrace::{Change, Put, Store, WriteError};

fn store() -> Store {
    Store::options().anonymous().create().unwrap()
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Put<'a> {
    Put { key, value, expires_at: None }
}

/// The length is maintained from the first `len` on, so that call is made at every position in
/// turn.
#[test]
fn len_counts_writes_of_the_transaction() {
    const STEPS: usize = 300;
    for first in (0..STEPS).step_by(7) {
        let store = store();
        (0..20u8).for_each(|n| store.put([n], b"old").unwrap());
        store
            .transaction(|transaction| -> Result<(), WriteError> {
                let mut model: std::collections::BTreeSet<u8> = (0..20).collect();
                for step in 0..STEPS {
                    let key = [(step * 7 % 40) as u8];
                    match step * 31 % 11 {
                        0..4 => {
                            transaction.put(key, b"new")?;
                            model.insert(key[0]);
                        }
                        4..7 => assert_eq!(transaction.remove(key)?, model.remove(&key[0])),
                        7 => transaction.modify(key, |_| (Change::Expire(Some(u64::MAX)), ()))?,
                        8 if step > 200 && step % 5 == 0 => {
                            transaction.clear()?;
                            model.clear();
                        }
                        _ => drop(transaction.get(key)?),
                    }
                    if step >= first {
                        assert_eq!(
                            transaction.len(),
                            model.len() as u64,
                            "at step {step}, first asked at {first}"
                        );
                    }
                }
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn put_all_writes_all_or_nothing() {
    let store = store();
    store.put(b"there", b"1").unwrap();
    let long = vec![7; terrace::KEY_MAX + 1];
    assert_eq!(store.put_all(&[put(b"a", b"1"), put(&long, b"2")]), Err(WriteError::KeyTooLong));
    assert_eq!(store.len(), 1);
    // Of several puts of one key, the last counts.
    store.put_all(&[put(b"a", b"1"), put(b"b", b"2"), put(b"a", b"3")]).unwrap();
    assert_eq!((store.len(), store.get(b"a").unwrap().unwrap().to_vec()), (3, b"3".to_vec()));
    store.put_all(&[]).unwrap();
}

#[test]
fn put_all_new_writes_only_if_all_absent() {
    let store = store();
    assert_eq!(store.put_all_new(&[put(b"a", b"1"), put(b"a", b"2")]), Ok(true));
    assert_eq!(store.get(b"a").unwrap().unwrap(), b"2");
    assert_eq!(store.put_all_new(&[put(b"b", b"1"), put(b"a", b"3")]), Ok(false));
    assert_eq!((store.len(), store.get(b"a").unwrap().unwrap().to_vec()), (1, b"2".to_vec()));
    // An expired key is absent.
    store.put_expiring(b"gone", b"1", std::time::Duration::ZERO).unwrap();
    assert_eq!(store.put_all_new(&[put(b"b", b"1"), put(b"gone", b"3")]), Ok(true));
    assert_eq!(store.get(b"gone").unwrap().unwrap(), b"3");
}

/// One thread writes and removes all keys atomically, another reads them: all are present, or none.
#[test]
fn remove_all_is_atomic() {
    let store = store();
    let keys: Vec<Vec<u8>> = (0..20).map(|n| format!("key {n}").into_bytes()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let puts: Vec<Put<'_>> = keys.iter().map(|key| put(key, b"value")).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..500 {
                store.put_all(&puts).unwrap();
                assert_eq!(store.remove_all(&keys), Ok(20));
            }
        });
        for _ in 0..300 {
            let mut there = 0;
            store.snapshot_many(&keys, &mut |_, entry| there += u32::from(entry.unwrap().is_some()));
            assert!(there == 0 || there == 20, "{there}");
        }
    });
    assert!(store.is_empty());
}

#[test]
fn append_extends_what_was_written_or_stored() {
    let store = Store::options().anonymous().create().unwrap();
    store.put(b"stored", b"12").unwrap();
    let lengths = store.transaction(|transaction| {
        Ok::<_, WriteError>([
            transaction.append(b"stored", b"3", 4)?,
            transaction.append(b"stored", b"4", 4)?,
            transaction.append(b"stored", b"5", 4)?,
            transaction.append(b"new", b"1", 4)?,
            transaction.append(b"new", b"23456", 4)?,
        ])
    });
    assert_eq!(lengths.unwrap(), [Some(3), Some(4), None, Some(1), None]);
    assert_eq!(&*store.get(b"stored").unwrap().unwrap(), b"1234");
    assert_eq!(&*store.get(b"new").unwrap().unwrap(), b"1");
}

#[test]
fn failed_attempt_restores_writes_and_appends() {
    let store = Store::options().anonymous().create().unwrap();
    let done = store.transaction(|transaction| {
        for (key, value) in [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")] {
            transaction.put(key, value)?;
        }
        for failed in [true, false] {
            transaction.begin_attempt();
            transaction.append(b"a", b"x", 100)?;
            transaction.put(b"a", b"y")?;
            transaction.append(b"a", b"z", 100)?;
            transaction.put(b"b", b"y")?;
            transaction.append(b"b", b"z", 100)?;
            transaction.put(b"b", b"w")?;
            transaction.clear()?;
            transaction.put(b"c", b"w")?;
            transaction.append(b"d", b"v", 100)?;
            transaction.end_attempt(failed);
            if failed {
                let values = [b"a", b"b", b"c"].map(|key| transaction.get(key).unwrap().unwrap().to_vec());
                assert_eq!(values, [b"1", b"2", b"3"]);
                assert_eq!(transaction.len(), 3);
            }
        }
        Ok::<_, WriteError>(transaction.len())
    });
    assert_eq!(done.unwrap(), 2);
    assert_eq!(&*store.get(b"c").unwrap().unwrap(), b"w");
    assert_eq!(&*store.get(b"d").unwrap().unwrap(), b"v");
}

#[test]
fn held_bytes_count_what_a_transaction_keeps() {
    let store = Store::options().anonymous().create().unwrap();
    store.put(b"read", b"1").unwrap();
    let value = vec![b'x'; 1000];
    store
        .transaction(|transaction| {
            let begin = transaction.held_bytes();
            transaction.get(b"read")?;
            transaction.put(b"a", &value)?;
            let once = transaction.held_bytes();
            assert!((begin + 1000..begin + 2000).contains(&once), "{once}");
            for _ in 0..100 {
                transaction.put(b"a", &value)?;
            }
            assert_eq!(transaction.held_bytes(), once);
            for failed in [true, false] {
                transaction.begin_attempt();
                for _ in 0..100 {
                    transaction.put(b"a", &value)?;
                    transaction.put(b"b", &value)?;
                }
                // The write of before, and those of the attempt.
                let held = transaction.held_bytes();
                assert!((once + 2000..once + 3000).contains(&held), "{held} {once}");
                transaction.end_attempt(failed);
                let held = transaction.held_bytes();
                assert!(if failed { held == once } else { (once + 1000..once + 2000).contains(&held) });
            }
            transaction.begin_attempt();
            transaction.clear()?;
            transaction.append(b"a", &value, 2000)?;
            transaction.end_attempt(true);
            transaction.clear()?;
            assert!(transaction.held_bytes() < begin + 200);
            Ok::<_, WriteError>(())
        })
        .unwrap();
}
