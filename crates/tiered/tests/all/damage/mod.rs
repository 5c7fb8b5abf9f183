//! Tests: damaged files of the tiered engine are found and named, reads are right or fail, and the
//! rest is salvaged.
//!
//! - `flips`: single bits; `files`: short, missing and foreign files.
//! - `records`: single records and pages; `crashes`: what kills and power may leave.

mod crashes;
mod files;
mod flips;
mod records;

use crate::fixtures::{Model, OfTiered, PATH, clock, create, open, settings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_engine::{Cursor, Durability, Durably, Engine, Finding, OnDisk, Put, ReadError};
use terrace_medium::files::Files;
use terrace_testkit::simfs::{Handle, SimFs};
use terrace_tiered::{Settings, Tiered, salvage};

/// Bytes of memory for what a salvage notes: little, so that it reads the files several times.
const MEMORY: u64 = 64 << 10;

fn of() -> Settings {
    settings(Durability::Power, &clock())
}

fn key(number: u64) -> Vec<u8> {
    format!("key {:05}", number * 7919 % 10_000).into_bytes()
}

fn put(store: &impl Engine, key: &[u8], value: &[u8]) {
    store.put(Put { key, value, expires_at: None }, Durably::Later).unwrap();
}

/// A store with blocks, large values, tombstones, and records that only the log has.
struct Filled {
    store: Tiered,
    files: SimFs,
    model: Model,
}

impl Filled {
    fn new() -> Self {
        let files = SimFs::new(["/data"]);
        let store = create(&files, of());
        Self { store, files, model: Model::new() }
    }

    fn put(&mut self, number: u64, value: Vec<u8>) {
        put(&self.store, &key(number), &value);
        self.model.insert(key(number), (value, None));
    }

    fn remove(&mut self, number: u64) {
        self.store.delete(&key(number), Durably::Later).unwrap();
        self.model.remove(&key(number));
    }

    /// What a kill leaves.
    fn left(self) -> (SimFs, Model) {
        OnDisk::sync(&self.store).unwrap();
        (self.files, self.model)
    }
}

fn filled() -> (SimFs, Model) {
    let mut filled = Filled::new();
    for number in 0..300 {
        let len = if number % 60 == 0 { 3000 } else { 20 + number as usize % 90 };
        filled.put(number, vec![number as u8; len]);
    }
    OnDisk::flush(&filled.store).unwrap();
    (0..40).for_each(|number| filled.remove(number * 7));
    (0..20).for_each(|number| filled.put(number * 11 + 1, vec![99; 50]));
    OnDisk::flush(&filled.store).unwrap();
    for number in 300..330 {
        filled.put(number, vec![number as u8; if number == 310 { 5000 } else { 80 }]);
    }
    (0..5).for_each(|number| filled.remove(number * 7 + 2));
    OnDisk::sync(&filled.store).unwrap();
    filled.put(330, vec![3; 30]);
    filled.left()
}

pub(crate) fn salvaged(files: &SimFs) -> (Model, Vec<Finding>) {
    let (mut found, mut findings) = (Model::new(), Vec::new());
    let visited = salvage(&files.handle(), Path::new(PATH), MEMORY, &mut |entry| match entry {
        Ok((key, entry)) => {
            let before = found.insert(key.to_vec(), (entry.value.to_vec(), entry.expires_at));
            assert_eq!(before, None, "{key:?} is visited twice");
        }
        Err(finding) => findings.push(finding),
    });
    visited.expect("a directory with a store");
    (found, findings)
}

fn part(files: &SimFs, ends: &str) -> Vec<PathBuf> {
    let names = files.names().into_iter().filter(|name| name.starts_with(PATH));
    names.filter(|name| name.to_str().expect("text").contains(ends)).collect()
}

/// The largest file with such a name.
fn largest(files: &SimFs, ends: &str) -> PathBuf {
    let named = part(files, ends).into_iter();
    named.max_by_key(|name| files.content(name).unwrap().len()).expect("there is one")
}

/// The file to damage: of large values, one that a block names.
fn one_of(files: &SimFs, ends: &str) -> PathBuf {
    if ends == ".large" { part(files, ends).remove(0) } else { largest(files, ends) }
}

/// A copy of the disk with another content of a file.
fn with(files: &SimFs, path: &Path, bytes: &[u8]) -> SimFs {
    let files = files.fork();
    files.remove(path).unwrap();
    files.put(path, bytes);
    files
}

fn name_of(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

fn try_open(files: &SimFs) -> Result<Tiered, String> {
    OfTiered::open(files.fork(), PATH, of()).map_err(|error| error.to_string())
}

/// What the damage of a file does: whether the store opens, and what is missing then.
#[derive(Debug, Default)]
struct Seen {
    is_refused: bool,
    unreadable: usize,
    is_found: bool,
}

/// Reads everything of a store with a damaged file. Each key is right, or its error names the file.
/// A key that cannot be read can be written.
fn look_at(files: &SimFs, damaged: &Path, model: &Model, about: &str) -> Seen {
    let store = match try_open(files) {
        Ok(store) => store,
        Err(error) => {
            assert!(error.contains(name_of(damaged)), "{about}: {error}");
            return Seen { is_refused: true, is_found: true, ..Seen::default() };
        }
    };
    let mut seen = Seen { is_found: !store.check(&mut |_, _| {}).is_sound(), ..Seen::default() };
    let (mut cursor, mut scanned) = (Cursor::START, Model::new());
    while !cursor.is_end() {
        let mut each = |key: &[u8], entry: terrace_engine::Entry<'_>| {
            scanned.insert(key.to_vec(), (entry.value.to_vec(), entry.expires_at));
        };
        cursor = match store.scan(&cursor, 50, &mut each) {
            Ok(next) | Err(ReadError::Skipped { next, .. }) => next,
            Err(error) => panic!("{about}: {error}"),
        };
    }
    assert!(scanned.iter().all(|(key, entry)| model.get(key) == Some(entry)), "{about}: a wrong entry");
    let keys: Vec<Vec<u8>> = (0..331).map(key).collect();
    for key in &keys {
        let expected = model.get(key);
        match store.get(key) {
            Ok(found) => {
                let found = found.map(|value| (value.to_vec(), value.expires_at()));
                assert_eq!(found.as_ref(), expected, "{about}: {key:?}");
            }
            Err(error) => {
                seen.unreadable += 1;
                let error = error.to_string();
                assert!(error.contains(name_of(damaged)) && error.contains("offset 0x"), "{about}: {error}");
                put(&store, key, b"replaced");
                assert_eq!(store.get(key).unwrap().unwrap(), b"replaced", "{about}: {key:?}");
            }
        }
    }
    assert_eq!(store.len().get(), model.len() as u64, "{about}");
    seen
}

/// Salvages a store with a damaged file: what is found is right, and so is what is told about the
/// rest. Returns how many entries are lost.
fn salvage_of(files: &SimFs, model: &Model, about: &str) -> (usize, Vec<Finding>) {
    let (found, findings) = salvaged(files);
    for (key, entry) in &found {
        let shown = key.escape_ascii().to_string();
        let tells = |text: String| text.contains(&shown) || text.contains("be older versions");
        let is_told = || findings.iter().any(|finding| tells(finding.to_string()));
        assert!(model.get(key) == Some(entry) || is_told(), "{about}: {shown} is wrong, and nobody says so");
    }
    let lost = model.keys().filter(|key| !found.contains_key(*key)).count();
    assert!(lost == 0 || !findings.is_empty(), "{about}: {lost} lost, and nobody says so");
    (lost, findings)
}

/// The parts of a block, by where they begin: pages, fences, entries, large values, foot.
fn parts_of(block: &[u8]) -> [usize; 6] {
    let foot = block.len() - 8 * 18;
    let word = |nth: usize| u64::from_le_bytes(block[foot + 8 * nth..][..8].try_into().unwrap()) as usize;
    let (data, records) = (word(5), word(6));
    let entries = data + data / 4096 * 4;
    [0, data, entries, entries + records * 32, foot, block.len()]
}

#[test]
fn salvage_of_a_sound_store_has_everything() {
    let (files, model) = filled();
    assert!(salvaged(&files) == (model.clone(), Vec::new()));
    let store = open(&files, of());
    Arc::new(store).close().unwrap();
    assert!(salvaged(&files) == (model, Vec::new()));
}
