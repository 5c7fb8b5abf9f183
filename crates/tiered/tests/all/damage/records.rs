//! Tests: a damaged record costs itself alone, and is replaced like any other.

use super::{filled, largest, name_of, of, part, put, salvage_of, salvaged, with};
use crate::fixtures::{contents, create, open};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_engine::{Change, Durably, Engine, OnDisk, Put, Write, WriteError, WriteKind};
use terrace_medium::files::{Files, Purpose};
use terrace_testkit::simfs::SimFs;
use terrace_tiered::Tiered;

/// The place of a record's key in a block.
fn place_of(bytes: &[u8], key: &[u8]) -> usize {
    bytes.windows(key.len()).position(|window| window == key).expect("a key in the block")
}

/// A store with these writes, each followed by a flush, and its newest block.
fn flushed(writes: &[(&[u8], Option<&[u8]>)]) -> (SimFs, PathBuf) {
    let files = SimFs::new(["/data"]);
    let store = create(&files, of());
    for (key, value) in writes {
        match value {
            Some(value) => put(&store, key, value),
            None => store.delete(key, Durably::Later).unwrap(),
        }
        OnDisk::flush(&store).unwrap();
    }
    Arc::new(store).close().unwrap();
    // The last segment of the log has them, too. What notes how far it went goes with it.
    let log = part(&files, ".log").into_iter().chain(part(&files, "ENDS"));
    log.for_each(|path| files.remove(&path).unwrap());
    let path = part(&files, ".block").pop().expect("a block");
    (files, path)
}

fn flip(files: &SimFs, path: &Path, key: &[u8]) -> SimFs {
    let mut bytes = files.content(path).unwrap();
    let at = place_of(&bytes, key);
    bytes[at] ^= 1;
    with(files, path, &bytes)
}

#[test]
fn older_version_of_a_damaged_record_is_kept_and_told() {
    let (files, path) = flushed(&[(b"some key", Some(b"older")), (b"some key", Some(b"newer"))]);
    let (found, findings) = salvaged(&flip(&files, &path, b"some key"));
    assert_eq!(found[&b"some key"[..]].0, b"older");
    assert_eq!(findings.len(), 1, "{findings:?}");
    let told = findings[0].to_string();
    assert!(told.contains("the key `some key`: it has an older version now"), "{told}");
    assert!(told.contains(name_of(&path)) && told.contains("offset 0x0"), "{told}");
}

#[test]
fn removed_key_stays_away_though_its_tombstone_is_damaged() {
    let (files, path) =
        flushed(&[(b"some key", Some(b"value")), (b"other", Some(b"1")), (b"some key", None)]);
    let (found, _) = salvaged(&flip(&files, &path, b"some key"));
    assert_eq!(found.keys().collect::<Vec<_>>(), [b"other"]);
}

#[test]
fn damaged_record_is_replaced_by_writes_and_counted() {
    let (files, path) = flushed(&[(b"some key", Some(&[7; 100]))]);
    let files = flip(&files, &path, b"some key");
    let fails = |store: &Tiered| {
        let error = store.get(b"some key").expect_err("a damaged record").to_string();
        assert!(error.contains(name_of(&path)) && error.contains("offset 0x8"), "{error}");
    };
    type Step = fn(&Tiered) -> Result<(), WriteError>;
    let steps: [(Step, Option<&[u8]>); 5] = [
        (
            |store| store.put(Put { key: b"some key", value: b"new", expires_at: None }, Durably::Store),
            Some(b"new"),
        ),
        (|store| store.delete(b"some key", Durably::Store), None),
        (|store| store.remove(b"some key", Durably::Store).map(|was_there| assert!(was_there)), None),
        (|store| store.remove_all(&[b"some key"], Durably::Store).map(|count| assert_eq!(count, 1)), None),
        (
            |store| {
                let what = WriteKind::Put { value: b"new", expires_at: None };
                store.commit(&[Write { key: b"some key", what }], &[], Durably::Store).map(drop)
            },
            Some(b"new"),
        ),
    ];
    for (nth, (step, left)) in steps.into_iter().enumerate() {
        let files = files.fork();
        let store = open(&files, of());
        fails(&store);
        let changed = store.modify(b"some key", &mut |_| Change::Remove, Durably::Store);
        assert!(matches!(changed, Err(WriteError::Corrupt { .. })), "{nth}: {changed:?}");
        step(&store).unwrap_or_else(|error| panic!("{nth}: {error}"));
        let check = |store: &Tiered| {
            assert_eq!(store.get(b"some key").unwrap().as_deref(), left, "{nth}");
            assert_eq!(store.len().get(), u64::from(left.is_some()), "{nth}");
            assert_eq!(contents(store).unwrap().len(), usize::from(left.is_some()), "{nth}");
        };
        check(&store);
        assert_eq!(store.stats().damaged_records_skipped, 1, "{nth}");
        drop(store);
        check(&open(&files, of()));
    }
}

/// A damaged block is not rewritten: its sound records stay where they are.
#[test]
fn damaged_block_is_not_rewritten() {
    let (files, model) = filled();
    let path = largest(&files, ".block");
    let key =
        model.keys().find(|key| files.content(&path).unwrap().windows(9).any(|w| w == &key[..])).unwrap();
    let files = flip(&files, &path, key);
    let store = open(&files, of());
    let compacted = OnDisk::compact(&store, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    assert!(matches!(compacted, Err(WriteError::Corrupt { .. })), "{compacted:?}");
    let readable: BTreeMap<_, _> = model.iter().filter(|(other, _)| *other != key).collect();
    for (key, entry) in readable {
        assert_eq!(store.get(key).unwrap().as_deref(), Some(&entry.0[..]));
    }
    assert!(files.content(&path).is_some());
}

#[test]
fn page_of_zeros_costs_its_records_only() {
    let (files, model) = filled();
    let path = largest(&files, ".block");
    let file = files.open(&path, Purpose::Write).unwrap();
    file.write_all_at(&[0; 4096], 4096).unwrap();
    let (lost, findings) = salvage_of(&files, &model, "a page of zeros");
    assert!((10..80).contains(&lost), "{lost} lost");
    assert!(
        findings.len() >= lost
            && findings.iter().all(|finding| finding.to_string().contains("offset 0x1000"))
    );
}

#[test]
fn damaged_place_is_found_by_checks_and_rewrites() {
    let (files, path) = flushed(&[(b"some key", Some(&[7; 100]))]);
    let mut bytes = files.content(&path).unwrap();
    // The offset of the first record, as its place in the page tells it.
    bytes[1] ^= 1;
    let files = with(&files, &path, &bytes);
    let store = open(&files, of());
    let report = store.check(&mut |_, _| {});
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    let compacted = OnDisk::compact(&store, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    assert!(matches!(compacted, Err(WriteError::Corrupt { .. })), "{compacted:?}");
    let error = store.get(b"some key").expect_err("a damaged place").to_string();
    assert!(error.contains(name_of(&path)) && error.contains("offset 0x0"), "{error}");
    assert!(files.content(&path).is_some());
}
