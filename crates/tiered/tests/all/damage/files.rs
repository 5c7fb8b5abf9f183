//! Tests: files that are short, missing, or of another store.

use super::{
    filled, key, look_at, name_of, of, one_of, part, parts_of, put, salvage_of, salvaged, try_open, with,
};
use crate::fixtures::{OfTiered, PATH, open};
use terrace_engine::{Durably, Engine, Finding, OnDisk};
use terrace_medium::files::Files;
use terrace_testkit::simfs::SimFs;
use terrace_tiered::{Settings, Tiered};

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
