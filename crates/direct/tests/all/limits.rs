//! Limits of keys, values, counts and times, on every path into the engine and with every index.

use std::sync::Arc;
use terrace_direct::{Direct, Key, Settings};
use terrace_engine::Durably;
use terrace_engine::{
    CURSOR_LIMIT, Change, Commit, Cursor, Engine, Expected, KEY_MAX, ManualClock, Put, ReadError, Version,
    Write, WriteError, WriteKind,
};
use terrace_index::Bytes;
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::ordered::{Art, BwTree, Hot, Masstree, SpTree};
use terrace_medium::Dram;
use terrace_pool::Pool;
use terrace_testkit::Reference;

/// An empty store with each index, by the index's name. The clock is at 1000.
fn stores() -> [(&'static str, Arc<dyn Engine>); 10] {
    let pool = || Pool::<Dram>::anonymous(16 << 20).unwrap();
    let settings = || Settings { clock: Arc::new(ManualClock::at(1000)), ..crate::costs::settings(100) };
    [
        ("clht", Arc::new(Direct::open::<Clht<Dram, Bytes<Key>>>(pool(), settings()).unwrap())),
        ("turbo", Arc::new(Direct::open::<Turbo<Dram, Bytes<Key>>>(pool(), settings()).unwrap())),
        ("rewo", Arc::new(Direct::open::<Rewo<Dram, Bytes<Key>>>(pool(), settings()).unwrap())),
        ("level", Arc::new(Direct::open::<Level<Dram, Bytes<Key>>>(pool(), settings()).unwrap())),
        ("art", Arc::new(Direct::open_ordered::<Art<Dram, Bytes<Key>>>(pool(), settings()).unwrap())),
        ("hot", Arc::new(Direct::open_ordered::<Hot<Dram, Bytes<Key>>>(pool(), settings()).unwrap())),
        (
            "masstree",
            Arc::new(Direct::open_ordered::<Masstree<Dram, Bytes<Key>>>(pool(), settings()).unwrap()),
        ),
        ("bwtree", Arc::new(Direct::open_ordered::<BwTree<Dram, Bytes<Key>>>(pool(), settings()).unwrap())),
        ("sptree", Arc::new(Direct::open_ordered::<SpTree<Dram, Bytes<Key>>>(pool(), settings()).unwrap())),
        (
            "ordered",
            Arc::new(Direct::open_ordered::<Reference<Dram, Bytes<Key>>>(pool(), settings()).unwrap()),
        ),
    ]
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Write<'a> {
    Write { key, what: WriteKind::Put { value, expires_at: None } }
}

fn keys(store: &dyn Engine) -> Vec<Vec<u8>> {
    let (mut cursor, mut keys) = (Cursor::START, Vec::new());
    loop {
        cursor = store.scan(&cursor, 10, &mut |key, _| keys.push(key.to_vec())).unwrap();
        if cursor.is_end() {
            keys.sort();
            return keys;
        }
    }
}

/// Asserts that everything in the store can be read, listed and removed, and no byte is leaked.
fn assert_usable(name: &str, store: &dyn Engine, expected: &[&[u8]]) {
    assert_eq!(keys(store), expected, "{name}");
    let report = store.check(&mut |_, _| {});
    assert!(report.is_sound(), "{name}: {:#?}", report.findings);
    assert_eq!(store.len().get(), expected.len() as u64, "{name}");
    let memory = store.pooled().unwrap().memory();
    assert_eq!((memory.garbage, memory.used), (0, memory.reachable), "{name}");
    store.clear(Durably::Store).unwrap();
    assert!(store.is_empty() && keys(store).is_empty(), "{name}");
}

#[test]
fn commit_expecting_overlong_key_absent_is_satisfied() {
    // The length field of a record has 17 bits.
    for len in [KEY_MAX + 1, (1 << 17) - 1, 1 << 17, (1 << 17) + 1, 200_000, 1 << 20] {
        let long = vec![b'k'; len];
        for (name, store) in stores() {
            let since: Version = store.version(&long).unwrap();
            for absent in [since, None.into()] {
                let expected: [Expected<'_>; 2] = [(&long, absent), (b"b", None.into())];
                assert_eq!(
                    store.commit(&[put(b"a", b"1")], &expected, Durably::Store),
                    Ok(Commit::Done),
                    "{name}"
                );
                let writes = [put(b"a", b"2"), put(b"c", b"2")];
                assert_eq!(
                    store.commit(&writes, &[(&long, absent)], Durably::Store),
                    Ok(Commit::Done),
                    "{name}"
                );
                assert_eq!(store.commit(&[], &[(&long, absent)], Durably::Store), Ok(Commit::Done), "{name}");
            }
            assert_usable(name, &*store, &[b"a", b"c"]);
        }
    }
}

#[test]
fn commit_expecting_overlong_key_present_is_refused() {
    let long = vec![b'k'; KEY_MAX + 1];
    for (name, store) in stores() {
        store.put(Put { key: b"a", value: b"1", expires_at: None }, Durably::Store).unwrap();
        let forged = store.version(b"a").unwrap();
        let expected: [Expected<'_>; 2] = [(b"a", forged), (&long, forged)];
        for writes in [&[][..], &[put(b"b", b"1")], &[put(b"b", b"1"), put(b"c", b"1")]] {
            assert_eq!(store.commit(writes, &expected, Durably::Store), Ok(Commit::Changed(1)), "{name}");
        }
        assert_usable(name, &*store, &[b"a"]);
    }
}

#[test]
fn overlong_key_is_refused_by_every_write_and_absent_to_reads() {
    let long = vec![b'k'; KEY_MAX + 1];
    let refused = WriteError::KeyTooLong;
    for (name, store) in stores() {
        let put_long = Put { key: &long, value: b"1", expires_at: None };
        assert_eq!(store.put(put_long, Durably::Store), Err(refused.clone()), "{name}");
        assert_eq!(store.put_many(&[put_long], Durably::Store), [Err(refused.clone())], "{name}");
        assert_eq!(store.remove(&long, Durably::Store), Err(refused.clone()), "{name}");
        assert_eq!(
            store.modify(&long, &mut |_| Change::Keep, Durably::Store),
            Err(refused.clone()),
            "{name}"
        );
        for what in
            [WriteKind::Put { value: b"1", expires_at: None }, WriteKind::Expire(None), WriteKind::Remove]
        {
            let write = Write { key: &long, what };
            assert_eq!(store.commit(&[write], &[], Durably::Store), Err(refused.clone()), "{name}");
            assert_eq!(
                store.commit(&[put(b"a", b"1"), write], &[], Durably::Store),
                Err(refused.clone()),
                "{name}"
            );
        }
        assert_eq!((store.get(&long), store.token(&long)), (Ok(None), Ok(None)), "{name}");
        let both: [&[u8]; 2] = [&long, b"a"];
        let mut found = 0;
        store.get_many(&both, &mut |_, entry| found += usize::from(entry.unwrap().is_none()));
        store.snapshot_many(&both, &mut |_, entry| found += usize::from(entry.unwrap().is_none()));
        assert_eq!(found, 4, "{name}");
        assert!(!store.watch(&long).unwrap().has_changed(), "{name}");
        assert_usable(name, &*store, &[]);
    }
}

#[test]
fn any_expiry_is_kept_or_takes_effect() {
    let times = [0, 1, 1000, 1001, u64::from(u32::MAX), i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX];
    for (name, store) in stores() {
        for at in times {
            let (there, expires_at) = ((at > 1000).then_some(at), Some(at));
            let expiry = |key: &[u8]| store.get(key).unwrap().map(|value| value.expires_at());
            let what = WriteKind::Put { value: b"1", expires_at };
            store.put(Put { key: b"put", value: b"1", expires_at }, Durably::Store).unwrap();
            store
                .put_many(&[Put { key: b"many", value: b"1", expires_at }], Durably::Store)
                .remove(0)
                .unwrap();
            let put = Change::Put { value: b"1".to_vec(), expires_at };
            store.modify(b"modify", &mut |_| put.clone(), Durably::Store).unwrap();
            store.commit(&[Write { key: b"one", what }], &[], Durably::Store).unwrap();
            let two = [b"both", b"too."].map(|key| Write { key, what });
            store.commit(&two, &[], Durably::Store).unwrap();
            let keys: [&[u8]; 6] = [b"put", b"many", b"modify", b"one", b"both", b"too."];
            for key in keys {
                assert_eq!(expiry(key), there.map(Some), "{name}: {at}");
                store.put(Put { key, value: b"1", expires_at: None }, Durably::Store).unwrap();
                store.modify(key, &mut |_| Change::Expire(expires_at), Durably::Store).unwrap();
                assert_eq!(expiry(key), there.map(Some), "{name}: {at}");
            }
            let sound = store.check(&mut |_, _| {});
            assert!(sound.is_sound(), "{name}: {at}: {:#?}", sound.findings);
            store.clear(Durably::Store).unwrap();
        }
    }
}

#[test]
fn sizes_and_counts_out_of_range_change_nothing() {
    for (name, store) in stores() {
        store.put(Put { key: b"a", value: b"1", expires_at: None }, Durably::Store).unwrap();
        assert!(
            store.pooled().unwrap().grow(u64::MAX).is_err()
                && store.pooled().unwrap().grow(u64::MAX - 4095).is_err(),
            "{name}"
        );
        assert_eq!(store.pooled().unwrap().collapse_step(u64::MAX), None, "{name}");
        store.pooled().unwrap().sweep_expired(usize::MAX);
        // A scan that asks for nothing still gets on.
        let (mut cursor, mut keys, mut steps) = (Cursor::START, 0, 0);
        loop {
            cursor = store.scan(&cursor, 0, &mut |_, _| keys += 1).unwrap();
            steps += 1;
            if cursor.is_end() || steps > 100_000 {
                break;
            }
        }
        assert_eq!((keys, cursor), (1, Cursor::END), "{name}");
        let cursors = [1, CURSOR_LIMIT - 1].map(|number| Cursor::from_number(number).unwrap());
        for cursor in cursors.into_iter().chain([Cursor::after(b"key")]) {
            let is_own = cursor.key().is_some() == store.ordered().is_some();
            let scanned = store.scan(&cursor, usize::MAX, &mut |_, _| {});
            assert_eq!(scanned == Err(ReadError::InvalidCursor), !is_own, "{name}");
        }
        assert_usable(name, &*store, &[b"a"]);
    }
}
