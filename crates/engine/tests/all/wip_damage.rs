//! Tests: damaged files of the disk engine are found and named, and the rest is salvaged.

use crate::contents::{Model, contents};
use crate::small::{PATH, of, open};
use crate::subject::{OfTiered, OfWip, Subject, clock};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_engine::{Cursor, Durability, Durably, Engine, OnDisk, Ordered, Put, ReadError, WriteError};
use terrace_testkit::simfs::{Handle, SimFs};
use terrace_wip::Wip;

/// A store that was closed, with some tables and a log, and its entries.
fn filled() -> (SimFs, Model) {
    let files = SimFs::new(["/data"]);
    let store = Wip::create(files.clone(), Path::new(PATH), of(Durability::Power)).unwrap();
    let mut model = Model::new();
    for number in 0..4000u64 {
        let key = (number * 7919 % 4000).to_be_bytes().to_vec();
        let value = vec![number as u8; 60];
        store.put(Put { key: &key, value: &value, expires_at: None }, Durably::Later).unwrap();
        model.insert(key, (value, None));
        if number == 3000 {
            OnDisk::flush(&store).unwrap();
        }
    }
    Arc::new(store).close().unwrap();
    (files, model)
}

fn salvaged(files: &SimFs) -> (Model, usize) {
    let (mut found, mut findings) = (Model::new(), 0);
    let visited = Wip::salvage_from(&files.handle(), Path::new(PATH), &mut |entry| match entry {
        Ok((key, entry)) => _ = found.insert(key.to_vec(), (entry.value.to_vec(), entry.expires_at)),
        Err(_) => findings += 1,
    });
    visited.expect("a directory with a store");
    (found, findings)
}

fn part(files: &SimFs, ends: &str) -> Vec<PathBuf> {
    let names = files.names().into_iter().filter(|name| name.starts_with(PATH));
    names.filter(|name| name.to_str().expect("text").ends_with(ends)).collect()
}

#[test]
fn salvage_of_a_sound_store_has_everything() {
    let (files, model) = filled();
    assert!(salvaged(&files) == (model, 0));
}

/// Bytes of the mark behind an edit of a manifest.
const MARK: usize = 40;

#[test]
fn flipped_bits_are_found_and_the_rest_is_salvaged() {
    let (files, model) = filled();
    let kinds = [".table", ".log", "TERRACE", "CURRENT", "MANIFEST-000001"];
    for (kind, seed) in kinds.into_iter().flat_map(|kind| (0..12).map(move |seed| (kind, seed))) {
        let files = files.fork();
        let names = part(&files, kind);
        let name = &names[seed as usize % names.len()];
        let before = files.content(name).expect("a file");
        files.flip_bits(name, 1, seed);
        let at = before.iter().zip(files.content(name).unwrap()).position(|(old, new)| *old != new);
        let opened = open(files.fork(), PATH);
        // Reads are right or fail: nothing is wrong silently.
        let mut is_found = opened.is_err();
        if let Ok(store) = opened {
            is_found = !store.check(&mut |_, _| {}).is_sound();
            for (key, entry) in &model {
                match store.get(key) {
                    Ok(value) if kind == ".log" && value.is_none() => is_found = true,
                    Ok(value) => {
                        let value = value.map(|value| (value.to_vec(), value.expires_at()));
                        assert_eq!(value.as_ref(), Some(entry), "{name:?} at {at:?}");
                    }
                    Err(error) => assert!(error.to_string().contains(".table"), "{error}"),
                }
            }
        }
        let (found, findings) = salvaged(&files);
        let at_byte = at.expect("a bit");
        // Records have whole words.
        let has_padding = kind == ".log" || kind == "MANIFEST-000001";
        let is_padding = has_padding && before[at_byte] == 0 && findings == 0;
        // The last record of a manifest says only that the one before it is complete.
        let is_mark = kind == "MANIFEST-000001" && at_byte >= before.len() - MARK;
        assert!(is_found || is_padding || is_mark, "{name:?} at {at:?}: nobody notices");
        let lost = model.iter().filter(|(key, entry)| found.get(*key) != Some(entry)).count();
        let most = if kind == ".table" {
            2500
        } else if kind == ".log" {
            60
        } else {
            0
        };
        assert!(lost <= most, "{name:?} at {at:?}: {lost} entries lost, {findings} findings");
    }
}

