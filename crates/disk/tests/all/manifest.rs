//! Tests: a manifest keeps its edits through crashes, and says what is damaged.

use proptest::prelude::*;
use std::path::{Path, PathBuf};
use terrace_disk::{DiskError, EDIT_MAX, Manifest};
use terrace_medium::files::Files;
use terrace_testkit::simfs::{Fault, Faulty, Handle, SimFs};

const STORE: u64 = 77;

fn directory() -> &'static Path {
    Path::new("/store")
}

fn path(name: &str) -> PathBuf {
    directory().join(name)
}

fn disk() -> SimFs {
    SimFs::new(["/store"])
}

fn edit(nth: u64) -> Vec<u8> {
    (0..30 + nth * 7 % 90).map(|at| (nth * 13 + at) as u8 | 1).collect()
}

fn edits(of: std::ops::RangeInclusive<u64>) -> Vec<Vec<u8>> {
    of.map(edit).collect()
}

fn open(files: &impl Handle) -> Result<(Vec<Vec<u8>>, Manifest), DiskError> {
    let mut found = Vec::new();
    let manifest = Manifest::open(&files.handle(), directory(), STORE, &mut |edit| {
        found.push(edit.to_vec());
        Ok(())
    })?;
    Ok((found, manifest))
}

fn read(files: &impl Handle) -> Result<Vec<Vec<u8>>, DiskError> {
    let mut found = Vec::new();
    Manifest::read(&files.handle(), directory(), STORE, &mut |edit| {
        found.push(edit.to_vec());
        Ok(())
    })?;
    Ok(found)
}

fn create(files: &impl Handle, count: u64) -> Result<Manifest, DiskError> {
    Manifest::create(&files.handle(), directory(), STORE, &edits(1..=count))
}

#[test]
fn edits_are_read_in_order() {
    let files = disk();
    let mut manifest = create(&files, 2).unwrap();
    for nth in 3..10 {
        manifest.append(&edit(nth)).unwrap();
        assert_eq!(read(&files).unwrap(), edits(1..=nth));
    }
    let (found, mut manifest) = open(&files).unwrap();
    assert_eq!(found, edits(1..=9));
    let before = manifest.bytes();
    assert_eq!(before, files.content(&path("MANIFEST-000001")).unwrap().len() as u64);
    manifest.rewrite(&mut edits(5..=6).into_iter()).unwrap();
    assert!(manifest.bytes() < before);
    manifest.append(&edit(7)).unwrap();
    assert_eq!(open(&files).unwrap().0, edits(5..=7));
    assert_eq!(files.names(), [path("CURRENT"), path("MANIFEST-000002")]);
}

#[test]
fn long_edit_is_kept() {
    let files = disk();
    let long = vec![7; EDIT_MAX];
    let mut manifest = Manifest::create(&files.handle(), directory(), STORE, &[]).unwrap();
    manifest.append(&long).unwrap();
    manifest.append(b"short").unwrap();
    let found = read(&files).unwrap();
    assert!(found[0] == long && found[1] == b"short" && found.len() == 2);
}

#[test]
fn manifest_in_the_place_of_another_is_refused() {
    let files = disk();
    create(&files, 1).unwrap();
    assert!(matches!(create(&files, 1), Err(DiskError::Occupied { .. })));
    let error = Manifest::open(&files.handle(), directory(), STORE + 1, &mut |_| Ok(())).err().unwrap();
    assert_eq!(
        error.to_string(),
        "/store/MANIFEST-000001 is a part of another store; put back the file that belongs there"
    );
}

#[test]
fn missing_files_are_errors_that_tell_what_to_do() {
    let files = disk();
    let says = read(&files).unwrap_err().to_string();
    assert_eq!(says, "no store at /store: it has no manifest");
    create(&files, 3).unwrap();
    let current = files.content(&path("CURRENT")).unwrap();
    files.remove(&path("CURRENT")).unwrap();
    let says = read(&files).unwrap_err().to_string();
    assert!(says.contains("/store/CURRENT") && says.contains("restore it from a backup"), "{says}");
    files.put(&path("CURRENT"), &current);
    files.remove(&path("MANIFEST-000001")).unwrap();
    let says = read(&files).unwrap_err().to_string();
    assert!(says.contains("MANIFEST-000001") && says.contains("though CURRENT names it"), "{says}");
}

