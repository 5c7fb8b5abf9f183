//! Tests of names in the simulated file system: directories, links, locks, and what of them a crash
//! keeps.

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use terrace_medium::files::{Files, Purpose, Replace};
use terrace_testkit::simfs::SimFs;

fn path(name: &str) -> &Path {
    Path::new(name)
}

fn disk() -> SimFs {
    SimFs::new(["/d", "/e"])
}

fn kind<T>(done: io::Result<T>) -> Option<ErrorKind> {
    done.err().map(|error| error.kind())
}

/// The names in all states after a crash now.
fn states(files: &SimFs) -> BTreeSet<Vec<PathBuf>> {
    let states = files.crash_states(1000, 0);
    assert!(states.len() < 1000);
    states.iter().map(SimFs::names).collect()
}

fn paths(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

#[test]
fn directory_is_durable_with_the_sync_of_its_parent() {
    let files = disk();
    files.create_directory(path("/d/in")).unwrap();
    files.create(path("/d/in/file")).unwrap();
    files.sync_directory(path("/d/in")).unwrap();
    assert_eq!(states(&files), [paths(&[]), paths(&["/d/in", "/d/in/file"])].into());
    files.sync_directory(path("/d")).unwrap();
    assert_eq!(states(&files), [paths(&["/d/in", "/d/in/file"])].into());
    files.remove(path("/d/in/file")).unwrap();
    files.remove_directory(path("/d/in")).unwrap();
    let left = states(&files);
    assert_eq!(left, [paths(&[]), paths(&["/d/in"]), paths(&["/d/in", "/d/in/file"])].into());
    // A later directory of the same name is another one.
    files.create_directory(path("/d/in")).unwrap();
    files.sync_directory(path("/d")).unwrap();
    assert_eq!(states(&files), [paths(&["/d/in"])].into());
}

#[test]
fn files_of_a_lost_directory_take_no_room() {
    let files = disk();
    files.set_capacity(100);
    files.create_directory(path("/d/in")).unwrap();
    files.put(path("/d/in/file"), b"1234567890");
    let free: Vec<_> =
        files.crash_states(2, 0).iter().map(|state| state.free_bytes(path("/d")).unwrap()).collect();
    assert_eq!(free, [100, 90]);
}

#[test]
fn directories_act_like_those_of_the_system() {
    let files = disk();
    files.create_directory(path("/d/one")).unwrap();
    assert_eq!(kind(files.create_directory(path("/d/one"))), Some(ErrorKind::AlreadyExists));
    assert_eq!(kind(files.create_directory(path("/d"))), Some(ErrorKind::AlreadyExists));
    assert_eq!(kind(files.create_directory(path("/f/one"))), Some(ErrorKind::NotFound));
    files.create(path("/d/one/file")).unwrap();
    assert_eq!(kind(files.create(path("/d/one/file/x"))), Some(ErrorKind::NotADirectory));
    assert!(files.is_directory(path("/d/one")).unwrap() && files.is_directory(path("/d")).unwrap());
    assert!(!files.is_directory(path("/d/one/file")).unwrap());
    assert_eq!(kind(files.open(path("/d/one"), Purpose::Read)), Some(ErrorKind::IsADirectory));
    assert_eq!(kind(files.stream(path("/d/one"))), Some(ErrorKind::IsADirectory));
    assert_eq!(kind(files.remove(path("/d/one"))), Some(ErrorKind::IsADirectory));
    assert_eq!(kind(files.remove_directory(path("/d/one"))), Some(ErrorKind::DirectoryNotEmpty));
    assert_eq!(kind(files.remove_directory(path("/d/one/file"))), Some(ErrorKind::NotADirectory));
    assert_eq!(kind(files.sync_directory(path("/d/two"))), Some(ErrorKind::NotFound));
    assert_eq!(files.list(path("/d")).unwrap(), ["one"]);
    files.create_directory(path("/e/two")).unwrap();
    let onto = |from, to| kind(files.rename(path(from), path(to), Replace::Yes));
    assert_eq!(onto("/e/two", "/d/one"), Some(ErrorKind::DirectoryNotEmpty));
    assert_eq!(onto("/d/one/file", "/e/two"), Some(ErrorKind::IsADirectory));
    assert_eq!(onto("/e/two", "/d/one/file"), Some(ErrorKind::NotADirectory));
    assert_eq!(onto("/d/one", "/d/one/below"), Some(ErrorKind::InvalidInput));
    assert_eq!(onto("/d/one", "/e/two"), None);
    assert_eq!(files.names(), paths(&["/e/two", "/e/two/file"]));
}

#[test]
fn links_are_names_of_one_file() {
    let files = disk();
    files.put(path("/d/a"), b"one");
    files.link(path("/d/a"), path("/e/b")).unwrap();
    assert_eq!(kind(files.link(path("/d/a"), path("/e/b"))), Some(ErrorKind::AlreadyExists));
    assert_eq!(states(&files), [paths(&["/d/a"]), paths(&["/d/a", "/e/b"])].into());
    let file = files.open(path("/d/a"), Purpose::Write).unwrap();
    file.write_all_at(b"two", 0).unwrap();
    file.sync_data().unwrap();
    files.rename(path("/d/a"), path("/e/b"), Replace::Yes).unwrap();
    assert_eq!(files.names().len(), 2, "names of one file are not renamed");
    files.remove(path("/d/a")).unwrap();
    files.sync_directory(path("/d")).unwrap();
    files.sync_directory(path("/e")).unwrap();
    files.crash(1);
    assert_eq!((files.names(), files.content(path("/e/b"))), (paths(&["/e/b"]), Some(b"two".to_vec())));
}

#[test]
fn rename_between_directories_survives_whole() {
    for synced in ["/d", "/e"] {
        let files = disk();
        files.put(path("/d/a"), b"bytes");
        files.create(path("/e/b")).unwrap();
        files.rename(path("/d/a"), path("/e/b"), Replace::Yes).unwrap();
        files.sync_directory(path(synced)).unwrap();
        assert_eq!(states(&files), [paths(&["/e/b"])].into(), "{synced}");
        files.crash(1);
        assert_eq!(files.content(path("/e/b")).unwrap(), b"bytes");
    }
}

#[test]
fn lock_is_released_by_drop_and_by_crash() {
    let files = disk();
    files.put(path("/d/a"), b"");
    assert_eq!(kind(files.lock(path("/d/b"))), Some(ErrorKind::NotFound));
    let held = files.lock(path("/d/a")).unwrap().expect("nothing else has it");
    assert!(files.lock(path("/d/a")).unwrap().is_none());
    assert!(files.fork().lock(path("/d/a")).unwrap().is_some());
    drop(held);
    let old = files.lock(path("/d/a")).unwrap().expect("it was dropped");
    files.crash(1);
    let _new = files.lock(path("/d/a")).unwrap().expect("its holder is gone");
    drop(old);
    assert!(files.lock(path("/d/a")).unwrap().is_none());
}

#[test]
fn handles_from_before_a_crash_fail() {
    let files = disk();
    files.put(path("/d/a"), b"kept");
    let file = files.open(path("/d/a"), Purpose::Write).unwrap();
    files.crash(1);
    assert!(file.write_at(b"lost", 0).is_err() && file.sync().is_err() && file.length().is_err());
    assert_eq!(files.content(path("/d/a")).unwrap(), b"kept");
}

/// A change of names, by the numbers of paths.
#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    CreateDirectory(usize),
    Remove(usize),
    Rename(usize, usize),
    Link(usize, usize),
    Sync(usize),
}

