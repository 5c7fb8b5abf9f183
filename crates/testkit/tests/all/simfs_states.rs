//! Tests of what a crash of the simulated file system leaves of bytes, of its faults and of its
//! capacity.

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use terrace_medium::files::{Files, Purpose, StoredFile, Unpublished};
use terrace_testkit::simfs::{CallKind, Faulty, SimFs};

const PAGE: usize = 4096;

fn path(name: &str) -> &Path {
    Path::new(name)
}

fn disk() -> SimFs {
    SimFs::new(["/d"])
}

/// A file of `pages` durable pages of ones.
fn file(files: &SimFs, pages: usize) -> Box<dyn StoredFile> {
    files.put(path("/d/a"), &vec![1; pages * PAGE]);
    files.open(path("/d/a"), Purpose::Write).unwrap()
}

/// The first byte of each page.
fn pages(files: &SimFs) -> Vec<u8> {
    files.content(path("/d/a")).unwrap().chunks(PAGE).map(|page| page[0]).collect()
}

fn code<T>(done: io::Result<T>) -> Option<i32> {
    done.err().and_then(|error| error.raw_os_error())
}

#[test]
fn crash_states_are_all_combinations_of_pages_and_names() {
    let files = disk();
    file(&files, 4).write_all_at(&[2; 3 * PAGE], PAGE as u64).unwrap();
    files.create(path("/d/b")).unwrap();
    let states = files.crash_states(16, 0);
    let left: BTreeSet<_> = states.iter().map(|state| (pages(state), state.names().len())).collect();
    assert_eq!((states.len(), left.len()), (16, 16));
    assert!(left.iter().all(|(pages, _)| pages[0] == 1));
    assert_eq!(pages(&files), [1, 2, 2, 2], "the original stays as it is");
}

#[test]
fn directed_crashes_lose_and_keep_each_change_alone() {
    let files = disk();
    file(&files, 1).write_all_at(&[2; 16], 8).unwrap();
    files.create(path("/d/b")).unwrap();
    files.create(path("/d/c")).unwrap();
    let has = |state: &SimFs, name: &str| state.content(path(name)).is_some();
    let left = files.directed_crashes().map(|state| {
        let bytes = state.content(path("/d/a")).unwrap();
        ([bytes[8], bytes[16]], has(&state, "/d/b"), has(&state, "/d/c"))
    });
    let left: BTreeSet<_> = left.collect();
    let (old, new) = ([1, 1], [2, 2]);
    let expected = [
        (old, false, false),
        (new, true, true),
        (new, false, false),
        (old, true, true),
        ([1, 2], true, true),
        ([2, 1], true, true),
        (new, false, true),
        (new, true, false),
        (old, false, true),
        (old, true, false),
    ];
    assert_eq!(left, BTreeSet::from(expected));
    assert_eq!(files.crash_states_max(), 8.0);
    assert_eq!(files.crash_states(100, 0).len(), 8);
}

#[test]
fn watched_calls_are_seen_before_they_are_done() {
    let (files, seen) = (disk(), Arc::<Mutex<Vec<_>>>::default());
    let (below, note) = (files.clone(), seen.clone());
    let watched = Faulty::watched(files.clone(), move |call| {
        let bytes = below.content(path("/d/a")).map(|content| content.len());
        note.lock().unwrap().push((call.kind, call.path.to_path_buf(), bytes));
    });
    let file = watched.create(path("/d/a")).unwrap();
    file.write_all_at(&[1], 0).unwrap();
    file.sync().unwrap();
    watched.sync_directory(path("/d")).unwrap();
    let expected = [
        (CallKind::Name, "/d/a", None),
        (CallKind::Write, "/d/a", Some(0)),
        (CallKind::Sync, "/d/a", Some(1)),
        (CallKind::SyncDirectory, "/d", Some(1)),
    ];
    assert_eq!(*seen.lock().unwrap(), expected.map(|(kind, at, bytes)| (kind, at.into(), bytes)));
}

