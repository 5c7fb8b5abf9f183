//! Tests: damaged files of the tiered engine are found and named, reads are right or fail, and the
//! rest is salvaged.

use crate::subject::{OfTiered, Subject, clock};
use crate::tiered::{create, open, settings};
use crate::wip::{Model, PATH};
use crate::wip_script::contents;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_engine::{
    Change, Cursor, Durability, Durably, Engine, Finding, OnDisk, Put, ReadError, Write, WriteError,
    WriteKind,
};
use terrace_medium::files::{Files, Purpose};
use terrace_testkit::simfs::{CallKind, Faulty, Handle, SimFs};
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

#[test]
fn salvage_of_a_sound_store_has_everything() {
    let (files, model) = filled();
    assert!(salvaged(&files) == (model.clone(), Vec::new()));
    let store = open(&files, of());
    Arc::new(store).close().unwrap();
    assert!(salvaged(&files) == (model, Vec::new()));
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
fn flipped_bits_of_a_block_are_found_and_cost_a_record() {
    let (files, model) = filled();
    let path = largest(&files, ".block");
    let bytes = files.content(&path).unwrap();
    let parts = parts_of(&bytes);
    for (nth, range) in parts.windows(2).enumerate() {
        assert!(range[0] < range[1], "part {nth} is empty");
        let step = ((range[1] - range[0]) / 150).max(1);
        for at in (range[0]..range[1]).step_by(step | 1) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let (files, about) = (with(&files, &path, &damaged), format!("part {nth}, byte {at}"));
            let seen = look_at(&files, &path, &model, &about);
            // What a version field or the number of words says is of no use on the tier.
            let is_unused = nth == 0 && !seen.is_found;
            assert!(seen.is_found || is_unused && seen.unreadable == 0, "{about}: {seen:?}");
            assert_eq!(seen.is_refused, nth > 0, "{about}");
            let (lost, findings) = salvage_of(&files, &model, &about);
            assert!(lost <= usize::from(nth == 0), "{about}: {lost} lost, {findings:?}");
            if nth > 0 {
                assert!(!findings.is_empty(), "{about}");
            }
        }
    }
}

/// Records of a page, each with its place: of all bytes, one bit.
#[test]
fn flipped_bits_of_a_page_never_show_a_wrong_value() {
    let (files, model) = filled();
    let path = largest(&files, ".block");
    let bytes = files.content(&path).unwrap();
    for at in 0..700 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at * 5 % 8);
        let about = format!("byte {at}");
        let seen = look_at(&with(&files, &path, &damaged), &path, &model, &about);
        assert!(seen.unreadable <= 1, "{about}: {seen:?}");
    }
}

#[test]
fn flipped_bits_of_other_files_are_found() {
    let (files, model) = filled();
    for kind in [".large", "TERRACE", "CURRENT", "MANIFEST"] {
        let path = one_of(&files, kind);
        let bytes = files.content(&path).unwrap();
        for at in (0..bytes.len()).step_by((bytes.len() / 100).max(1)) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let (files, about) = (with(&files, &path, &damaged), format!("{kind}, byte {at}"));
            let (lost, findings) = salvage_of(&files, &model, &about);
            assert_eq!(lost, usize::from(kind == ".large"), "{about}");
            // Edits have whole words, and the mark behind the last one may be torn.
            let is_padding = kind == "MANIFEST" && (bytes[at] == 0 || at + 40 >= bytes.len());
            let is_told = findings.iter().any(|finding| finding.to_string().contains(name_of(&path)));
            assert!(is_told || is_padding, "{about}: {findings:?}");
            let seen = look_at(&files, &path, &model, &about);
            assert!(seen.is_found || is_padding, "{about}: {seen:?}");
        }
    }
}

/// What lies behind the last sync may be torn, so its damage is not told.
#[test]
fn flipped_bits_of_the_log_cost_two_records() {
    let (files, model) = filled();
    let path = largest(&files, ".log");
    let bytes = files.content(&path).unwrap();
    let used = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    for at in (0..used).step_by((used / 300) | 1) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let (files, about) = (with(&files, &path, &damaged), format!("byte {at} of {used}"));
        let (found, findings) = salvaged(&files);
        let wrong = found.iter().filter(|(key, entry)| model.get(*key) != Some(entry)).count();
        let lost = model.keys().filter(|key| !found.contains_key(*key)).count();
        assert!(lost + wrong <= 2, "{about}: {lost} lost, {wrong} wrong");
        match try_open(&files) {
            Err(error) => assert!(error.contains(name_of(&path)) && error.contains("offset"), "{error}"),
            Ok(store) => {
                let left = contents(&store).unwrap();
                let is_last = at + 200 > used && left.len() + 1 == model.len();
                assert!(left == model || is_last, "{about}: {} entries", left.len());
            }
        }
        assert!(lost + wrong == 0 || !findings.is_empty() || at + 200 > used, "{about}: {findings:?}");
    }
}

