//! Tests: a directory holds one store, which one process has open.

use std::path::{Path, PathBuf};
use terrace_disk::{Directory, DiskError, Identity};
use terrace_medium::files::{Files, SystemFiles};
use terrace_testkit::simfs::{Fault, Faulty, Handle, SimFs};

fn identity() -> Identity {
    Identity::new("wip", 0x1234_5678_9abc_def0)
}

fn disk() -> SimFs {
    SimFs::new(["/"])
}

fn path(name: &str) -> PathBuf {
    Path::new("/store").join(name)
}

fn store() -> &'static Path {
    Path::new("/store")
}

/// What an engine creates: files, durable when it returns.
fn fill(files: &impl Handle, directory: &Path) -> Result<(), DiskError> {
    let (path, files) = (directory.join("MANIFEST-000001"), files.handle());
    let write = || {
        let file = files.create(&path)?;
        file.write_all_at(b"first", 0)?;
        file.sync()?;
        files.sync_directory(directory)
    };
    write().map_err(|error| DiskError::Io { action: "write", path: path.clone(), error: error.into() })
}

fn create(files: &impl Handle) -> Result<Directory, DiskError> {
    Directory::create(&files.handle(), store(), &identity(), |directory| fill(files, directory))
}

fn open(files: &impl Handle) -> Result<Directory, DiskError> {
    Directory::open(&files.handle(), store(), "wip", false)
}

fn says<T>(result: Result<T, DiskError>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn directory_is_created_and_opened() {
    let files = disk();
    let directory = create(&files).unwrap();
    assert_eq!((directory.path(), directory.identity()), (store(), &identity()));
    drop(directory);
    for seed in 0..20 {
        let files = files.fork();
        files.crash(seed);
        assert_eq!(open(&files).unwrap().identity(), &identity());
        assert_eq!(files.content(&path("MANIFEST-000001")).unwrap(), b"first");
    }
}

#[test]
fn second_opening_names_the_process() {
    let files = disk();
    let first = create(&files).unwrap();
    let pid = std::process::id();
    let expected = format!("process {pid} has the store at /store open; stop it first");
    assert_eq!(says(open(&files)), expected);
    assert_eq!(says(Directory::open(&files.handle(), store(), "wip", true)), expected);
    drop(first);
    drop(open(&files).unwrap());
    let reader = Directory::open(&files.handle(), store(), "wip", true).unwrap();
    assert_eq!(says(open(&files)), expected);
    drop(reader);
    open(&files).unwrap();
}

#[test]
fn wrong_place_is_told_apart() {
    let files = disk();
    assert_eq!(says(open(&files)), "no store at /store: there is no such directory; create a store first");
    files.put(store(), b"a file");
    assert_eq!(says(open(&files)), "no store at /store: it is not a directory");
    assert_eq!(says(create(&files)), "no store at /store: a file has this name; choose another path");
    let files = disk();
    files.create_directory(store()).unwrap();
    assert_eq!(says(open(&files)), "no store at /store: the directory has no file TERRACE");
    let nested = Directory::create(&files.handle(), Path::new("/a/b"), &identity(), |_| Ok(()));
    assert!(says(nested).starts_with("cannot create /a/b: "));
}

#[test]
fn foreign_files_are_left_alone() {
    for name in ["photo.jpg", "MANIFEST-000001", "0000000001.log", "TERRACE"] {
        let files = disk();
        files.create_directory(store()).unwrap();
        files.put(&path(name), b"precious");
        let names = files.names();
        let expected = match name {
            "TERRACE" => "there is a store at /store already; open it, or choose another directory".into(),
            _ => format!("/store holds {name}, which is no part of a new store; choose an empty directory"),
        };
        assert_eq!(says(create(&files)), expected);
        assert_eq!(files.names(), names);
        // Not even beside a creation that was begun.
        files.put(&path("TERRACE.new"), b"");
        if !name.starts_with(|first: char| first.is_ascii_digit() || first == 'M') {
            assert_eq!(says(create(&files)), expected);
            assert_eq!(files.content(&path(name)).unwrap(), b"precious");
        }
    }
}

#[test]
fn creation_is_whole_or_repeated_after_a_crash() {
    let counting = Faulty::counting(disk());
    create(&counting).unwrap();
    let (mut created, mut begun) = (0, 0);
    for nth in 0..counting.calls() {
        let files = disk();
        let is_made = create(&Faulty::failing(files.clone(), nth, Fault::Device)).is_ok();
        for state in files.crash_states(60, nth) {
            match open(&state) {
                Ok(directory) => {
                    assert_eq!(directory.identity(), &identity());
                    created += 1;
                }
                Err(error) => {
                    assert!(!is_made && matches!(error, DiskError::NoStore { .. }), "{error}");
                    drop(create(&state).unwrap());
                    state.crash(nth);
                    open(&state).unwrap();
                    begun += 1;
                }
            }
            assert_eq!(state.content(&path("MANIFEST-000001")).unwrap(), b"first");
        }
    }
    assert!(created > 2 && begun > 20, "{created} {begun}");
}

#[test]
fn store_whose_name_may_vanish_is_not_opened() {
    let mut made = false;
    for nth in 0..10 {
        let files = disk();
        files.fail_sync(nth);
        let Err(_) = create(&files) else {
            made = true;
            continue;
        };
        // Without a crash in between.
        assert!(matches!(open(&files), Err(DiskError::NoStore { .. })), "{nth}");
    }
    assert!(made);
}

#[test]
fn interrupted_creation_is_told() {
    let files = disk();
    let failed = Directory::create(&files.handle(), store(), &identity(), |directory| {
        fill(&files, directory)?;
        Err(DiskError::ReadOnly { path: directory.into() })
    });
    assert!(failed.is_err());
    assert_eq!(says(open(&files)), "no store at /store: its creation was interrupted; create it again");
    assert!(!Directory::exists(&files.handle(), store()).unwrap());
    drop(create(&files).unwrap());
    assert!(Directory::exists(&files.handle(), store()).unwrap());
}

#[test]
fn changed_identity_is_an_error() {
    let files = disk();
    drop(create(&files).unwrap());
    let sound = files.content(&path("TERRACE")).unwrap();
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        files.put(&path("TERRACE"), &bytes);
        assert!(says(open(&files)).contains("/store/TERRACE"));
    }
    for cut in 0..sound.len() {
        files.remove(&path("TERRACE")).unwrap();
        files.put(&path("TERRACE"), &sound[..cut]);
        assert!(says(open(&files)).contains("too short"));
    }
}

