//! Tests: files after a close, and after a process that was killed.

use std::io::ErrorKind;
use std::path::Path;
use terrace_medium::files::{Files, Purpose, Replace};
use terrace_medium::{MappedMedium, Pmem, Shm};
use terrace_pool::PoolOptions;
use terrace_tier::PoolFiles;

fn path(name: &str) -> std::path::PathBuf {
    Path::new("/t").join(name)
}

fn options(directory: &tempfile::TempDir) -> PoolOptions {
    PoolOptions::at(directory.path().join("pool")).size(16 << 20).assume_persistent(true)
}

fn fill<M: MappedMedium>(files: &PoolFiles<M>) {
    files.create_directory(&path("in")).unwrap();
    let file = files.create(&path("in/a")).unwrap();
    (0..40u8).for_each(|nth| file.write_all_at(&[nth; 30_000], 30_000 * u64::from(nth)).unwrap());
    files.create(&path("b")).unwrap().write_all_at(b"bytes", 0).unwrap();
    files.link(&path("b"), &path("in/c")).unwrap();
    files.rename(&path("b"), &path("d"), Replace::No).unwrap();
    // Open and without a name: it ends with the process.
    let lost = files.create(&path("lost")).unwrap();
    lost.write_all_at(&[9; 1 << 20], 0).unwrap();
    files.remove(&path("lost")).unwrap();
    std::mem::forget(lost);
}

fn check<M: MappedMedium>(files: &PoolFiles<M>) {
    assert_eq!(files.list(Path::new("/t")).unwrap(), ["d", "in"]);
    assert_eq!(files.list(&path("in")).unwrap(), ["a", "c"]);
    let file = files.open(&path("in/a"), Purpose::Read).unwrap();
    let mut bytes = vec![0; 1_200_000];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes.chunks(30_000).enumerate().all(|(nth, piece)| piece.iter().all(|&b| b == nth as u8)));
    files.open(&path("in/c"), Purpose::Write).unwrap().write_all_at(b"B", 0).unwrap();
    let mut bytes = [0; 5];
    files.open(&path("d"), Purpose::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, *b"Bytes");
    assert_eq!(files.check(), [] as [String; 0]);
    let used: u64 = files.reachable().iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(files.pool().space().used_by_blocks, used, "what no name leads to is free again");
}

fn lasts<M: MappedMedium>() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool = options(&directory).create::<M>().unwrap();
    let files = PoolFiles::create(pool.clone(), Path::new("/t")).unwrap();
    assert_eq!(
        PoolFiles::create(pool.clone(), Path::new("/t")).err().unwrap().kind(),
        ErrorKind::AlreadyExists
    );
    fill(&files);
    // As a process that is killed.
    std::mem::forget(files);
    std::mem::forget(pool);
    for _ in 0..2 {
        let copy = tempfile::tempdir_in("/dev/shm").unwrap();
        std::fs::copy(directory.path().join("pool"), copy.path().join("pool")).unwrap();
        let pool = options(&copy).open::<M>().unwrap();
        let files = PoolFiles::open(pool.clone(), Path::new("/t")).unwrap().expect("there are files");
        check(&files);
        drop(files);
        pool.close().unwrap();
        let pool = options(&copy).open::<M>().unwrap();
        let files = PoolFiles::open(pool, Path::new("/t")).unwrap().expect("there are files");
        check(&files);
    }
}

#[test]
fn files_outlive_a_killed_process() {
    lasts::<Shm>();
    lasts::<Pmem>();
}

#[test]
fn pool_without_files_has_none() {
    let pool = terrace_pool::Pool::<Shm>::anonymous(1 << 20).unwrap();
    assert!(PoolFiles::open(pool, Path::new("/t")).unwrap().is_none());
}

#[test]
fn read_only_pool_is_left_as_it_is() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let files = PoolFiles::create(options(&directory).create::<Shm>().unwrap(), Path::new("/t")).unwrap();
    files.create(&path("a")).unwrap().write_all_at(b"bytes", 0).unwrap();
    drop(files);
    let before = std::fs::read(directory.path().join("pool")).unwrap();
    let pool = options(&directory).read_only(true).open::<Shm>().unwrap();
    let files = PoolFiles::open(pool, Path::new("/t")).unwrap().unwrap();
    let refused =
        |done: std::io::Result<()>| assert_eq!(done.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    refused(files.create(&path("b")).map(drop));
    refused(files.remove(&path("a")));
    refused(files.rename(&path("a"), &path("b"), Replace::No));
    refused(files.open(&path("a"), Purpose::Write).map(drop));
    let mut bytes = [0; 5];
    files.open(&path("a"), Purpose::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((bytes, files.lock(&path("a")).unwrap().is_some()), (*b"bytes", true));
    drop(files);
    assert!(std::fs::read(directory.path().join("pool")).unwrap() == before);
}
