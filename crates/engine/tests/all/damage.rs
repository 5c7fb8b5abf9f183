//! Tests: whatever happens to a file between two opens is named, or has lost nothing that was
//! acknowledged. For both engines on files, after a close and after a kill.

use crate::contents::{Model, contents};
use crate::script::Step;
use crate::small::PATH;
use crate::subject::{OfTiered, OfWip, Subject, clock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_disk::DiskError;
use terrace_engine::{Chore, Durability, Engine, OnDisk, WriteError};
use terrace_medium::files::{Files, Replace};
use terrace_testkit::simfs::SimFs;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    Close,
    /// A close, and then the machine restarts.
    Restart,
}

/// What happens to a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// One bit is flipped, at so many parts of 32 of its length.
    Flip(usize),
    /// It is cut to so many parts of 8.
    Cut(usize),
    /// It lacks its last bytes.
    Shorten(usize),
    /// Its second half is zeros.
    Zeros,
    Remove,
    /// It is as it was at an earlier time.
    Older,
}

fn damages() -> Vec<Damage> {
    let flips = (0..32).map(Damage::Flip);
    let cuts = (0..8).map(Damage::Cut).chain([1, 8, 40, 41].map(Damage::Shorten));
    flips.chain(cuts).chain([Damage::Zeros, Damage::Remove, Damage::Older]).collect()
}

type Disk = BTreeMap<PathBuf, Vec<u8>>;

fn disk_of(files: &SimFs) -> Disk {
    let names = files.names().into_iter().filter(|name| name.starts_with(PATH));
    names.filter_map(|name| Some((name.clone(), files.content(&name)?))).collect()
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:03}").into_bytes()
}

/// Does a step to the store and to the map. It is acknowledged then.
fn step<S: Subject>(store: &S::Store, model: &mut Model, step: &Step) {
    step.run(store).unwrap();
    step.apply(model);
}

/// A store that has seen puts, removals, batches, large values and flushes. Returns what an earlier
/// moment had in its files, too.
fn left_by<S: Subject>(durability: Durability, end: End) -> (Disk, SimFs, Model) {
    let files = SimFs::new(["/data"]);
    let settings = S::small(durability, &clock());
    let store = S::create(files.clone(), PATH, settings.clone()).unwrap();
    let mut model = Model::new();
    let put = |number: u64, len: usize| Step::Put(key(number), vec![number as u8 | 1; len]);
    for number in 0..60 {
        step::<S>(&store, &mut model, &put(number, if number % 20 == 7 { 3000 } else { 90 }));
    }
    step::<S>(&store, &mut model, &Step::Flush);
    for number in 0..20 {
        step::<S>(&store, &mut model, &put(number * 2, 60));
    }
    let older = disk_of(&files);
    for number in 30..45 {
        step::<S>(&store, &mut model, &Step::Remove(key(number)));
    }
    step::<S>(&store, &mut model, &Step::Flush);
    let batch = (50..70).map(|number| (key(number), (number % 3 > 0).then(|| vec![9; 120])));
    step::<S>(&store, &mut model, &Step::Batch(batch.collect()));
    for number in 70..100 {
        step::<S>(&store, &mut model, &put(number, if number == 85 { 3000 } else { 80 }));
    }
    for number in 0..5 {
        step::<S>(&store, &mut model, &Step::Remove(key(number)));
    }
    step::<S>(&store, &mut model, &Step::Work(Chore::Log));
    if end == End::Kill {
        return (older, files.fork(), model);
    }
    Arc::new(store).close().unwrap();
    if end == End::Restart {
        files.crash(5);
    }
    (older, files, model)
}

/// Does a damage; `None` if it changes nothing.
fn damaged(files: &SimFs, path: &Path, older: &Disk, damage: Damage) -> Option<SimFs> {
    let before = files.content(path)?;
    let length = before.len();
    let mut bytes = before.clone();
    match damage {
        Damage::Flip(part) => *bytes.get_mut(length * part / 32)? ^= 4,
        Damage::Cut(parts) => bytes.truncate(length * parts / 8),
        Damage::Shorten(by) => bytes.truncate(length.saturating_sub(by)),
        Damage::Zeros => bytes[length / 2..].fill(0),
        Damage::Older => bytes.clone_from(older.get(path)?),
        Damage::Remove => {}
    }
    let files = files.fork();
    files.remove(path).unwrap();
    if !matches!(damage, Damage::Remove) {
        if bytes == before {
            return None;
        }
        files.put(path, &bytes);
    }
    Some(files)
}