#[test]
fn newer_format_is_refused() {
    let files = disk();
    create(&files, 1).unwrap();
    let mut bytes = files.content(&path("MANIFEST-000001")).unwrap();
    bytes[8] = 2;
    crate::sign_head(&mut bytes, STORE, 1 << 63 | 1);
    files.put(&path("MANIFEST-000001"), &bytes);
    let says = read(&files).unwrap_err().to_string();
    assert!(says.contains("has format 2") && says.contains("later one"), "{says}");
}

/// Four edits, of which all but the first two were appended.
fn sample() -> SimFs {
    let files = disk();
    let mut manifest = create(&files, 2).unwrap();
    (3..=4).for_each(|nth| manifest.append(&edit(nth)).unwrap());
    files
}

#[test]
fn changed_byte_loses_no_edit_silently() {
    let files = sample();
    for name in ["CURRENT", "MANIFEST-000001"] {
        let sound = files.content(&path(name)).unwrap();
        for at in 0..sound.len() {
            let damaged = files.fork();
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            damaged.put(&path(name), &bytes);
            match open(&damaged) {
                // The last mark, or the zeros behind an edit.
                Ok((found, _)) => assert_eq!(found, edits(1..=4), "{name} {at}"),
                Err(error) => {
                    assert!(error.to_string().contains(name), "{error}");
                    assert_eq!(damaged.content(&path(name)).unwrap(), bytes, "nothing is changed");
                }
            }
        }
    }
}

#[test]
fn cut_file_keeps_what_was_synced_first() {
    let files = sample();
    let sound = files.content(&path("MANIFEST-000001")).unwrap();
    for cut in 0..sound.len() {
        let damaged = files.fork();
        damaged.remove(&path("MANIFEST-000001")).unwrap();
        damaged.put(&path("MANIFEST-000001"), &sound[..cut]);
        let Ok((found, mut manifest)) = open(&damaged) else { continue };
        assert!(found.len() >= 2 && edits(1..=4).starts_with(&found));
        manifest.append(&edit(9)).unwrap();
        assert_eq!(read(&damaged).unwrap(), [found, edits(9..=9)].concat());
    }
}

#[test]
fn crash_keeps_appended_edits() {
    let files = disk();
    let mut manifest = create(&files, 1).unwrap();
    let mut expected = edits(1..=1);
    for nth in 2..60 {
        if nth % 7 == 0 {
            expected = edits(nth..=nth + 2);
            manifest.rewrite(&mut expected.clone().into_iter()).unwrap();
        } else {
            expected.push(edit(nth));
            manifest.append(&edit(nth)).unwrap();
        }
        for state in files.crash_states(40, nth) {
            assert_eq!(open(&state).unwrap().0, expected);
        }
        if nth % 5 == 0 {
            files.crash(nth);
            let (found, new) = open(&files).unwrap();
            assert_eq!(found, expected);
            manifest = new;
        }
    }
}

/// What a manifest may have after a history in which a call failed.
struct Outcome {
    /// The last edits that are known to be there.
    known: Vec<Vec<u8>>,
    /// What may be there instead, because a call for it failed.
    maybe: Vec<Vec<Vec<u8>>>,
}

fn run(files: &impl Handle) -> Option<Outcome> {
    let mut manifest = create(files, 2).ok()?;
    let (mut known, mut maybe, mut latched) = (edits(1..=2), Vec::new(), None);
    for nth in 3..12 {
        let (new, result) = if nth == 7 {
            let new = edits(20..=22);
            (new.clone(), manifest.rewrite(&mut new.into_iter()))
        } else {
            let new = [&known[..], &edits(nth..=nth)].concat();
            (new, manifest.append(&edit(nth)))
        };
        match result {
            Ok(()) => {
                assert!(latched.is_none() || nth == 7, "only a rewrite ends a failure");
                (known, maybe, latched) = (new, Vec::new(), None);
            }
            Err(error) => {
                maybe.push(new);
                let says = error.to_string();
                match &latched {
                    Some(latched) if nth != 7 => assert_eq!(&says, latched),
                    None if nth != 7 && !matches!(error, DiskError::Full { .. }) => latched = Some(says),
                    _ => {}
                }
            }
        }
    }
    Some(Outcome { known, maybe })
}

