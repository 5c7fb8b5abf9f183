//! Tests: cursors, on every index, are below 2^53, valid after a restart, and refused if no scan
//! returns them.

use std::collections::BTreeSet;
use terrace::{ByteSize, CURSOR_LIMIT, Cursor, Index, Put, ReadError, Store};

/// The indexes whose cursors are numbers.
const INDEXES: [Index; 4] = [Index::Clht, Index::Level, Index::Rewo, Index::Turbo];

fn fill(store: &Store, keys: u64) {
    let names: Vec<[u8; 8]> = (0..keys).map(u64::to_le_bytes).collect();
    for names in names.chunks(1000) {
        let puts: Vec<Put<'_>> = names.iter().map(|key| Put { key, value: b"", expires_at: None }).collect();
        store.put_many(&puts).into_iter().for_each(|done| done.unwrap());
    }
}

/// Scans from a cursor to the end; calls `each` with every cursor and every key's number.
fn scan(store: &Store, from: Cursor, at_least: usize, mut each: impl FnMut(u64)) {
    let mut cursor = from;
    while !cursor.is_end() {
        let see = &mut |key: &[u8], _: terrace::Entry<'_>| each(u64::from_le_bytes(key.try_into().unwrap()));
        let next = store.scan(&cursor, at_least, see).unwrap();
        // As a client keeps it that has only doubles.
        let number = next.number().unwrap() as f64 as u64;
        assert!(number < CURSOR_LIMIT && (number == 0) == next.is_end(), "{number:#x}");
        cursor = if number == 0 { Cursor::END } else { Cursor::from_number(number).unwrap() };
    }
}

#[test]
fn cursors_of_a_million_keys_are_below_2_to_the_53() {
    const KEYS: u64 = 1_000_000;
    for index in INDEXES {
        let store = Store::options().anonymous().size(ByteSize::mib(512)).index(index).create().unwrap();
        fill(&store, KEYS);
        let mut visits = vec![0u8; KEYS as usize];
        scan(&store, Cursor::START, 10, |number| visits[number as usize] += 1);
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
        let (mut seen, mut cursor) = (BTreeSet::new(), Cursor::START);
        for _ in 0..20 {
            let see = &mut |key: &[u8], _: terrace::Entry<'_>| _ = seen.insert(key.to_vec());
            cursor = store.scan(&cursor, 10, see).unwrap();
        }
        assert!(!cursor.is_end() && seen.len() < 3000);
        store.close().unwrap();
        let store = open();
        scan(&store, cursor, 10, |number| _ = seen.insert(number.to_le_bytes().to_vec()));
        assert_eq!(seen.len(), 3000, "{index:?}");
    }
}

#[test]
fn scan_refuses_invalid_cursors() {
    for index in INDEXES {
        let store = Store::options().anonymous().index(index).create().unwrap();
        fill(&store, 100);
        for number in [CURSOR_LIMIT, CURSOR_LIMIT + 1, 1 << 63, u64::MAX] {
            assert_eq!(Cursor::from_number(number), None);
        }
        let of_ordered = Cursor::after(b"key");
        let refused = store.scan(&of_ordered, 10, &mut |_, _| panic!("a key from behind a key"));
        assert_eq!(refused, Err(ReadError::InvalidCursor));
        let last = Cursor::from_number(CURSOR_LIMIT - 1).unwrap();
        assert!(store.scan(&last, usize::MAX, &mut |_, _| {}).is_ok());
    }
}

#[test]
fn scan_of_an_ordered_store_continues_after_a_restart() {
    Index::ALL.into_iter().filter(|index| index.is_ordered()).for_each(scan_continues_in_order);
}

fn scan_continues_in_order(index: Index) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let open = || {
        let options = Store::options().path(directory.path().join("pool")).size(ByteSize::mib(16));
        options.index(index).open_or_create().unwrap()
    };
    let store = open();
    fill(&store, 3000);
    let (mut keys, mut cursor) = (Vec::new(), Cursor::START);
    for _ in 0..20 {
        cursor = store.scan(&cursor, 10, &mut |key, _| keys.push(key.to_vec())).unwrap();
        assert_eq!((cursor.key(), cursor.number()), (keys.last().map(Vec::as_slice), None));
    }
    store.close().unwrap();
    let store = open();
    cursor = Cursor::after(cursor.key().unwrap());
    while !cursor.is_end() {
        cursor = store.scan(&cursor, 10, &mut |key, _| keys.push(key.to_vec())).unwrap();
    }
    assert!(keys.len() == 3000 && keys.is_sorted_by(|a, b| a < b));
    let number = Cursor::from_number(7).unwrap();
    let refused = store.scan(&number, 10, &mut |_, _| panic!("a key from a number"));
    assert_eq!(refused, Err(ReadError::InvalidCursor));
}
