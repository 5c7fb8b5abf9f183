//! Tests of the simulated file system: it keeps what it must, loses what it may, and published
//! files are complete or absent.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::path::Path;
use terrace_medium::files::{Files, Purpose, Replace, SystemFiles, Unpublished};
use terrace_testkit::simfs::{Fault, Faulty, SimFs};

const SEEDS: u64 = 300;

fn path(name: &str) -> &Path {
    Path::new(name)
}

fn disk() -> SimFs {
    SimFs::new(["/d"])
}

#[test]
fn synced_data_is_kept_unsynced_sectors_or_pages_may_be() {
    let mut kinds = BTreeSet::new();
    for seed in 0..SEEDS {
        let files = disk();
        files.put(path("/d/a"), &[1; 16384]);
        files.open(path("/d/a"), Purpose::Write).unwrap().write_all_at(&[2; 8192], 4096).unwrap();
        assert_eq!(files.content(path("/d/a")).unwrap()[4096], 2, "programs see what they wrote");
        files.crash(seed);
        let kept = files.content(path("/d/a")).unwrap();
        assert!(kept[..4096].iter().chain(&kept[12288..]).all(|&byte| byte == 1));
        let sectors: Vec<u8> = kept[4096..12288].chunks(512).map(|sector| sector[0]).collect();
        assert!(kept[4096..12288].chunks(512).all(|sector| sector.iter().all(|&byte| byte == sector[0])));
        let torn_page = sectors.chunks(8).any(|page| page.iter().any(|&sector| sector != page[0]));
        kinds.insert((torn_page, sectors.contains(&1), sectors.contains(&2)));
        files.crash(seed + 1);
        assert_eq!(files.content(path("/d/a")).unwrap(), kept, "what is kept stays");
    }
    // All lost, all kept, some pages kept, some sectors of a page kept.
    let expected = [(false, true, false), (false, false, true), (false, true, true), (true, true, true)];
    assert!(expected.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
}

#[test]
fn lengths_are_old_new_or_between() {
    let mut lengths = BTreeSet::new();
    for seed in 0..SEEDS {
        let files = disk();
        files.put(path("/d/a"), &[1; 600]);
        files.open(path("/d/a"), Purpose::Write).unwrap().write_all_at(&[2; 3000], 600).unwrap();
        files.crash(seed);
        let kept = files.content(path("/d/a")).unwrap();
        assert!(kept[..512].iter().all(|&byte| byte == 1));
        lengths.insert(kept.len());
    }
    assert!(lengths.contains(&600) && lengths.contains(&3600) && lengths.len() > 3, "{lengths:?}");
}

#[test]
fn unsynced_names_are_kept_in_any_combination() {
    let mut left = BTreeSet::new();
    for seed in 0..SEEDS {
        let files = disk();
        for name in ["/d/a", "/d/b"] {
            files.create(path(name)).unwrap().sync().unwrap();
        }
        files.crash(seed);
        left.insert(files.names());
    }
    assert_eq!(left.len(), 4, "{left:?}");
    let files = disk();
    files.create(path("/d/a")).unwrap();
    files.sync_directory(path("/d")).unwrap();
    files.rename(path("/d/a"), path("/d/b"), Replace::No).unwrap();
    files.crash(3);
    assert_eq!(files.names().len(), 1, "a rename is atomic");
}

#[test]
fn taken_names_are_replaced_only_on_request() {
    let files = disk();
    files.put(path("/d/a"), b"a");
    files.put(path("/d/b"), b"b");
    let kind = |outcome: io::Result<()>| outcome.map_err(|error| error.kind());
    assert_eq!(kind(files.create(path("/d/a")).map(drop)), Err(io::ErrorKind::AlreadyExists));
    assert_eq!(kind(files.create(path("/e/a")).map(drop)), Err(io::ErrorKind::NotFound));
    let taken = files.rename(path("/d/a"), path("/d/b"), Replace::No);
    assert_eq!(kind(taken), Err(io::ErrorKind::AlreadyExists));
    files.rename(path("/d/a"), path("/d/b"), Replace::Yes).unwrap();
    assert_eq!((files.names().len(), files.content(path("/d/b")).unwrap()), (1, b"a".to_vec()));
    assert!(files.open(path("/d/b"), Purpose::Read).unwrap().write_at(b"x", 0).is_err());
}

#[test]
fn flipped_bits_survive_a_crash() {
    let files = disk();
    files.put(path("/d/a"), &[0; 1000]);
    files.flip_bits(path("/d/a"), 3, 1);
    files.crash(1);
    let flipped: u32 = files.content(path("/d/a")).unwrap().iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(flipped, 3);
}

#[test]
fn short_reads_and_writes_are_completed() {
    let files = Faulty::counting(disk()).short(5);
    let bytes: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
    let file = files.create(path("/d/a")).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    let mut back = vec![0; 5000];
    file.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(back, bytes);
    let mut streamed = Vec::new();
    files.stream(path("/d/a")).unwrap().0.read_to_end(&mut streamed).unwrap();
    assert_eq!(streamed, bytes);
    assert!(files.calls() > 10, "{}", files.calls());
}

type Call = fn(&Faulty) -> io::Result<()>;

#[test]
fn faulty_calls_are_forwarded_or_fail() {
    let calls: [Call; 6] = [
        |files| files.create_directory(path("/d/in")),
        |files| files.remove_directory(path("/d/empty")),
        |files| files.is_directory(path("/d")).map(|is| assert!(is)),
        |files| files.link(path("/d/a"), path("/d/b")),
        |files| files.lock(path("/d/a")).map(|lock| assert!(lock.is_some())),
        |files| files.free_bytes(path("/d")).map(|free| assert_eq!(free, 99)),
    ];
    let make = || {
        let files = disk();
        files.put(path("/d/a"), b"a");
        files.create_directory(path("/d/empty")).unwrap();
        files.set_capacity(100);
        files
    };
    for call in calls {
        let (done, failed) = (make(), make());
        call(&Faulty::counting(done.clone())).unwrap();
        let faulty = Faulty::failing(failed.clone(), 0, Fault::Device);
        assert_eq!(call(&faulty).unwrap_err().raw_os_error(), Some(5));
        assert_eq!((faulty.calls(), failed.names()), (1, make().names()));
    }
    let files = make();
    let file =
        Faulty::failing(files.clone(), 1, Fault::Device).open(path("/d/a"), Purpose::ReadDirect).unwrap();
    file.forget();
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(5));
    assert_eq!(files.sync_count(), 0);
    file.sync_data().unwrap();
    assert_eq!(files.sync_count(), 1);
    let (mut one, mut two) = ([0], [0; 2]);
    file.read_many(&mut [(0, &mut one)]).unwrap();
    assert_eq!((one, file.read_many(&mut [(0, &mut one), (0, &mut two)]).is_err()), (*b"a", true));
}

