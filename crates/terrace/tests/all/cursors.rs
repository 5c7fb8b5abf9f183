//! Tests: cursors, on every index, are below 2^53, valid after a restart, and refused if no scan
//! returns them.

use std::collections::BTreeSet;
use terrace::{ByteSize, CURSOR_LIMIT, Cursor, Index, Put, ReadError, Store};

const INDEXES: [Index; 4] = [Index::Clht, Index::Level, Index::Rewo, Index::Turbo];

fn fill(store: &Store, keys: u64) {
    let names: Vec<[u8; 8]> = (0..keys).map(u64::to_le_bytes).collect();
    for names in names.chunks(1000) {
        let puts: Vec<Put<'_>> = names.iter().map(|key| Put { key, value: b"", expires_at: None }).collect();
        store.put_many(&puts).into_iter().for_each(|done| done.unwrap());
    }
}

/// Scans from a cursor to the end; calls `each` with every cursor and every key's number.
fn scan(store: &Store, from: Cursor, at_least: usize, mut each: impl FnMut(Cursor, u64)) {
    let mut cursor = from;
    loop {
        let before = cursor;
        let see = &mut |key: &[u8], _: terrace::Entry<'_>| {
            each(before, u64::from_le_bytes(key.try_into().unwrap()))
        };
        // As a client keeps it that has only doubles.
        cursor = store.scan(cursor, at_least, see).unwrap() as f64 as Cursor;
        assert!(cursor < CURSOR_LIMIT, "{cursor:#x}");
        if cursor == 0 {
            return;
        }
    }
}

#[test]
fn cursors_of_a_million_keys_are_below_2_to_the_53() {
    const KEYS: u64 = 1_000_000;
    for index in INDEXES {
        let store = Store::options().anonymous().size(ByteSize::mib(512)).index(index).create().unwrap();
        fill(&store, KEYS);
        let mut visits = vec![0u8; KEYS as usize];
        scan(&store, 0, 10, |_, number| visits[number as usize] += 1);
        assert!(visits.iter().all(|&times| times == 1), "{index:?}");
    }
}

#[test]
fn scan_continues_after_a_restart() {
    for index in INDEXES {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let open = || {
            let options =
                Store::options().path(directory.path().join("pool")).size(ByteSize::mib(16)).index(index);
            options.open_or_create().unwrap()
        };
        let store = open();
        fill(&store, 3000);
        let (mut seen, mut cursor) = (BTreeSet::new(), 0);
        for _ in 0..20 {
            let see = &mut |key: &[u8], _: terrace::Entry<'_>| _ = seen.insert(key.to_vec());
            cursor = store.scan(cursor, 10, see).unwrap();
        }
        assert!(cursor != 0 && seen.len() < 3000);
        store.close().unwrap();
        let store = open();
        scan(&store, cursor, 10, |_, number| _ = seen.insert(number.to_le_bytes().to_vec()));
        assert_eq!(seen.len(), 3000, "{index:?}");
    }
}

#[test]
fn scan_refuses_invalid_cursors() {
    for index in INDEXES {
        let store = Store::options().anonymous().index(index).create().unwrap();
        fill(&store, 100);
        for number in [CURSOR_LIMIT, CURSOR_LIMIT + 1, 1 << 63, u64::MAX] {
            let refused = store.scan(number, 10, &mut |_, _| panic!("a key from {number}"));
            assert_eq!(refused, Err(ReadError::InvalidCursor));
        }
        assert!(store.scan(CURSOR_LIMIT - 1, usize::MAX, &mut |_, _| {}).is_ok());
    }
}