/// A bit of the log that was synced is damage. One behind the last sync looks like a torn end.
#[test]
fn log_behind_its_damage_is_kept() {
    let mut filled = Filled::new();
    for number in 0..40 {
        filled.put(number, vec![number as u8; 60]);
        OnDisk::sync(&filled.store).unwrap();
    }
    let (files, model) = filled.left();
    let path = largest(&files, ".log");
    let bytes = files.content(&path).unwrap();
    let value = vec![20; 60];
    let at = bytes.windows(60).position(|window| window == value).expect("a value in the log");
    let mut damaged = bytes.clone();
    damaged[at + 7] ^= 4;
    let files = with(&files, &path, &damaged);
    // The records tell it without the notes of how far the log went.
    files.remove(&part(&files, "ENDS")[0]).unwrap();
    let error = try_open(&files).err().expect("the log is damaged");
    assert!(error.contains(name_of(&path)) && error.contains("offset"), "{error}");
    let (lost, findings) = salvage_of(&files, &model, "a value");
    assert_eq!((lost, findings.len()), (1, 1), "{findings:?}");
    assert!(findings[0].to_string().contains("19 records behind it are kept"), "{}", findings[0]);
}

#[test]
fn short_files_are_found_and_the_rest_is_salvaged() {
    let (files, model) = filled();
    // From now on, `CURRENT` tells how long the manifest was.
    drop(open(&files, of()));
    for kind in [".block", ".large", "TERRACE", "CURRENT", "MANIFEST"] {
        let path = one_of(&files, kind);
        let bytes = files.content(&path).unwrap();
        for len in (0..bytes.len()).step_by((bytes.len() / 23).max(1)) {
            let (files, about) = (with(&files, &path, &bytes[..len]), format!("{kind}, {len} bytes"));
            let (lost, _) = salvage_of(&files, &model, &about);
            match kind {
                ".block" => {
                    // What lies in whole pages before the cut is kept.
                    let data = parts_of(&bytes)[1];
                    assert!(
                        lost <= 300 * (data - len.min(data)).div_ceil(64) / (data / 64),
                        "{about}: {lost}"
                    );
                    assert!(len < data || lost == 0, "{about}: {lost} lost");
                }
                ".large" => assert_eq!(lost, 1, "{about}"),
                _ => assert_eq!(lost, 0, "{about}"),
            }
            assert!(look_at(&files, &path, &model, &about).is_found, "{about}");
        }
    }
}

#[test]
fn missing_files_are_named_and_the_rest_is_salvaged() {
    let (files, model) = filled();
    let large = part(&files, ".large");
    for path in [".block", ".large", "CURRENT", "MANIFEST"].iter().flat_map(|kind| part(&files, kind)) {
        let files = files.fork();
        files.remove(&path).unwrap();
        let about = path.display().to_string();
        let (lost, findings) = salvage_of(&files, &model, &about);
        let of_file: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(of_file.iter().any(|finding| finding.contains(name_of(&path))), "{about}: {of_file:?}");
        if !about.contains(".block") {
            assert_eq!(lost, usize::from(large.contains(&path)), "{about}");
        }
        if large.contains(&path) {
            assert!(of_file.iter().any(|finding| finding.contains("the key `key")), "{of_file:?}");
        }
        assert!(look_at(&files, &path, &model, &about).is_found, "{about}");
    }
}

#[test]
fn files_of_another_store_are_refused_by_name_and_not_salvaged() {
    let (files, model) = filled();
    let other = SimFs::new(["/data"]);
    let store = OfTiered::create(other.clone(), PATH, Settings { chance: 99, ..of() }).unwrap();
    for number in 0..300 {
        put(&store, &key(number), &vec![77; if number % 60 == 0 { 3000 } else { 60 }]);
    }
    OnDisk::flush(&store).unwrap();
    put(&store, b"last", b"of the log");
    OnDisk::sync(&store).unwrap();
    for kind in [".block", ".log", ".large", "TERRACE", "MANIFEST", "CURRENT"] {
        let (path, foreign) = (one_of(&files, kind), one_of(&other, kind));
        let files = with(&files, &path, &other.content(&foreign).unwrap());
        let (found, findings) = salvaged(&files);
        let foreign = found.values().filter(|(value, _)| *value == vec![77; 60] || value == b"of the log");
        assert_eq!(foreign.count(), 0, "{kind}");
        if kind == "CURRENT" {
            // It names no store, and may even be the same.
            continue;
        }
        assert!(findings.iter().any(|finding| finding.to_string().contains(name_of(&path))), "{findings:?}");
        if kind == "TERRACE" || kind == "MANIFEST" {
            assert!(found == model, "{kind}: {findings:?}");
        }
        // The identity is believed: then it is the other files that are foreign.
        match (try_open(&files), kind) {
            (Err(error), "TERRACE") => assert!(error.contains("another store"), "{error}"),
            (Err(error), _) => assert!(error.contains(name_of(&path)), "{kind}: {error}"),
            (Ok(_), ".large") => assert!(look_at(&files, &path, &model, kind).is_found),
            (Ok(_), _) => panic!("{kind}: it opens"),
        }
    }
}

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