#[test]
fn crash_states_are_random_if_there_are_too_many() {
    let files = disk();
    file(&files, 100).write_all_at(&[2; 100 * PAGE], 0).unwrap();
    let draw = |seed| files.crash_states(20, seed).iter().map(pages).collect::<Vec<_>>();
    let left = draw(1);
    assert_eq!((left.len(), &left), (20, &draw(1)));
    assert!(BTreeSet::from_iter(&left).len() > 10);
    assert_ne!(left, draw(2));
    assert_eq!(disk().crash_states(1, 0).len(), 1, "nothing is unsynced");
}

#[test]
fn appended_length_is_old_new_or_between() {
    let files = disk();
    file(&files, 1).write_all_at(&[2; 2 * PAGE], PAGE as u64).unwrap();
    let left: BTreeSet<_> = files.crash_states(100, 0).iter().map(pages).collect();
    let expected: [&[u8]; 7] = [&[1], &[1, 0], &[1, 2], &[1, 0, 0], &[1, 0, 2], &[1, 2, 0], &[1, 2, 2]];
    assert_eq!(left, expected.map(Vec::from).into());
}

#[test]
fn fork_and_original_are_independent() {
    let files = disk();
    let original = file(&files, 1);
    original.write_all_at(b"unsynced", 0).unwrap();
    let fork = files.fork();
    fork.open(path("/d/a"), Purpose::Write).unwrap().write_all_at(b"forked", 0).unwrap();
    fork.create(path("/d/b")).unwrap();
    original.write_all_at(b"original", 0).unwrap();
    assert!(fork.content(path("/d/a")).unwrap().starts_with(b"forkeded"));
    assert!(files.content(path("/d/a")).unwrap().starts_with(b"original"));
    fork.crash_states(10, 0).iter().for_each(|state| state.crash(1));
    original.sync().unwrap();
    files.crash(1);
    assert!(files.content(path("/d/a")).unwrap().starts_with(b"original"));
    assert_eq!((files.names().len(), fork.names().len()), (1, 2));
}

#[test]
fn failed_sync_loses_bytes_that_stay_visible() {
    let files = disk();
    let file = file(&files, 3);
    files.fail_sync(files.sync_count());
    file.write_all_at(&[2; 2 * PAGE], 0).unwrap();
    assert_eq!(code(file.sync_data()), Some(5));
    file.sync().unwrap();
    assert_eq!(pages(&files), [2, 2, 1], "they are visible");
    // What is written again is kept again.
    file.write_all_at(&[3; PAGE], PAGE as u64).unwrap();
    file.write_all_at(&[4; PAGE], 3 * PAGE as u64).unwrap();
    file.sync().unwrap();
    assert_eq!(pages(&files), [2, 3, 1, 4]);
    let states = files.crash_states(10, 0);
    assert_eq!(states.iter().map(pages).collect::<Vec<_>>(), [[1, 3, 1, 4]]);
    files.crash(1);
    assert_eq!(pages(&files), [1, 3, 1, 4]);
}

#[test]
fn failed_sync_of_a_directory_loses_its_names() {
    let files = disk();
    files.create(path("/d/a")).unwrap();
    files.fail_sync(0);
    assert_eq!(code(files.sync_directory(path("/d"))), Some(5));
    files.create(path("/d/b")).unwrap();
    files.sync_directory(path("/d")).unwrap();
    assert_eq!((files.names().len(), files.sync_count()), (2, 2));
    files.crash(1);
    assert_eq!(files.names(), [path("/d/b")]);
}

#[test]
fn skipped_sync_keeps_nothing_but_a_later_one_does() {
    let files = disk();
    let file = file(&files, 1);
    file.write_all_at(&[2; PAGE], 0).unwrap();
    files.skip_sync(0);
    file.sync_data().unwrap();
    assert_eq!(files.crash_states(10, 0).len(), 2);
    file.sync_data().unwrap();
    assert_eq!(files.crash_states(10, 0).len(), 1);
}

fn publish(files: &SimFs) -> io::Result<()> {
    let new = Unpublished::new(files, path("/d/a"), 1)?;
    new.appender().write_all(&[7; 5000])?;
    new.publish()
}

/// Whether every crash leaves the whole published file.
fn is_published(files: &SimFs) -> bool {
    publish(files).unwrap();
    files.crash_states(1000, 0).iter().all(|state| state.content(path("/d/a")) == Some(vec![7; 5000]))
}