#[test]
fn other_engine_is_named() {
    let files = disk();
    drop(create(&files).unwrap());
    let error = Directory::open(&files.handle(), store(), "tiered", false);
    assert_eq!(says(error), "the store at /store belongs to the engine wip; open it with that");
}

#[test]
fn unfinished_files_are_removed_at_open() {
    let files = disk();
    drop(create(&files).unwrap());
    for name in ["CURRENT.new", ".0000000007.table.000000000000beef.new"] {
        files.put(&path(name), b"half");
    }
    let names = files.names();
    drop(Directory::open(&files.handle(), store(), "wip", true).unwrap());
    assert_eq!(files.names(), names, "a reader changes nothing");
    drop(open(&files).unwrap());
    let expected = ["LOCK", "MANIFEST-000001", "TERRACE"].map(path);
    assert_eq!(files.names(), [&[store().into()], &expected[..]].concat());
}

#[test]
fn directory_works_on_the_systems_files() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("store");
    let create = || {
        Directory::create(&SystemFiles.handle(), &path, &identity(), |directory| {
            fill(&SystemFiles, directory)
        })
    };
    let first = create().unwrap();
    let open = || Directory::open(&SystemFiles.handle(), &path, "wip", false);
    assert!(says(open()).contains(&std::process::id().to_string()));
    drop(first);
    assert!(matches!(create(), Err(DiskError::Exists { .. })));
    open().unwrap();
    let file = place.path().join("file");
    std::fs::write(&file, b"").unwrap();
    assert!(
        says(Directory::open(&SystemFiles.handle(), &file, "wip", false)).contains("it is not a directory")
    );
}