#[test]
fn scan_passes_a_damaged_block_and_says_so() {
    let (files, model) = filled();
    let tables = part(&files, ".table");
    let largest = tables.iter().max_by_key(|name| files.content(name).unwrap().len()).unwrap();
    let mut bytes = files.content(largest).unwrap();
    // In a block: the first ones lie at the beginning.
    bytes[2000] ^= 1;
    let name = largest.clone();
    let damaged = files.fork();
    overwrite(&damaged, &name, &bytes);
    let store = open(damaged, PATH).unwrap();
    let (mut cursor, mut found, mut skipped) = (Cursor::START, Model::new(), 0);
    while !cursor.is_end() {
        let mut each = |key: &[u8], entry: terrace_engine::Entry<'_>| {
            found.insert(key.to_vec(), (entry.value.to_vec(), entry.expires_at));
        };
        cursor = match store.scan(&cursor, 100, &mut each) {
            Ok(next) => next,
            Err(ReadError::Skipped { records, next, .. }) => {
                skipped += records;
                next
            }
            Err(error) => panic!("{error}"),
        };
    }
    assert!(skipped > 0 && found.len() > 3000, "{skipped} skipped, {} found", found.len());
    assert!(found.iter().all(|(key, entry)| model.get(key) == Some(entry)));
    assert!(contents(&store).is_err());
    assert!(store.stats().damaged_records_skipped >= skipped, "statistics count them, too");
}

/// A store with a damaged block in its largest table.
fn with_damaged_block() -> (Wip, Model) {
    let (files, model) = filled();
    let tables = part(&files, ".table");
    let largest = tables.iter().max_by_key(|name| files.content(name).unwrap().len()).unwrap();
    let mut bytes = files.content(largest).unwrap();
    bytes[2000] ^= 1;
    overwrite(&files, largest, &bytes);
    (open(files, PATH).unwrap(), model)
}

fn is_hidden(store: &Wip, key: &[u8]) -> bool {
    matches!(store.get(key), Err(ReadError::Corrupt { .. }))
}

#[test]
fn removals_of_keys_that_damage_hides_work() {
    let (store, model) = with_damaged_block();
    let hidden: Vec<&[u8]> = model.keys().map(Vec::as_slice).filter(|key| is_hidden(&store, key)).collect();
    let (one, others) = hidden.split_first().expect("the block hides keys");
    assert!(!others.is_empty() && store.remove(one, Durably::Store).unwrap());
    assert_eq!(store.remove_all(others, Durably::Store).unwrap(), others.len() as u64);
    assert!(hidden.iter().all(|key| store.get(key).unwrap().is_none()));
}

#[test]
fn range_removal_goes_on_behind_damage_and_tells_it() {
    let (store, model) = with_damaged_block();
    let hidden: Vec<&Vec<u8>> = model.keys().filter(|key| is_hidden(&store, key)).collect();
    let removed = store.remove_range(Bound::Unbounded, Bound::Unbounded, u64::MAX, Durably::Store);
    assert!(matches!(removed, Err(WriteError::Corrupt { .. })), "{removed:?}");
    let left: Vec<&Vec<u8>> = model.keys().filter(|key| !matches!(store.get(key), Ok(None))).collect();
    assert!(left.len() < 300 && left.iter().all(|key| hidden.contains(key)), "{} left", left.len());
}

/// Replaces the content of a file.
fn overwrite(files: &SimFs, path: &Path, bytes: &[u8]) {
    use terrace_medium::files::{Files, Purpose};
    files.open(path, Purpose::Write).unwrap().write_all_at(bytes, 0).unwrap();
}

/// Whatever is lost of what tells the structure, something else tells that the store was cleared.
fn try_salvage_after_a_clear<S: Subject>(salvaged: impl Fn(&SimFs) -> (Model, usize)) {
    for flushes in [false, true] {
        let files = SimFs::new(["/data"]);
        let settings = || S::small(Durability::Power, &clock());
        let store = S::create(files.clone(), PATH, settings()).unwrap();
        let put = |key: &[u8]| {
            store.put(Put { key, value: &[7; 60], expires_at: None }, Durably::Store).unwrap();
            if flushes {
                OnDisk::flush(&store).unwrap();
            }
        };
        (0..50u64).for_each(|number| put(&number.to_be_bytes()));
        store.clear(Durably::Store).unwrap();
        put(b"new");
        drop(store);
        let kept = Model::from([(b"new".to_vec(), (vec![7; 60], None))]);
        assert!(salvaged(&files) == (kept.clone(), 0));
        let manifest = part(&files, "MANIFEST-000001").remove(0);
        for name in [&manifest, &Path::new(PATH).join("CURRENT")] {
            let lost = files.fork();
            terrace_medium::files::Files::remove(&lost, name).unwrap();
            let (found, findings) = salvaged(&lost);
            assert!(found == kept && findings > 0, "without {name:?}: {} entries", found.len());
        }
        for seed in 0..20 {
            let damaged = files.fork();
            damaged.flip_bits(&manifest, 1, seed);
            assert!(salvaged(&damaged).0 == kept, "{seed}");
        }
    }
}

