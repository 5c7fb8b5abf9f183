//! Tests: what a kill or a loss of power may leave of large values, blocks and the manifest.

use super::{Filled, key, name_of, of, part, put, salvage_of, salvaged, with};
use crate::fixtures::{Model, OfTiered, PATH, clock, contents, create, open, settings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_engine::{Durability, Durably, Engine, OnDisk, Put};
use terrace_medium::files::Files;
use terrace_testkit::simfs::{CallKind, Faulty, SimFs};
use terrace_tiered::Settings;

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