#[test]
fn failed_call_leaves_the_manifest_before_or_after() {
    let counting = Faulty::counting(disk());
    run(&counting);
    let mut unsure = 0;
    for nth in 0..counting.calls() {
        for fault in Fault::ALL {
            let below = disk();
            let Some(outcome) = run(&Faulty::failing(below.clone(), nth, fault)) else { continue };
            unsure += usize::from(!outcome.maybe.is_empty());
            let is_fit = |found: &Vec<Vec<u8>>| *found == outcome.known || outcome.maybe.contains(found);
            assert!(is_fit(&open(&below.fork()).unwrap().0), "{nth} {fault:?}");
            for state in below.crash_states(10, nth) {
                assert!(is_fit(&open(&state).unwrap().0), "{nth} {fault:?}, and a crash");
            }
        }
    }
    assert!(unsure > 10);
}

#[test]
fn full_disk_refuses_an_edit_and_no_more() {
    let files = disk();
    let mut manifest = create(&files, 1).unwrap();
    files.set_capacity(700);
    let mut expected = edits(1..=1);
    for nth in 2..40 {
        match manifest.append(&edit(nth)) {
            Ok(()) => expected.push(edit(nth)),
            Err(error) => assert!(matches!(error, DiskError::Full { .. }), "{error}"),
        }
        if nth == 30 {
            files.set_capacity(10_000);
        }
    }
    assert!(expected.len() > 10 && expected.len() < 30 && expected.contains(&edit(39)));
    assert_eq!(open(&files).unwrap().0, expected);
}

#[test]
fn failed_sync_ends_appends_until_a_rewrite() {
    for nth in 6..12 {
        let files = disk();
        files.fail_sync(nth);
        let mut manifest = create(&files, 1).unwrap();
        let mut expected = edits(1..=1);
        let failed = (2..20).find(|&nth| match manifest.append(&edit(nth)) {
            Ok(()) => {
                expected.push(edit(nth));
                false
            }
            Err(_) => true,
        });
        assert!(failed.is_some());
        assert!(manifest.append(&edit(30)).is_err(), "a failed sync is not retried");
        let crashed = files.fork();
        crashed.crash(nth);
        let found = open(&crashed).unwrap().0;
        assert!(found.starts_with(&expected) && found.len() <= expected.len() + 1);
        manifest.rewrite(&mut expected.clone().into_iter()).unwrap();
        manifest.append(&edit(31)).unwrap();
        files.crash(nth);
        assert_eq!(open(&files).unwrap().0, [expected, edits(31..=31)].concat());
    }
}

/// After a failed sync the kernel may show bytes and names that it never writes.
#[test]
fn edits_that_a_failed_sync_has_lost_are_written_anew() {
    for nth in 0..30 {
        let files = disk();
        let Ok(mut manifest) = create(&files, 1) else { continue };
        let failing = files.sync_count() + nth;
        files.fail_sync(failing);
        for nth in 2..8 {
            let _ = if nth % 3 == 0 {
                manifest.rewrite(&mut edits(1..=nth).into_iter())
            } else {
                manifest.append(&edit(nth))
            };
        }
        drop(manifest);
        if files.sync_count() <= failing {
            assert_eq!(nth, 12, "each sync of this history");
            break;
        }
        let (found, mut manifest) = open(&files).unwrap();
        manifest.append(&edit(40)).unwrap();
        files.crash(nth);
        assert_eq!(open(&files).unwrap().0, [found, edits(40..=40)].concat(), "{nth}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_read_without_panic(
        noise in prop::collection::vec(any::<u8>(), 0..400),
        at in 0..400usize,
        of_current in any::<bool>(),
    ) {
        let files = sample();
        let name = path(if of_current { "CURRENT" } else { "MANIFEST-000001" });
        let mut bytes = files.content(&name).unwrap();
        let at = at.min(bytes.len());
        bytes.truncate(at);
        bytes.extend_from_slice(&noise);
        files.put(&name, &bytes);
        if let Ok(found) = read(&files) {
            prop_assert!(edits(1..=4).starts_with(&found));
        }
    }
}