#[test]
fn salvage_without_the_manifest_leaves_what_was_cleared() {
    try_salvage_after_a_clear::<OfWip>(salvaged);
}

#[test]
fn salvage_of_a_tiered_store_leaves_what_was_cleared() {
    try_salvage_after_a_clear::<OfTiered>(|files| {
        let (mut found, mut findings) = (Model::new(), 0);
        let visited =
            terrace_tiered::salvage(&files.handle(), Path::new(PATH), 64 << 10, &mut |entry| match entry {
                Ok((key, entry)) => {
                    drop(found.insert(key.to_vec(), (entry.value.to_vec(), entry.expires_at)))
                }
                Err(_) => findings += 1,
            });
        visited.expect("a directory with a store");
        (found, findings)
    });
}

/// Names that files of a store have, or might get.
const RESERVED: [&str; 6] =
    ["copy.new", "0000000099.log", "000000000999.table", "MANIFEST-000099", "checkpoints", "copy"];

fn try_checkpoints<S: Subject>() {
    let files = SimFs::new(["/data"]);
    let settings = || S::small(Durability::Power, &clock());
    let store = S::create(files.clone(), PATH, settings()).unwrap();
    store.put(Put { key: b"key", value: b"value", expires_at: None }, Durably::Store).unwrap();
    for name in RESERVED {
        let refused = store.checkpoint(&Path::new(PATH).join(name)).expect_err(name);
        assert!(refused.to_string().contains("lies among the files of the store"), "{refused}");
    }
    let below = Path::new(PATH).join("checkpoints");
    store.checkpoint(&below.join("copy.new")).expect("below the folder, which need not be there");
    drop(store);
    for name in RESERVED.iter().filter(|name| **name != "checkpoints") {
        terrace_medium::files::Files::create_directory(&files, &Path::new(PATH).join(name)).unwrap();
    }
    let store = S::open(files.clone(), PATH, settings()).expect("directories are none of its files");
    assert_eq!(&*store.get(b"key").unwrap().unwrap(), b"value");
    assert!(store.check(&mut |_, _| {}).is_sound());
    drop(store);
    S::open(files, below.join("copy.new").to_str().unwrap(), settings()).expect("the copy is a store");
}

#[test]
fn checkpoint_among_the_stores_files_is_refused() {
    try_checkpoints::<OfWip>();
    try_checkpoints::<OfTiered>();
}

#[test]
fn foreign_and_missing_files_are_named() {
    let (files, _) = filled();
    let table = part(&files, ".table").remove(0);
    let missing = files.fork();
    terrace_medium::files::Files::remove(&missing, &table).unwrap();
    let error = open(missing, PATH).err().expect("a table is missing").to_string();
    assert!(error.contains(table.file_name().unwrap().to_str().unwrap()), "{error}");

    // The same table of another store.
    let other = {
        let files = SimFs::new(["/data"]);
        let mut settings = crate::small::of(terrace_engine::Durability::Power);
        settings.chance = 99;
        let store = Wip::create(files.clone(), Path::new(PATH), settings).unwrap();
        for number in 0..500u64 {
            let key = number.to_be_bytes();
            store.put(Put { key: &key, value: &[1; 60], expires_at: None }, Durably::Later).unwrap();
        }
        OnDisk::flush(&store).unwrap();
        files
    };
    let swapped = files.fork();
    let foreign = part(&other, ".table").remove(0);
    terrace_medium::files::Files::remove(&swapped, &table).unwrap();
    swapped.put(&table, &other.content(&foreign).unwrap());
    let error = open(swapped, PATH).err().expect("a foreign table").to_string();
    assert!(error.contains("another store") || error.contains("another table"), "{error}");
}
