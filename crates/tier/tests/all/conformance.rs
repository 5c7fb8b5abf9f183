//! Tests: files in a pool pass the suite of all file systems, and give everything back.

use std::path::{Path, PathBuf};
use terrace_conformance::files;
use terrace_medium::files::Files;
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_pool::{Geometry, Pool};
use terrace_tier::PoolFiles;

/// Runs the suite in one pool, and empties it.
fn conforms<M: MappedMedium>(pool: Pool<M>) {
    let place = PoolFiles::create(pool.clone(), Path::new("/top")).unwrap();
    let mut number = 0;
    files(&place, || {
        number += 1;
        let path = PathBuf::from(format!("/top/{number}"));
        place.create_directory(&path).unwrap();
        path
    });
    assert_eq!(place.check(), [] as [String; 0]);
    remove_all(&place, Path::new("/top"));
    pool.reclaim_blocking();
    // Chunks of names stay.
    assert!(place.reachable().iter().all(|(_, bytes)| *bytes == 512), "{:?}", place.reachable());
    let used: u64 = place.reachable().iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(pool.space().used_by_blocks, used);
    assert_eq!(pool.verify_memory(), []);
}

fn remove_all(files: &impl Files, directory: &Path) {
    for name in files.list(directory).unwrap() {
        let path = directory.join(name);
        if files.is_directory(&path).unwrap() {
            remove_all(files, &path);
            files.remove_directory(&path).unwrap();
        } else {
            files.remove(&path).unwrap();
        }
    }
}

#[test]
fn files_in_memory_conform() {
    conforms(Pool::<Dram>::anonymous(64 << 20).unwrap());
    conforms(Pool::<Shm>::anonymous(64 << 20).unwrap());
}

#[test]
fn files_in_persistent_memory_conform() {
    conforms(Pool::<Pmem>::anonymous(64 << 20).unwrap());
}

/// The largest extent that there is room for is small there.
#[test]
fn files_in_small_zones_conform() {
    let geometry = Geometry { thread_slots: 64, ..Geometry::tiny() };
    conforms(Pool::<Pmem>::anonymous_with(16 << 20, geometry).unwrap());
}
