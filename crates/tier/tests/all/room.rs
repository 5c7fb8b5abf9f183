//! Tests: a pool that is full, or whose free memory is in small pieces.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use terrace_medium::files::{Files, Purpose};
use terrace_medium::{Dram, Pmem};
use terrace_pool::Pool;
use terrace_tier::PoolFiles;

fn path(name: &str) -> PathBuf {
    Path::new("/").join(name)
}

#[test]
fn full_pool_refuses_and_goes_on() {
    let pool = Pool::<Pmem>::anonymous(4 << 20).unwrap();
    let files = PoolFiles::create(pool, Path::new("/")).unwrap();
    let file = files.create(&path("large")).unwrap();
    file.write_all_at(&[1; 100_000], 0).unwrap();
    let refused = file.write_all_at(&[2; 8 << 20], 100_000).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StorageFull);
    assert!(refused.to_string().contains("the pool of 4194304 bytes has no room"), "{refused}");
    assert_eq!(file.length().unwrap(), 100_000);
    file.set_length(100_000).unwrap();
    let small = files.create(&path("small")).unwrap();
    small.write_all_at(&[3; 1 << 20], 0).unwrap();
    let mut bytes = vec![0; 100_000];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 1));
    assert_eq!(files.check(), [] as [String; 0]);
}

#[test]
fn names_need_room_as_well() {
    let files = PoolFiles::create(Pool::<Dram>::anonymous(1 << 20).unwrap(), Path::new("/")).unwrap();
    let mut count = 0;
    let error = loop {
        match files.create(&path(&count.to_string())) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(files.list(Path::new("/")).unwrap().len(), count);
    assert_eq!(files.check(), [] as [String; 0]);
    (0..count).for_each(|nth| files.remove(&path(&nth.to_string())).unwrap());
    files.pool().reclaim_blocking();
    files.create(&path("large")).unwrap().write_all_at(&[1; 500_000], 0).unwrap();
}

/// Every other file goes, so that no two free megabytes are neighbours.
#[test]
fn file_fits_into_scattered_pieces() {
    let files = PoolFiles::create(Pool::<Pmem>::anonymous(24 << 20).unwrap(), Path::new("/")).unwrap();
    let mut names = Vec::new();
    for nth in 0.. {
        let name = path(&nth.to_string());
        if files.create(&name).unwrap().write_all_at(&[nth as u8; 200_000], 0).is_err() {
            files.remove(&name).unwrap();
            break;
        }
        names.push(name);
    }
    names.iter().step_by(2).for_each(|name| files.remove(name).unwrap());
    files.pool().reclaim_blocking();
    let large = files.create(&path("large")).unwrap();
    let bytes: Vec<u8> = (0..8_000_000u32).map(|n| (n / 1000) as u8).collect();
    assert!(files.pool().space().largest_free_extent < bytes.len() as u64 / 2);
    large.write_all_at(&bytes, 0).unwrap();
    let mut back = vec![0; bytes.len()];
    large.read_exact_at(&mut back, 0).unwrap();
    assert!(back == bytes);
    assert_eq!(files.check(), [] as [String; 0]);
    for (nth, name) in names.iter().enumerate().skip(1).step_by(2) {
        let mut bytes = vec![0; 200_000];
        files.open(name, Purpose::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|&byte| byte == nth as u8), "{nth}");
    }
}

#[test]
fn removed_files_are_free_bytes() {
    let files = PoolFiles::create(Pool::<Dram>::anonymous(4 << 20).unwrap(), Path::new("/")).unwrap();
    let free = || files.free_bytes(Path::new("/")).unwrap();
    let before = free();
    // Many of them lie in slabs.
    let names: Vec<PathBuf> = (0..100).map(|nth| path(&nth.to_string())).collect();
    names.iter().for_each(|name| files.create(name).unwrap().write_all_at(&[1; 20_000], 0).unwrap());
    assert!(free() < before - 100 * 20_000);
    names.iter().step_by(2).for_each(|name| files.remove(name).unwrap());
    assert!(free() > before - 60 * 32_768, "{} of {before}", free());
    names.iter().skip(1).step_by(2).for_each(|name| files.remove(name).unwrap());
    assert!(free() > before - before / 10, "{} of {before}", free());
}