const PATHS: [&str; 9] = ["/d/a", "/d/b", "/d/x", "/d/x/a", "/d/x/b", "/e/a", "/e/x", "/e/x/a", "/e/x/b"];
const DIRECTORIES: [&str; 4] = ["/d", "/e", "/d/x", "/e/x"];

fn step() -> impl Strategy<Value = Step> {
    let one = || 0..PATHS.len();
    prop_oneof![
        one().prop_map(Step::Create),
        one().prop_map(Step::CreateDirectory),
        one().prop_map(Step::Remove),
        (one(), one()).prop_map(|(from, to)| Step::Rename(from, to)),
        (one(), one()).prop_map(|(from, to)| Step::Link(from, to)),
        (0..DIRECTORIES.len()).prop_map(Step::Sync),
    ]
}

/// Does a step, if it is possible.
fn apply(files: &SimFs, step: &Step) -> bool {
    let at = |nth: &usize| path(PATHS[*nth]);
    match step {
        Step::Create(nth) => files.create(at(nth)).is_ok(),
        Step::CreateDirectory(nth) => files.create_directory(at(nth)).is_ok(),
        Step::Remove(nth) => files.remove(at(nth)).is_ok() || files.remove_directory(at(nth)).is_ok(),
        Step::Rename(from, to) => files.rename(at(from), at(to), Replace::Yes).is_ok(),
        Step::Link(from, to) => files.link(at(from), at(to)).is_ok(),
        Step::Sync(nth) => files.sync_directory(path(DIRECTORIES[*nth])).is_ok(),
    }
}

proptest! {
    /// What the file layer promises: after a sync of a directory its names are the visible ones.
    #[test]
    fn synced_directory_keeps_its_names(steps in prop::collection::vec(step(), 0..40), seed: u64) {
        let files = disk();
        for step in &steps {
            let done = apply(&files, step);
            let Step::Sync(synced @ 0..2) = step else { continue };
            prop_assert!(done);
            let directory = path(DIRECTORIES[*synced]);
            for state in files.crash_states(50, seed) {
                prop_assert_eq!(state.list(directory).unwrap(), files.list(directory).unwrap());
                let names = state.names();
                prop_assert!(names.iter().all(|name| state.is_taken(name).unwrap()), "{:?}", names);
                state.crash(seed);
                prop_assert_eq!(state.names(), names, "what is kept stays");
            }
        }
        let directories = files.names().into_iter().chain(paths(&["/d", "/e"]));
        for directory in directories.filter(|path| files.is_directory(path).unwrap()) {
            files.sync_directory(&directory).unwrap();
        }
        prop_assert_eq!(states(&files), [files.names()].into());
    }
}
