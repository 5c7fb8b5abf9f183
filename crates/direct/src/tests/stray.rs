//! Tests: records of [`Role::Stray`]. Early builds of 0.1.0 left them in pools; reads skip them,
//! and several operations remove them.

use crate::record::format::{HEADER, Role, Shape, UseIn, checksum, seal};
use crate::tests::fixtures::settings;
use crate::{Direct, Key, Kind};
use terrace_engine::{Commit, Cursor, Durably, Engine, KEY_MAX, Pooled, Put, ReadError, Write, WriteKind};
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::{Bytes, PointIndex, Stored, Swapped};
use terrace_medium::Dram;
use terrace_pool::Pool;

/// Writes such a record, with the batch word of a batch that finished long ago. Returns its key.
fn write_stray(store: &Direct<Dram>, len: usize) -> Vec<u8> {
    let key = vec![b'k'; len];
    let shape =
        Shape { key_len: len, value_len: 0, expires: false, role: Role::Stray, use_in: UseIn::Nothing };
    let guard = store.pool().pin();
    let head = guard.alloc(shape.size()).unwrap();
    let (word, stamp) = (shape.encode(), store.root().stamp(&guard));
    head.write(0, &word.to_le_bytes());
    head.write(8, &seal(checksum(word, stamp, &key), stamp).to_le_bytes());
    head.write(HEADER, &(1u64 << 38 | 64).to_le_bytes());
    head.write(HEADER + 8, &key);
    head.write_back();
    let at = head.persist().into_offset();
    assert_eq!(store.index().compare_and_swap(&guard, &key, None, Some(at)), Ok(Swapped::Done));
    key
}

/// Lengths around those at which the 17 bits of the key's length overflow.
const LENS: [usize; 6] = [KEY_MAX + 1, (1 << 17) - 1, 1 << 17, (1 << 17) + 1, 200_000, 1 << 20];

/// A store with five keys and a stray record of each length.
fn store<I>() -> (Direct<Dram>, Vec<Vec<u8>>)
where
    I: PointIndex<Medium = Dram, Kind = Kind> + Stored<Medium = Dram> + 'static,
{
    let store = Direct::open::<I>(Pool::anonymous(32 << 20).unwrap(), settings()).unwrap();
    (0..5u8).for_each(|n| put(&store, &[n]));
    let strays = LENS.map(|len| write_stray(&store, len)).to_vec();
    (store, strays)
}

fn put(store: &dyn Engine, key: &[u8]) {
    store.put(Put { key, value: b"value", expires_at: None }, Durably::Store).unwrap();
}

fn count(store: &dyn Engine) -> usize {
    let mut keys = 0;
    assert_eq!(store.scan(&Cursor::START, usize::MAX, &mut |_, _| keys += 1), Ok(Cursor::END));
    keys
}

fn assert_clean(store: &dyn Engine) {
    let report = store.check(&mut |_, _| {});
    assert!(report.is_sound(), "{:#?}", report.findings);
    let memory = store.pooled().unwrap().memory();
    assert_eq!((memory.garbage, memory.used, memory.overlapping), (0, memory.reachable, 0));
}

fn strays_are_skipped_and_removed<I>()
where
    I: PointIndex<Medium = Dram, Kind = Kind> + Stored<Medium = Dram> + 'static,
{
    let (store, strays) = store::<I>();
    assert_eq!(count(&store), 5, "{}", I::NAME);
    for key in &strays {
        assert_eq!((store.get(key), store.token(key)), (Ok(None), Ok(None)), "{}", I::NAME);
        let what = WriteKind::Put { value: b"2", expires_at: None };
        let absent = store.version(key).unwrap();
        let commit = store.commit(
            &[Write { key: &[0], what }, Write { key: &[1], what }],
            &[(key, absent)],
            Durably::Store,
        );
        assert_eq!(commit, Ok(Commit::Done), "{}", I::NAME);
    }
    assert!(store.random_key().unwrap().is_some_and(|key| key.len() == 1));

    let report = store.check(&mut |_, _| {});
    assert_eq!((report.findings.len(), report.records), (strays.len(), 5 + strays.len() as u64));
    let is_reported = |found: &terrace_engine::Finding| {
        found.remedy == terrace_engine::Remedy::Dropped && found.found.contains("an earlier release")
    };
    assert!(report.findings.iter().all(is_reported), "{}: {:#?}", I::NAME, report.findings);
    let (mut kept, mut dropped) = (0, 0);
    store.salvage(&mut |found| if found.is_ok() { kept += 1 } else { dropped += 1 });
    assert_eq!((kept, dropped), (5, strays.len()), "{}", I::NAME);

    // The collector keeps them, and the table finds them when it grows.
    assert_eq!((store.memory().garbage, store.memory().overlapping), (0, 0), "{}", I::NAME);
    (0..3000u32).for_each(|n| put(&store, &n.to_le_bytes()));
    assert_eq!(store.len().get(), 3005 + strays.len() as u64, "{}", I::NAME);
    store.clear(Durably::Store).unwrap();
    assert_eq!((store.len().get(), count(&store)), (0, 0), "{}", I::NAME);
    assert_clean(&store);
}

#[test]
fn strays_are_skipped_and_removed_in_each_index() {
    strays_are_skipped_and_removed::<Clht<Dram, Bytes<Key>>>();
    strays_are_skipped_and_removed::<Turbo<Dram, Bytes<Key>>>();
    strays_are_skipped_and_removed::<Rewo<Dram, Bytes<Key>>>();
    strays_are_skipped_and_removed::<Level<Dram, Bytes<Key>>>();
}

#[test]
fn sweep_removes_strays_but_no_damaged_ones() {
    let (store, strays) = store::<Clht<Dram, Bytes<Key>>>();
    let damaged = store.index().get(&store.pool().pin(), &strays[0]).unwrap();
    store.damage(damaged + 64);
    (0..10).for_each(|_| _ = store.sweep_expired(100));
    let mut keys = 0;
    let scanned = store.scan(&Cursor::START, usize::MAX, &mut |_, _| keys += 1);
    assert!(matches!(scanned, Err(ReadError::Skipped { records: 1, .. })), "{scanned:?}");
    assert_eq!((store.len().get(), keys), (6, 5));
}
