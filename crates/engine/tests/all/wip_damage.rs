//! Tests: damaged files of the disk engine are found and named, and the rest is salvaged.

use crate::wip::{Model, PATH};
use crate::wip_script::{contents, create, open};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_engine::wip::Wip;
use terrace_engine::{Cursor, Durably, Engine, OnDisk, Put, ReadError};
use terrace_testkit::simfs::SimFs;

/// A store that was closed, with some tables and a log, and its entries.
fn filled() -> (SimFs, Model) {
    let files = SimFs::new(["/data"]);
    let store = create(files.clone()).unwrap();
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
    let visited = Wip::salvage_from(files, Path::new(PATH), &mut |entry| match entry {
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
}

/// Replaces the content of a file.
fn overwrite(files: &SimFs, path: &Path, bytes: &[u8]) {
    use terrace_medium::files::{Files, Purpose, StoredFile};
    files.open(path, Purpose::Write).unwrap().write_all_at(bytes, 0).unwrap();
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
        let mut settings = crate::wip_script::of(terrace_engine::Durability::Power);
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
