//! Tests: the disk engine with fewer file descriptors than it has tables.

use crate::contents::contents;
use crate::small::{PATH, tiny};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use terrace_disk::BoundedFiles;
use terrace_engine::{
    Chore, Direction, Durability, Durably, Engine, OnDisk, Ordered, Put, ReadError, Rest, WriteError,
};
use terrace_medium::files::{Files, Purpose, StoredFile};
use terrace_testkit::simfs::{Faulty, SimFs};
use terrace_wip::{Settings, Wip};

type Limited = Faulty;
type Store = Wip;

/// Files that a store has open beside those of its tables, at most: lock, manifest, log, what is
/// being written.
const OTHERS: usize = 14;
const TABLES: u64 = 60;

/// Settings with which tables are not merged.
fn settings() -> Settings {
    let mut settings = tiny(Durability::Process);
    (settings.fanout, settings.segment_bytes, settings.log_bytes) = (1000, 64 << 10, 256 << 10);
    settings.memtable_bytes = 4 << 10;
    settings
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn put(store: &Store, number: u64) -> Result<(), WriteError> {
    store.put(Put { key: &key(number), value: &[number as u8; 900], expires_at: None }, Durably::Store)
}

/// A store with many tables, of which `open` may be open at a time.
fn store(open: u64) -> (SimFs, Limited, Store) {
    let disk = SimFs::new(["/data"]);
    let files = Faulty::limited(disk.clone(), OTHERS + open as usize);
    let bounded = BoundedFiles::new(files.clone(), open);
    let store = Wip::create(bounded, Path::new(PATH), settings()).unwrap();
    let mut number = 0;
    while tables(&store) < TABLES {
        put(&store, number).unwrap();
        let _ = store.step(Chore::Flush, &|| false);
        number += 1;
    }
    (disk, files, store)
}

fn tables(store: &Store) -> u64 {
    store.stats().disk.unwrap().tables.iter().sum()
}

#[test]
fn store_has_more_tables_than_files_may_be_open() {
    for open in [1, 6] {
        let (disk, _, store) = store(open);
        let all = contents(&store).unwrap();
        assert!(all.len() >= TABLES as usize);
        for (key, (value, _)) in &all {
            assert!(store.get(key).unwrap().is_some_and(|found| *found == **value));
        }
        drop(store);
        // It opens with as few.
        let files = BoundedFiles::new(Faulty::limited(disk, OTHERS + open as usize), open);
        let store: Store = Wip::open(files, Path::new(PATH), settings()).unwrap();
        assert_eq!(contents(&store).unwrap(), all);
        assert!(store.check(&mut |_, _| {}).is_sound());
        store.compact(Bound::Unbounded, Bound::Unbounded).unwrap();
        assert_eq!((tables(&store), contents(&store).unwrap()), (1, all));
    }
}

#[test]
fn reader_goes_on_in_tables_that_were_removed() {
    let (_, _, store) = store(2);
    let all: BTreeMap<_, _> = contents(&store).unwrap();
    let mut found = Vec::new();
    let mut range = store.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward).unwrap();
    let more = range.visit(all.len(), &mut |key, _| {
        if found.is_empty() {
            store.compact(Bound::Unbounded, Bound::Unbounded).unwrap();
            assert_eq!(tables(&store), 1);
        }
        found.push(key.to_vec());
        ControlFlow::Continue(())
    });
    assert_eq!((more, found), (Ok(false), all.into_keys().collect()));
}

/// Others take descriptors until none is left but those that the store has.
fn take_all(files: &Limited) -> Vec<Box<dyn StoredFile>> {
    let path = Path::new(PATH).join("CURRENT");
    std::iter::from_fn(|| files.open(&path, Purpose::Read).ok()).collect()
}

#[test]
fn open_tables_are_the_reserve_of_flushes_and_merges() {
    let (_, files, store) = store(6);
    contents(&store).unwrap();
    let taken = take_all(&files);
    put(&store, 1 << 40).unwrap();
    OnDisk::flush(&store).unwrap();
    contents(&store).unwrap();
    let more = take_all(&files);
    store.compact(Bound::Unbounded, Bound::Unbounded).unwrap();
    assert_eq!(tables(&store), 1);
    drop((taken, more));
}

#[test]
fn no_descriptor_at_all_is_said_and_passes() {
    let (_, files, store) = store(1);
    let all = contents(&store).unwrap();
    // The last table that is open is closed for the first of these, and then there is none.
    let mut taken = take_all(&files);
    let refused = loop {
        match OnDisk::compact(&store, Bound::Unbounded, Bound::Unbounded) {
            Err(error) => break error,
            Ok(()) => taken.extend(take_all(&files)),
        }
    };
    assert!(matches!(refused, WriteError::Descriptors { .. }), "{refused:?}");
    assert!(refused.to_string().contains("ulimit -n"), "{refused}");
    taken.extend(take_all(&files));
    let unread = all.keys().find_map(|key| store.get(key).err()).expect("a table is not open");
    assert!(matches!(unread, ReadError::Descriptors { .. }), "{unread:?}");
    drop(taken);
    assert_eq!(contents(&store).unwrap(), all);
    put(&store, 1 << 40).unwrap();
    store.compact(Bound::Unbounded, Bound::Unbounded).unwrap();
    while store.step(Chore::Merge, &|| false) == Rest::More {}
    assert_eq!(contents(&store).unwrap().len(), all.len() + 1);
}

#[test]
fn file_in_the_place_of_a_table_is_not_taken_for_it() {
    let (disk, _, store) = store(1);
    let is_table = |name: &std::ffi::OsString| name.to_str().is_some_and(|name| name.ends_with(".table"));
    let names = disk.list(Path::new(PATH)).unwrap();
    for name in names.iter().filter(|name| is_table(name)) {
        let path = Path::new(PATH).join(name);
        disk.remove(&path).unwrap();
        drop(disk.create(&path).unwrap());
    }
    let errors = (0..100).filter_map(|number| store.get(&key(number)).err());
    let wrong: Vec<_> = errors.filter(|error| !matches!(error, ReadError::Corrupt { .. })).collect();
    assert_eq!(wrong, []);
    assert!((0..100).any(|number| store.get(&key(number)).is_err()));
}