/// Publishes 5,000 bytes, in pieces.
fn publish<F: Files>(files: &F, path: &Path) -> io::Result<()> {
    let new = Unpublished::new(files, path, 1)?;
    let mut out = new.appender();
    for _ in 0..5 {
        out.write_all(&[7; 1000])?;
    }
    new.publish()
}

/// Fails every call in turn, followed by a power failure. The file is then complete or absent, and
/// no other name remains unless its removal failed.
#[test]
fn published_file_is_complete_or_absent() {
    for make in [disk as fn() -> SimFs, || disk().with_unnamed_files()] {
        let counting = Faulty::counting(make());
        publish(&counting, path("/d/new")).unwrap();
        for (nth, fault) in (0..=counting.calls()).flat_map(|nth| Fault::ALL.map(|fault| (nth, fault))) {
            for seed in 0..30 {
                let below = make();
                let published =
                    publish(&Faulty::failing(below.clone(), nth, fault).short(seed), path("/d/new"));
                assert!(below.names().len() <= 1, "call {nth}: {:?}", below.names());
                below.crash(seed);
                match below.content(path("/d/new")) {
                    Some(bytes) => assert_eq!(bytes, [7; 5000], "call {nth} failed, {published:?}"),
                    None => assert!(published.is_err(), "call {nth}: it was said to be published"),
                }
            }
        }
    }
}

#[test]
fn system_file_is_published_or_absent() {
    let directory = tempfile::tempdir().unwrap();
    let new = directory.path().join("new");
    let counting = Faulty::counting(SystemFiles);
    publish(&counting, &new).unwrap();
    assert_eq!(publish(&SystemFiles, &new).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(SystemFiles.list(directory.path()).unwrap(), ["new"]);
    SystemFiles.remove(&new).unwrap();
    for nth in 0..counting.calls() {
        let published = publish(&Faulty::failing(SystemFiles, nth, Fault::Full), &new);
        assert_eq!(published.unwrap_err().raw_os_error(), Some(28), "call {nth}");
        let names = SystemFiles.list(directory.path()).unwrap();
        // The file exists only if just the sync of the directory failed, and is then complete.
        assert_eq!(names.len(), usize::from(nth + 1 == counting.calls()), "call {nth}: {names:?}");
        if !names.is_empty() {
            assert_eq!(std::fs::read(&new).unwrap(), [7; 5000]);
            SystemFiles.remove(&new).unwrap();
        }
    }
}

#[test]
fn unpublished_system_files_leave_nothing() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let entries = || SystemFiles.list(directory.path()).unwrap().len();
    for (name, named) in [("unnamed", false), ("named", true)] {
        let path = directory.path().join(name);
        let make = || {
            if named {
                Unpublished::named(&SystemFiles, &path, 7)
            } else {
                Unpublished::new(&SystemFiles, &path, 8)
            }
        };
        let before = entries();
        let new = make().unwrap();
        assert_eq!(entries(), before + usize::from(named));
        drop(new);
        assert_eq!(entries(), before);
        let (first, second) = (make().unwrap(), Unpublished::new(&SystemFiles, &path, 9).unwrap());
        first.publish().unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        let kind = |outcome: io::Result<()>| outcome.unwrap_err().kind();
        assert_eq!(kind(second.publish()), io::ErrorKind::AlreadyExists);
        assert_eq!(kind(Unpublished::new(&SystemFiles, &path, 1).map(drop)), io::ErrorKind::AlreadyExists);
    }
}