/// A store that was killed: a large value, then other writes, all of them in the log alone.
fn killed(settings: &Settings) -> (SimFs, Model) {
    let Filled { store, files, model } = Filled::new();
    drop(store);
    let mut filled = Filled { store: open(&files, settings.clone()), files, model };
    filled.put(0, vec![1; 200]);
    filled.put(1, vec![2; 5000]);
    if settings.durability == Durability::Power {
        // What is appended from now on tells it.
        OnDisk::sync(&filled.store).unwrap();
    }
    (2..200).for_each(|number| filled.put(number, vec![number as u8; 60]));
    let end = filled.store.ticket();
    filled.store.settle(end).unwrap();
    (filled.files, filled.model)
}

/// What may be left of a large value: with a flipped bit, short, and nothing.
fn with_damaged_large(files: &SimFs) -> (PathBuf, [(SimFs, &'static str); 3]) {
    let path = part(files, ".large").remove(0);
    let bytes = files.content(&path).unwrap();
    let (mut flipped, missing) = (bytes.clone(), files.fork());
    flipped[4000] ^= 1;
    missing.remove(&path).unwrap();
    let short = with(files, &path, &bytes[..1000]);
    let all = [(with(files, &path, &flipped), "flipped"), (short, "short"), (missing, "missing")];
    (path, all)
}

#[test]
fn damaged_large_value_of_the_log_costs_its_key_alone() {
    let in_one_boot = settings(Durability::Process, &clock());
    for settings in [in_one_boot, of()] {
        let (files, model) = killed(&settings);
        let (path, damaged) = with_damaged_large(&files);
        for (files, about) in damaged {
            // The log stays as it is, so each open finds the same.
            for _ in 0..2 {
                let store = open(&files, settings.clone());
                assert_eq!(store.len().get(), model.len() as u64, "{about}");
                let error = store.get(&key(1)).expect_err("a damaged value").to_string();
                assert!(error.contains(name_of(&path)), "{about}: {error}");
                let [warning] = store.warnings() else { panic!("{about}: {:?}", store.warnings()) };
                let shown = key(1).escape_ascii().to_string();
                assert!(warning.contains(&shown) && warning.contains(name_of(&path)), "{about}: {warning}");
                let findings = store.check(&mut |_, _| {}).findings;
                assert_eq!(findings.len(), 1, "{about}: {findings:?}");
                assert!(findings[0].to_string().contains(name_of(&path)), "{about}: {findings:?}");
                for (key, (value, _)) in model.iter().filter(|(other, _)| **other != key(1)) {
                    assert_eq!(store.get(key).unwrap().as_deref(), Some(&value[..]), "{about}: {key:?}");
                }
            }
            let (lost, findings) = salvage_of(&files, &model, about);
            assert_eq!((lost, findings.len()), (1, 1), "{about}: {findings:?}");
            let store = open(&files, settings.clone());
            store.put(Put { key: &key(1), value: b"new", expires_at: None }, Durably::Store).unwrap();
            drop(store);
            let store = open(&files, settings.clone());
            assert_eq!(store.get(&key(1)).unwrap().unwrap(), b"new", "{about}");
            assert!(store.warnings().is_empty(), "{about}: {:?}", store.warnings());
        }
    }
}

/// Where power may have been lost, and nothing tells that the write was synced.
#[test]
fn large_value_that_power_has_torn_ends_the_log() {
    let settings = settings(Durability::Process, &clock());
    let (files, _) = killed(&settings);
    let (path, damaged) = with_damaged_large(&files);
    for (files, about) in damaged {
        files.restart();
        let store = open(&files, settings.clone());
        assert_eq!(store.len().get(), 1, "{about}");
        let [warning] = store.warnings() else { panic!("{about}: {:?}", store.warnings()) };
        let is_told = warning.contains("the log ends before write 3") && warning.contains(name_of(&path));
        assert!(is_told, "{about}: {warning}");
        // The next write comes behind what was there.
        store.put(Put { key: &key(1), value: b"new", expires_at: None }, Durably::Store).unwrap();
        drop(store);
        let store = open(&files, settings.clone());
        assert_eq!((store.len().get(), store.warnings().len()), (2, 0), "{about}");
    }
}

/// A manifest that has lost edits: blocks tell it, though all that it still names is there.
#[test]
fn manifest_without_its_end_is_named_and_all_is_salvaged() {
    for compacts in [false, true] {
        let mut filled = Filled::new();
        for number in 0..700 {
            filled.put(number, vec![number as u8; 60 + number as usize % 60]);
            if number % 3 == 0 {
                filled.remove(number / 2);
            }
            if number % 100 == 99 {
                OnDisk::flush(&filled.store).unwrap();
            }
            if compacts && number == 450 {
                let all = std::ops::Bound::Unbounded;
                OnDisk::compact(&filled.store, all, all).unwrap();
            }
        }
        let Filled { store, files, model } = filled;
        Arc::new(store).close().unwrap();
        // It would tell how long the manifest was.
        files.remove(&Path::new(PATH).join("ENDS")).unwrap();
        let path = part(&files, "MANIFEST").remove(0);
        let bytes = files.content(&path).unwrap();
        let mut refused = 0;
        for len in (0..bytes.len()).step_by(8) {
            let (files, about) = (with(&files, &path, &bytes[..len]), format!("{len} bytes, {compacts}"));
            // A refused open leaves everything.
            match OfTiered::open(files.clone(), PATH, of()).map_err(|error| error.to_string()) {
                Ok(store) => assert!(contents(&store).unwrap() == model, "{about}: it opens"),
                Err(error) => {
                    let names = error.contains(name_of(&path)) || compacts && error.contains(".block");
                    assert!(names, "{about}: {error}");
                    refused += usize::from(error.contains("newer blocks than it names"));
                }
            }
            let (found, findings) = salvaged(&files);
            assert!(found == model, "{about}: {} of {}, {findings:?}", found.len(), model.len());
        }
        assert!(refused > bytes.len() / 8 / 8, "{refused} of {}", bytes.len() / 8);
        assert!(contents(&open(&files, of())).unwrap() == model);
    }
}

/// A crash leaves blocks that were not finished, or are of no use any more.
#[test]
fn blocks_that_a_crash_leaves_do_not_stop_an_open() {
    for durability in [Durability::Power, Durability::None] {
        let disk = SimFs::new(["/data"]);
        drop(create(&disk, settings(durability, &clock())));
        let states: Arc<std::sync::Mutex<Vec<SimFs>>> = Arc::default();
        let (noted, watched) = (Arc::clone(&states), disk.clone());
        let files = Faulty::watched(disk, move |call| {
            if call.kind != CallKind::Read {
                noted.lock().unwrap().push(watched.fork());
            }
        });
        let store = OfTiered::open(files, PATH, settings(durability, &clock())).unwrap();
        let all = std::ops::Bound::Unbounded;
        let fill = |from: usize| (from..from + 60).for_each(|nth| put(&store, &key(nth as u64), &[7; 90]));
        for round in 0..14 {
            fill(20 * round);
            OnDisk::flush(&store).unwrap();
        }
        (0..300).filter(|nth| nth % 5 > 0).for_each(|nth| store.delete(&key(nth), Durably::Later).unwrap());
        OnDisk::sync(&store).unwrap();
        OnDisk::flush(&store).unwrap();
        let before = states.lock().unwrap().len();
        OnDisk::compact(&store, all, all).unwrap();
        let states = std::mem::take(&mut *states.lock().unwrap());
        assert!(states.len() > before + 10, "{} calls", states.len() - before);
        for (nth, files) in states.iter().enumerate().rev().step_by(3) {
            let opened = OfTiered::open(files.clone(), PATH, settings(durability, &clock()));
            let store = opened.unwrap_or_else(|error| panic!("call {nth}, {durability:?}: {error}"));
            if nth >= before {
                assert_eq!(store.len().get(), 80, "call {nth}, {durability:?}");
            }
        }
    }
}

#[test]
fn older_block_of_the_same_name_is_told() {
    let files = SimFs::new(["/data"]);
    let write = |first: u32, store: Tiered| {
        (first..first + 14).for_each(|key| put(&store, &key.to_le_bytes(), &[1; 900]));
        OnDisk::flush(&store).unwrap();
    };
    write(0, OfTiered::create(files.clone(), PATH, of()).unwrap());
    let older = part(&files, ".block").remove(0);
    let bytes = files.content(&older).unwrap();
    OfTiered::open(files.clone(), PATH, of()).unwrap().clear(Durably::Store).unwrap();
    write(100, OfTiered::open(files.clone(), PATH, of()).unwrap());
    assert_eq!(part(&files, ".block"), std::slice::from_ref(&older), "a name that is used again");
    assert!(try_open(&files).is_ok());
    let files = with(&files, &older, &bytes);
    let error = try_open(&files).map(drop).unwrap_err();
    assert!(error.contains(name_of(&older)) && error.contains("older file of the same name"), "{error}");
    let told = salvaged(&files).1;
    assert!(told.iter().any(|finding| finding.found.contains("older file of the same name")), "{told:?}");
}