/// What is wrong if neither an error nor a finding names the file, though something is lost.
fn unnamed<S: Subject>(files: &SimFs, durability: Durability, model: &Model, name: &str) -> Option<String> {
    let names = |text: &str| text.contains(name);
    let store = match S::open(files.clone(), PATH, S::small(durability, &clock())) {
        Ok(store) => store,
        Err(error) if names(&error.to_string()) => return None,
        Err(error) => return Some(format!("another file is named: {error}")),
    };
    let findings = store.check(&mut |_, _| {}).findings;
    if findings.iter().any(|finding| names(&finding.to_string())) {
        return None;
    }
    let keys: BTreeSet<Vec<u8>> = (0..100).map(key).collect();
    for key in keys {
        let found = match store.get(&key) {
            Ok(found) => found.map(|value| (value.to_vec(), value.expires_at())),
            Err(error) if names(&error.to_string()) => continue,
            Err(error) => return Some(format!("another file is named: {error}")),
        };
        if found.as_ref() != model.get(&key) {
            return Some(format!("{} is wrong without a word", key.escape_ascii()));
        }
    }
    let found = contents(&store).ok()?;
    (found != *model).then(|| "a scan is wrong without a word".into())
}

fn try_damages<S: Subject>(engine: &str) {
    let mut wrong = Vec::new();
    let mut tried = BTreeSet::new();
    for durability in [Durability::Process, Durability::Power] {
        for end in [End::Kill, End::Close, End::Restart] {
            let (older, files, model) = left_by::<S>(durability, end);
            assert_eq!(unnamed::<S>(&files.fork(), durability, &model, "no file"), None, "a sound store");
            for path in disk_of(&files).into_keys() {
                let name = path.file_name().unwrap().to_str().unwrap();
                if ["LOCK", "NOTICE"].contains(&name) {
                    continue;
                }
                tried.insert(name.rsplit('.').next().unwrap().to_owned());
                for damage in damages() {
                    let Some(files) = damaged(&files, &path, &older, damage) else { continue };
                    if let Some(what) = unnamed::<S>(&files, durability, &model, name) {
                        wrong.push(format!("{engine}, {durability}, {end:?}, {name}, {damage:?}: {what}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {tried:?}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn damage_of_any_file_of_wip_is_named() {
    try_damages::<OfWip>("wip");
}

#[test]
fn damage_of_any_file_of_tiered_is_named() {
    try_damages::<OfTiered>("tiered");
}

/// Puts until a write is refused, with background work between. Returns what was acknowledged, and
/// the refusal.
fn put_until_refused<S: Subject>(store: &S::Store, works: bool) -> (Model, String) {
    let mut model = Model::new();
    for number in 0..10_000 {
        let put = Step::Put(key(number), vec![7; 100]);
        match put.run(store) {
            Ok(()) => put.apply(&mut model),
            Err(WriteError::Stopped(why)) => return (model, why),
            Err(error) => panic!("{error}"),
        }
        if works {
            S::CHORES.iter().for_each(|chore| _ = store.step(*chore, &|| false));
        }
    }
    panic!("no write was refused");
}

fn try_move<S: Subject>(works: bool) {
    let files = SimFs::new(["/data"]);
    let settings = S::small(Durability::Process, &clock());
    let store = S::create(files.clone(), PATH, settings.clone()).unwrap();
    Step::Put(key(1), b"1".to_vec()).run(&store).unwrap();
    let (path, moved) = (Path::new(PATH), Path::new("/data/moved"));
    files.rename(path, moved, Replace::No).unwrap();
    files.create_directory(path).unwrap();
    let (mut model, why) = put_until_refused::<S>(&store, works);
    assert!(why.contains(PATH) && why.contains("moved or replaced"), "{why}");
    assert_eq!(files.list(path).unwrap().len(), 0, "files in another directory");
    assert!(OnDisk::flush(&store).is_err());
    assert_eq!(files.list(path).unwrap().len(), 0, "files in another directory");
    drop(store);
    model.entry(key(1)).or_insert((b"1".to_vec(), None));
    let store = S::open(files, "/data/moved", settings).unwrap();
    assert_eq!(contents(&store).unwrap(), model);
}

#[test]
fn moved_directory_stops_writes_and_loses_none() {
    for works in [false, true] {
        try_move::<OfWip>(works);
        try_move::<OfTiered>(works);
    }
}

fn try_lock<S: Subject>() {
    let files = SimFs::new(["/data"]);
    let settings = S::small(Durability::Process, &clock());
    let store = S::create(files.clone(), PATH, settings.clone()).unwrap();
    files.remove(&Path::new(PATH).join("LOCK")).unwrap();
    let error = S::open(files.clone(), PATH, settings.clone()).err();
    assert!(matches!(error, Some(DiskError::Locked { .. })), "{error:?}");
    drop(store);
    S::open(files, PATH, settings).unwrap();
}

#[test]
fn store_is_open_once_though_its_lock_file_is_removed() {
    try_lock::<OfWip>();
    try_lock::<OfTiered>();
}