#[test]
fn any_sync_left_out_of_a_publication_is_noticed() {
    for make in [disk as fn() -> SimFs, || disk().with_unnamed_files()] {
        let files = make();
        assert!(is_published(&files));
        assert_eq!(files.sync_count(), 2);
        for nth in 0..files.sync_count() {
            let files = make();
            files.skip_sync(nth);
            assert!(!is_published(&files), "sync {nth}");
        }
    }
}

#[test]
fn full_disk_takes_part_of_a_write_until_it_has_room() {
    let files = disk();
    files.set_capacity(1000);
    let (one, two) = (files.create(path("/d/a")).unwrap(), files.create(path("/d/b")).unwrap());
    one.write_all_at(&[1; 700], 0).unwrap();
    assert_eq!(files.free_bytes(path("/d")).unwrap(), 300);
    assert_eq!(two.write_at(&[2; 400], 0).unwrap(), 300);
    let refused = |done: io::Result<()>| assert_eq!(done.unwrap_err().kind(), io::ErrorKind::StorageFull);
    refused(two.write_all_at(b"x", 300));
    refused(two.write_all_at(b"x", 9999));
    refused(two.allocate(301));
    refused(two.set_length(301));
    assert_eq!(two.length().unwrap(), 300);
    two.write_all_at(&[3; 300], 0).unwrap();
    two.allocate(200).unwrap();
    files.set_capacity(1100);
    two.write_all_at(&[4; 100], 300).unwrap();
    refused(two.write_all_at(b"x", 400));
    // A removed file takes room until it is closed.
    files.remove(path("/d/a")).unwrap();
    refused(two.write_all_at(b"x", 400));
    one.set_length(699).unwrap();
    two.write_all_at(b"x", 400).unwrap();
    drop(one);
    assert_eq!(files.free_bytes(path("/d")).unwrap(), 699);
}

/// A byte, or the zero after the end.
fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// A change of a file, in units of 100 bytes.
#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize),
    SetLength(u64),
    Sync,
    LoseSync,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..80u64, 0..40usize).prop_map(|(at, length)| Step::Write(at * 100, length * 100)),
        2 => (0..100u64).prop_map(|length| Step::SetLength(length * 100)),
        1 => Just(Step::Sync),
        1 => Just(Step::LoseSync),
    ]
}

proptest! {
    /// Compares with a model that keeps the visible and the durable bytes as a whole.
    #[test]
    fn crash_leaves_bytes_of_before_and_after_the_sync(
        steps in prop::collection::vec(step(), 1..12), fails: bool, seed: u64,
    ) {
        let files = disk();
        let file = file(&files, 1);
        let (mut now, mut kept) = (vec![1; PAGE], vec![1; PAGE]);
        for (value, step) in (2..).zip(&steps) {
            match *step {
                Step::Write(at, length) => {
                    let end = at as usize + length;
                    if length > 0 {
                        now.resize(now.len().max(end), 0);
                        now[at as usize..end].fill(value);
                    }
                    file.write_all_at(&vec![value; length], at).unwrap();
                }
                Step::SetLength(bytes) => {
                    now.resize(bytes as usize, 0);
                    file.set_length(bytes).unwrap();
                }
                Step::LoseSync if fails => {
                    files.fail_sync(files.sync_count());
                    prop_assert!(file.sync().is_err());
                    files.crash(seed);
                    let left = files.content(path("/d/a")).unwrap();
                    prop_assert!((0..left.len()).all(|at| left[at] == byte(&kept, at)));
                    return Ok(());
                }
                Step::Sync | Step::LoseSync => {
                    file.sync_data().unwrap();
                    kept = now.clone();
                }
            }
            prop_assert!(files.content(path("/d/a")).unwrap() == now, "programs see what they wrote");
        }
        let states = files.crash_states(500, seed);
        let left: Vec<_> = states.iter().map(|state| state.content(path("/d/a")).unwrap()).collect();
        for bytes in &left {
            let within = bytes.iter().enumerate();
            prop_assert!(within.clone().all(|(at, &left)| [byte(&kept, at), byte(&now, at)].contains(&left)));
            prop_assert!(bytes.len() >= kept.len().min(now.len()) && bytes.len() <= kept.len().max(now.len()));
        }
        if left.len() < 500 {
            prop_assert!(left.contains(&kept) && left.contains(&now));
        }
    }
}
